//! Translation: the decisions of the tables about one packet, and every bit that they depend on.
//!
//! ```text
//! entry            the entry points, and the traversal that each returns
//! decide           decisions about single packets, without a record
//! translation      the parts of a translation, and the loop that runs its agenda
//! translated_packet  its results, and the hits of one that is not recorded
//! agenda           the steps that are still to do
//! nesting          clones, buckets and peer bridges: steps on a copy of the packet
//! working_packet   the packet: key, consulted bits, emitted actions
//! action_state     the bridge, the rule, the action set and the stack of the running actions
//! bridge_view      the bridge that the packet is in, at one version
//! rule_context     the rule of the running actions, as packet-ins show it
//! limits           bounds of depth, lookups, actions and recirculations
//! lookup           table lookups and conjunctions
//! actions          one file for each family of actions
//! learn_requests   rules and MAC addresses to learn, and refreshes
//! recirculation    where a packet is parsed again; pause: where it waits for a controller
//! partition        where a cache partitions a traversal into sub-traversals
//! record           the bits and objects that were consulted, visit by visit
//! ```
//!
//! The semantics follow OpenFlow 1.3.5, 5.9 to 5.12. Where the standard leaves a choice, and
//! for the Nicira actions, the semantics follow Open vSwitch (`ovs-actions(7)`,
//! `ofproto/trace`).

mod action_state;
mod actions;
mod agenda;
mod bridge_view;
pub(crate) mod decide;
mod entry;
mod learn_requests;
mod limits;
mod lookup;
mod nesting;
mod partition;
mod pause;
mod recirculation;
mod record;
mod rule_context;
#[cfg(test)]
mod tests;
mod translated_packet;
mod translation;
mod working_packet;

pub(crate) use actions::stack::Stack;
pub(crate) use bridge_view::TablesAtVersion;
pub(crate) use decide::TranslationBuffers;
pub(crate) use entry::{explained, packet, packet_out, resume};
pub(crate) use limits::LimitCounters;
pub(crate) use partition::{
    compose::TraversalTail,
    sub_traversals::{noted_sub_traversal, sub_traversal_until, sub_traversals, translate_noted},
};
pub(crate) use rule_context::RuleContext;
