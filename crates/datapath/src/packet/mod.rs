//! Packets of a thread: buffers, virtio headers, segmentation, header changes and rate limits.

pub(crate) mod buffer;
#[cfg(not(loom))]
pub(crate) mod change;
#[cfg(not(loom))]
pub(crate) mod meter;
#[cfg(not(loom))]
pub mod policer;
pub mod segment;
pub mod virtio;
