//! Positions in a packed virtqueue.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use crate::error::RingError;

/// A descriptor of a packed virtqueue, in a lap through the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPosition {
    /// The number of the descriptor.
    pub(super) slot: u16,
    /// The wrap counter: set in the first lap, and changed in each lap.
    pub(super) wrap: bool,
}

/// A position that a killed back-end has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundPosition {
    /// All chains in front of the position are returned, and none after it.
    Whole(RingPosition),
    /// Some descriptors after the position are marked as returned.
    ///
    /// The back-end was killed while it returned the descriptors of a frame.
    Interrupted(RingPosition),
}

impl RingPosition {
    /// The bit of an encoded position with the wrap counter.
    const WRAP: u16 = 1 << 15;

    /// Returns the position `count` descriptors later.
    ///
    /// `count` is at most the ring size.
    #[inline]
    pub(super) fn advanced(self, count: u16, size: u16) -> Self {
        // Both numbers are at most 2^15.
        let slot = self.slot.saturating_add(count);
        match slot.checked_sub(size) {
            Some(slot) => Self { slot, wrap: !self.wrap },
            None => Self { slot, wrap: self.wrap },
        }
    }

    /// Returns the number of descriptors from `before` to this position, in two laps.
    #[inline]
    pub(super) fn since(self, before: Self, size: u16) -> u32 {
        let size = u32::from(size);
        let index = |position: Self| {
            let lap = if position.wrap { 0 } else { size };
            u32::from(position.slot).saturating_add(lap)
        };
        let (now, before) = (index(self), index(before));
        let wrapped = now.saturating_add(size).saturating_add(size).saturating_sub(before);
        now.checked_sub(before).unwrap_or(wrapped)
    }

    /// Returns the position as event suppression structures and messages have it.
    #[inline]
    pub(super) const fn encode(self) -> u16 {
        if self.wrap { self.slot | Self::WRAP } else { self.slot }
    }

    /// Returns the position in the lower 16 bits of a number.
    ///
    /// # Errors
    ///
    /// If the ring has no such descriptor.
    #[inline]
    pub(super) const fn decode(number: u32, size: u16) -> Result<Self, RingError> {
        #[expect(clippy::cast_possible_truncation, reason = "the position has 16 bits")]
        let number = number as u16;
        let (slot, wrap) = (number & !Self::WRAP, number & Self::WRAP != 0);
        if slot < size {
            Ok(Self { slot, wrap })
        } else {
            Err(RingError::NoDescriptor { index: slot, size })
        }
    }
}

/// The bits of a descriptor that follow the wrap counters of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrapBits {
    /// The wrap counter of the guest when it offered the descriptor.
    pub(super) avail: bool,
    /// The wrap counter of the device when it returned the descriptor.
    ///
    /// The guest sets the opposite of `avail` when it offers the descriptor.
    pub(super) used: bool,
}

impl WrapBits {
    /// Returns whether the descriptor is offered and not returned.
    const fn is_offered(self) -> bool {
        self.avail != self.used
    }

    /// Returns whether the guest has offered the descriptor in the lap of a position.
    #[inline]
    pub(super) const fn are_offered_in(self, position: RingPosition) -> bool {
        self.avail == position.wrap && self.used != position.wrap
    }
}

