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
//! The thread that makes a change steps its own circuit, without the scheduler of dbsp
//! ([`circuit`]). The Z-sets of most steps are those of earlier steps ([`z_sets`]).
//!
//! The fault of a circuit affects no other engine: all entries of the engine are evicted, and the
//! next step builds a new circuit.

mod circuit;
mod engine;
mod error;
mod relation;
mod z_sets;

pub use engine::Visits;
