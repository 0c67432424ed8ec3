//! Translation: what the tables decide about one packet, and every bit that this depended on.
//!
//! ```text
//! context     the agenda: visits, resubmits, clones, patch ports, bounds
//! conjunction lookups, and the conjunctions that they meet
//! actions     actions that write fields      vlan    actions that push and pop tags
//! mpls        actions on labels              stack   push and pop of values
//! output      outputs, floods, packet-ins    action_set
//! normal      the learning switch
//! groups      groups and meters              hash    which fields choose
//! multipath   links by a hash                bundle  ports by a hash
//! cut         where a translation ends for the packet to be parsed again
//! piece       where it is cut for its pieces to be cached apart; in compose, pieces that are known
//! recorder    which bits and objects were consulted, visit by visit; in bits, masks that grow; in reads,
//!             the objects
//! learn       what the packet learns        fin     timeouts after a FIN
//! commit      what the packet on the wire still lacks
//! ```
//!
//! The semantics are those of OpenFlow 1.3.5, 5.9 to 5.12; what it leaves open, and the Nicira
//! actions, are as Open vSwitch does them (`ovs-actions(7)`, `ofproto/trace`).

mod action_set;
mod actions;
mod bits;
mod bundle;
#[cfg(test)]
mod call_sites;
mod commit;
mod compose;
mod conjunction;
mod context;
mod cut;
#[cfg(test)]
mod depth_tests;
mod fin;
mod groups;
mod hash;
#[cfg(test)]
mod laws;
mod learn;
mod mpls;
mod multipath;
mod normal;
mod output;
mod pause;
mod piece;
#[cfg(test)]
mod piece_tests;
mod reads;
mod recorder;
mod scope;
mod stack;
#[cfg(test)]
mod tests;
mod vlan;

pub(crate) use compose::Tail;
pub(crate) use context::{Tables, packet, packet_out, resume};
pub(crate) use cut::Spent;
pub(crate) use piece::{noted_piece, noting, one_piece, pieces};
pub(crate) use scope::Scope;
pub(crate) use stack::Stack;
