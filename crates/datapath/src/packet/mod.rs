//! Packets of a thread: buffers, descriptors of unfinished work, segmentation, and what actions change.

pub(crate) mod buffer;
#[cfg(not(loom))]
pub(crate) mod change;
#[cfg(not(loom))]
pub(crate) mod meter;
pub mod segment;
pub mod virtio;
