//! What a change of rules costs the eviction engine.
//!
//! What is timed is the engine's own CPU, from the deltas to the list of entries. What was evicted is
//! translated and installed again before the next change, so that every round begins with the same
//! entries.

mod engines;
pub(crate) mod every_engine;
#[cfg(feature = "dbsp")]
pub(crate) mod gates;
mod one_rule;
pub(crate) mod overhead;
mod patterns;
pub(crate) mod pieces;
pub(crate) mod revalidation;
mod scene;
pub(crate) mod sizes;

pub(crate) use one_rule::run_part;
pub(crate) use patterns::run;
