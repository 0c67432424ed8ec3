//! Slow and obvious judges, and what they judge on.

pub mod brute;
pub mod ways;

mod chaos;
mod soft_target;

pub use chaos::{Chaos, ChaosSettings};
pub use soft_target::{SoftEntry, SoftTarget};

pub mod model;
pub mod workload;
