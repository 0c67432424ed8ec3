//! Rings of frames in shared memory.
//!
//! A ring has descriptors, and two indices that only increase: *head* and *tail*, modulo 2^16. The
//! client owns all buffers and stores the head, and the server stores the tail. In the ring to the
//! server, the client fills buffers and moves the head. The server returns these buffers by moving
//! the tail. In the ring to the client, the client offers empty buffers by moving the head. The
//! server fills these buffers and moves the tail.
//!
//! The peer may write to the memory at any moment. Each index and each descriptor is copied once,
//! and only the copy is checked and used. The index of this side is stored in the ring's value, and
//! never read back from the memory. A client computes the positions of its buffers from its own
//! layout, and never reads them from the memory.
//!
//! A frame may use several descriptors; all but its last descriptor have the flag `NEXT`.
//!
//! Source: memif protocol, version 2.0 (`memif_ring_t`, `memif_desc_t`).

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::sync::Arc;

use shunt_shared_memory::SharedMapping;

use crate::{
    MemifSink,
    doorbell::{self, RingWord, RingWords},
    error::MemifRingError,
    message::RingMessage,
};

/// The number at the start of every ring in memory.
pub(crate) const COOKIE: u32 = 0x03E3_1F20;

/// The largest binary logarithm of the size of a ring.
pub(crate) const LOG2_SIZE_MAX: u8 = 14;

/// Offset of the first descriptor from the start of a ring, in bytes.
const DESCRIPTORS: usize = 128;

/// Returns the offset of a word from the start of a ring, in bytes.
const fn offset_of(word: RingWord) -> usize {
    match word {
        RingWord::Flags => 4,
        RingWord::Head => 6,
        RingWord::Tail => 64,
    }
}

/// Length of a descriptor in bytes.
const DESCRIPTOR_BYTES: usize = 16;

/// The flag of all descriptors of a frame but the last.
///
/// `MEMIF_DESC_FLAG_NEXT` in the protocol.
const NEXT: u16 = 1;

/// The minimum length of a buffer that a peer may offer, in bytes.
///
/// The minimum limits the number of buffers for one frame, and so the time that a peer can cost.
const OFFERED_BYTES_MIN: u32 = 64;

/// The regions of a connection, by number.
pub(crate) type Regions = Arc<[SharedMapping]>;

/// The owner of the buffers of a ring, which is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferOwner {
    /// This process owns the buffers, which are adjacent in region 0.
    Own {
        /// First byte of the first buffer.
        offset: u32,
        /// Length of each buffer.
        length: u32,
    },
    /// The peer owns the buffers, and descriptors name them.
    Peer,
}

/// A copy of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemifDescriptor {
    flags: u16,
    region: u16,
    length: u32,
    offset: u32,
}

