//! A packed virtqueue, from the side of the device.
//!
//! Both sides write into one ring of descriptors. A chain lies in adjacent descriptors, and the
//! device returns it by overwriting the first of them:
//!
//! ```text
//!   offered    │ address │ length  │ id │ flags: avail = w, used = !w │   written by the guest
//!   returned   │    -    │ written │ id │ flags: avail = w, used =  w │   written by the device
//! ```
//!
//! The wrap counter `w` is 1 in the first lap through the ring, and changes in each lap. Each side
//! has an *event suppression structure*, by which it requests notifications from the other side.
//!
//! **The device works in order**, as in a split ring, and holds no chain between two calls. When it
//! returns a chain, it changes the used bit of every descriptor of the chain; the standard requires
//! only that of the first. So each used bit changes exactly when the device passes the descriptor,
//! and the device is where the used bits change:
//!
//! ```text
//!   used bits  │ w │ w │ w │ !w │ !w │ !w │
//!                            ^ position, in the lap with wrap counter w
//! ```
//!
//! A back-end that is killed is continued at this position, which the front-end does not know. The
//! device therefore needs no record of chains in progress (`VHOST_USER_PROTOCOL_F_INFLIGHT_SHMFD`),
//! which QEMU does not keep for network devices.
//!
//! Source: Virtual I/O Device 1.2, 2.8; vhost-user protocol, "Inflight I/O tracking".

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use std::sync::{
    Arc,
    atomic::{Ordering::SeqCst, fence},
};

use super::{
    chains::{ChainHead, ChainList, Direction},
    descriptor_ring::{DescriptorRing, UsedChain},
    ring_position::{FoundPosition, RingPosition, find_position},
    virtqueue::{QueueSettings, VirtqueueLayout, queue_part},
};
use crate::{
    error::RingError,
    features::VirtioFeatures,
    memory::{GuestMemory, GuestRange},
};

/// A packed virtqueue.
#[derive(Debug)]
pub(crate) struct PackedRing {
    ring: DescriptorRing,
    /// The event suppression structure by which the guest requests notifications.
    driver_events: GuestRange,
    /// The event suppression structure by which the device requests kicks.
    device_events: GuestRange,
    /// The first descriptor that is not returned.
    ///
    /// The returned descriptors may not be published yet.
    next: RingPosition,
    /// The descriptor after all chains that were read.
    ahead: RingPosition,
    /// The first descriptor that the guest does not see as returned.
    published: RingPosition,
    /// Chains that are returned and not published, in the order of publication.
    used: Vec<UsedChain>,
    has_event_index: bool,
    chains: ChainList,
}

/// Bytes of an event suppression structure: a position, then flags.
const EVENTS: usize = 4;
/// Offset of the flags in an event suppression structure.
const EVENT_FLAGS: usize = 2;
/// Flags of an event suppression structure: notify always.
const EVENTS_ENABLED: u16 = 0;
/// Flags of an event suppression structure: never notify.
const EVENTS_DISABLED: u16 = 1;
/// Flags of an event suppression structure: notify at the position.
const EVENTS_AT_POSITION: u16 = 2;

impl PackedRing {
    /// The largest size of a queue.
    const SIZE_MAX: u16 = 32_768;

