//! Pieces of traversals, measured: how often packets hit, and what it costs that they do.
//!
//! Every packet is looked up in the real stages, every miss goes through the real tables and is
//! installed, so what is counted is what the switch would count. The published figures stand beside
//! ours where there are any: those are of rules and packets that nobody has, so they say which way it
//! goes, and no more. What is counted is the same each time, so one round says it all; what is timed
//! takes several.

pub(crate) mod arrival;
pub(crate) mod cores;
pub(crate) mod costs;
pub(crate) mod forwarding;
pub(crate) mod hits;
pub(crate) mod liveness;
mod means;
pub(crate) mod packets;
pub(crate) mod policies;
pub(crate) mod replay;
pub(crate) mod settled;
pub(crate) mod stages;
