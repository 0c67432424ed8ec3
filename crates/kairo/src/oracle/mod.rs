//! Oracles: slow and short engines that tests compare the others with.
//!
//! No module of the product imports this one.

mod brute_force;
mod definition;

pub use brute_force::BruteForce;
pub use definition::Definition;
