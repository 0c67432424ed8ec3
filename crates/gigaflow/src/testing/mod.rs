//! Test support: slow and simple oracles, generators, and devices that misbehave.

pub mod brute;
pub mod plain;

mod chaos;
mod software_device;

pub use chaos::{Chaos, ChaosSettings};
pub use software_device::{SoftEntry, SoftwareDevice};

pub mod model;
pub mod workload;
