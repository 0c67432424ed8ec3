//! Chains of descriptors that were read from a virtqueue, and the bytes of their buffers.
//!
//! **Bursts are read ahead.** The memory of a guest is in the caches of another processor. So the
//! device reads the descriptors of a whole burst first and prefetches their buffers, so that the
//! memory accesses of many buffers overlap.
//!
//! **Nothing of the guest is trusted.** Each descriptor is copied once, and only the copy is
//! checked and used. The size of the queue limits the length of a chain, as the standard requires.
//! A guest that breaks a rule gets a [`RingError`], and the caller stops the queue.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::sync::Arc;

use crate::{
    error::RingError,
    features::VirtioFeatures,
    memory::{GuestMemory, GuestRange},
};

/// Chains that were read, in order.
#[derive(Debug)]
pub(crate) struct ChainList {
    memory: Arc<GuestMemory>,
    has_indirect: bool,
    /// The first `returned` chains are returned.
    chains: Vec<DescriptorChain>,
    returned: usize,
    /// The parts of the buffers of `chains`.
    parts: Vec<GuestRange>,
    /// Number of descriptors and parts that were read for the current frame.
    steps: usize,
}

/// A chain of descriptors: one buffer of the guest, in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorChain {
    pub(super) head: ChainHead,
    /// Index of the first part in `parts`; `end` is the index after the last part.
    first: usize,
    end: usize,
}

/// The id and the size of a chain of descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainHead {
    /// The number by which the guest identifies the chain.
    pub(super) id: u16,
    /// Number of descriptors in the ring; those of an indirect table are not counted.
    pub(super) descriptors: u16,
    /// Length of all parts, in bytes.
    pub(super) length: usize,
}

/// The direction of the data in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The guest sends: the device reads the buffer.
    FromGuest,
    /// The guest receives: the device writes the buffer.
    ToGuest,
}

/// A copy of a descriptor.
#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) flags: u16,
    /// The next descriptor of the chain.
    ///
    /// In a packed ring, the number of the chain.
    pub(super) link: u16,
}

impl Descriptor {
    pub(super) const BYTES: usize = 16;
    /// The flag of a descriptor with a successor in its chain.
    pub(super) const NEXT: u16 = 1;
    /// The flag of a buffer that the device writes.
    pub(super) const WRITE: u16 = 2;
    /// The flag of a table of descriptors.
    pub(super) const INDIRECT: u16 = 4;

    /// Returns whether the descriptor has a flag.
    pub(super) const fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A table of descriptors, in the memory of the guest.
#[derive(Clone, Copy)]
pub(super) struct DescriptorTable {
    pub(super) range: GuestRange,
    pub(super) size: u16,
}

impl DescriptorTable {
    /// Returns the bytes of a descriptor.
    pub(super) fn descriptor(
        self,
        memory: &GuestMemory,
        index: u16,
    ) -> Result<[u8; Descriptor::BYTES], RingError> {
        let missing = RingError::NoDescriptor { index, size: self.size };
        if index >= self.size {
            return Err(missing);
        }
        let mut bytes = [0; Descriptor::BYTES];
        let offset = usize::from(index).saturating_mul(Descriptor::BYTES);
        memory.read(self.range, offset, &mut bytes).then_some(bytes).ok_or(missing)
    }
}

impl ChainList {
    /// The maximum sum of the numbers of descriptors and parts of a frame.
    ///
    /// The sum limits the time that a guest can cost, as descriptors can be empty. A frame of 64
    /// KiB in buffers of 64 bytes takes 2050, and memory regions may divide a few buffers.
    const STEPS_MAX: usize = 2560;

    /// The number of parts after which no chain is read ahead.
    ///
    /// The number limits the memory of a queue, and exceeds the parts in a burst of a usual guest.
    const AHEAD_MAX: usize = 128;

    /// The maximum number of bytes of a buffer that are prefetched.
    ///
    /// The processor itself continues in longer buffers, and a burst fits into the first cache.
    const PREFETCHED_MAX: usize = 640;