impl MemifDescriptor {
    /// Parses a descriptor that the peer may have written.
    fn parse(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        let [f0, f1, r0, r1, l0, l1, l2, l3, o0, o1, o2, o3, ..] = bytes;
        Self {
            flags: u16::from_ne_bytes([f0, f1]),
            region: u16::from_ne_bytes([r0, r1]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }

    /// Encodes the descriptor as in the memory.
    fn encode(self) -> [u8; DESCRIPTOR_BYTES] {
        let [f0, f1] = self.flags.to_ne_bytes();
        let [r0, r1] = self.region.to_ne_bytes();
        let [l0, l1, l2, l3] = self.length.to_ne_bytes();
        let [o0, o1, o2, o3] = self.offset.to_ne_bytes();
        [f0, f1, r0, r1, l0, l1, l2, l3, o0, o1, o2, o3, 0, 0, 0, 0]
    }
}

/// A range of bytes that was checked to be inside its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BufferPart {
    region: u16,
    offset: u32,
    length: u32,
}

/// The memory of a ring: its words and descriptors.
#[derive(Debug)]
pub(crate) struct RingMemory {
    regions: Regions,
    /// The number of the region that contains the ring.
    region: u16,
    /// First byte of the ring in the region.
    start: usize,
    /// Number of descriptors, a power of two.
    size: u16,
    owner: BufferOwner,
}

impl RingMemory {
    /// Opens a ring that its client has initialised.
    ///
    /// # Errors
    ///
    /// If the ring is not inside its region, or does not start with the cookie.
    pub(crate) fn open(
        regions: Regions,
        message: &RingMessage,
        owner: BufferOwner,
    ) -> Result<Self, MemifRingError> {
        let RingMessage { region, offset, log2_size, .. } = *message;
        let size = 1_u16.checked_shl(log2_size.into()).filter(|_| log2_size <= LOG2_SIZE_MAX);
        let size = size.ok_or(MemifRingError::Size(log2_size))?;
        let place = MemifRingError::Place { region, offset };
        let start = usize::try_from(offset).map_err(|_| place)?;
        let length = ring_bytes(log2_size);
        let mapping = regions.get(usize::from(region)).ok_or(place)?;
        let is_inside = start.checked_add(length).is_some_and(|end| end <= mapping.length());
        if !is_inside || !mapping.is_aligned(start, size_of::<u16>()) {
            return Err(place);
        }
        let mut cookie = [0; 4];
        let is_read = mapping.read(start, &mut cookie);
        debug_assert!(is_read, "the ring lies in its region");
        if u32::from_ne_bytes(cookie) != COOKIE {
            return Err(MemifRingError::Cookie(u32::from_ne_bytes(cookie)));
        }
        Ok(Self { regions, region, start, size, owner })
    }

    /// Returns the mapping of the region that has the ring.
    fn mapping(&self) -> Option<&SharedMapping> {
        self.regions.get(usize::from(self.region))
    }

    /// Returns the position of a descriptor in the region of the ring.
    #[inline]
    fn descriptor_offset(&self, slot: u16) -> usize {
        let index = usize::from(slot & self.mask());
        let offset = index.saturating_mul(DESCRIPTOR_BYTES).saturating_add(DESCRIPTORS);
        self.start.saturating_add(offset)
    }

    /// Copies the descriptor of a slot.
    #[inline]
    fn descriptor(&self, slot: u16) -> MemifDescriptor {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        let place = self.descriptor_offset(slot);
        let is_read = self.mapping().is_some_and(|mapping| mapping.read(place, &mut bytes));
        debug_assert!(is_read, "the descriptor lies in its region");
        MemifDescriptor::parse(bytes)
    }

    /// Writes the descriptor of a slot.
    #[inline]
    fn set_descriptor(&self, slot: u16, descriptor: MemifDescriptor) {
        let place = self.descriptor_offset(slot);
        let bytes = descriptor.encode();
        let is_written = self.mapping().is_some_and(|mapping| mapping.write(place, &bytes));
        debug_assert!(is_written, "the descriptor lies in its region");
    }

    /// Clears the flags of a descriptor.
    fn clear_flags(&self, slot: u16) {
        let place = self.descriptor_offset(slot);
        let is_written = self.mapping().is_some_and(|mapping| mapping.write(place, &[0; 2]));
        debug_assert!(is_written, "the descriptor lies in its region");
    }

    /// Returns the mask that makes an index a slot.
    #[inline]
    const fn mask(&self) -> u16 {
        self.size.wrapping_sub(1)
    }

    /// Returns the buffer of a slot, and the flags of its descriptor.
    ///
    /// # Errors
    ///
    /// If the buffer is not inside its region, or longer than the offered buffer.
    #[inline]
    fn buffer(&self, slot: u16) -> Result<(BufferPart, u16), MemifRingError> {
        let MemifDescriptor { flags, region, length, offset } = self.descriptor(slot);
        let outside = MemifRingError::Buffer { region, offset, length };
        let part = match self.owner {
            BufferOwner::Own { length: whole, .. } => {
                let own = self.own_buffer(slot);
                if length > whole {
                    return Err(outside);
                }
                BufferPart { length, ..own }
            }
            BufferOwner::Peer => {
                let room = self.regions.get(usize::from(region)).map_or(0, SharedMapping::length);
                let end = u64::from(offset).saturating_add(length.into());
                if usize::try_from(end).map_or(true, |end| end > room) {
                    return Err(outside);
                }
                BufferPart { region, offset, length }
            }
        };
        Ok((part, flags))
    }

