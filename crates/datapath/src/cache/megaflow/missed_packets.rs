//! The packets of a burst for which no lookup has found an entry yet.

use crate::packet::buffer::BURST;

/// The packets of a burst that have missed so far, by their positions.
#[derive(Clone, Debug, Default)]
pub struct MissedPackets {
    /// The positions, of which the first `count` are valid.
    pub(super) positions: [u8; BURST],
    /// Number of packets that have missed.
    pub(super) count: usize,
}

impl MissedPackets {
    /// Removes all packets that missed.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds the packet at a position of the burst.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a burst has fewer than 256 positions")]
    pub const fn push(&mut self, position: usize) {
        self.positions[self.count] = position as u8;
        self.count += 1;
    }

    /// Returns whether no packet is left without an entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of packets without an entry.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the count is at most BURST")]
    pub const fn len(&self) -> u32 {
        self.count as u32
    }

    /// Removes the packets at positions for which `is_missing` is false.
    pub fn retain(&mut self, is_missing: impl Fn(usize) -> bool) {
        let mut left = 0;
        for index in 0..self.count {
            let position = self.positions[index];
            if is_missing(position.into()) {
                self.positions[left] = position;
                left += 1;
            }
        }
        self.count = left;
    }

    /// Returns the positions in ascending order.
    pub fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.positions[..self.count].iter().map(|position| usize::from(*position))
    }
}

const _: () = assert!(BURST <= 256, "a position in a burst is a byte");
