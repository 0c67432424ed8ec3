//! What tests and benches share: lives of small tables, and tables as large as a switch holds.

mod life;
pub mod workload;

pub use life::{TableOp, key, matching, noise, ops, priority};
