//! What a lookup found: one entry, or those of a chain, first to last.

use std::sync::Arc;

use shunt_pipeline::DatapathAction;

use super::Entries;
use crate::{metrics::CHAIN_MAX, packet::buffer::BURST};

/// The slots of the live entries that a packet has found; none: it missed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    slots: [u32; CHAIN_MAX],
    count: u8,
}

/// Places of a burst whose packets were drawn, to be shown to whatever learns where to cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled(u64);

const _: () = assert!(BURST <= 64, "a place is a bit");

impl Sampled {
    /// No place.
    pub(crate) const NONE: Self = Self(0);

    /// One place more.
    pub(crate) const fn push(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    /// The places, first to last.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..BURST).filter(move |place| self.0 >> place & 1 != 0)
    }

    /// Whether there is any.
    pub(crate) const fn is_any(self) -> bool {
        self.0 != 0
    }
}

/// The lists of actions of what was found, one behind the other, empty ones left out.
pub(crate) struct Lists<'a> {
    lists: [&'a Arc<[DatapathAction]>; CHAIN_MAX],
    count: usize,
}

impl Found {
    /// One entry was found.
    #[inline]
    pub(crate) const fn set_one(&mut self, slot: u32) {
        (self.slots[0], self.count) = (slot, 1);
    }

    /// These were found; at most [`CHAIN_MAX`].
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most CHAIN_MAX")]
    pub(crate) fn set(&mut self, slots: &[u32]) {
        // What is left out would be done to no packet.
        assert!(slots.len() <= CHAIN_MAX, "a chain has no more stages");
        self.slots[..slots.len()].copy_from_slice(slots);
        self.count = slots.len() as u8;
    }

    /// One more was found, behind the others; at most [`CHAIN_MAX`].
    #[inline]
    pub(crate) fn push(&mut self, slot: u32) {
        self.slots[usize::from(self.count)] = slot;
        self.count += 1;
    }

    /// Nothing was found.
    #[inline]
    pub(crate) const fn clear(&mut self) {
        self.count = 0;
    }

    /// What was found, first to last.
    #[inline]
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots[..usize::from(self.count)]
    }

    /// Whether nothing was found.
    #[inline]
    pub(crate) const fn is_miss(&self) -> bool {
        self.count == 0
    }
}

impl<'a> Lists<'a> {
    /// What these live entries do to a packet; `None`: nothing.
    pub(crate) fn of_entries(entries: &'a Entries, slots: &[u32]) -> Option<Self> {
        Self::of(slots.iter().map(|slot| entries.actions(*slot)))
    }

    /// These lists, of which there are at most [`CHAIN_MAX`] that are not empty; `None`: there is
    /// none.
    pub(crate) fn of(lists: impl IntoIterator<Item = &'a Arc<[DatapathAction]>>) -> Option<Self> {
        let mut lists = lists.into_iter().filter(|list| !list.is_empty());
        let mut own = Self { lists: [lists.next()?; CHAIN_MAX], count: 1 };
        for list in lists {
            assert!(own.count < CHAIN_MAX, "a way has no more pieces than a chain has stages");
            own.lists[own.count] = list;
            own.count += 1;
        }
        Some(own)
    }

    /// The lists.
    pub(crate) fn as_slice(&self) -> &[&'a Arc<[DatapathAction]>] {
        &self.lists[..self.count]
    }
}