    /// Returns an empty list of chains in the memory of a guest.
    pub(super) fn new(memory: Arc<GuestMemory>, features: VirtioFeatures) -> Self {
        Self {
            memory,
            has_indirect: features.contains(VirtioFeatures::INDIRECT_DESC),
            chains: Vec::with_capacity(Self::AHEAD_MAX),
            returned: 0,
            parts: Vec::with_capacity(2 * Self::AHEAD_MAX),
            steps: 0,
        }
    }

    /// Returns the memory of the guest.
    #[inline]
    pub(super) fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Drops all chains that were read.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.chains.clear();
        self.parts.clear();
        (self.returned, self.steps) = (0, 0);
    }

    /// Begins a frame at the first chain that is not returned.
    #[inline]
    pub(super) fn begin_frame(&mut self) {
        if self.returned == self.chains.len() {
            self.forget();
        }
        self.steps = 0;
    }

    /// Returns whether another chain is read ahead, of `count` chains.
    #[inline]
    pub(super) fn may_read_ahead(&self, count: usize) -> bool {
        self.chains.len() < count && self.parts.len() < Self::AHEAD_MAX
    }

    /// Prefetches the first part of the last chain.
    #[inline]
    pub(super) fn prefetch_last(&self, direction: Direction, length: usize) {
        let part = self.chains.last().and_then(|chain| self.parts.get(chain.first));
        let Some(part) = part else { return };
        match direction {
            Direction::FromGuest => self.memory.prefetch_to_read(*part, Self::PREFETCHED_MAX),
            Direction::ToGuest => {
                self.memory.prefetch_to_write(*part, length.min(Self::PREFETCHED_MAX));
            }
        }
    }

    /// Returns the number of chains that were read and not returned.
    #[inline]
    pub(crate) fn unreturned(&self) -> usize {
        self.chains.len().saturating_sub(self.returned)
    }

    /// Returns the length in bytes of a chain, by its position after returned chains.
    #[inline]
    pub(super) fn length(&self, position: usize) -> Option<usize> {
        let chain = self.chains.get(self.returned.saturating_add(position))?;
        Some(chain.head.length)
    }

    /// Adds the chain that `read` reads.
    #[inline]
    pub(super) fn add(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<ChainHead, RingError>,
    ) -> Result<ChainHead, RingError> {
        let first = self.parts.len();
        let head = read(self).inspect_err(|_| self.parts.truncate(first))?;
        self.chains.push(DescriptorChain { head, first, end: self.parts.len() });
        Ok(head)
    }

    /// Counts a descriptor or a part of the frame; fails at the maximum.
    #[inline]
    pub(super) fn step(&mut self, queue_size: u16) -> Result<(), RingError> {
        self.steps = self.steps.saturating_add(1);
        let is_short = self.steps <= Self::STEPS_MAX;
        is_short.then_some(()).ok_or(RingError::LongChain(queue_size))
    }

    /// Adds the parts of a buffer; returns its length.
    ///
    /// The buffer may span adjacent memory regions.
    #[inline]
    pub(super) fn add_buffer(
        &mut self,
        descriptor: Descriptor,
        direction: Direction,
        queue_size: u16,
    ) -> Result<usize, RingError> {
        if descriptor.has(Descriptor::WRITE) != (direction == Direction::ToGuest) {
            return Err(RingError::Direction);
        }
        let Descriptor { mut address, length, .. } = descriptor;
        let mut left = length as usize;
        while left > 0 {
            let outside = RingError::Buffer { address: descriptor.address, length };
            let range = self.memory.find(address, left).ok_or(outside)?;
            self.step(queue_size)?;
            self.parts.push(range);
            left = left.saturating_sub(range.len());
            address = address.saturating_add(range.len() as u64);
        }
        Ok(length as usize)
    }

