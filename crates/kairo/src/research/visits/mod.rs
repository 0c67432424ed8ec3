//! The visits engine: the relation over visits in a circuit of dbsp.
//!
//! Visits, rules that came or went, and objects that changed are Z-sets: rows with weights, which
//! come as deltas. Evictions are the output. The join between them is an operator of our own, as
//! dbsp has none over regions: it keeps the [`RegionIndex`](crate::RegionIndex), the same that the
//! direct engine has. Tables, masks and rules are data, so that a circuit is built once.
//!
//! Rows are small, and refer to what does not change meanwhile: a visit by the slot of its entry and
//! its number there, a rule or an object by its place among the deltas of the step, evictions by their
//! places among those of the step: a row for each would be sorted, to no end. An entry that is
//! not watched any more is retracted, row by row, when there is nothing else to do.
//!
//! dbsp steps a circuit inside an async runtime of its own, so that the engine is not to be called
//! from within another one.
//!
//! A circuit that fails takes nobody with it: all entries are evicted, and another one is built.

mod circuit;
mod engine;
mod error;
mod relation;

pub use engine::Visits;
