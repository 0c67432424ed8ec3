//! The table of one stage of a NIC: entries by tag, priority, mask and value.
//!
//! The controller assigns the priorities. The entries of one tag, mask and priority form a hash table of
//! masked words, and a lookup searches the tables of higher priority first. The table maps entries to
//! slot numbers of the chain.

use hashbrown::{HashMap, HashTable};
use shunt_flow::{FlowKey, Match, SparseMask};
use shunt_gigaflow::ltm::Tag;

/// A hasher with the seed of the NIC.
pub(crate) type SeededState = foldhash::fast::FixedState;

/// The entries of one stage.
#[derive(Debug)]
pub(crate) struct StageTable {
    seed: u64,
    groups: HashMap<Tag, Vec<PriorityGroup>, SeededState>,
}

/// The key that identifies an entry in its stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchKey<'a> {
    /// The tag that packets must have to match the entry.
    pub(crate) tag: Tag,
    /// The headers that the entry matches.
    pub(crate) matching: &'a Match,
    /// If several entries match, the entry with the highest priority wins.
    pub(crate) priority: u32,
}

/// The entries of one tag, mask and priority.
#[derive(Debug)]
struct PriorityGroup {
    mask: SparseMask,
    priority: u32,
    entries: HashTable<(Box<[u64]>, u32)>,
}

impl PriorityGroup {
    /// Returns whether the group has the priority and the mask of a match key.
    fn is_of(&self, match_key: &MatchKey<'_>) -> bool {
        self.priority == match_key.priority && self.mask == *match_key.matching.mask()
    }

    /// Returns the entry of the group that matches a key.
    fn find(&self, seed: u64, key: &FlowKey) -> Option<u32> {
        let hash = hash(seed, self.mask.apply(key));
        let is_same =
            |(values, _): &(Box<[u64]>, u32)| values.iter().copied().eq(self.mask.apply(key));
        self.entries.find(hash, is_same).map(|(_, number)| *number)
    }
}

impl StageTable {
    /// Creates a table without entries. `seed` is the seed of the hashes.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, groups: HashMap::with_hasher(SeededState::with_seed(seed)) }
    }

    /// Returns the entry with the highest priority that a packet with this tag matches.
    pub(crate) fn find(&self, tag: Tag, key: &FlowKey) -> Option<u32> {
        self.groups.get(&tag)?.iter().find_map(|group| group.find(self.seed, key))
    }

    /// Returns the entry with exactly this tag, match and priority.
    pub(crate) fn find_exact(&self, match_key: MatchKey<'_>) -> Option<u32> {
        let group =
            self.groups.get(&match_key.tag)?.iter().find(|group| group.is_of(&match_key))?;
        let values = match_key.matching.value();
        let hash = hash(self.seed, values.iter().copied());
        group.entries.find(hash, |(stored, _)| **stored == *values).map(|(_, number)| *number)
    }

    /// Adds an entry. The table must have no entry with the same key.
    pub(crate) fn insert(&mut self, match_key: MatchKey<'_>, number: u32) {
        let groups = self.groups.entry(match_key.tag).or_default();
        let position =
            groups.iter().position(|group| group.is_of(&match_key)).unwrap_or_else(|| {
                let position = groups.partition_point(|group| group.priority > match_key.priority);
                let mask = match_key.matching.mask().clone();
                let group =
                    PriorityGroup { mask, priority: match_key.priority, entries: HashTable::new() };
                groups.insert(position, group);
                position
            });
        let (seed, values) = (self.seed, match_key.matching.value());
        if let Some(group) = groups.get_mut(position) {
            let row = (values.into(), number);
            group.entries.insert_unique(hash(seed, values.iter().copied()), row, |(values, _)| {
                hash(seed, values.iter().copied())
            });
        }
    }

    /// Removes the entry with this key.
    pub(crate) fn remove(&mut self, match_key: MatchKey<'_>) {
        let Some(groups) = self.groups.get_mut(&match_key.tag) else { return };
        let Some(position) = groups.iter().position(|group| group.is_of(&match_key)) else {
            return;
        };
        let Some(group) = groups.get_mut(position) else { return };
        let values = match_key.matching.value();
        let hash = hash(self.seed, values.iter().copied());
        if let Ok(found) = group.entries.find_entry(hash, |(stored, _)| **stored == *values) {
            found.remove();
        }
        if group.entries.is_empty() {
            groups.remove(position);
            if groups.is_empty() {
                self.groups.remove(&match_key.tag);
            }
        }
    }
}

/// Hashes the words of a masked key.
fn hash(seed: u64, values: impl Iterator<Item = u64>) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = SeededState::with_seed(seed).build_hasher();
    values.for_each(|value| hasher.write_u64(value));
    hasher.finish()
}
