//! The hot functions alone: extraction, a hit in each cache, translation, a miss that is
//! partitioned.
//!
//! Three callers use the kernels: the criterion bench `kernels` of `shunt-benches`; the program
//! `kernels`, which compares two builds; and the test `icount`, which counts instructions. That
//! test is part of the gate and needs an optimised build. So this crate depends only on the code
//! that the kernels call: no gRPC, no OpenFlow, no async runtime.
//!
//! ```
//! let kernel = shunt_kernels::KERNELS.iter().find(|kernel| kernel.name == "extract").unwrap();
//! let mut call = (kernel.make)();
//! call();
//! ```

#![expect(clippy::panic, reason = "a kernel with invalid rules panics with the reason")]

pub mod case;
pub mod cpu;
pub mod frame;
mod kernel;

pub use kernel::{KERNELS, Kernel};