    /// Returns the whole buffer of a slot, in a ring with buffers of this side.
    #[inline]
    fn own_buffer(&self, slot: u16) -> BufferPart {
        let BufferOwner::Own { offset, length } = self.owner else {
            return BufferPart { region: 0, offset: 0, length: 0 };
        };
        let index = u32::from(slot & self.mask());
        // The layout ends below 4 GiB, so the sum fits 32 bits.
        let offset = offset.saturating_add(index.saturating_mul(length));
        BufferPart { region: 0, offset, length }
    }

    /// Writes the whole empty buffer into the descriptor of a slot.
    #[inline]
    fn offer(&self, slot: u16) {
        let BufferPart { region, offset, length } = self.own_buffer(slot);
        self.set_descriptor(slot, MemifDescriptor { flags: 0, region, length, offset });
    }

    /// Returns the mapping and the offset of a buffer.
    #[inline]
    fn region_of(&self, part: BufferPart) -> Option<(&SharedMapping, usize)> {
        let mapping = self.regions.get(usize::from(part.region))?;
        Some((mapping, usize::try_from(part.offset).ok()?))
    }

    /// Prefetches the buffer of a slot;
    /// the descriptor is not checked, because it is only a hint.
    #[inline]
    fn prefetch(&self, slot: u16) {
        if let Ok((part, _)) = self.buffer(slot)
            && let Some((mapping, offset)) = self.region_of(part)
        {
            mapping.prefetch(offset, usize::try_from(part.length).unwrap_or_default());
        }
    }

    /// Returns the number of descriptors between two indices.
    ///
    /// # Errors
    ///
    /// If the number is greater than the size of the ring.
    #[inline]
    const fn count_announced(&self, from: u16, to: u16) -> Result<u16, MemifRingError> {
        let announced = to.wrapping_sub(from);
        if announced > self.size {
            return Err(MemifRingError::Index { announced, size: self.size });
        }
        Ok(announced)
    }
}

/// `RingMemory::open` has checked that the words are inside the region.
impl RingWords for RingMemory {
    #[inline]
    fn load(&self, word: RingWord) -> u16 {
        let place = self.start.saturating_add(offset_of(word));
        self.mapping().and_then(|mapping| mapping.load(place)).unwrap_or_default()
    }

    #[inline]
    fn store(&self, word: RingWord, value: u16) {
        let place = self.start.saturating_add(offset_of(word));
        let is_stored = self.mapping().is_some_and(|mapping| mapping.store(place, value));
        debug_assert!(is_stored, "the word lies in its region");
    }
}

/// Returns the length of a ring, in bytes.
pub(crate) fn ring_bytes(log2_size: u8) -> usize {
    let descriptors = 2_usize.saturating_pow(log2_size.min(LOG2_SIZE_MAX).into());
    descriptors.saturating_mul(DESCRIPTOR_BYTES).saturating_add(DESCRIPTORS)
}

/// The receiving side of a ring.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    memory: RingMemory,
    /// The slot of the next frame to receive.
    next: u16,
    /// The slot of the next buffer to return.
    returned: u16,
    /// The buffers of the next frame that were already read.
    chain: Vec<BufferPart>,
}

impl ReceiveRing {
    /// Starts to receive from a ring; a client offers all of its buffers.
    pub(crate) fn start(memory: RingMemory) -> Self {
        let next = match memory.owner {
            BufferOwner::Own { .. } => 0,
            // A server continues at the tail that is in the memory.
            BufferOwner::Peer => memory.load(RingWord::Tail),
        };
        let mut ring = Self { memory, next, returned: next, chain: Vec::new() };
        ring.set_interrupts(false);
        if let BufferOwner::Own { .. } = ring.memory.owner {
            (0..ring.memory.size).for_each(|slot| ring.memory.offer(slot));
            ring.memory.store(RingWord::Head, ring.memory.size);
        }
        ring
    }

