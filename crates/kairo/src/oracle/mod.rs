//! Oracles: slow and short engines, with which tests compare the other engines.
//!
//! No module of the product imports this module.

mod brute_force;
mod definition;

pub use brute_force::BruteForce;
pub use definition::Definition;
