//! The LTM entries of a chain by their slots, and the order of eviction in each stage.
//!
//! An entry belongs to no single flow, since independent flows share it. An entry is removed when
//! it is idle, when it is stale, or when its stage needs room.
//!
//! The order is maintained lazily: a hit writes the time into the store, and does not change the
//! order. Before an eviction, entries that were used since they were placed in the order are moved
//! to its end.

use shunt_pipeline::Time;

use super::{LtmEntryRef, LtmRule, PartitionOrigin, partition_origin::FirstTable};
use crate::{outline::SubTraversalId, partition::StageId};

/// An LTM entry of a stage, with the data that eviction needs.
#[derive(Debug)]
pub(super) struct StageEntry {
    pub(super) rule: LtmRule,
    /// The generation of the slot, which distinguishes its entries.
    pub(super) generation: u32,
    pub(super) stage: StageId,
    /// The id that policies compare.
    pub(super) id: SubTraversalId,
    /// The partition that the entry was made for.
    pub(super) origin: PartitionOrigin,
    /// The table that the entry begins with.
    pub(super) first_table: FirstTable,
    /// Number of flows that shared the entry when they were installed.
    pub(super) shares: u32,
    /// Serial number of the entry, by the order in which entries are made.
    pub(super) made: u64,
    /// The last use of the entry at the time when the entry was placed in the order.
    pub(super) placed: Time,
}

/// The classes of entries in the order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseClass {
    /// Entries without a known use since they were made.
    New,
    /// Entries that were used since they were made.
    Used,
    /// Entries that the owner of the chain knows as those of large flows.
    Large,
}

impl UseClass {
    /// All classes of use.
    pub(super) const ALL: [Self; Self::COUNT] = [Self::New, Self::Used, Self::Large];

    /// Number of classes of use.
    const COUNT: usize = 3;

    /// Returns all classes in the order of a search that begins with this one.
    pub(super) const fn then_others(self) -> [Self; Self::COUNT] {
        match self {
            Self::New => [Self::New, Self::Used, Self::Large],
            Self::Used => [Self::Used, Self::New, Self::Large],
            Self::Large => [Self::Large, Self::Used, Self::New],
        }
    }

    /// Returns the class of an entry of this class after a use.
    pub(super) const fn after_use(self) -> Self {
        match self {
            Self::New | Self::Used => Self::Used,
            Self::Large => Self::Large,
        }
    }
}

/// All entries of a chain, and the order of eviction in each stage.
#[derive(Debug, Default)]
pub(super) struct StageEntries {
    /// The entries by their slots in the store.
    slots: Vec<EntrySlot>,
    /// The eviction orders of each stage, one for each [`UseClass`].
    orders: Vec<StageOrder>,
}

/// A slot of the store, in the list of its class by last use.
#[derive(Debug)]
struct EntrySlot {
    /// The entry; `None` in a free slot.
    stage_entry: Option<StageEntry>,
    class: UseClass,
    /// The slot of the next older entry, or `NONE`.
    older: u32,
    /// The slot of the next newer entry, or `NONE`.
    newer: u32,
}

/// The first and the last entry of a linked list of entries.
#[derive(Clone, Copy, Debug)]
struct StageOrder {
    /// The slot of the oldest entry, or `NONE`.
    oldest: u32,
    /// The slot of the newest entry, or `NONE`.
    newest: u32,
    /// Number of entries in the list.
    count: usize,
}

/// The mark of an absent entry in a list.
const NONE: u32 = u32::MAX;

impl StageEntries {
    /// Returns a store without entries for this number of stages.
    pub(super) fn new(stages_count: u8) -> Self {
        let order = StageOrder { oldest: NONE, newest: NONE, count: 0 };
        Self { orders: vec![order; UseClass::COUNT * usize::from(stages_count)], ..Self::default() }
    }

    /// Number of entries of a stage and class.
    pub(super) fn count(&self, stage: StageId, class: UseClass) -> usize {
        self.orders.get(order_of(stage, class)).map_or(0, |order| order.count)
    }

