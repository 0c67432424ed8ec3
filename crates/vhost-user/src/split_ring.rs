//! A split virtqueue, from the side of the device.
//!
//! The guest puts chains of descriptors into the *available* ring, and the device returns each
//! processed chain in the *used* ring:
//!
//! ```text
//!   available   │ flags │ index │ head, head, ...         │ used event      │   written by the guest
//!   used        │ flags │ index │ (head, written), ...    │ available event │   written by the device
//!   descriptors │ (address, length, flags, next), ...                       │   written by the guest
//! ```
//!
//! **The device works in order.** The device takes chains from the front of the available ring,
//! returns them in the same order, and holds no chain between two calls. So the used index, which
//! is in the memory of the guest, is the whole state of the queue. A back-end that is killed at any
//! moment is continued at this index, and loses and repeats no buffer. The device therefore needs
//! no record of chains in progress (`VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD`).
//!
//! **Bursts are read ahead.** The memory of a guest is in the caches of another processor. So the
//! device reads the descriptors of a whole burst first ([`SplitRing::read_ahead`]) and prefetches
//! their buffers, so that the memory accesses of many buffers overlap.
//!
//! **Nothing of the guest is trusted.** Each descriptor is copied once, and only the copy is
//! checked and used. The size of the queue limits the length of a chain, as the standard requires.
//! A guest that breaks a rule gets a [`RingError`], and the caller stops the queue.
//!
//! Source: Virtual I/O Device 1.2, 2.7.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::sync::{
    Arc,
    atomic::{Ordering::SeqCst, fence},
};

use crate::{
    error::RingError,
    features::VirtioFeatures,
    memory::{GuestMemory, GuestRange},
    message::VringAddress,
};

/// A split virtqueue.
#[derive(Debug)]
pub(crate) struct SplitRing {
    memory: Arc<GuestMemory>,
    descriptors: GuestRange,
    available: GuestRange,
    used: GuestRange,
    size: u16,
    /// The used index after all returned chains, which may not be published yet.
    next: u16,
    /// The available index, as last read.
    offered: u16,
    /// The used index in the memory of the guest.
    published: u16,
    has_event_index: bool,
    has_indirect: bool,
    /// Chains that were read, in order; the first `returned` chains are returned.
    chains: Vec<DescriptorChain>,
    returned: usize,
    /// The parts of the buffers of `chains`.
    parts: Vec<GuestRange>,
    /// Number of descriptors and parts that were read for the current frame.
    steps: usize,
}

/// A chain of descriptors: one buffer of the guest, in parts.
#[derive(Clone, Copy, Debug)]
struct DescriptorChain {
    /// The number of the first descriptor, by which the guest identifies the chain.
    head: u16,
    /// Length of all parts, in bytes.
    length: usize,
    /// Index of the first part in `parts`; `end` is the index after the last part.
    first: usize,
    end: usize,
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
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    const BYTES: usize = 16;
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;

    const fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn parse(bytes: [u8; Self::BYTES]) -> Self {
        let number = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "each field is its own bits")]
        Self {
            address: number as u64,
            length: (number >> 64) as u32,
            flags: (number >> 96) as u16,
            next: (number >> 112) as u16,
        }
    }
}

/// A table of descriptors, in the memory of the guest.
#[derive(Clone, Copy)]
struct DescriptorTable {
    range: GuestRange,
    size: u16,
}

/// Offset of the index in both rings.
const INDEX: usize = 2;
/// Offset of the entries in both rings.
const ENTRIES: usize = 4;
/// Bytes of an entry of the used ring.
const USED_ENTRY: usize = 8;

impl SplitRing {
    /// The largest size of a queue.
    const SIZE_MAX: u32 = 32_768;
    /// The maximum sum of the numbers of descriptors and parts of a frame.
    ///
    /// Descriptors can be empty, and memory regions may divide buffers.
    const STEPS_MAX: usize = 8192;

    /// The number of parts after which no chain is read ahead.
    ///
    /// The number limits the memory of a queue, and exceeds the parts in a burst of a usual guest.
    const AHEAD_MAX: usize = 128;

