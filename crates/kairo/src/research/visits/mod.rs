//! The visits engine: the relation over visits in a circuit of dbsp.
//!
//! Entries with their visits, changed rules and changed objects are Z-sets: rows with weights, which
//! arrive as deltas. Evictions are the output. The join of visits with changes is an operator of
//! this module, because dbsp has no join over regions. The operator keeps a
//! [`RegionIndex`](crate::RegionIndex), as the direct engine does. Tables, masks and rules are data,
//! so the circuit is built once.
//!
//! Rows are small, and refer to data that does not change during a step. An entry has one row for
//! all its visits, because they are added and retracted together. The row is the slot of the entry.
//! The row of a rule or an object has its position in the change. An install is a step. The row of a
//! retired entry is retracted when there is no other work.
//!
//! The thread that makes a change steps its own circuit, without the scheduler of dbsp
//! ([`circuit`]). The lists of the rows and the list of evictions are used again by later steps.
//!
//! The fault of a circuit affects no other engine: all entries of the engine are evicted, and the
//! next step builds a new circuit.

mod circuit;
mod engine;
mod error;
mod relation;

pub use engine::Visits;
