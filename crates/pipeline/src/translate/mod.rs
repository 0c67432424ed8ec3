//! Translation: the decisions of the tables about one packet, and every bit that they depend on.
//!
//! ```text
//! translation      the parts of a translation, and the loop that runs its agenda
//! agenda           the steps that are still to do
//! working_packet   the packet: key, consulted bits, emitted actions
//! bridge_view      the bridge that the packet is in, at one version
//! limits           bounds of depth, lookups and recirculations
//! lookup           table lookups and conjunctions
//! groups           groups and meters
//! actions          one file for each family of actions
//! rule_context     the rule of the running actions, as packet-ins show it
//! action_builder   datapath actions that bring the packet on the wire up to the key
//! learn_requests   rules and MAC addresses to learn, and refreshes
//! recirculation    where a packet is parsed again; pause: where it waits for a controller
//! partition        where a cache partitions a traversal into sub-traversals
//! record           the bits and objects that were consulted, visit by visit
//! ```
//!
//! The semantics are those of OpenFlow 1.3.5, 5.9 to 5.12. Where it leaves something open, and for the
//! Nicira actions, they are those of Open vSwitch (`ovs-actions(7)`, `ofproto/trace`).

mod action_builder;
mod actions;
mod agenda;
mod bridge_view;
mod groups;
mod learn_requests;
mod limits;
mod lookup;
mod partition;
mod pause;
mod recirculation;
mod record;
mod rule_context;
#[cfg(test)]
mod tests;
mod translation;
mod working_packet;

pub(crate) use actions::stack::Stack;
pub(crate) use bridge_view::TablesAtVersion;
pub(crate) use limits::LimitCounters;
pub(crate) use partition::{
    compose::TraversalTail,
    partitioner::{noted_sub_traversal, sub_traversal_until, sub_traversals, translate_noted},
};
pub(crate) use rule_context::RuleContext;
pub(crate) use translation::{packet, packet_out, resume};
