//! An in-memory device, and fuzz targets.

mod device;
mod fuzz;

pub use device::{BROKEN_PROGRAM, DeviceMemory, MemoryDevice};
pub use fuzz::{fuzz_p4info, fuzz_write};
