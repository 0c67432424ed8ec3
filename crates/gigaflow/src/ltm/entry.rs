//! The entries of a chain: rules with what they stand for, what they counted and when they were used.
//!
//! An entry has no owner. Flows that share it do not know of each other, and it goes when nobody has
//! used it for long, when it is stale, or when its place is needed.

use std::sync::Arc;

use shunt_pipeline::{Time, Traversal};

use super::LtmRule;
use crate::partition::StageId;

/// Names an entry for as long as it lives: a slot is used again with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryRef {
    /// Where it lies.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// Hits that have not been credited yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// When the last of them came.
    pub used: Time,
}

/// An entry.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) rule: LtmRule,
    /// The piece that it is, whose rules are credited with its hits.
    pub(super) traversal: Arc<Traversal>,
    pub(super) stage: StageId,
    /// What policies compare.
    pub(super) identity: u64,
    /// How many flows found it there when they were installed.
    pub(super) shares: u32,
    pub(super) hits: Hits,
    /// When it was made; numbers count up.
    pub(super) made: u64,
}

/// All entries, and the order in which those of each stage were used.
#[derive(Debug, Default)]
pub(super) struct Entries {
    slots: Vec<Slot>,
    free: Vec<u32>,
    orders: Vec<Order>,
}

#[derive(Debug)]
struct Slot {
    entry: Option<Entry>,
    generation: u32,
    older: u32,
    newer: u32,
}

/// The ends of a list of entries.
#[derive(Clone, Copy, Debug)]
struct Order {
    oldest: u32,
    newest: u32,
    count: usize,
}

const NONE: u32 = u32::MAX;

impl Entries {
    pub(super) fn new(stages_count: u8) -> Self {
        let order = Order { oldest: NONE, newest: NONE, count: 0 };
        Self { orders: vec![order; stages_count.into()], ..Self::default() }
    }

    /// Number of entries of a stage.
    pub(super) fn count(&self, stage: StageId) -> usize {
        self.orders.get(stage.index()).map_or(0, |order| order.count)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)?.entry.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.slots.get_mut(slot as usize)?.entry.as_mut()
    }

    /// The name of the entry in a slot.
    pub(super) fn named(&self, slot: u32) -> Option<EntryRef> {
        let held = self.slots.get(slot as usize)?;
        held.entry.as_ref().map(|_| EntryRef { slot, generation: held.generation })
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryRef, &Entry)> {
        (0..).zip(&self.slots).filter_map(|(slot, held)| {
            let name = EntryRef { slot, generation: held.generation };
            Some((name, held.entry.as_ref()?))
        })
    }

    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        let stage = entry.stage;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { entry: None, generation: 0, older: NONE, newer: NONE });
            u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
        });
        self.slots[slot as usize].entry = Some(entry);
        self.append(stage, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.entry.take()?;
        self.unlink(entry.stage, slot);
        self.slots[slot as usize].generation += 1;
        self.free.push(slot);
        Some(entry)
    }

    /// An entry is the one that was used last.
    pub(super) fn touch(&mut self, slot: u32) {
        let Some(stage) = self.get(slot).map(|entry| entry.stage) else { return };
        if self.orders[stage.index()].newest != slot {
            self.unlink(stage, slot);
            self.append(stage, slot);
        }
    }

    /// The entries of a stage, those that were used longest ago first.
    pub(super) fn oldest(&self, stage: StageId) -> impl Iterator<Item = (u32, &Entry)> {
        let mut next = self.orders.get(stage.index()).map_or(NONE, |order| order.oldest);
        std::iter::from_fn(move || {
            let slot = next;
            let held = self.slots.get(slot as usize)?;
            next = held.newer;
            Some((slot, held.entry.as_ref()?))
        })
    }

    fn append(&mut self, stage: StageId, slot: u32) {
        let order = &mut self.orders[stage.index()];
        let before = std::mem::replace(&mut order.newest, slot);
        order.count += 1;
        match self.slots.get_mut(before as usize) {
            Some(before) => before.newer = slot,
            None => order.oldest = slot,
        }
        let held = &mut self.slots[slot as usize];
        (held.older, held.newer) = (before, NONE);
    }

    fn unlink(&mut self, stage: StageId, slot: u32) {
        let Slot { older, newer, .. } = self.slots[slot as usize];
        let order = &mut self.orders[stage.index()];
        order.count -= 1;
        match self.slots.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => order.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => order.newest = older,
        }
    }
}
