//! The learned index over megaflows, which replaces the search of many masks.
//!
//! The index is the computational cache of Rashelbach, Rottenstreich and Silberstein, *Scaling Open
//! vSwitch with a Computational Cache*, section 4. Megaflows that overlap agree, so an index over a
//! few fields finds them, for any number of masks. The megaflows stay in tuple space
//! ([`MegaflowCache`]). The index only names the slots of entries that may cover a packet, and the
//! row of each entry is compared with the packet. So a lookup is right even if the index is stale.
//!
//! An entry is *indexed*, or lookups must also search its mask:
//!
//! ```text
//!   install ──► room in its bucket? ── yes ──► indexed
//!                     │ no
//!                     ▼
//!               its mask is searched ──► training ──► indexed
//! ```
//!
//! A training begins when a tenth of the entries is not indexed. The [`Trainer`] takes the boxes of
//! all entries and builds a new index in a thread of its own. Changes meanwhile are recorded, and
//! repeated on the new index before it replaces the old index.

mod reply_slot;
mod trainer;

use std::{ops::ControlFlow, sync::Arc};

use shunt_flow::{FlowKey, SparseMask};
use shunt_nuevomatch::{BoxRule, CANDIDATE_BATCH_MAX, StartIndexKind};
use shunt_pipeline::lanes::{CatalogueBox, LANES};

pub use self::trainer::Training;
use self::trainer::{
    BoxChange, BoxesBySlot, IndexReply, NoTraining, PendingTraining, TrainedIndex, TrainingPoll,
};
pub(crate) use self::trainer::{TablesReply, TablesTraining, Trainer};
use super::{MegaflowCache, MegaflowConfig, MissedPackets, RowAddress};
use crate::{cache::EntryRef, packet::buffer::BURST};

/// An index over the entries of a [`MegaflowCache`], and its training.
#[derive(Debug)]
pub(super) struct LearnedIndex {
    /// The thread that trains the index.
    trainer: Arc<Trainer>,
    /// Minimum number of masks with which entries are indexed.
    masks_min: usize,
    /// The kind of the index.
    kind: StartIndexKind,
    /// The index in use.
    current: Option<TrainedIndex>,
    /// The training in progress, with the boxes that it indexes.
    pending: Option<PendingTraining>,
    /// The slot for the index from the trainer thread.
    reply: IndexReply,
    /// The boxes of all entries.
    ///
    /// `None` until there are enough masks, and while the trainer has them.
    boxes: Option<BoxesBySlot>,
    /// Changes since the trainer took the boxes.
    changes: Vec<BoxChange>,
    /// The next slot to record after switching on; `None`: all slots are recorded.
    next_recorded: Option<usize>,
    /// Number of entries that are not indexed now.
    unindexed: usize,
    /// Number of entries that the last training did not index.
    unindexed_by_training: usize,
    /// Number of finished trainings of the learned index.
    trainings: u64,
    /// True if the trainer thread has panicked: lookups then search all masks.
    has_lost_trainer: bool,
}

/// Number of slots to record in an iteration, after the index was switched on.
const RECORDED_PER_ITERATION: usize = 512;

/// Number of entries outside of the index that cause no training.
const UNINDEXED_MIN: usize = 8;

const _: () = assert!(BURST <= CANDIDATE_BATCH_MAX, "a burst fits into one batch of candidates");

impl LearnedIndex {
    /// Creates an index that is switched on when there are enough masks.
    pub(super) fn new(trainer: Arc<Trainer>, config: &MegaflowConfig) -> Self {
        Self {
            trainer,
            masks_min: config.learned_masks_min,
            kind: config.learned_kind,
            current: None,
            pending: None,
            reply: IndexReply::default(),
            boxes: None,
            changes: Vec::new(),
            next_recorded: Some(0),
            unindexed: 0,
            unindexed_by_training: 0,
            trainings: 0,
            has_lost_trainer: false,
        }
    }

    /// Returns whether lookups can use the index.
    pub(super) const fn is_ready(&self) -> bool {
        self.current.is_some()
    }

    /// Returns the number of entries in the index.
    pub(super) fn len(&self) -> usize {
        self.current.as_ref().map_or(0, |current| current.index.len())
    }

    /// Returns the number of finished trainings.
    pub(super) const fn trainings(&self) -> u64 {
        self.trainings
    }