    /// Opens a queue at its used index.
    ///
    /// # Errors
    ///
    /// If a part of the queue is not in the memory of the guest, or not aligned.
    pub(crate) fn new(
        memory: Arc<GuestMemory>,
        address: VringAddress,
        size: u32,
        features: VirtioFeatures,
    ) -> Result<Self, RingError> {
        let entries = u16::try_from(size).map_err(|_| RingError::Size(size))?;
        if !entries.is_power_of_two() || size > Self::SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let count = usize::from(entries);
        let part = |part, address, length, alignment| {
            let range =
                memory.find_user(address, length).ok_or(RingError::Unmapped { part, address })?;
            let is_aligned = memory.is_aligned(range, alignment);
            is_aligned.then_some(range).ok_or(RingError::Misaligned { part, address })
        };
        let ring = |entry: usize| count.saturating_mul(entry).saturating_add(ENTRIES + INDEX);
        let table = count.saturating_mul(Descriptor::BYTES);
        let descriptors = part("descriptor table", address.descriptors, table, 16)?;
        let available = part("available ring", address.available, ring(INDEX), 2)?;
        let used = part("used ring", address.used, ring(USED_ENTRY), 4)?;
        let next = memory
            .load_index(used, INDEX)
            .ok_or(RingError::Unmapped { part: "used ring", address: address.used })?;
        let has_event_index = features.contains(VirtioFeatures::EVENT_IDX);
        let has_indirect = features.contains(VirtioFeatures::INDIRECT_DESC);
        let chains = Vec::with_capacity(Self::AHEAD_MAX);
        let parts = Vec::with_capacity(2 * Self::AHEAD_MAX);
        let mut ring = Self {
            memory,
            descriptors,
            available,
            used,
            size: entries,
            next,
            offered: next,
            published: next,
            has_event_index,
            has_indirect,
            chains,
            returned: 0,
            parts,
            steps: 0,
        };
        ring.suppress_kicks();
        Ok(ring)
    }

    /// Returns the number of descriptors.
    pub(crate) const fn size(&self) -> u16 {
        self.size
    }

    /// Returns the index of the next chain, at which a later back-end continues.
    pub(crate) const fn next(&self) -> u16 {
        self.next
    }

    /// Reads the descriptors of at most `count` chains ahead.
    ///
    /// Prefetches the first part of each buffer, and drops the chains that were read before. A
    /// broken rule is reported when the chain that breaks it is used.
    #[inline]
    pub(crate) fn read_ahead(&mut self, count: usize, direction: Direction) {
        self.forget();
        self.steps = 0;
        while self.chains.len() < count && self.parts.len() < Self::AHEAD_MAX {
            let Ok(Some(chain)) = self.read_next(direction) else { break };
            if let Some(part) = self.parts.get(chain.first) {
                self.memory.prefetch(*part);
            }
        }
    }

    /// Begins a frame at the first chain that is not returned.
    #[inline]
    pub(crate) fn begin_frame(&mut self) {
        self.steps = 0;
        if self.returned == self.chains.len() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.chains.clear();
        self.parts.clear();
        self.returned = 0;
    }

    /// Returns the length in bytes of a chain, by its position after returned chains.
    ///
    /// The result is `None` if the guest has offered no such chain.
    ///
    /// # Errors
    ///
    /// If the guest broke a rule.
    #[inline]
    pub(crate) fn chain_length(
        &mut self,
        position: usize,
        direction: Direction,
    ) -> Result<Option<usize>, RingError> {
        let position = self.returned.saturating_add(position);
        loop {
            if let Some(chain) = self.chains.get(position) {
                return Ok(Some(chain.length));
            }
            if self.read_next(direction)?.is_none() {
                return Ok(None);
            }
        }
    }

