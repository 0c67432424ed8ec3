//! Cost of rule changes in the eviction engine.
//!
//! The measured time is the CPU time of the engine from the deltas to the list of entries. Evicted
//! entries are translated and installed again before the next change, so every round starts with
//! the same entries.

mod engines;
pub(crate) mod every_engine;
#[cfg(feature = "dbsp")]
pub(crate) mod gates;
pub(crate) mod ltm_entries;
mod one_rule;
pub(crate) mod overhead;
mod patterns;
pub(crate) mod revalidation;
pub(crate) mod sizes;
mod workload;

pub(crate) use one_rule::run_part;
pub(crate) use patterns::run;