    /// Returns the number of entries of a stage.
    pub(super) fn len(&self, stage: StageId) -> usize {
        UseClass::ALL.into_iter().map(|class| self.count(stage, class)).sum()
    }

    /// Returns the class of the entry in a slot.
    pub(super) fn class(&self, slot: u32) -> Option<UseClass> {
        let held = self.slots.get(slot as usize)?;
        held.stage_entry.as_ref().map(|_| held.class)
    }

    /// Returns the stage entry in a slot of the store.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&StageEntry> {
        self.slots.get(slot as usize)?.stage_entry.as_ref()
    }

    /// Returns the stage entry in a slot of the store, to change it.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut StageEntry> {
        self.slots.get_mut(slot as usize)?.stage_entry.as_mut()
    }

    /// Counts one more flow that shares an entry.
    pub(super) fn share(&mut self, slot: u32) {
        if let Some(stage_entry) = self.get_mut(slot) {
            stage_entry.shares += 1;
        }
    }

    /// Returns the reference of the entry in a slot.
    #[inline]
    pub(super) fn named(&self, slot: u32) -> Option<LtmEntryRef> {
        self.get(slot).map(|stage_entry| LtmEntryRef { slot, generation: stage_entry.generation })
    }

    /// Returns all entries of the stage.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LtmEntryRef, &StageEntry)> {
        (0..).zip(&self.slots).filter_map(|(slot, held)| {
            let stage_entry = held.stage_entry.as_ref()?;
            Some((LtmEntryRef { slot, generation: stage_entry.generation }, stage_entry))
        })
    }

    /// Puts an entry into its slot, which must be empty.
    pub(super) fn insert(&mut self, slot: u32, stage_entry: StageEntry, class: UseClass) {
        let stage = stage_entry.stage;
        while self.slots.len() <= slot as usize {
            self.slots.push(EntrySlot { stage_entry: None, class, older: NONE, newer: NONE });
        }
        self.slots[slot as usize].stage_entry = Some(stage_entry);
        self.append(stage, class, slot);
    }

    /// Removes the stage entry in a slot of the store.
    pub(super) fn remove(&mut self, slot: u32) -> Option<StageEntry> {
        let stage_entry = self.slots.get_mut(slot as usize)?.stage_entry.take()?;
        self.unlink(stage_entry.stage, slot);
        Some(stage_entry)
    }

    /// Moves an entry to the end of the order of a class; `placed` is its last use.
    pub(super) fn put_last(&mut self, slot: u32, placed: Time, class: UseClass) {
        let Some(stage_entry) = self.get_mut(slot) else { return };
        stage_entry.placed = placed;
        let stage = stage_entry.stage;
        self.unlink(stage, slot);
        self.append(stage, class, slot);
    }

    /// Returns the entries of a stage and class, least recently used first.
    pub(super) fn oldest(
        &self,
        stage: StageId,
        class: UseClass,
    ) -> impl Iterator<Item = (u32, &StageEntry)> {
        let mut next = self.orders.get(order_of(stage, class)).map_or(NONE, |order| order.oldest);
        std::iter::from_fn(move || {
            let slot = next;
            let held = self.slots.get(slot as usize)?;
            next = held.newer;
            Some((slot, held.stage_entry.as_ref()?))
        })
    }

    /// Adds an entry to the end of its list.
    fn append(&mut self, stage: StageId, class: UseClass, slot: u32) {
        let order = &mut self.orders[order_of(stage, class)];
        let before = std::mem::replace(&mut order.newest, slot);
        order.count += 1;
        match self.slots.get_mut(before as usize) {
            Some(before) => before.newer = slot,
            None => order.oldest = slot,
        }
        let held = &mut self.slots[slot as usize];
        (held.class, held.older, held.newer) = (class, before, NONE);
    }

    /// Takes an entry out of its list.
    fn unlink(&mut self, stage: StageId, slot: u32) {
        let EntrySlot { class, older, newer, .. } = self.slots[slot as usize];
        let order = &mut self.orders[order_of(stage, class)];
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

/// Returns the position of the eviction order of a stage and a class of entries.
const fn order_of(stage: StageId, class: UseClass) -> usize {
    UseClass::COUNT * stage.index() + class as usize
}