/// Finds the position of an earlier back-end from the bits of all descriptors.
///
/// The used bit of a descriptor changes when the device returns the descriptor. So the bits in front
/// of the position differ from those after it. The guest may offer chains meanwhile, which changes
/// no used bit.
///
/// A frame in several descriptors is returned from its last descriptor to its first. A back-end
/// that was killed meanwhile leaves a few further changes, and the first descriptor of the frame is
/// the oldest that is offered.
///
/// The result is `None` if the bits change more often. Then another kind of back-end used the ring,
/// which changes the bit of the first descriptor of each chain alone.
pub(super) fn find_position(size: u16, bits: impl Fn(u16) -> WrapBits) -> Option<FoundPosition> {
    /// Number of changes of the bits with which the position is unknown.
    const CHANGES_MAX: usize = 3;
    let mut changes =
        (1..size).filter(|slot| bits(*slot).used != bits(slot.saturating_sub(1)).used);
    let first = bits(0).used;
    let position = match changes.next() {
        // The device begins a lap.
        None => RingPosition { slot: 0, wrap: !first },
        Some(slot) => RingPosition { slot, wrap: first },
    };
    match changes.count() {
        0 => Some(FoundPosition::Whole(position)),
        further if further < CHANGES_MAX => {
            // Descriptors of the later lap are in front of those of the earlier one.
            let wrap = (0..size).rev().map(&bits).find(|bits| bits.is_offered())?.avail;
            let is_oldest = |slot: &u16| bits(*slot).is_offered() && bits(*slot).avail == wrap;
            let slot = (0..size).find(is_oldest)?;
            Some(FoundPosition::Interrupted(RingPosition { slot, wrap }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Number of descriptors of the ring.
    const SIZE: u16 = 16;

    /// Returns the position at an index.
    fn at(index: u32) -> RingPosition {
        let slot = u16::try_from(index % u32::from(SIZE)).unwrap();
        RingPosition { slot, wrap: (index / u32::from(SIZE)).is_multiple_of(2) }
    }

    /// The bits of a ring in which descriptors were offered and returned one by one.
    fn ring(offered: u32, returned: u32, ahead: std::ops::Range<u32>) -> Vec<WrapBits> {
        let mut ring = vec![WrapBits { avail: false, used: false }; usize::from(SIZE)];
        for index in 0..offered {
            let RingPosition { slot, wrap } = at(index);
            let is_returned = index < returned || ahead.contains(&index);
            let used = if is_returned { wrap } else { !wrap };
            ring[usize::from(slot)] = WrapBits { avail: wrap, used };
        }
        ring
    }

    #[test]
    fn ring_positions_wrap_around() {
        let last = RingPosition { slot: 15, wrap: true };
        assert_eq!(last.advanced(1, SIZE), RingPosition { slot: 0, wrap: false });
        assert_eq!(last.advanced(16, SIZE), RingPosition { slot: 15, wrap: false });
        assert_eq!((last.encode(), at(16).encode()), (0x800f, 0));
        assert_eq!(RingPosition::decode(0x8001_800f, SIZE), Ok(last));
        let missing = RingError::NoDescriptor { index: 16, size: SIZE };
        assert_eq!(RingPosition::decode(16, SIZE), Err(missing));
        let large = RingPosition { slot: 32_767, wrap: false };
        assert_eq!(large.advanced(32_768, 32_768), RingPosition { slot: 32_767, wrap: true });
    }

    proptest! {
        #[test]
        fn ring_distances_equal_index_differences(before in 0_u32..100, count in 0_u32..31) {
            prop_assert_eq!(at(before + count).since(at(before), SIZE), count);
        }

        #[test]
        fn a_restart_finds_the_ring_position(returned in 0_u32..100, offered in 0_u32..=16) {
            let ring = ring(returned + offered, returned, 0..0);
            let found = find_position(SIZE, |slot| ring[usize::from(slot)]);
            prop_assert_eq!(found, Some(FoundPosition::Whole(at(returned))));
        }

        /// The guest writes a chain from its last descriptor to its first.
        #[test]
        fn a_half_written_chain_is_not_visible(
            returned in 0_u32..100, offered in 0_u32..8, written in 1_u32..8,
        ) {
            let mut ring = ring(returned + offered, returned, 0..0);
            for index in 1..=written {
                let RingPosition { slot, wrap } = at(returned + offered + index);
                ring[usize::from(slot)] = WrapBits { avail: wrap, used: !wrap };
            }
            let found = find_position(SIZE, |slot| ring[usize::from(slot)]);
            prop_assert_eq!(found, Some(FoundPosition::Whole(at(returned))));
        }

        #[test]
        fn a_restart_finds_an_interrupted_frame(
            returned in 0_u32..100, missing in 1_u32..6, ahead in 1_u32..6, offered in 0_u32..4,
        ) {
            let first = returned + missing;
            let ring = ring(first + ahead + offered, returned, first..first + ahead);
            let found = find_position(SIZE, |slot| ring[usize::from(slot)]);
            prop_assert_eq!(found, Some(FoundPosition::Interrupted(at(returned))));
        }

        #[test]
        fn arbitrary_descriptor_bits_give_a_valid_position(bits in prop::collection::vec(any::<(bool, bool)>(), 1..20)) {
            let size = u16::try_from(bits.len()).unwrap();
            let found = find_position(size, |slot| {
                let (avail, used) = bits[usize::from(slot)];
                WrapBits { avail, used }
            });
            if let Some(FoundPosition::Whole(position) | FoundPosition::Interrupted(position)) = found {
                prop_assert!(position.slot < size);
            }
        }
    }

    #[test]
    fn the_position_in_foreign_rings_is_not_guessed() {
        // Chains of two descriptors, and the second descriptor of each is not changed.
        let bits = |slot: u16| WrapBits { avail: true, used: slot.is_multiple_of(2) };
        assert_eq!(find_position(SIZE, bits), None);
    }
}
