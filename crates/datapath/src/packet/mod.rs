//! Packets of a thread: buffers, virtio headers, segmentation, header changes and rate limits.

pub(crate) mod buffer;
#[cfg(not(loom))]
pub(crate) mod change;
#[cfg(not(loom))]
pub mod egress_policer;
#[cfg(not(loom))]
pub mod ingress_policer;
#[cfg(not(loom))]
pub(crate) mod meter;
pub mod segment;
pub mod virtio;
