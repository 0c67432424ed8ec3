//! The packed rings of a guest for tests.
//!
//! A descriptor has an index that never wraps. The place in the ring and the wrap counter follow
//! from the index.

use super::guest::{AVAILABLE, DriverChain, TestGuest, USED};
use crate::features::VirtioFeatures;

/// The flag of a descriptor with a successor in its chain.
const NEXT: u16 = 1;
/// The flag of a table of descriptors.
const INDIRECT: u16 = 4;
/// The bit of the flags that follows the wrap counter of the driver.
const AVAIL_BIT: u16 = 1 << 7;
/// The bit of the flags that follows the wrap counter of the device.
const USED_BIT: u16 = 1 << 15;

impl TestGuest {
    /// Returns the place of a descriptor, and its wrap counter.
    fn descriptor_position(&self, index: u32) -> (u16, bool) {
        let size = u32::from(self.size);
        (u16::try_from(index % size).unwrap(), (index / size).is_multiple_of(2))
    }

    /// Returns a position as event suppression structures have it.
    fn event(&self, index: u32) -> u16 {
        let (slot, wrap) = self.descriptor_position(index);
        slot | u16::from(wrap) << 15
    }

    /// Takes free descriptors for a chain.
    pub(super) fn packed_descriptors(&mut self, queue: u16, count: usize) -> Option<Vec<u16>> {
        let state = &self.queues[usize::from(queue)];
        let count = u32::try_from(count).unwrap();
        let end = state.offered + count;
        if end - state.seen > self.size.into() {
            return None;
        }
        Some((state.offered..end).map(|index| self.descriptor_position(index).0).collect())
    }

    /// Offers a chain; returns whether the device has requested a kick.
    pub(super) fn offer_packed(
        &mut self,
        queue: u16,
        chain: DriverChain,
        is_indirect: bool,
    ) -> bool {
        let state = &mut self.queues[usize::from(queue)];
        // The numbers of chains differ from those of descriptors.
        let id = state.free.remove(0);
        let first = state.offered;
        let end = first + u32::try_from(chain.descriptors.len()).unwrap();
        state.offered = end;
        self.write_packed(queue, &chain, id, first, is_indirect);
        self.queues[usize::from(queue)].chains.insert(id, chain);
        let events = Self::base(queue) + USED;
        match self.read_u16(events + 2) {
            0 => true,
            1 => false,
            2 if self.features.contains(VirtioFeatures::EVENT_IDX) => {
                let wanted = self.read_u16(events);
                (first..end).any(|index| self.event(index) == wanted)
            }
            other => panic!("the device requests kicks by the flags {other}"),
        }
    }

    /// Writes the descriptors of a chain to a packed queue.
    fn write_packed(
        &self,
        queue: u16,
        chain: &DriverChain,
        id: u16,
        first: u32,
        is_indirect: bool,
    ) {
        let record = |(address, length): (u64, usize), id: u16, flags: u16| {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(u32::try_from(length).unwrap().to_le_bytes());
            bytes.extend(id.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes
        };
        let offer = |index: u32, part, id, flags| {
            let (slot, wrap) = self.descriptor_position(index);
            let bits = if wrap { AVAIL_BIT } else { USED_BIT };
            let place = Self::base(queue) + 16 * u64::from(slot);
            self.write(place, &record(part, id, flags | bits));
        };
        let direction = Self::direction(queue);
        let parts = &chain.parts;
        if is_indirect {
            let table = Self::table(queue, chain.descriptors[0]);
            for (index, part) in parts.iter().enumerate() {
                // The device ignores the number and all flags but the direction.
                let bytes = record(*part, 0xffff, direction | NEXT);
                self.write(table + 16 * index as u64, &bytes);
            }
            offer(first, (table, 16 * parts.len()), id, INDIRECT);
            return;
        }
        // The device sees the chain when its first descriptor is written.
        for (index, part) in parts.iter().enumerate().rev() {
            let is_last = index + 1 == parts.len();
            let (id, next) = if is_last { (id, 0) } else { (0xffff, NEXT) };
            offer(first + u32::try_from(index).unwrap(), *part, id, direction | next);
        }
    }

    /// Takes the next returned chain, and the number of its written bytes.
    pub(super) fn next_packed(&mut self, queue: u16) -> Option<(DriverChain, u32)> {
        let seen = self.queues[usize::from(queue)].seen;
        let (slot, wrap) = self.descriptor_position(seen);
        let descriptor = Self::base(queue) + 16 * u64::from(slot);
        let flags = self.read_u16(descriptor + 14);
        let has = |bit: u16| flags & bit != 0;
        if self.queues[usize::from(queue)].offered == seen
            || has(AVAIL_BIT) != wrap
            || has(USED_BIT) != wrap
        {
            return None;
        }
        let (written, id) = (self.read_u32(descriptor + 8), self.read_u16(descriptor + 12));
        let state = &mut self.queues[usize::from(queue)];
        let chain = state.chains.remove(&id).expect("the device returns a chain that it holds");
        state.seen = seen + u32::try_from(chain.descriptors.len()).unwrap();
        state.free.push(id);
        Some((chain, written))
    }

    /// Requests a notification for the next chain that the device returns.
    pub(super) fn request_packed_call(&self, queue: u16) {
        let wanted = self.event(self.queues[usize::from(queue)].seen);
        let structure = [wanted.to_le_bytes(), 2_u16.to_le_bytes()].concat();
        self.write(Self::base(queue) + AVAILABLE, &structure);
    }
}
