//! What a lookup found: one entry, or those of a chain, first to last.

use std::sync::Arc;

use shunt_pipeline::DatapathAction;

use super::Entries;
use crate::metrics::CHAIN_MAX;

/// The slots of the live entries that a packet has found; none: it missed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    slots: [u32; CHAIN_MAX],
    count: u8,
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
        self.slots[..slots.len()].copy_from_slice(slots);
        self.count = slots.len() as u8;
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
        for list in lists.take(CHAIN_MAX - 1) {
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
