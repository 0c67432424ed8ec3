//! Oracles: engines that are slow and short, against which tests compare the others.
//!
//! No module of the product imports this one.

mod brute_force;
mod definition;

pub use brute_force::BruteForce;
pub use definition::Definition;
