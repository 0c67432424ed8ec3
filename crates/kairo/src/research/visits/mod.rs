//! The visits engine: the relation over visits in a circuit of dbsp.
//!
//! Visits, changed rules and changed objects are Z-sets: rows with weights, which arrive as deltas.
//! Evictions are the output. The join of visits with changes is an operator of this module, because
//! dbsp has no join over regions. The operator keeps a [`RegionIndex`](crate::RegionIndex), as the
//! direct engine does. Tables, masks and rules are data, so the circuit is built once.
//!
//! Rows are small, and refer to data that does not change during a step. The row of a visit has the
//! slot of its entry and the number of the visit in it. The row of a rule or an object has its
//! position in the change. The output has ranges of the list of evicted entries, because dbsp would
//! sort single rows of entries, which is not needed. The rows of a retired entry are retracted when
//! there is no other work.
//!
//! dbsp steps a circuit inside its own async runtime, so the engine must not be called from inside
//! another runtime.
//!
//! The fault of a circuit affects no other thread: all its entries are evicted, and a new circuit
//! is built.

mod circuit;
mod engine;
mod error;
mod relation;

pub use engine::Visits;
