//! One stage: rules by tag, by mask, by value.
//!
//! Under a tag there are few masks, since all packets with it look at the same tables: often one or
//! two. Rules of one tag, mask and length are a hash table of masked words; those of greater length
//! are asked first. Of several rules that match a packet any would be right, as each says what the
//! tables say; the longest leaves the most stages for the rest of the way.

use hashbrown::HashTable;
use shunt_flow::{FlowKey, Match, SparseMask};

use super::{LtmRule, Tag};
use crate::way::fold;

/// One stage of a chain; its rules are known to it by numbers of the chain's.
#[derive(Debug)]
pub(super) struct Table {
    seed: u64,
    /// By number of tag.
    tags: Vec<Vec<Group>>,
}

/// The rules of one tag, mask and length.
#[derive(Debug)]
struct Group {
    mask: SparseMask,
    words: Box<[(usize, u64)]>,
    length: u16,
    index: HashTable<u32>,
    /// The masked words of each row, one row behind the other.
    values: Vec<u64>,
    /// The number of the rule of each row.
    numbers: Vec<u32>,
    free: Vec<u32>,
}

impl Table {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed, tags: Vec::new() }
    }

    /// The longest rule that a packet with this tag matches.
    #[inline]
    pub(super) fn find(&self, tag: Tag, key: &FlowKey) -> Option<u32> {
        let groups = self.tags.get(tag.index())?;
        groups.iter().find_map(|group| group.find(self.seed, key))
    }

    /// The rule with just this tag, match and length.
    pub(super) fn find_exact(&self, rule: &LtmRule) -> Option<u32> {
        let groups = self.tags.get(rule.tag.index())?;
        let group = groups.iter().find(|group| group.is_of(rule))?;
        group.find_values(self.seed, rule.matching.value())
    }

    /// Adds a rule; there is none with its tag, match and length.
    pub(super) fn insert(&mut self, rule: &LtmRule, number: u32) {
        if self.tags.len() <= rule.tag.index() {
            self.tags.resize_with(rule.tag.index() + 1, Vec::new);
        }
        let groups = &mut self.tags[rule.tag.index()];
        let place = groups.iter().position(|group| group.is_of(rule)).unwrap_or_else(|| {
            let place = groups.partition_point(|group| group.length > rule.length);
            groups.insert(place, Group::new(&rule.matching, rule.length));
            place
        });
        groups[place].insert(self.seed, rule.matching.value(), number);
    }

    /// Takes out a rule.
    pub(super) fn remove(&mut self, rule: &LtmRule) {
        let Some(groups) = self.tags.get_mut(rule.tag.index()) else { return };
        let Some(place) = groups.iter().position(|group| group.is_of(rule)) else { return };
        groups[place].remove(self.seed, rule.matching.value());
        if groups[place].index.is_empty() {
            groups.remove(place);
        }
    }

    /// How many masks there are, those of different tags counted apart.
    pub(super) fn masks_count(&self) -> usize {
        self.tags.iter().map(Vec::len).sum()
    }
}

impl Group {
    fn new(matching: &Match, length: u16) -> Self {
        Self {
            mask: matching.mask().clone(),
            words: matching.mask().iter().collect(),
            length,
            index: HashTable::new(),
            values: Vec::new(),
            numbers: Vec::new(),
            free: Vec::new(),
        }
    }

    fn is_of(&self, rule: &LtmRule) -> bool {
        self.length == rule.length && self.mask == *rule.matching.mask()
    }

    #[inline]
    fn find(&self, seed: u64, key: &FlowKey) -> Option<u32> {
        let masked = |(index, mask): &(usize, u64)| key.words()[*index] & mask;
        let hash = self.words.iter().map(masked).fold(seed, fold);
        let is_same = |row: &u32| self.row(*row).iter().copied().eq(self.words.iter().map(masked));
        self.index.find(hash, is_same).map(|row| self.numbers[*row as usize])
    }

    fn find_values(&self, seed: u64, values: &[u64]) -> Option<u32> {
        let hash = hash(seed, values);
        let row = self.index.find(hash, |row| self.row(*row) == values)?;
        Some(self.numbers[*row as usize])
    }

    #[inline]
    fn row(&self, row: u32) -> &[u64] {
        let start = row as usize * self.words.len();
        &self.values[start..start + self.words.len()]
    }

    fn insert(&mut self, seed: u64, values: &[u64], number: u32) {
        let row = match self.free.pop() {
            Some(row) => {
                let start = row as usize * self.words.len();
                self.values[start..start + values.len()].copy_from_slice(values);
                self.numbers[row as usize] = number;
                row
            }
            None => {
                self.values.extend_from_slice(values);
                self.numbers.push(number);
                u32::try_from(self.numbers.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let (held, width) = (&self.values, self.words.len());
        let row_hash = |row: &u32| {
            let start = *row as usize * width;
            hash(seed, &held[start..start + width])
        };
        self.index.insert_unique(hash(seed, values), row, row_hash);
    }

    fn remove(&mut self, seed: u64, values: &[u64]) {
        let (held, width) = (&self.values, self.words.len());
        let is_same = |row: &u32| {
            let start = *row as usize * width;
            &held[start..start + width] == values
        };
        if let Ok(found) = self.index.find_entry(hash(seed, values), is_same) {
            let (row, _) = found.remove();
            self.free.push(row);
        }
    }
}

fn hash(seed: u64, values: &[u64]) -> u64 {
    values.iter().copied().fold(seed, fold)
}
