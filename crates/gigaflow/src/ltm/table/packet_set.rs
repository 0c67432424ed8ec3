//! A chunk of packets that are looked up together, and sets of its packets.

use shunt_flow::FlowKey;

use crate::ltm::Walk;

/// The packets of one chunk: the keys that they arrived with, and their walks.
#[derive(Clone, Copy)]
pub(in crate::ltm) struct Chunk<'a> {
    pub(in crate::ltm) keys: &'a [FlowKey],
    pub(in crate::ltm) walks: &'a [Walk],
}

/// A set of packets of a chunk, by their indexes in the chunk.
#[derive(Clone, Copy, Debug)]
pub(in crate::ltm) struct PacketSet {
    indexes: [u8; CHUNK_MAX],
    /// Number of packets in the set.
    count: u8,
}

/// Maximum number of packets of a chunk.
pub(in crate::ltm) const CHUNK_MAX: usize = 32;

impl<'a> Chunk<'a> {
    /// Returns the current headers of a packet of the chunk.
    #[inline]
    pub(super) fn key(&self, packet: usize) -> &'a FlowKey {
        self.walks[packet].key(&self.keys[packet])
    }
}

impl PacketSet {
    pub(in crate::ltm) const EMPTY: Self = Self { indexes: [0; CHUNK_MAX], count: 0 };

    /// Returns the position of the first packet in the set.
    #[inline]
    pub(in crate::ltm) fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Returns the number of packets in the set.
    #[inline]
    pub(in crate::ltm) const fn count(&self) -> u32 {
        self.count as u32
    }

    /// Adds a packet. The set must have fewer than [`CHUNK_MAX`] packets.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "positions are below CHUNK_MAX")]
    pub(in crate::ltm) const fn push(&mut self, packet: usize) {
        self.indexes[self.count as usize] = packet as u8;
        self.count += 1;
    }

    /// Returns the indexes of the packets in the chunk, in the order of insertion.
    #[inline]
    pub(in crate::ltm) fn iter(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.indexes[..usize::from(self.count)].iter().map(|packet| usize::from(*packet))
    }

    /// Removes and returns the packets that `is_taken` accepts.
    pub(in crate::ltm) fn take(&mut self, is_taken: impl Fn(usize) -> bool) -> Self {
        let (mut taken, mut left) = (Self::EMPTY, Self::EMPTY);
        for packet in self.iter() {
            if is_taken(packet) {
                taken.push(packet);
            } else {
                left.push(packet);
            }
        }
        *self = left;
        taken
    }
}

const _: () =
    assert!(CHUNK_MAX < 256, "the index of a packet and the count of packets fit in a byte");
