//! One stage: entries by tag, by mask, by value; the longest that matches wins.

use hashbrown::{HashMap, HashTable};
use shunt_flow::{FlowKey, SparseMask};
use shunt_gigaflow::ltm::{LtmRule, Tag};
use shunt_p4runtime::server::EntryNo;

/// Names an entry of the chain.
pub(crate) type Slot = u32;

type Seeded = foldhash::fast::FixedState;

/// One stage.
#[derive(Debug)]
pub(crate) struct Stage {
    seed: u64,
    groups: HashMap<Tag, Vec<Group>, Seeded>,
    masks_count: usize,
}

/// The entries of one tag, mask and length.
#[derive(Debug)]
struct Group {
    mask: SparseMask,
    length: u16,
    entries: HashTable<(Box<[u64]>, Slot)>,
}

impl Group {
    fn is_of(&self, rule: &LtmRule) -> bool {
        self.length == rule.length && self.mask == *rule.matching.mask()
    }

    fn find(&self, seed: u64, key: &FlowKey) -> Option<Slot> {
        let hash = hash(seed, self.mask.apply(key));
        let is_same =
            |(values, _): &(Box<[u64]>, Slot)| values.iter().copied().eq(self.mask.apply(key));
        self.entries.find(hash, is_same).map(|(_, slot)| *slot)
    }
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, groups: HashMap::with_hasher(Seeded::with_seed(seed)), masks_count: 0 }
    }

    /// Whether a rule needs a mask that is not there yet.
    pub(crate) fn is_new_mask(&self, rule: &LtmRule) -> bool {
        let groups = self.groups.get(&rule.tag);
        !groups.is_some_and(|groups| groups.iter().any(|group| group.is_of(rule)))
    }

    pub(crate) const fn masks_count(&self) -> usize {
        self.masks_count
    }

    pub(crate) fn find(&self, tag: Tag, key: &FlowKey) -> Option<Slot> {
        self.groups.get(&tag)?.iter().find_map(|group| group.find(self.seed, key))
    }

    pub(crate) fn insert(&mut self, rule: &LtmRule, slot: Slot) {
        let groups = self.groups.entry(rule.tag).or_default();
        let place = groups.iter().position(|group| group.is_of(rule)).unwrap_or_else(|| {
            let place = groups.partition_point(|group| group.length > rule.length);
            let mask = rule.matching.mask().clone();
            groups.insert(place, Group { mask, length: rule.length, entries: HashTable::new() });
            self.masks_count += 1;
            place
        });
        let (seed, values) = (self.seed, rule.matching.value());
        if let Some(group) = groups.get_mut(place) {
            let entry = (values.into(), slot);
            group.entries.insert_unique(
                hash(seed, values.iter().copied()),
                entry,
                |(values, _)| hash(seed, values.iter().copied()),
            );
        }
    }

    pub(crate) fn remove(&mut self, rule: &LtmRule) {
        let Some(groups) = self.groups.get_mut(&rule.tag) else { return };
        let Some(place) = groups.iter().position(|group| group.is_of(rule)) else { return };
        let values = rule.matching.value();
        let hash = hash(self.seed, values.iter().copied());
        let Some(group) = groups.get_mut(place) else { return };
        if let Ok(found) = group.entries.find_entry(hash, |(held, _)| **held == *values) {
            found.remove();
        }
        if group.entries.is_empty() {
            groups.remove(place);
            self.masks_count -= 1;
            if groups.is_empty() {
                self.groups.remove(&rule.tag);
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

/// An entry, wherever it is.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) no: EntryNo,
    pub(crate) stage: usize,
    pub(crate) rule: LtmRule,
    /// Its packets go to the controller.
    pub(crate) is_punt: bool,
}
