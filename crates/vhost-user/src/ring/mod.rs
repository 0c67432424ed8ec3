//! Virtqueues of both layouts, from the side of the device.

mod chains;
mod descriptor_ring;
mod packed_ring;
mod ring_position;
mod split_ring;
mod virtqueue;

pub(crate) use chains::Direction;
pub(crate) use virtqueue::{QueueSettings, Virtqueue, VirtqueueLayout};
