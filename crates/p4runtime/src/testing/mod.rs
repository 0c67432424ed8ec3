//! A device that only remembers, and functions for fuzz targets.

mod device;
mod fuzz;

pub use device::{BROKEN_PROGRAM, Memory, MemoryDevice};
pub use fuzz::{fuzz_p4info, fuzz_write};