    /// Opens a queue where an earlier back-end stopped.
    ///
    /// # Errors
    ///
    /// If a part of the queue is not in the memory of the guest, or not aligned.
    pub(crate) fn new(
        memory: Arc<GuestMemory>,
        settings: QueueSettings,
    ) -> Result<Self, RingError> {
        let QueueSettings { address, size, features, base, direction } = settings;
        let count = u16::try_from(size).ok().filter(|count| (1..=Self::SIZE_MAX).contains(count));
        let count = count.ok_or(RingError::PackedSize(size))?;
        let table = DescriptorRing::length(count);
        let range = queue_part(&memory, "descriptor ring", address.descriptors, table, 16)?;
        let driver_events = queue_part(&memory, "driver area", address.available, EVENTS, 4)?;
        let device_events = queue_part(&memory, "device area", address.used, EVENTS, 4)?;
        let ring = DescriptorRing::new(range, count);
        let (next, is_interrupted) =
            match find_position(count, |slot| ring.wrap_bits(&memory, slot)) {
                Some(FoundPosition::Whole(position)) => (position, false),
                Some(FoundPosition::Interrupted(position)) => (position, true),
                None => (RingPosition::decode(base, count)?, false),
            };
        let mut ring = Self {
            ring,
            driver_events,
            device_events,
            next,
            ahead: next,
            published: next,
            used: Vec::with_capacity(64),
            has_event_index: features.contains(VirtioFeatures::EVENT_IDX),
            chains: ChainList::new(memory, features),
        };
        ring.suppress_kicks();
        if is_interrupted {
            ring.complete_frame(direction)?;
        }
        Ok(ring)
    }

    /// Completes a frame in several chains that a killed back-end returned in part.
    ///
    /// The frame is complete in its buffers, and the first of them are full.
    fn complete_frame(&mut self, direction: Direction) -> Result<(), RingError> {
        let Self { next: first, ring, .. } = *self;
        let size = ring.size();
        let later = |count| first.advanced(count, size);
        let is_returned = |ring: &Self, position: RingPosition| {
            ring.ring.wrap_bits(ring.chains.memory(), position.slot).used == position.wrap
        };
        let Some(end) = (1..size).rev().find(|count| is_returned(self, later(*count))) else {
            return Ok(());
        };
        while self.next.since(first, size) <= u32::from(end) {
            if is_returned(self, self.next) {
                self.next = self.next.advanced(1, size);
                continue;
            }
            if !self.read_next(direction)? {
                break;
            }
            if self.next == first && self.ahead.since(first, size) > u32::from(end) {
                // The chain has the whole frame. The device uses the chain again.
                self.chains.forget();
                break;
            }
            self.put_used(1, usize::MAX);
        }
        self.used.reverse();
        self.publish();
        Ok(())
    }

    /// Returns the position for a later back-end, as `GET_VRING_BASE` has it.
    pub(crate) fn base(&self) -> u32 {
        // The device has taken and returned the chains up to the same position.
        let position = u32::from(self.next.encode());
        position | position << 16
    }

    /// Requests a kick from the guest for the next chain that it offers.
    ///
    /// Returns whether the guest has offered a chain already.
    pub(crate) fn request_kick(&mut self) -> bool {
        if self.has_event_index {
            self.set_events(self.next.encode(), EVENTS_AT_POSITION);
        } else {
            self.set_events(0, EVENTS_ENABLED);
        }
        // The guest stores a descriptor, then loads the request for a kick. The device stores the
        // request, then loads the descriptor.
        fence(SeqCst);
        self.ring.wrap_bits(self.chains.memory(), self.next.slot).are_offered_in(self.next)
    }

    /// Suppresses kicks of the guest, because the device polls.
    pub(crate) fn suppress_kicks(&mut self) {
        self.set_events(0, EVENTS_DISABLED);
    }

    /// Sets the request for kicks as a whole.
    fn set_events(&self, position: u16, flags: u16) {
        let word = u32::from(position) | u32::from(flags) << 16;
        let is_stored = self.chains.memory().store_u32(self.device_events, 0, word);
        debug_assert!(is_stored, "the device area is aligned");
    }
}

impl VirtqueueLayout for PackedRing {
    #[inline]
    fn chains(&self) -> &ChainList {
        &self.chains
    }

    #[inline]
    fn chains_mut(&mut self) -> &mut ChainList {
        &mut self.chains
    }

    fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline]
    fn read_next(&mut self, direction: Direction) -> Result<bool, RingError> {
        let ring = self.ring;
        let first = if self.chains.unreturned() == 0 { self.next } else { self.ahead };
        // The chains that were read and not returned occupy descriptors.
        let taken = first.since(self.next, ring.size());
        let free = u32::from(ring.size()).saturating_sub(taken);
        let too_long = RingError::LongChain(ring.size());
        let Some(descriptor) = ring.offered(self.chains.memory(), first).filter(|_| free > 0)
        else {
            return Ok(false);
        };
        let read = |chains: &mut ChainList| {
            ring.read_chain(chains, descriptor, first, direction).and_then(|head| {
                let is_short = u32::from(head.descriptors) <= free;
                is_short.then_some(head).ok_or(too_long)
            })
        };
        let ChainHead { descriptors, .. } = self.chains.add(read)?;
        self.ahead = first.advanced(descriptors, ring.size());
        Ok(true)
    }

    #[inline]
    fn put_used(&mut self, chains: u16, mut written: usize) {
        let before = self.used.len();
        for _ in 0..chains {
            let Some((head, written)) = self.chains.return_next(&mut written) else { break };
            self.used.push(UsedChain { position: self.next, head, written });
            self.next = self.next.advanced(head.descriptors, self.ring.size());
        }
        // The guest takes all chains of a frame when it sees the first one.
        if let Some(frame) = self.used.get_mut(before..) {
            frame.reverse();
        }
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.used.is_empty() {
            return false;
        }
        for chain in self.used.drain(..) {
            self.ring.put_used(self.chains.memory(), chain);
        }
        let before = std::mem::replace(&mut self.published, self.next);
        // The guest stores its request for a notification, then loads a descriptor. The device
        // stores the descriptor, then loads the request.
        fence(SeqCst);
        let event = |offset| self.chains.memory().load_u16(self.driver_events, offset);
        match event(EVENT_FLAGS) {
            Some(EVENTS_DISABLED) => false,
            Some(EVENTS_AT_POSITION) if self.has_event_index => {
                let size = self.ring.size();
                let wanted = event(0).map(|event| RingPosition::decode(event.into(), size));
                let Some(Ok(wanted)) = wanted else { return true };
                wanted.since(before, size) < self.next.since(before, size)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BufferLayout, TestGuest};

    fn open_ring(guest: &TestGuest, queue: u16) -> PackedRing {
        let mut memory = GuestMemory::default();
        for region in guest.regions() {
            memory.add(region, &guest.file).unwrap();
        }
        let settings = QueueSettings {
            address: TestGuest::address(queue),
            size: guest.size.into(),
            direction: Direction::ToGuest,
            features: guest.features,
            base: 0,
        };
        PackedRing::new(Arc::new(memory), settings).unwrap()
    }

    /// The guest takes all chains of a frame when it sees the first one.
    #[test]
    fn first_chain_of_frame_is_published_last() {
        let mut guest = TestGuest::new(1, 8, TestGuest::PACKED);
        let mut ring = open_ring(&guest, 0);
        for _ in 0..5 {
            assert!(guest.offer_buffer(0, &BufferLayout::whole(100)));
        }
        ring.read_ahead(5, Direction::ToGuest, 0);
        ring.put_used(2, 150);
        ring.put_used(3, 250);
        let order: Vec<_> =
            ring.used.iter().map(|used| (used.position.slot, used.written)).collect();
        assert_eq!(order, [(1, 50), (0, 100), (4, 50), (3, 100), (2, 100)]);
        assert!(guest.take_received(0).is_empty());
    }

    #[test]
    fn a_kick_request_finds_buffers_offered_before() {
        let mut guest = TestGuest::new(1, 8, TestGuest::PACKED);
        let mut ring = open_ring(&guest, 0);
        for _ in 0..20 {
            assert!(!ring.request_kick());
            let _ = guest.take_kicks(0);
            assert!(guest.offer_buffer(0, &BufferLayout::whole(100)));
            assert_eq!(guest.take_kicks(0), 1);
            assert!(ring.request_kick());
            ring.suppress_kicks();
            assert!(ring.read_next(Direction::ToGuest).unwrap());
            ring.put_used(1, 12);
            ring.publish();
            assert_eq!(guest.take_received(0).len(), 1);
        }
    }
}
