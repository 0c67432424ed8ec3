//! The visits engine: the relation over visits in a circuit of dbsp.
//!
//! Visits, changed rules and changed objects are Z-sets: rows with weights, which arrive as deltas.
//! Evictions are the output. The join between them is our own operator, because dbsp has none over
//! regions. It keeps the [`RegionIndex`](crate::RegionIndex), as the direct engine does. Tables,
//! masks and rules are data, so the circuit is built once.
//!
//! Rows are small, and refer to data that does not change during a step. A visit is the slot of its
//! entry and its number there. A rule or an object is its position in the change. Evictions are a
//! range of the entries evicted in the step, because dbsp would sort a row per entry for nothing. A
//! retired entry is retracted, row by row, when there is no other work.
//!
//! dbsp steps a circuit inside its own async runtime, so the engine must not be called from within
//! another one.
//!
//! A circuit that fails affects no other thread: all its entries are evicted, and a new one is
//! built.

mod circuit;
mod engine;
mod error;
mod relation;

pub use engine::Visits;