    /// Returns whether the trainer thread has panicked.
    pub(super) const fn has_lost_trainer(&self) -> bool {
        self.has_lost_trainer
    }

    /// Looks up the packets of `missing`, and removes those that hit from it.
    ///
    /// Does not find entries that are not yet in the learned index.
    pub(super) fn find_burst(
        &self,
        cache: &mut MegaflowCache,
        keys: &[FlowKey],
        missing: &mut MissedPackets,
        mut is_hit: impl FnMut(usize, EntryRef, RowAddress) -> bool,
    ) {
        let Some(current) = &self.current else { return };
        let (mut lanes, mut pending) = ([[0; LANES]; BURST], 0_u32);
        for position in missing.positions() {
            lanes[position] = current.selection.of_key(keys[position].words());
            pending |= 1 << position;
        }
        let pending = current.index.find_pending(&lanes, pending, |position, slot| {
            match cache.confirm_slot(slot, &keys[position]) {
                Some((entry, address)) if is_hit(position, entry, address) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        });
        missing.retain(|position| pending >> position & 1 != 0);
    }

    /// Returns the indexed entry that covers `key` and is live.
    pub(super) fn find(
        &self,
        cache: &mut MegaflowCache,
        key: &FlowKey,
        is_live: impl Fn(EntryRef) -> bool,
    ) -> Option<EntryRef> {
        let current = self.current.as_ref()?;
        let mut found = None;
        current.index.find(&current.selection.of_key(key.words()), |slot| {
            let confirmed = cache.confirm_slot(slot, key).map(|(entry, _)| entry);
            found = confirmed.filter(|entry| is_live(*entry));
            found.is_some()
        });
        found
    }

    /// Adds an entry that the cache has just inserted.
    pub(super) fn insert(
        &mut self,
        cache: &mut MegaflowCache,
        key: &FlowKey,
        mask: &SparseMask,
        slot: u32,
    ) {
        if self.is_off() {
            return;
        }
        let own = CatalogueBox::new(key, mask);
        self.record(BoxChange { slot, own: Some(own) });
        let Some(current) = &mut self.current else { return };
        if current.insert(&own, slot) {
            return;
        }
        self.unindexed += 1;
        cache.search_mask_of(slot);
    }

    /// Removes an entry that the cache is about to remove.
    pub(super) fn remove(&mut self, cache: &mut MegaflowCache, slot: u32) {
        let Some(words) = cache.box_words(slot) else { return };
        if self.is_off() {
            return;
        }
        // Another entry may use the row by now, so the recorded box of the slot is preferred.
        let recorded = self.boxes.as_ref().and_then(|boxes| *boxes.get(slot as usize)?);
        let own = recorded.or_else(|| Some(CatalogueBox::of_words(words)));
        self.record(BoxChange { slot, own: None });
        let Some(current) = &mut self.current else { return };
        if !current.remove(own.as_ref(), slot) {
            self.unindexed = self.unindexed.saturating_sub(1);
            cache.unsearch_mask_of(slot);
        }
    }

    /// Takes a finished training, or begins one if enough entries are not indexed.
    ///
    /// Returns whether there was work.
    pub(super) fn maintain(&mut self, cache: &mut MegaflowCache) -> bool {
        if self.is_off() {
            if self.has_lost_trainer || cache.subtables() < self.masks_min {
                return false;
            }
            self.boxes = Some(Vec::new());
        }
        if let Some(next) = self.next_recorded {
            self.record_slots(cache, next);
            return true;
        }
        if let Some(pending) = self.pending.take() {
            return self.take_trained(cache, pending);
        }
        let (entries, learned) = (cache.entries(), self.unindexed_by_training);
        let is_due = match &self.current {
            None => entries > 0,
            Some(_) => self.unindexed > learned + UNINDEXED_MIN.max(entries / 10),
        };
        is_due && self.begin_training(cache)
    }

    /// Returns whether the cache has no learned index, and trains none.
    const fn is_off(&self) -> bool {
        self.boxes.is_none() && self.pending.is_none()
    }

    /// Records the boxes of some entries that are older than the index.
    fn record_slots(&mut self, cache: &MegaflowCache, next: usize) {
        let end = (next + RECORDED_PER_ITERATION).min(cache.slots());
        for slot in (0..).take(end).skip(next) {
            if let Some(words) = cache.box_words(slot) {
                self.record(BoxChange { slot, own: Some(CatalogueBox::of_words(words)) });
            }
        }
        self.next_recorded = (end < cache.slots()).then_some(end);
    }

    /// Applies a change of a box, or keeps it until the training ends.
    fn record(&mut self, change: BoxChange) {
        match &mut self.boxes {
            Some(boxes) => change.apply(boxes),
            None => self.changes.push(change),
        }
    }

    /// Gives the collected boxes to the trainer; returns whether it started.
    fn begin_training(&mut self, cache: &mut MegaflowCache) -> bool {
        let Some(boxes) = self.boxes.take() else { return false };
        match self.trainer.start(boxes, self.kind, &self.reply) {
            Ok(pending) => {
                self.pending = Some(pending);
                true
            }
            Err(NoTraining::Busy(boxes)) => {
                // The trainer still works on an earlier index: the next iteration tries again.
                self.boxes = Some(boxes);
                false
            }
            Err(NoTraining::Lost) => {
                self.abandon_index(cache);
                true
            }
        }
    }

    /// Replaces the index if the training is done.
    fn take_trained(&mut self, cache: &mut MegaflowCache, pending: PendingTraining) -> bool {
        let mut trained = match pending.poll(&self.reply) {
            TrainingPoll::Trained(trained) => trained,
            TrainingPoll::Pending(pending) => {
                self.pending = Some(pending);
                return false;
            }
            TrainingPoll::Lost => {
                self.abandon_index(cache);
                return true;
            }
        };
        let mut outside = std::mem::take(&mut trained.left_out);
        for BoxChange { slot, own } in self.changes.drain(..) {
            let old = trained.boxes.get(slot as usize).copied().flatten();
            trained.remove(old.as_ref(), slot);
            BoxChange { slot, own }.apply(&mut trained.boxes);
            if own.is_some_and(|own| !trained.insert(&own, slot)) {
                outside.push(slot);
            }
        }
        cache.search_no_mask();
        self.unindexed = 0;
        outside.sort_unstable();
        outside.dedup();
        for slot in outside {
            if !trained.has(slot) && cache.search_mask_of(slot) {
                self.unindexed += 1;
            }
        }
        self.unindexed_by_training = self.unindexed;
        self.boxes = Some(std::mem::take(&mut trained.boxes));
        self.trainings += 1;
        match &mut self.current {
            Some(current) => {
                // The box of the new index then has the old one, and the trainer frees both.
                std::mem::swap(current, &mut *trained);
                self.trainer.free(trained);
            }
            None => self.current = Some(*trained),
        }
        true
    }

    /// Drops the index and all boxes after the trainer thread has panicked.
    ///
    /// Without an index, lookups search all masks.
    fn abandon_index(&mut self, cache: &mut MegaflowCache) {
        cache.search_no_mask();
        self.has_lost_trainer = true;
        self.current = None;
        self.changes = Vec::new();
        (self.unindexed, self.unindexed_by_training) = (0, 0);
    }
}

impl TrainedIndex {
    /// Adds an entry; returns false if its bucket is full.
    fn insert(&mut self, own: &CatalogueBox, slot: u32) -> bool {
        let is_indexed = self.index.insert(&self.rule(own, slot));
        if is_indexed {
            let slot = slot as usize;
            if slot >= self.has.len() {
                self.has.resize(slot + 1, false);
            }
            self.has[slot] = true;
        }
        is_indexed
    }

    /// Removes an entry, and returns whether it was indexed.
    fn remove(&mut self, own: Option<&CatalogueBox>, slot: u32) -> bool {
        let is_indexed = self.has(slot);
        if is_indexed {
            self.has[slot as usize] = false;
            if let Some(own) = own {
                self.index.remove(&self.rule(own, slot));
            }
        }
        is_indexed
    }

    /// Returns whether the index has the entry of a slot.
    fn has(&self, slot: u32) -> bool {
        self.has.get(slot as usize).copied().unwrap_or(false)
    }

    /// Returns the box of a slot in the lanes of this index.
    fn rule(&self, own: &CatalogueBox, slot: u32) -> BoxRule<LANES> {
        self.selection.project(own, slot)
    }
}