    /// Requests notifications from the sender, or requests to omit them.
    ///
    /// After a request for notifications, the caller must poll again for frames that were sent
    /// before it.
    pub(crate) fn set_interrupts(&mut self, are_wanted: bool) {
        doorbell::set_interrupts(&self.memory, are_wanted);
    }

    /// Moves at most `max` frames to `sink`, and returns their buffers to the sender.
    ///
    /// Returns the number of frames, including refused frames. The function also returns the rule
    /// that the sender broke after these frames, if any.
    pub(crate) fn take_frames(
        &mut self,
        max: usize,
        sink: &mut impl MemifSink,
    ) -> (usize, Result<(), MemifRingError>) {
        let mut taken = 0;
        let result = self.take_into(max, sink, &mut taken);
        self.return_buffers();
        (taken, result)
    }

    /// Takes at most `max` frames, and counts them in `taken`.
    fn take_into(
        &mut self,
        max: usize,
        sink: &mut impl MemifSink,
        taken: &mut usize,
    ) -> Result<(), MemifRingError> {
        let end = match self.memory.owner {
            BufferOwner::Own { .. } => self.memory.load(RingWord::Tail),
            BufferOwner::Peer => self.memory.load(RingWord::Head),
        };
        let announced = self.memory.count_announced(self.next, end)?;
        for ahead in (0..announced).take(max) {
            self.memory.prefetch(self.next.wrapping_add(ahead));
        }
        while *taken < max && self.read_chain(end)? {
            self.deliver(sink);
            self.chain.clear();
            *taken = taken.saturating_add(1);
        }
        Ok(())
    }

    /// Reads further buffers of the next frame;
    /// returns false if the frame is not complete.
    ///
    /// The buffers that were read stay in the chain, so none is read twice. The caller has checked
    /// `end`.
    fn read_chain(&mut self, end: u16) -> Result<bool, MemifRingError> {
        let announced = end.wrapping_sub(self.next);
        loop {
            let read = u16::try_from(self.chain.len()).unwrap_or(u16::MAX);
            if read >= announced {
                break;
            }
            let slot = self.next.wrapping_add(read);
            let (part, flags) = self.memory.buffer(slot)?;
            self.chain.push(part);
            if flags & NEXT == 0 {
                self.next = slot.wrapping_add(1);
                return Ok(true);
            }
            if self.memory.owner == BufferOwner::Peer {
                // The DPDK driver `net_memif` does not clear the flag in the first descriptor of a
                // later frame.
                self.memory.clear_flags(slot);
            }
        }
        // The other buffers of the frame may follow, unless the chain already fills the ring.
        if self.chain.len() >= usize::from(self.memory.size) {
            return Err(MemifRingError::LongChain(self.memory.size));
        }
        Ok(false)
    }

    /// Copies the frame in the current chain to the sink.
    fn deliver(&self, sink: &mut impl MemifSink) {
        let total =
            self.chain.iter().fold(0, |total: u64, part| total.saturating_add(part.length.into()));
        let length = usize::try_from(total).unwrap_or(usize::MAX);
        let Some(mut rest) =
            Some(length).filter(|length| *length > 0).and_then(|length| sink.buffer(length))
        else {
            return;
        };
        for part in &self.chain {
            let length = usize::try_from(part.length).unwrap_or(usize::MAX).min(rest.len());
            let (to, behind) = rest.split_at_mut(length);
            let place = self.memory.region_of(*part);
            let is_read = place.is_some_and(|(mapping, offset)| mapping.read(offset, to));
            debug_assert!(is_read, "a part lies in its region");
            rest = behind;
        }
        sink.take();
    }

    /// Returns the buffers of the taken frames to the peer.
    fn return_buffers(&mut self) {
        if self.returned == self.next {
            return;
        }
        match self.memory.owner {
            BufferOwner::Own { .. } => {
                let mut slot = self.returned;
                while slot != self.next {
                    self.memory.offer(slot);
                    slot = slot.wrapping_add(1);
                }
                self.memory.store(RingWord::Head, self.next.wrapping_add(self.memory.size));
            }
            BufferOwner::Peer => self.memory.store(RingWord::Tail, self.next),
        }
        self.returned = self.next;
    }
}

