//! The descriptors of a packed virtqueue, in the memory of the guest.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use super::{
    chains::{ChainHead, ChainList, Descriptor, Direction},
    ring_position::{RingPosition, WrapBits},
};
use crate::{
    error::RingError,
    memory::{GuestMemory, GuestRange},
};

/// The descriptors of a virtqueue in the memory of the guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescriptorRing {
    range: GuestRange,
    size: u16,
}

/// A chain to return to the guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedChain {
    /// The first descriptor of the chain.
    pub(super) position: RingPosition,
    pub(super) head: ChainHead,
    /// Number of bytes that the device has written.
    pub(super) written: u32,
}

/// The bit of the flags that follows the wrap counter of the driver.
const AVAIL: u16 = 1 << 7;
/// The bit of the flags that follows the wrap counter of the device.
const USED: u16 = 1 << 15;

/// Offset of the second half of a descriptor: length, number and flags.
const HALF: usize = 8;
/// Offset of the flags of a descriptor.
const FLAGS: usize = 14;

impl DescriptorRing {
    /// Returns the ring of `size` descriptors in a range of guest memory.
    pub(super) const fn new(range: GuestRange, size: u16) -> Self {
        Self { range, size }
    }

    /// Returns the number of bytes of a ring.
    pub(super) fn length(size: u16) -> usize {
        usize::from(size).saturating_mul(Descriptor::BYTES)
    }

    /// Returns the number of descriptors.
    #[inline]
    pub(super) const fn size(self) -> u16 {
        self.size
    }

    /// Returns the bits of a descriptor that follow the wrap counters.
    #[inline]
    pub(super) fn wrap_bits(self, memory: &GuestMemory, slot: u16) -> WrapBits {
        let flags = memory.load_u16(self.range, Self::offset(slot, FLAGS)).unwrap_or_default();
        WrapBits { avail: flags & AVAIL != 0, used: flags & USED != 0 }
    }

    /// Copies the descriptor at a position; `None` if the guest has not offered it.
    #[inline]
    pub(super) fn offered(
        self,
        memory: &GuestMemory,
        position: RingPosition,
    ) -> Option<Descriptor> {
        let descriptor = self.descriptor(memory, position.slot)?;
        let bits = WrapBits { avail: descriptor.has(AVAIL), used: descriptor.has(USED) };
        bits.are_offered_in(position).then_some(descriptor)
    }

    /// Copies a descriptor.
    ///
    /// The half with the flags is read first, because the guest writes the flags last.
    #[inline]
    fn descriptor(self, memory: &GuestMemory, slot: u16) -> Option<Descriptor> {
        let half = memory.load_u64(self.range, Self::offset(slot, HALF))?;
        let mut address = [0; HALF];
        let is_read = memory.read(self.range, Self::offset(slot, 0), &mut address);
        is_read.then(|| parse(u64::from_le_bytes(address), half))
    }

    /// Reads the chain that begins with `descriptor` at `position`.
    ///
    /// # Errors
    ///
    /// If the guest broke a rule.
    pub(super) fn read_chain(
        self,
        chains: &mut ChainList,
        mut descriptor: Descriptor,
        mut position: RingPosition,
        direction: Direction,
    ) -> Result<ChainHead, RingError> {
        let mut length = 0_usize;
        for descriptors in 1..=self.size {
            chains.step(self.size)?;
            let added = if descriptor.has(Descriptor::INDIRECT) {
                self.add_table(chains, descriptor, direction)?
            } else {
                chains.add_buffer(descriptor, direction, self.size)?
            };
            length = length.saturating_add(added);
            if !descriptor.has(Descriptor::NEXT) {
                // The last descriptor of a chain has the number of the chain.
                return Ok(ChainHead { id: descriptor.link, descriptors, length });
            }
            position = position.advanced(1, self.size);
            let missing = RingError::NoDescriptor { index: position.slot, size: self.size };
            descriptor = self.descriptor(chains.memory(), position.slot).ok_or(missing)?;
        }
        Err(RingError::LongChain(self.size))
    }

    /// Adds all buffers of an indirect table; returns their length.
    fn add_table(
        self,
        chains: &mut ChainList,
        indirect: Descriptor,
        direction: Direction,
    ) -> Result<usize, RingError> {
        let table = chains.indirect_table(indirect)?;
        let mut length = 0_usize;
        for index in 0..table.size {
            chains.step(self.size)?;
            let bytes = u128::from_le_bytes(table.descriptor(chains.memory(), index)?);
            #[expect(clippy::cast_possible_truncation, reason = "a descriptor has two halves")]
            let descriptor = parse(bytes as u64, (bytes >> 64) as u64);
            if descriptor.has(Descriptor::INDIRECT) {
                return Err(RingError::IndirectTable(descriptor.length));
            }
            length = length.saturating_add(chains.add_buffer(descriptor, direction, self.size)?);
        }
        Ok(length)
    }

    /// Returns a chain to the guest.
    ///
    /// Changes the used bit of all descriptors of the chain, from the last to the first.
    #[inline]
    pub(super) fn put_used(self, memory: &GuestMemory, chain: UsedChain) {
        let UsedChain { position, head, written } = chain;
        for index in (1..head.descriptors).rev() {
            self.change_used_bit(memory, position.advanced(index, self.size));
        }
        let write = if written > 0 { Descriptor::WRITE } else { 0 };
        let flags = if position.wrap { write | AVAIL | USED } else { write };
        let half = u64::from(written) | u64::from(head.id) << 32 | u64::from(flags) << 48;
        let is_stored = memory.store_u64(self.range, Self::offset(position.slot, HALF), half);
        debug_assert!(is_stored, "the descriptors are aligned");
    }

    /// Sets the used bit of a descriptor to the wrap counter.
    fn change_used_bit(self, memory: &GuestMemory, position: RingPosition) {
        let offset = Self::offset(position.slot, FLAGS);
        let flags = memory.load_u16(self.range, offset).unwrap_or_default();
        let flags = if position.wrap { flags | USED } else { flags & !USED };
        let is_stored = memory.store_u16(self.range, offset, flags);
        debug_assert!(is_stored, "the descriptors are aligned");
    }

    /// Returns the offset of a field of a descriptor.
    #[inline]
    fn offset(slot: u16, field: usize) -> usize {
        usize::from(slot).saturating_mul(Descriptor::BYTES).saturating_add(field)
    }
}

/// Returns the descriptor with these halves.
#[inline]
const fn parse(address: u64, half: u64) -> Descriptor {
    #[expect(clippy::cast_possible_truncation, reason = "each field has bits of its own")]
    Descriptor {
        address,
        length: half as u32,
        link: (half >> 32) as u16,
        flags: (half >> 48) as u16,
    }
}
