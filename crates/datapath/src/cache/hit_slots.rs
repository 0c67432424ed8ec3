//! The results of lookups: the slots of the entries that a packet hit, and their action lists.

use std::{iter, sync::Arc};

use shunt_pipeline::DatapathAction;

use super::Entries;
use crate::{metrics::CHAIN_MAX, packet::buffer::BURST};

/// The slots of the live entries that a packet hit; empty if it missed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HitSlots {
    /// The slots, of which the first `count` are valid.
    slots: [u32; CHAIN_MAX],
    /// Number of entries that the packet hit.
    count: u8,
}

/// A set of positions in a burst, one bit each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PositionSet(u64);

const _: () = assert!(BURST < 64, "each position in a burst has a bit");

impl PositionSet {
    /// The set without positions.
    pub(crate) const EMPTY: Self = Self(0);

    /// Returns the positions of the first `count` packets.
    #[inline]
    pub(crate) const fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    /// Adds the position of a packet in its burst.
    #[inline]
    pub(crate) const fn insert(&mut self, position: usize) {
        self.0 |= 1 << position;
    }

    /// Returns the positions that are not in `other`.
    #[inline]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether the set has a position.
    #[inline]
    pub(crate) const fn contains(self, position: usize) -> bool {
        self.0 >> position & 1 != 0
    }

    /// Returns the positions in ascending order.
    #[inline]
    pub(crate) fn positions(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        iter::from_fn(move || {
            let position = rest.trailing_zeros() as usize;
            let is_there = rest != 0;
            rest &= rest.wrapping_sub(1);
            is_there.then_some(position)
        })
    }

    /// Returns the number of positions.
    #[inline]
    pub(crate) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns whether the set is empty.
    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The action lists of the entries that a packet hit, without empty lists.
pub(crate) struct ActionLists<'a> {
    /// The lists, of which the first `count` are valid.
    lists: [&'a Arc<[DatapathAction]>; CHAIN_MAX],
    /// Number of action lists that are not empty.
    count: usize,
}

impl HitSlots {
    /// Sets the slot of a single entry.
    #[inline]
    pub(crate) const fn set_one(&mut self, slot: u32) {
        (self.slots[0], self.count) = (slot, 1);
    }

    /// Sets the slots of at most [`CHAIN_MAX`] entries.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are at most CHAIN_MAX slots")]
    pub(crate) fn set(&mut self, slots: &[u32]) {
        // Without a slot, the packet would skip the actions of its entry.
        assert!(slots.len() <= CHAIN_MAX, "a chain has at most CHAIN_MAX stages");
        self.slots[..slots.len()].copy_from_slice(slots);
        self.count = slots.len() as u8;
    }

    /// Appends a slot; there are at most [`CHAIN_MAX`].
    #[inline]
    pub(crate) fn push(&mut self, slot: u32) {
        self.slots[usize::from(self.count)] = slot;
        self.count += 1;
    }

    /// Turns the result into a miss.
    #[inline]
    pub(crate) const fn clear(&mut self) {
        self.count = 0;
    }

    /// Returns the slots, first to last.
    #[inline]
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots[..usize::from(self.count)]
    }

    /// Returns whether the packet missed.
    #[inline]
    pub(crate) const fn is_miss(&self) -> bool {
        self.count == 0
    }
}

impl<'a> ActionLists<'a> {
    /// Returns the action lists of live entries; `None` if none has an action.
    pub(crate) fn of_entries(entries: &'a Entries, slots: &[u32]) -> Option<Self> {
        Self::of(slots.iter().map(|slot| entries.actions(*slot)))
    }

    /// Collects the lists that have actions, at most [`CHAIN_MAX`].
    /// `None` if all lists are empty.
    pub(crate) fn of(lists: impl IntoIterator<Item = &'a Arc<[DatapathAction]>>) -> Option<Self> {
        let mut lists = lists.into_iter().filter(|list| !list.is_empty());
        let mut own = Self { lists: [lists.next()?; CHAIN_MAX], count: 1 };
        for list in lists {
            assert!(own.count < CHAIN_MAX, "a traversal has at most one sub-traversal per stage");
            own.lists[own.count] = list;
            own.count += 1;
        }
        Some(own)
    }

    /// Returns the action lists, in the order of the sub-traversals.
    pub(crate) fn as_slice(&self) -> &[&'a Arc<[DatapathAction]>] {
        &self.lists[..self.count]
    }
}
