//! The split rings of a guest for tests.

use super::guest::{AVAILABLE, DriverChain, TestGuest, USED};
use crate::features::VirtioFeatures;

impl TestGuest {
    /// Takes free descriptors for a chain.
    pub(super) fn split_descriptors(&mut self, queue: u16, count: usize) -> Option<Vec<u16>> {
        let free = &mut self.queues[usize::from(queue)].free;
        let left = free.len().checked_sub(count)?;
        let mut descriptors = free.split_off(left);
        descriptors.reverse();
        Some(descriptors)
    }

    /// Offers a chain; returns whether the device has requested a kick.
    pub(super) fn offer_split(
        &mut self,
        queue: u16,
        chain: DriverChain,
        is_indirect: bool,
    ) -> bool {
        self.write_split(queue, &chain, is_indirect);
        let base = Self::base(queue);
        let offered = self.queues[usize::from(queue)].offered;
        let (head, entry) = (chain.descriptors[0], u64::from(offered) % u64::from(self.size));
        self.write(base + AVAILABLE + 4 + 2 * entry, &head.to_le_bytes());
        self.write(base + AVAILABLE + 2, &index(offered + 1).to_le_bytes());
        let state = &mut self.queues[usize::from(queue)];
        state.chains.insert(head, chain);
        state.offered = offered + 1;
        if self.features.contains(VirtioFeatures::EVENT_IDX) {
            let wanted = self.read_u16(base + USED + 4 + 8 * u64::from(self.size));
            wanted == index(offered)
        } else {
            self.read_u16(base + USED) & 1 == 0
        }
    }

    /// Writes the descriptors of a chain to a split queue.
    fn write_split(&self, queue: u16, chain: &DriverChain, is_indirect: bool) {
        let (next, indirect) = (1_u16, 4);
        let DriverChain { descriptors, parts } = chain;
        let direction = Self::direction(queue);
        let record = |(address, length): (u64, usize), flags: u16, following: u16| {
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend(u32::try_from(length).unwrap().to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(following.to_le_bytes());
            bytes
        };
        let base = Self::base(queue);
        let table = Self::table(queue, descriptors[0]);
        for (index, part) in parts.iter().enumerate() {
            let flags = if index + 1 < parts.len() { direction | next } else { direction };
            let following = if is_indirect {
                u16::try_from(index + 1).unwrap()
            } else {
                descriptors.get(index + 1).copied().unwrap_or_default()
            };
            let place = if is_indirect {
                table + 16 * index as u64
            } else {
                base + 16 * u64::from(descriptors[index])
            };
            self.write(place, &record(*part, flags, following));
        }
        if is_indirect {
            let entry = record((table, 16 * parts.len()), indirect, 0);
            self.write(base + 16 * u64::from(descriptors[0]), &entry);
        }
    }

    /// Takes the next returned chain, and the number of its written bytes.
    pub(super) fn next_split(&mut self, queue: u16) -> Option<(DriverChain, u32)> {
        let base = Self::base(queue) + USED;
        let seen = self.queues[usize::from(queue)].seen;
        if self.read_u16(base + 2) == index(seen) {
            return None;
        }
        let entry = base + 4 + 8 * (u64::from(seen) % u64::from(self.size));
        let (head, written) = (self.read_u32(entry), self.read_u32(entry + 4));
        let state = &mut self.queues[usize::from(queue)];
        state.seen = seen + 1;
        let chain = state.chains.remove(&u16::try_from(head).unwrap());
        let chain = chain.expect("the device returns a chain that it holds");
        state.free.extend(&chain.descriptors);
        Some((chain, written))
    }

    /// Requests a notification for the next chain that the device returns.
    pub(super) fn request_split_call(&self, queue: u16) {
        let place = Self::base(queue) + AVAILABLE + 4 + 2 * u64::from(self.size);
        let seen = self.queues[usize::from(queue)].seen;
        self.write(place, &index(seen).to_le_bytes());
    }
}

/// Returns a ring index, which wraps at 16 bits.
fn index(count: u32) -> u16 {
    u16::try_from(count % (1 << 16)).unwrap()
}
