//! Offload devices in memory: one that checks its owner, and one that misbehaves.

mod chaos;
mod software_device;

pub use chaos::{Chaos, ChaosSettings};
pub use software_device::{SoftwareDevice, SoftwareEntry};
