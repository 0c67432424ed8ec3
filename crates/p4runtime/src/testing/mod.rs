//! A device that only remembers, a target that misbehaves, and functions for fuzz targets.

mod chaos;
mod device;
mod fuzz;

pub use chaos::{Chaos, ChaosSettings};
pub use device::{BROKEN_PROGRAM, Memory, MemoryDevice};
pub use fuzz::{fuzz_p4info, fuzz_write};
