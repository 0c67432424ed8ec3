//! Translation: what the tables decide about one packet, and every bit that this depended on.
//!
//! ```text
//! context     the agenda: visits, resubmits, clones, patch ports, bounds
//! actions     actions that write fields      vlan    actions that push and pop tags
//! output      outputs, floods, packet-ins    action_set
//! recorder    which bits and objects were consulted, visit by visit
//! commit      what the packet on the wire still lacks
//! ```
//!
//! The semantics are those of OpenFlow 1.3.5, 5.9 to 5.12; what it leaves open, and the Nicira
//! actions, are as Open vSwitch does them (`ovs-actions(7)`, `ofproto/trace`).

mod action_set;
mod actions;
mod commit;
mod context;
mod output;
mod recorder;
#[cfg(test)]
mod tests;
mod vlan;

pub(crate) use context::{packet, packet_out};
