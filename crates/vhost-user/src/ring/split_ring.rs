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
//! Source: Virtual I/O Device 1.2, 2.7.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::sync::{
    Arc,
    atomic::{Ordering::SeqCst, fence},
};

use super::{
    chains::{ChainHead, ChainList, Descriptor, DescriptorTable, Direction},
    virtqueue::{QueueSettings, VirtqueueLayout, queue_part},
};
use crate::{
    error::RingError,
    features::VirtioFeatures,
    memory::{GuestMemory, GuestRange},
};

/// A split virtqueue.
#[derive(Debug)]
pub(crate) struct SplitRing {
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
    chains: ChainList,
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

    /// Opens a queue at its used index.
    ///
    /// # Errors
    ///
    /// If a part of the queue is not in the memory of the guest, or not aligned.
    pub(crate) fn new(
        memory: Arc<GuestMemory>,
        settings: QueueSettings,
    ) -> Result<Self, RingError> {
        let QueueSettings { address, size, features, .. } = settings;
        let entries = u16::try_from(size).map_err(|_| RingError::Size(size))?;
        if !entries.is_power_of_two() || size > Self::SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let count = usize::from(entries);
        let ring = |entry: usize| count.saturating_mul(entry).saturating_add(ENTRIES + INDEX);
        let table = count.saturating_mul(Descriptor::BYTES);
        let descriptors = queue_part(&memory, "descriptor table", address.descriptors, table, 16)?;
        let available = queue_part(&memory, "available ring", address.available, ring(INDEX), 2)?;
        let used = queue_part(&memory, "used ring", address.used, ring(USED_ENTRY), 4)?;
        let next = memory
            .load_u16(used, INDEX)
            .ok_or(RingError::Unmapped { part: "used ring", address: address.used })?;
        let mut ring = Self {
            descriptors,
            available,
            used,
            size: entries,
            next,
            offered: next,
            published: next,
            has_event_index: features.contains(VirtioFeatures::EVENT_IDX),
            chains: ChainList::new(memory, features),
        };
        ring.suppress_kicks();
        Ok(ring)
    }

    /// Returns the index of the next chain, at which a later back-end continues.
    pub(crate) fn base(&self) -> u32 {
        self.next.into()
    }

    /// Returns the memory of the guest.
    fn memory(&self) -> &GuestMemory {
        self.chains.memory()
    }

    /// Reads the available index again; returns the number of offered chains.
    fn refresh(&mut self) -> Result<u16, RingError> {
        let offered = self.memory().load_u16(self.available, INDEX).unwrap_or(self.next);
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

    /// Asks the guest for kicks, or asks it to send none.
    fn set_kicks(&mut self, are_wanted: bool) {
        let (offset, value) = match (self.has_event_index, are_wanted) {
            (true, true) => {
                let entries = usize::from(self.size).saturating_mul(USED_ENTRY);
                (entries.saturating_add(ENTRIES), self.next)
            }
            (true, false) => return,
            (false, _) => (0, u16::from(!are_wanted)),
        };
        let is_stored = self.memory().store_u16(self.used, offset, value);
        debug_assert!(is_stored, "the used ring is aligned");
    }
}

impl VirtqueueLayout for SplitRing {
    #[inline]
    fn chains(&self) -> &ChainList {
        &self.chains
    }

    #[inline]
    fn chains_mut(&mut self) -> &mut ChainList {
        &mut self.chains
    }

    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn read_next(&mut self, direction: Direction) -> Result<bool, RingError> {
        let position = self.chains.unreturned();
        if usize::from(self.offered.wrapping_sub(self.next)) <= position
            && usize::from(self.refresh()?) <= position
        {
            return Ok(false);
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the position is less than the u16 number of offered chains"
        )]
        let slot = self.slot(self.next.wrapping_add(position as u16));
        let offset = slot.saturating_mul(INDEX).saturating_add(ENTRIES);
        let mut head = [0; 2];
        // The entry is read after `refresh` has loaded the available index, which the guest stores
        // after the entry.
        if !self.memory().read(self.available, offset, &mut head) {
            return Ok(false);
        }
        let table = DescriptorTable { range: self.descriptors, size: self.size };
        let head = u16::from_le_bytes(head);
        self.chains.add(|chains| read_chain(chains, table, head, direction))?;
        Ok(true)
    }

    #[inline]
    fn put_used(&mut self, chains: u16, mut written: usize) {
        for _ in 0..chains {
            let Some((head, bytes)) = self.chains.return_next(&mut written) else { return };
            let entry = u64::from(head.id) | u64::from(bytes) << 32;
            let offset = self.slot(self.next).saturating_mul(USED_ENTRY).saturating_add(ENTRIES);
            let is_written = self.memory().write(self.used, offset, &entry.to_le_bytes());
            debug_assert!(is_written, "the used ring is a range of this memory");
            self.next = self.next.wrapping_add(1);
        }
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.next == self.published {
            return false;
        }
        let before = std::mem::replace(&mut self.published, self.next);
        let is_stored = self.memory().store_u16(self.used, INDEX, self.next);
        debug_assert!(is_stored, "the used ring is aligned");
        // The guest stores its request for a notification, then loads the used index. The device
        // stores the index, then loads the request.
        fence(SeqCst);
        if self.has_event_index {
            let offset = usize::from(self.size).saturating_mul(INDEX).saturating_add(ENTRIES);
            let wanted = self.memory().load_u16(self.available, offset).unwrap_or(before);
            return has_passed(wanted, before, self.next);
        }
        /// `VRING_AVAIL_F_NO_INTERRUPT`: the driver wants no notification.
        const NO_INTERRUPT: u16 = 1;
        self.memory().load_u16(self.available, 0).unwrap_or_default() & NO_INTERRUPT == 0
    }
}

/// Reads the chain that begins with the descriptor `head`.
///
/// Inlined, because a result in memory would be read before it is written completely.
#[inline]
fn read_chain(
    chains: &mut ChainList,
    queue_table: DescriptorTable,
    head: u16,
    direction: Direction,
) -> Result<ChainHead, RingError> {
    let queue_size = queue_table.size;
    let (mut table, mut index) = (queue_table, head);
    let (mut length, mut is_indirect) = (0_usize, false);
    for _ in 0..queue_size {
        chains.step(queue_size)?;
        let descriptor = parse(table.descriptor(chains.memory(), index)?);
        if descriptor.has(Descriptor::INDIRECT) {
            if is_indirect {
                return Err(RingError::IndirectTable(descriptor.length));
            }
            table = chains.indirect_table(descriptor)?;
            (index, is_indirect) = (0, true);
            continue;
        }
        length = length.saturating_add(chains.add_buffer(descriptor, direction, queue_size)?);
        if !descriptor.has(Descriptor::NEXT) {
            return Ok(ChainHead { id: head, descriptors: 1, length });
        }
        index = descriptor.link;
    }
    Err(RingError::LongChain(queue_size))
}

/// Parses a descriptor of a split ring.
fn parse(bytes: [u8; Descriptor::BYTES]) -> Descriptor {
    let number = u128::from_le_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "each field has bits of its own")]
    Descriptor {
        address: number as u64,
        length: (number >> 64) as u32,
        flags: (number >> 96) as u16,
        link: (number >> 112) as u16,
    }
}

/// Returns whether a ring index passed `wanted` on its way from `before` to `now`.
///
/// Source: Virtual I/O Device 1.2, 2.7.7.2 (`vring_need_event`).
const fn has_passed(wanted: u16, before: u16, now: u16) -> bool {
    now.wrapping_sub(wanted).wrapping_sub(1) < now.wrapping_sub(before)
}
