//! The choice of the entry that a full stage evicts.

use super::{
    Eviction, LtmEntryRef,
    ghost_queue::GhostQueue,
    stage_entries::{StageEntries, StageEntry, UseClass},
};
use crate::{adaptive::Capacity, outline::SubTraversalId, partition::StageId};

/// An [`Eviction`] policy with the data that it needs.
///
/// `VictimChoice` classifies new entries, and chooses the entry to evict.
#[derive(Debug)]
pub(super) struct VictimChoice {
    eviction: Eviction,
    /// Number of new entries of a stage that are not evicted before used entries.
    new_max: usize,
    /// Number of entries of large flows of a stage that are evicted after all others.
    large_max: usize,
    /// Serial number of the newest outdated entry; older entries are outdated too.
    outdated: u64,
    /// The sub-traversals that were evicted recently, for `second-use`.
    ghosts: GhostQueue,
}

/// Number of least recently used entries from which `least-shared` chooses.
const SHARING_SAMPLE: usize = 8;

/// A stage reserves one entry in `NEW_SHARE` for entries that were not used yet.
const NEW_SHARE: usize = 8;

/// Large flows have at most one entry in `LARGE_SHARE` for themselves.
const LARGE_SHARE: usize = 2;

impl VictimChoice {
    /// Returns the choice of a chain in which no entry is outdated.
    pub(super) fn new(eviction: Eviction, capacity: Capacity, seed: u64) -> Self {
        Self {
            eviction,
            new_max: (capacity.stage_entries_max / NEW_SHARE).max(1),
            large_max: capacity.stage_entries_max / LARGE_SHARE,
            outdated: 0,
            ghosts: GhostQueue::new(capacity, seed),
        }
    }

    /// Marks the entries with a serial number up to `made` as outdated.
    pub(super) const fn mark_outdated(&mut self, made: u64) {
        self.outdated = made;
    }

    /// Returns the first class of a new entry.
    pub(super) fn class_of_new(&self, id: SubTraversalId) -> UseClass {
        match self.eviction {
            Eviction::SecondUse if !self.ghosts.has(id.identity) => UseClass::New,
            Eviction::Never
            | Eviction::LeastRecent
            | Eviction::SecondUse
            | Eviction::LeastShared => UseClass::Used,
        }
    }

    /// Returns whether a use of an entry delays its eviction.
    pub(super) fn depends_on_use(&self) -> bool {
        self.eviction != Eviction::Never
    }

    /// Records that the entry of a sub-traversal was evicted.
    pub(super) fn note_evicted(&mut self, id: SubTraversalId) {
        if self.eviction == Eviction::SecondUse {
            self.ghosts.note(id.identity);
        }
    }

    /// Returns the class to evict from.
    ///
    /// New entries keep one eighth of a stage, and those of large flows up to a half.
    pub(super) fn class_to_evict(&self, entries: &StageEntries, stage: StageId) -> UseClass {
        let [new, used, large] = UseClass::ALL.map(|class| entries.count(stage, class));
        if self.eviction == Eviction::SecondUse && new > self.new_max {
            UseClass::New
        } else if large > self.large_max {
            UseClass::Large
        } else if used > 0 {
            UseClass::Used
        } else if new > 0 || large == 0 {
            UseClass::New
        } else {
            UseClass::Large
        }
    }

    /// Returns the slot of the entry that a stage evicts, if an entry may be evicted.
    ///
    /// Entries of `kept` are not evicted.
    pub(super) fn victim(
        &self,
        entries: &StageEntries,
        stage: StageId,
        kept: &[LtmEntryRef],
    ) -> Option<u32> {
        let is_free = |(slot, _): &(u32, &StageEntry)| kept.iter().all(|kept| kept.slot != *slot);
        let first = self.class_to_evict(entries, stage);
        let mut oldest = first
            .then_others()
            .into_iter()
            .flat_map(|class| entries.oldest(stage, class))
            .filter(is_free);
        let victim = match self.eviction {
            Eviction::Never => {
                oldest.next().filter(|(_, stage_entry)| stage_entry.made <= self.outdated)
            }
            Eviction::LeastRecent | Eviction::SecondUse => oldest.next(),
            Eviction::LeastShared => {
                oldest.take(SHARING_SAMPLE).min_by_key(|(slot, stage_entry)| {
                    let is_of_other = entries.class(*slot) != Some(first);
                    (is_of_other, stage_entry.shares, stage_entry.made)
                })
            }
        };
        victim.map(|(slot, _)| slot)
    }
}
