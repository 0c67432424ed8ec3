//! The hot functions alone: extraction, a hit in each cache, translation, a miss that is cut.
//!
//! They are called by the criterion bench `kernels` of `shunt-benches`, by the program `kernels`, whose
//! times compare two builds, and by the test `icount`, which counts their instructions. That test is
//! part of the gate and needs an optimised build, so this crate uses what the kernels call and
//! nothing else: no gRPC, no OpenFlow, no async runtime.
//!
//! ```
//! let kernel = shunt_kernels::KERNELS.iter().find(|kernel| kernel.name == "extract").unwrap();
//! let mut call = (kernel.make)();
//! call();
//! ```

#![expect(clippy::panic, reason = "a kernel whose rules are not legal says why and stops")]

pub mod case;
pub mod cpu;
pub mod frame;
mod kernel;

pub use kernel::{KERNELS, Kernel};
