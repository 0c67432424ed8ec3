//! DPDK for ports: a small C shim over libdpdk, and a safe interface to the shim.
//!
//! [DPDK](https://doc.dpdk.org) drives network cards from user space. This crate starts DPDK once
//! in a process (`Eal`), attaches devices by their devargs (`DpdkDevice`), and receives and sends
//! bursts of frames (`DpdkReceiver`, `DpdkSender`). The crate copies frames between buffers of DPDK
//! and buffers of the caller, so no pointer to a buffer of DPDK leaves the crate.
//!
//! Only `c/shim.c` depends on DPDK's structures; it is compiled against the installed headers. So
//! the crate works with each release from 22.11 on, and needs no generated bindings.
//!
//! Without the feature `dpdk` the crate has only the options and errors, and needs no libdpdk.
//!
//! Source: DPDK Programmer's Guide, "Environment Abstraction Layer", "Mbuf Library" and "Poll Mode Driver".

mod error;
mod huge_pages;
mod options;
mod state;

#[cfg(feature = "dpdk")]
mod buffer_pool;
#[cfg(feature = "dpdk")]
mod device;
#[cfg(feature = "dpdk")]
mod eal;
#[cfg(feature = "dpdk")]
mod log;
#[cfg(feature = "dpdk")]
mod queue;
#[cfg(feature = "dpdk")]
mod shim;

pub use error::DpdkError;
pub use huge_pages::{HugePageSize, huge_page_sizes};
pub use options::{EalOptions, HugePages, device_name};
pub use state::DpdkState;

#[cfg(feature = "dpdk")]
pub use device::{DeviceCounters, DeviceLimits, DeviceSettings, DpdkDevice, DpdkQueues};
#[cfg(feature = "dpdk")]
pub use eal::{Eal, version};
#[cfg(feature = "dpdk")]
pub use queue::{
    BURST_MAX, BurstEnd, DpdkReceiver, DpdkSender, FrameChecksum, FrameOffload, FrameSegments,
    ReceivedFrames, Transport,
};
