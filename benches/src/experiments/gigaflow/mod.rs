//! Gigaflow experiments: hit rates of LTM entries, and their cost.
//!
//! Every packet is looked up in the real stages. Every miss goes through the real tables and is
//! installed, so the counts are the counts of the switch. Published values are shown if they exist.
//! The rules and packets of published values are not public, so published values show a trend only.
//! Counts never vary, so one round is enough; times need several rounds.

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