    /// Reads the next chain after the chains that were already read.
    ///
    /// The result is `None` if the guest has offered no further chain.
    #[inline]
    fn read_next(&mut self, direction: Direction) -> Result<Option<DescriptorChain>, RingError> {
        let position = self.chains.len().saturating_sub(self.returned);
        if usize::from(self.offered.wrapping_sub(self.next)) <= position
            && usize::from(self.refresh()?) <= position
        {
            return Ok(None);
        }
        #[expect(clippy::cast_possible_truncation, reason = "fewer chains are offered")]
        let slot = self.slot(self.next.wrapping_add(position as u16));
        let offset = slot.saturating_mul(INDEX).saturating_add(ENTRIES);
        let mut head = [0; 2];
        // The entry is read after `refresh` has loaded the available index, which the guest stores
        // after the entry.
        if !self.memory.read(self.available, offset, &mut head) {
            return Ok(None);
        }
        let (head, first) = (u16::from_le_bytes(head), self.parts.len());
        match self.read_descriptors(head, direction) {
            Ok(length) => {
                let chain = DescriptorChain { head, length, first, end: self.parts.len() };
                self.chains.push(chain);
                Ok(Some(chain))
            }
            Err(error) => {
                self.parts.truncate(first);
                Err(error)
            }
        }
    }

    /// Reads the available index again; returns the number of offered chains.
    fn refresh(&mut self) -> Result<u16, RingError> {
        let offered = self.memory.load_index(self.available, INDEX).unwrap_or(self.next);
        let count = offered.wrapping_sub(self.next);
        if count > self.size {
            return Err(RingError::Offered { offered: count, size: self.size });
        }
        self.offered = offered;
        Ok(count)
    }

    /// Returns the ring entry of an index; the ring size is a power of two.
    #[inline]
    const fn slot(&self, index: u16) -> usize {
        (index & self.size.wrapping_sub(1)) as usize
    }

    /// Adds the parts of a chain to `parts`; returns their total length.
    fn read_descriptors(&mut self, head: u16, direction: Direction) -> Result<usize, RingError> {
        let mut table = DescriptorTable { range: self.descriptors, size: self.size };
        let (mut index, mut length, mut is_indirect) = (head, 0_usize, false);
        for _ in 0..self.size {
            self.step()?;
            let descriptor = self.descriptor(table, index)?;
            if descriptor.has(Descriptor::INDIRECT) {
                if !self.has_indirect {
                    return Err(RingError::IndirectRefused);
                }
                if is_indirect || descriptor.has(Descriptor::NEXT) {
                    return Err(RingError::IndirectTable(descriptor.length));
                }
                table = self.indirect_table(descriptor)?;
                (index, is_indirect) = (0, true);
                continue;
            }
            if descriptor.has(Descriptor::WRITE) != (direction == Direction::ToGuest) {
                return Err(RingError::Direction);
            }
            self.add_buffer(descriptor)?;
            length = length.saturating_add(descriptor.length as usize);
            if !descriptor.has(Descriptor::NEXT) {
                return Ok(length);
            }
            index = descriptor.next;
        }
        Err(RingError::LongChain(self.size))
    }

    /// Counts a descriptor or a part of the frame; fails at the maximum.
    #[inline]
    fn step(&mut self) -> Result<(), RingError> {
        self.steps = self.steps.saturating_add(1);
        let is_short = self.steps <= Self::STEPS_MAX;
        is_short.then_some(()).ok_or(RingError::LongChain(self.size))
    }

    fn descriptor(&self, table: DescriptorTable, index: u16) -> Result<Descriptor, RingError> {
        let missing = RingError::NoDescriptor { index, size: table.size };
        if index >= table.size {
            return Err(missing);
        }
        let mut bytes = [0; Descriptor::BYTES];
        let offset = usize::from(index).saturating_mul(Descriptor::BYTES);
        let is_read = self.memory.read(table.range, offset, &mut bytes);
        is_read.then(|| Descriptor::parse(bytes)).ok_or(missing)
    }

    fn indirect_table(&self, descriptor: Descriptor) -> Result<DescriptorTable, RingError> {
        let Descriptor { address, length, .. } = descriptor;
        let bytes = length as usize;
        let whole = bytes.is_multiple_of(Descriptor::BYTES) && bytes > 0;
        let size = u16::try_from(bytes / Descriptor::BYTES).ok().filter(|_| whole);
        let size = size.ok_or(RingError::IndirectTable(length))?;
        let range = self.memory.find(address, bytes).filter(|range| range.len() == bytes);
        let range = range.ok_or(RingError::Buffer { address, length })?;
        Ok(DescriptorTable { range, size })
    }