/// The result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemifPut {
    /// The frame is in the ring.
    Done,
    /// The ring has no space at present.
    Full,
    /// The frame is longer than all buffers of the ring together.
    Refused,
}

/// The sending side of a ring.
#[derive(Debug)]
pub(crate) struct TransmitRing {
    memory: RingMemory,
    /// The slot for the next frame to send.
    next: u16,
    /// The slot up to which frames were published.
    published: u16,
    /// Number of free slots, as of the last look.
    free: u16,
    /// The buffers for the current frame.
    chain: Vec<BufferPart>,
}

impl TransmitRing {
    /// Starts to send into a ring.
    pub(crate) fn start(memory: RingMemory) -> Self {
        let next = match memory.owner {
            BufferOwner::Own { .. } => 0,
            BufferOwner::Peer => memory.load(RingWord::Tail),
        };
        Self { memory, next, published: next, free: 0, chain: Vec::new() }
    }

    /// Updates the number of free slots, and prefetches the buffers of `frames` frames.
    ///
    /// # Errors
    ///
    /// If the receiver broke a rule of the ring.
    pub(crate) fn look(&mut self, frames: usize) -> Result<(), MemifRingError> {
        self.free = match self.memory.owner {
            BufferOwner::Own { .. } => {
                let used =
                    self.memory.count_announced(self.memory.load(RingWord::Tail), self.next)?;
                self.memory.size.saturating_sub(used)
            }
            BufferOwner::Peer => {
                self.memory.count_announced(self.next, self.memory.load(RingWord::Head))?
            }
        };
        if self.memory.owner == BufferOwner::Peer {
            for ahead in (0..self.free).take(frames) {
                self.memory.prefetch(self.next.wrapping_add(ahead));
            }
        }
        Ok(())
    }

    /// Copies a frame into the next free buffers.
    ///
    /// # Errors
    ///
    /// If the receiver broke a rule of the ring.
    pub(crate) fn put_frame(&mut self, frame: &[u8]) -> Result<MemifPut, MemifRingError> {
        self.chain.clear();
        let mut left = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        while left > 0 {
            let count = u16::try_from(self.chain.len()).unwrap_or(u16::MAX);
            if count >= self.free {
                let is_whole_ring = count >= self.memory.size;
                return Ok(if is_whole_ring { MemifPut::Refused } else { MemifPut::Full });
            }
            let slot = self.next.wrapping_add(count);
            let whole = match self.memory.owner {
                BufferOwner::Own { .. } => self.memory.own_buffer(slot),
                BufferOwner::Peer => self.memory.buffer(slot)?.0,
            };
            if self.memory.owner == BufferOwner::Peer && whole.length < OFFERED_BYTES_MIN {
                return Err(MemifRingError::ShortBuffer(whole.length));
            }
            let length = whole.length.min(left);
            self.chain.push(BufferPart { length, ..whole });
            left = left.saturating_sub(length);
        }
        let mut rest = frame;
        let mut parts = self.chain.iter().peekable();
        while let Some(part) = parts.next() {
            let length = usize::try_from(part.length).unwrap_or(usize::MAX).min(rest.len());
            let (from, behind) = rest.split_at(length);
            let place = self.memory.region_of(*part);
            let is_written = place.is_some_and(|(mapping, offset)| mapping.write(offset, from));
            debug_assert!(is_written, "a part lies in its region");
            let flags = if parts.peek().is_some() { NEXT } else { 0 };
            let BufferPart { region, offset, length } = *part;
            self.memory
                .set_descriptor(self.next, MemifDescriptor { flags, region, length, offset });
            self.next = self.next.wrapping_add(1);
            self.free = self.free.saturating_sub(1);
            rest = behind;
        }
        Ok(MemifPut::Done)
    }

    /// Publishes the frames that were put since the last call.
    ///
    /// Returns whether the receiver requests a notification.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.next {
            return false;
        }
        self.published = self.next;
        let is_server = self.memory.owner == BufferOwner::Peer;
        let index = if is_server { RingWord::Tail } else { RingWord::Head };
        doorbell::publish(&self.memory, index, self.next)
    }
}

#[cfg(test)]
mod tests;
