//! One stage: entries by tag, by mask, by value, with the priorities that the controller says.
//!
//! Entries of one tag, mask and priority are a hash table of masked words; those of greater priority
//! are asked first. The chain knows its entries by number.

use hashbrown::{HashMap, HashTable};
use shunt_flow::{FlowKey, Match, SparseMask};
use shunt_gigaflow::ltm::Tag;

type Seeded = foldhash::fast::FixedState;

/// The entries of one stage.
#[derive(Debug)]
pub(crate) struct Table {
    seed: u64,
    groups: HashMap<Tag, Vec<Group>, Seeded>,
}

/// What makes an entry this one and no other of its stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The tag that packets arrive with.
    pub(crate) tag: Tag,
    /// The headers that they have.
    pub(crate) matching: &'a Match,
    /// Of several entries that match, the one with the greatest wins.
    pub(crate) priority: u32,
}

/// The entries of one tag, mask and priority.
#[derive(Debug)]
struct Group {
    mask: SparseMask,
    priority: u32,
    entries: HashTable<(Box<[u64]>, u32)>,
}

impl Group {
    fn is_of(&self, place: &Place<'_>) -> bool {
        self.priority == place.priority && self.mask == *place.matching.mask()
    }

    fn find(&self, seed: u64, key: &FlowKey) -> Option<u32> {
        let hash = hash(seed, self.mask.apply(key));
        let is_same =
            |(values, _): &(Box<[u64]>, u32)| values.iter().copied().eq(self.mask.apply(key));
        self.entries.find(hash, is_same).map(|(_, number)| *number)
    }
}

impl Table {
    /// No entries. Hashes are made with `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, groups: HashMap::with_hasher(Seeded::with_seed(seed)) }
    }

    /// The entry of the greatest priority that a packet with this tag matches.
    pub(crate) fn find(&self, tag: Tag, key: &FlowKey) -> Option<u32> {
        self.groups.get(&tag)?.iter().find_map(|group| group.find(self.seed, key))
    }

    /// The entry in just this place.
    pub(crate) fn find_exact(&self, place: Place<'_>) -> Option<u32> {
        let group = self.groups.get(&place.tag)?.iter().find(|group| group.is_of(&place))?;
        let values = place.matching.value();
        let hash = hash(self.seed, values.iter().copied());
        group.entries.find(hash, |(held, _)| **held == *values).map(|(_, number)| *number)
    }

    /// Adds an entry; there is none in its place.
    pub(crate) fn insert(&mut self, place: Place<'_>, number: u32) {
        let groups = self.groups.entry(place.tag).or_default();
        let position = groups.iter().position(|group| group.is_of(&place)).unwrap_or_else(|| {
            let position = groups.partition_point(|group| group.priority > place.priority);
            let mask = place.matching.mask().clone();
            let group = Group { mask, priority: place.priority, entries: HashTable::new() };
            groups.insert(position, group);
            position
        });
        let (seed, values) = (self.seed, place.matching.value());
        if let Some(group) = groups.get_mut(position) {
            let row = (values.into(), number);
            group.entries.insert_unique(hash(seed, values.iter().copied()), row, |(values, _)| {
                hash(seed, values.iter().copied())
            });
        }
    }

    /// Takes out the entry in this place.
    pub(crate) fn remove(&mut self, place: Place<'_>) {
        let Some(groups) = self.groups.get_mut(&place.tag) else { return };
        let Some(position) = groups.iter().position(|group| group.is_of(&place)) else { return };
        let Some(group) = groups.get_mut(position) else { return };
        let values = place.matching.value();
        let hash = hash(self.seed, values.iter().copied());
        if let Ok(found) = group.entries.find_entry(hash, |(held, _)| **held == *values) {
            found.remove();
        }
        if group.entries.is_empty() {
            groups.remove(position);
            if groups.is_empty() {
                self.groups.remove(&place.tag);
            }
        }
    }
}

fn hash(seed: u64, values: impl Iterator<Item = u64>) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = Seeded::with_seed(seed).build_hasher();
    values.for_each(|value| hasher.write_u64(value));
    hasher.finish()
}