    /// Returns the table to which an indirect descriptor refers.
    pub(super) fn indirect_table(
        &self,
        descriptor: Descriptor,
    ) -> Result<DescriptorTable, RingError> {
        if !self.has_indirect {
            return Err(RingError::IndirectRefused);
        }
        let Descriptor { address, length, .. } = descriptor;
        let bytes = length as usize;
        let is_whole = bytes.is_multiple_of(Descriptor::BYTES)
            && bytes > 0
            && !descriptor.has(Descriptor::NEXT);
        let size = u16::try_from(bytes / Descriptor::BYTES).ok().filter(|_| is_whole);
        let size = size.ok_or(RingError::IndirectTable(length))?;
        let range = self.memory.find(address, bytes).filter(|range| range.len() == bytes);
        let range = range.ok_or(RingError::Buffer { address, length })?;
        Ok(DescriptorTable { range, size })
    }

    /// Takes the next chain to return, and the number of bytes written to it.
    ///
    /// `left` is the number of written bytes in this chain and in those after it. A chain may be longer
    /// than the 4 GiB that a guest can be told.
    #[inline]
    pub(super) fn return_next(&mut self, left: &mut usize) -> Option<(ChainHead, u32)> {
        let head = self.chains.get(self.returned)?.head;
        self.returned = self.returned.saturating_add(1);
        let written = head.length.min(*left);
        *left = left.saturating_sub(written);
        Some((head, u32::try_from(written).unwrap_or(u32::MAX)))
    }

    /// Returns the parts of the next `chains` chains.
    #[inline]
    fn parts_of(&self, chains: usize) -> &[GuestRange] {
        let last = self.returned.saturating_add(chains).checked_sub(1);
        let chain = |position: usize| self.chains.get(position);
        let range = chain(self.returned).zip(last.and_then(chain));
        let parts = range.and_then(|(first, last)| self.parts.get(first.first..last.end));
        parts.unwrap_or_default()
    }

    /// Copies bytes out of the next chain, from an offset on.
    #[inline]
    pub(crate) fn copy_out(&self, mut skip: usize, mut to: &mut [u8]) {
        for part in self.parts_of(1) {
            if let Some(rest) = skip.checked_sub(part.len()) {
                skip = rest;
                continue;
            }
            let count = part.len().saturating_sub(skip).min(to.len());
            let (front, rest) = to.split_at_mut(count);
            let is_read = self.memory.read(*part, skip, front);
            debug_assert!(is_read, "a part is a range of this memory");
            (to, skip) = (rest, 0);
            if to.is_empty() {
                break;
            }
        }
    }

    /// Copies the first bytes out of the next chain.
    #[inline]
    pub(crate) fn copy_first_out<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        // The first part nearly always has them all, and a copy of a constant length is short.
        if !self.parts_of(1).first().is_some_and(|part| self.memory.read(*part, 0, &mut bytes)) {
            self.copy_out(0, &mut bytes);
        }
        bytes
    }

    /// Copies bytes to the front of the next `chains` chains.
    #[inline]
    pub(crate) fn copy_first_in<const N: usize>(&self, chains: usize, bytes: [u8; N]) {
        let mut parts = self.parts_of(chains).iter();
        if !parts.next().is_some_and(|part| self.memory.write(*part, 0, &bytes)) {
            self.copy_in(chains, 0, &bytes);
        }
    }

    /// Copies bytes into the next `chains` chains, from an offset on.
    #[inline]
    pub(crate) fn copy_in(&self, chains: usize, mut skip: usize, mut from: &[u8]) {
        for part in self.parts_of(chains) {
            if let Some(rest) = skip.checked_sub(part.len()) {
                skip = rest;
                continue;
            }
            let count = part.len().saturating_sub(skip).min(from.len());
            let (front, rest) = from.split_at(count);
            let is_written = self.memory.write(*part, skip, front);
            debug_assert!(is_written, "a part is a range of this memory");
            (from, skip) = (rest, 0);
            if from.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_length_beyond_32_bits_is_capped() {
        let mut chains = ChainList::new(Arc::default(), VirtioFeatures::default());
        let head = ChainHead { id: 1, descriptors: 5, length: 5 << 30 };
        chains.add(|_| Ok(head)).unwrap();
        chains.add(|_| Ok(ChainHead { length: 100, ..head })).unwrap();
        let mut left = (5 << 30) + 60;
        let written = [(); 3].map(|()| chains.return_next(&mut left).map(|(_, written)| written));
        assert_eq!(written, [Some(u32::MAX), Some(60), None]);
    }
}
