//! Packet classification over flow masks: the contract, tuple space search, the oracle.

mod contract;
mod version;

pub use contract::{Classifier, Priority, Rank};
pub use version::{Lifetime, Version};
