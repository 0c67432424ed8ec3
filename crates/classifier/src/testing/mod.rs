//! Generators for tests and benches: small tables with their operations, and large tables.

mod life;
pub mod workload;

pub use life::{TableOp, key, matching, noise, ops, priority};
