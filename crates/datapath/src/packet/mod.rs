//! Packets of a thread: buffers, virtio headers, segmentation, header changes and meters.

pub(crate) mod buffer;
#[cfg(not(loom))]
pub(crate) mod change;
#[cfg(not(loom))]
pub(crate) mod meter;
pub mod segment;
pub mod virtio;
