//! The operations that both layouts of virtqueues have.

use std::sync::Arc;

use super::{
    chains::{ChainList, Direction},
    packed_ring::PackedRing,
    split_ring::SplitRing,
};
use crate::{
    error::RingError,
    features::VirtioFeatures,
    memory::{GuestMemory, GuestRange},
    message::VringAddress,
};

/// A virtqueue with one of the two layouts.
///
/// Code that moves frames is generic over [`VirtqueueLayout`], so a burst asks once for the layout.
#[derive(Debug)]
pub(crate) enum Virtqueue {
    Split(SplitRing),
    /// The packed layout (`VIRTIO_F_RING_PACKED`).
    Packed(PackedRing),
}

/// The settings of a queue, which the front-end has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSettings {
    pub(crate) address: VringAddress,
    /// Number of descriptors of the queue.
    pub(crate) size: u32,
    pub(crate) direction: Direction,
    pub(crate) features: VirtioFeatures,
    /// The position of an earlier back-end, which the front-end stored.
    pub(crate) base: u32,
}

impl Virtqueue {
    /// Opens a queue where an earlier back-end stopped.
    ///
    /// # Errors
    ///
    /// If a part of the queue is not in the memory of the guest, or not aligned.
    pub(crate) fn new(
        memory: Arc<GuestMemory>,
        settings: QueueSettings,
    ) -> Result<Self, RingError> {
        if settings.features.contains(VirtioFeatures::RING_PACKED) {
            PackedRing::new(memory, settings).map(Self::Packed)
        } else {
            SplitRing::new(memory, settings).map(Self::Split)
        }
    }

    /// Returns the position for a later back-end, as `GET_VRING_BASE` has it.
    pub(crate) fn base(&self) -> u32 {
        match self {
            Self::Split(ring) => ring.base(),
            Self::Packed(ring) => ring.base(),
        }
    }

    /// Publishes the returned chains; returns whether to notify the guest.
    pub(crate) fn publish(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.publish(),
            Self::Packed(ring) => ring.publish(),
        }
    }

    /// Requests a kick from the guest for the next chain that it offers.
    ///
    /// Returns whether the guest has offered a chain already.
    ///
    /// # Errors
    ///
    /// If the guest broke a rule.
    pub(crate) fn request_kick(&mut self) -> Result<bool, RingError> {
        match self {
            Self::Split(ring) => ring.request_kick(),
            Self::Packed(ring) => Ok(ring.request_kick()),
        }
    }

    /// Suppresses kicks of the guest, because the device polls.
    pub(crate) fn suppress_kicks(&mut self) {
        match self {
            Self::Split(ring) => ring.suppress_kicks(),
            Self::Packed(ring) => ring.suppress_kicks(),
        }
    }
}

/// A layout of virtqueues.
///
/// A device takes chains from the front of the queue, and returns them in the same order. The
/// device holds no chain between two calls.
pub(crate) trait VirtqueueLayout {
    /// Returns the chains that were read.
    fn chains(&self) -> &ChainList;

    /// Returns the chains that were read, to add or return some.
    fn chains_mut(&mut self) -> &mut ChainList;

    /// Returns the number of descriptors of the queue.
    fn size(&self) -> u16;

    /// Reads the next chain after the chains that were already read.
    ///
    /// Returns whether the guest has offered a further chain.
    ///
    /// # Errors
    ///
    /// If the guest broke a rule.
    fn read_next(&mut self, direction: Direction) -> Result<bool, RingError>;

    /// Returns the next `chains` chains to the guest, with the written bytes in them.
    ///
    /// The chains have one frame. The guest sees the chains after [`Self::publish`].
    fn put_used(&mut self, chains: u16, written: usize);

    /// Publishes the returned chains; returns whether to notify the guest.
    fn publish(&mut self) -> bool;

    /// Reads the descriptors of at most `count` chains ahead.
    ///
    /// Prefetches the buffers, and drops the chains that were read before. A broken rule is
    /// reported when the chain that breaks it is used. `length` is the expected length of a frame
    /// to the guest.
    ///
    /// Returns whether these are all chains that the guest has offered.
    #[inline]
    fn read_ahead(&mut self, count: usize, direction: Direction, length: usize) -> bool {
        self.chains_mut().forget();
        while self.chains().may_read_ahead(count) {
            match self.read_next(direction) {
                Ok(true) => self.chains().prefetch_last(direction, length),
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        false
    }

    /// Begins a frame at the first chain that is not returned.
    #[inline]
    fn begin_frame(&mut self) {
        self.chains_mut().begin_frame();
    }

    /// Returns the length in bytes of a chain, by its position after returned chains.
    ///
    /// The result is `None` if the guest has offered no such chain.
    ///
    /// # Errors
    ///
    /// If the guest broke a rule.
    #[inline]
    fn chain_length(
        &mut self,
        position: usize,
        direction: Direction,
    ) -> Result<Option<usize>, RingError> {
        loop {
            if let Some(length) = self.chains().length(position) {
                return Ok(Some(length));
            }
            if !self.read_next(direction)? {
                return Ok(None);
            }
        }
    }
}

/// Returns the memory of a part of a queue: its descriptors, or one of its rings.
///
/// `address` is an address in the front-end.
///
/// # Errors
///
/// If the part is not in the memory of the guest, or not aligned.
pub(super) fn queue_part(
    memory: &GuestMemory,
    part: &'static str,
    address: u64,
    length: usize,
    alignment: usize,
) -> Result<GuestRange, RingError> {
    let range = memory.find_user(address, length).ok_or(RingError::Unmapped { part, address })?;
    let is_aligned = memory.is_aligned(range, alignment);
    is_aligned.then_some(range).ok_or(RingError::Misaligned { part, address })
}