    /// Adds the parts of a buffer, which may span adjacent memory regions.
    #[inline]
    fn add_buffer(&mut self, descriptor: Descriptor) -> Result<(), RingError> {
        let Descriptor { mut address, length, .. } = descriptor;
        let mut left = length as usize;
        while left > 0 {
            let outside = RingError::Buffer { address: descriptor.address, length };
            let range = self.memory.find(address, left).ok_or(outside)?;
            self.step()?;
            self.parts.push(range);
            left = left.saturating_sub(range.len());
            address = address.saturating_add(range.len() as u64);
        }
        Ok(())
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

    /// Returns the length of the next chain, in bytes; the chain must have been read.
    #[inline]
    pub(crate) fn next_length(&self) -> usize {
        self.chains.get(self.returned).map_or(0, |chain| chain.length)
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

    /// Returns the next chain to the guest, with the number of bytes written to it.
    ///
    /// The guest sees the returned chain after [`Self::publish`].
    #[inline]
    pub(crate) fn put_used(&mut self, written: u32) {
        let Some(chain) = self.chains.get(self.returned) else { return };
        let entry = u64::from(chain.head) | u64::from(written) << 32;
        let offset = self.slot(self.next).saturating_mul(USED_ENTRY).saturating_add(ENTRIES);
        let is_written = self.memory.write(self.used, offset, &entry.to_le_bytes());
        debug_assert!(is_written, "the used ring is a range of this memory");
        self.next = self.next.wrapping_add(1);
        self.returned = self.returned.saturating_add(1);
    }

    /// Publishes the returned chains; returns whether to notify the guest.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.next == self.published {
            return false;
        }
        let before = std::mem::replace(&mut self.published, self.next);
        let is_stored = self.memory.store_index(self.used, INDEX, self.next);
        debug_assert!(is_stored, "the used ring is aligned");
        // The guest stores its request for a notification, then loads the used index. The device
        // stores the index, then loads the request.
        fence(SeqCst);
        if self.has_event_index {
            let offset = usize::from(self.size).saturating_mul(INDEX).saturating_add(ENTRIES);
            let wanted = self.memory.load_index(self.available, offset).unwrap_or(before);
            return has_passed(wanted, before, self.next);
        }
        const NO_INTERRUPT: u16 = 1;
        self.memory.load_index(self.available, 0).unwrap_or_default() & NO_INTERRUPT == 0
    }

    /// Requests a kick from the guest for the next chain that it offers.
    ///
    /// Returns whether the guest has offered a chain already.
    ///
    /// # Errors
    ///
    /// If the guest broke a rule.
    pub(crate) fn request_kick(&mut self) -> Result<bool, RingError> {
        self.set_kicks(true);
        // The guest stores the available index, then loads the request for a kick. The device
        // stores the request, then loads the index.
        fence(SeqCst);
        Ok(self.refresh()? > 0)
    }

    /// Suppresses kicks of the guest, because the device polls.
    ///
    /// With `VIRTIO_F_EVENT_IDX` the function does nothing: the guest does not kick for an event
    /// index in the past.
    pub(crate) fn suppress_kicks(&mut self) {
        self.set_kicks(false);
    }

    fn set_kicks(&mut self, are_wanted: bool) {
        let (offset, value) = match (self.has_event_index, are_wanted) {
            (true, true) => {
                let entries = usize::from(self.size).saturating_mul(USED_ENTRY);
                (entries.saturating_add(ENTRIES), self.next)
            }
            (true, false) => return,
            (false, _) => (0, u16::from(!are_wanted)),
        };
        let is_stored = self.memory.store_index(self.used, offset, value);
        debug_assert!(is_stored, "the used ring is aligned");
    }
}

/// Returns whether a ring index passed `wanted` on its way from `before` to `now`.
///
/// Source: Virtual I/O Device 1.2, 2.7.7.2 (`vring_need_event`).
const fn has_passed(wanted: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(wanted).wrapping_sub(1) < now.wrapping_sub(before)
}
