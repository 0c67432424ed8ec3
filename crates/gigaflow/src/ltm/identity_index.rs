//! An index of the entries of all stages by the identities of their sub-traversals.
//!
//! For every candidate sub-traversal of a traversal, a policy asks which stages hold it. A
//! traversal causes hundreds of queries, and most queries find no stage. So a query first reads a
//! filter of one bit per cell, which is set while an indexed identity belongs to the cell. The
//! filter has a few kilobytes, and answers most queries with one load. A separate array counts the
//! identities of each cell. Identities are hashes already, so their bits select the cell.
//!
//! Entries begin at few of the states of a traversal. So a policy first asks whether any entry
//! begins at a state.

use hashbrown::HashTable;

use crate::{
    adaptive::Capacity,
    outline::{StateId, SubTraversalId, fold},
    partition::{StageId, StageSet},
};

/// The stages and slots of the entries of each identity.
#[derive(Debug)]
pub(super) struct IdentityIndex {
    /// The entries, by the hash of their identities.
    entries: HashTable<IndexedEntry>,
    /// Number of indexed entries in each cell of the filter.
    ///
    /// A count that has reached 255 never changes again.
    counts: Box<[u8]>,
    /// One bit per cell, set while the count of the cell is not zero.
    filter: Box<[u64]>,
    /// Number of entries that begin at each state.
    begins: HashTable<(StateId, u32)>,
}

/// The identity of an entry, and its slot and stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexedEntry {
    identity: u64,
    slot: u32,
    stage: StageId,
}

/// Number of cells of the filter per entry that the stages can hold.
const CELLS_PER_ENTRY: usize = 8;
/// Maximum number of cells of the filter.
const CELLS_MAX: usize = 1 << 18;
/// Cells of one bit in a word of the filter.
const CELLS_PER_WORD: usize = u64::BITS as usize;

impl IdentityIndex {
    /// Returns an index without entries, with a filter for this capacity.
    pub(super) fn new(capacity: Capacity) -> Self {
        let entries_max = capacity.stage_entries_max.saturating_mul(capacity.stages_count.into());
        let cells_count = entries_max.saturating_mul(CELLS_PER_ENTRY).clamp(1, CELLS_MAX);
        let cells_count = cells_count.next_power_of_two();
        let filter = vec![0; cells_count.div_ceil(CELLS_PER_WORD)].into_boxed_slice();
        let counts = vec![0; cells_count].into_boxed_slice();
        Self { entries: HashTable::new(), counts, filter, begins: HashTable::new() }
    }

    /// Returns whether an entry begins at this state.
    #[inline]
    pub(super) fn has_entry_from(&self, state: StateId) -> bool {
        self.begins.find(hash(state), |(own, _)| *own == state).is_some()
    }

    /// Returns the stages that hold an entry with this identity.
    #[inline]
    pub(super) fn stages(&self, identity: u64) -> StageSet {
        let (word, bit) = bit_of(self.cell(identity));
        if self.filter[word] & bit == 0 {
            return StageSet::EMPTY;
        }
        self.of(identity).fold(StageSet::EMPTY, |stages, entry| stages.with(entry.stage))
    }

    /// Returns the slots of the entries of a stage with this identity.
    /// The result is one slot, unless hashes collide.
    pub(super) fn slots(&self, identity: u64, stage: StageId) -> impl Iterator<Item = u32> {
        self.of(identity).filter(move |entry| entry.stage == stage).map(|entry| entry.slot)
    }

    /// Adds the entry in a slot of a stage to the index.
    pub(super) fn add(&mut self, id: SubTraversalId, stage: StageId, slot: u32) {
        let SubTraversalId { identity, begin } = id;
        let is_it = |(own, _): &(StateId, u32)| *own == begin;
        let begins = self.begins.entry(hash(begin), is_it, |(own, _)| hash(*own));
        begins.or_insert((begin, 0)).get_mut().1 += 1;
        let entry = IndexedEntry { identity, slot, stage };
        self.entries.insert_unique(identity, entry, |entry| entry.identity);
        let cell = self.cell(identity);
        self.counts[cell] = self.counts[cell].saturating_add(1);
        let (word, bit) = bit_of(cell);
        self.filter[word] |= bit;
    }

    /// Removes the entry in a slot of a stage from the index.
    pub(super) fn remove(&mut self, id: SubTraversalId, stage: StageId, slot: u32) {
        let SubTraversalId { identity, begin } = id;
        let entry = IndexedEntry { identity, slot, stage };
        let Ok(found) = self.entries.find_entry(identity, |other| *other == entry) else { return };
        found.remove();
        if let Ok(mut begins) = self.begins.find_entry(hash(begin), |(own, _)| *own == begin) {
            begins.get_mut().1 -= 1;
            if begins.get().1 == 0 {
                begins.remove();
            }
        }
        let cell = self.cell(identity);
        if self.counts[cell] < u8::MAX {
            self.counts[cell] -= 1;
        }
        if self.counts[cell] == 0 {
            let (word, bit) = bit_of(cell);
            self.filter[word] &= !bit;
        }
    }

    /// Returns the entries with this identity.
    #[inline]
    fn of(&self, identity: u64) -> impl Iterator<Item = &IndexedEntry> {
        self.entries.iter_hash(identity).filter(move |entry| entry.identity == identity)
    }

    /// Returns the filter cell of an identity.
    /// The cell comes from bits of the identity that the hash table compares last.
    #[inline]
    const fn cell(&self, identity: u64) -> usize {
        (identity >> 32) as usize & (self.counts.len() - 1)
    }
}

/// Returns the hash of the state at which an entry starts.
#[inline]
fn hash(state: StateId) -> u64 {
    fold(0, state.number().into())
}

/// Returns the index of the filter word of a cell, and the bit in that word.
#[inline]
const fn bit_of(cell: usize) -> (usize, u64) {
    (cell / CELLS_PER_WORD, 1 << (cell % CELLS_PER_WORD))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_finds_all_entries_until_removal(
            steps in prop::collection::vec((any::<bool>(), 0..6_u64, 0..3_u8, 0..4_u32), 0..200),
        ) {
            let mut index = IdentityIndex::new(Capacity { stages_count: 1, stage_entries_max: 1 });
            let mut model: Vec<(u64, StageId, u32)> = Vec::new();
            for (comes, identity, stage, slot) in steps {
                let entry = (identity << 32, StageId::new(stage).unwrap(), slot);
                let begin_of = |identity: u64| StateId::new((identity >> 33) as u32);
                let name = SubTraversalId { identity: entry.0, begin: begin_of(entry.0) };
                if comes && !model.contains(&entry) {
                    index.add(name, entry.1, entry.2);
                    model.push(entry);
                } else if !comes {
                    index.remove(name, entry.1, entry.2);
                    model.retain(|other| *other != entry);
                }
                for begin in (0..4).map(StateId::new) {
                    let begins = model.iter().any(|other| begin_of(other.0) == begin);
                    prop_assert_eq!(index.has_entry_from(begin), begins);
                }
                let own = || model.iter().filter(|other| other.0 == entry.0);
                let stages = own().fold(StageSet::EMPTY, |stages, other| stages.with(other.1));
                prop_assert_eq!(index.stages(entry.0), stages);
                let mut slots: Vec<u32> = index.slots(entry.0, entry.1).collect();
                slots.sort_unstable();
                let mut expected: Vec<u32> =
                    own().filter(|other| other.1 == entry.1).map(|other| other.2).collect();
                expected.sort_unstable();
                prop_assert_eq!(slots, expected);
            }
        }
    }
}
