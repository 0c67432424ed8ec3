//! One stage: rules by tag, by mask, by value.
//!
//! Under a tag there are as many masks as its packets have ways of matching and of not matching. Rules of one tag, mask and length are a hash table of masked words; those of greater length
//! are asked first. Of several rules that match a packet any would be right, as each says what the
//! tables say; the longest leaves the most stages for the rest of the way.
//!
//! A row has all that a walk needs to go on: the masked words, the entry, and the next tag. Only a
//! rule that rewrites headers is looked at itself.

use hashbrown::HashTable;
use shunt_flow::{
    FlowKey, Match, SparseMask,
    hash::{KeyHasher, MaskWord},
};

use super::{EntryRef, LtmRule, Next, Tag};

/// One stage of a chain.
#[derive(Debug)]
pub(super) struct Table {
    hasher: KeyHasher,
    /// By number of tag.
    tags: Vec<Vec<Group>>,
    masks_count: usize,
}

/// An entry that a packet meets, and how it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) entry: EntryRef,
    pub(super) next: Next,
    /// Whether the rule rewrites headers.
    pub(super) rewrites: bool,
}

/// The rules of one tag, mask and length.
#[derive(Debug)]
struct Group {
    mask: SparseMask,
    words: Box<[MaskWord]>,
    length: u16,
    index: HashTable<u32>,
    /// Row behind row: the masked words, the entry, how the packet goes on.
    rows: Vec<u64>,
    free: Vec<u32>,
}

/// Words of a row behind those that are compared.
const STEP_WORDS: usize = 2;

/// The bits of the last word of a row above the next tag.
const END: u64 = 1 << 63;
const REWRITES: u64 = 1 << 62;

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        Self { hasher: KeyHasher::new(seed), tags: Vec::new(), masks_count: 0 }
    }

    /// The longest rule that lives and that a packet with this tag matches.
    #[inline]
    pub(super) fn find(
        &self,
        tag: Tag,
        key: &FlowKey,
        is_live: impl Fn(EntryRef) -> bool,
    ) -> Option<Step> {
        let groups = self.tags.get(tag.index())?;
        let live = |step: &Step| is_live(step.entry);
        groups.iter().find_map(|group| group.find(&self.hasher, key).filter(live))
    }

    /// The slot of the rule with just this tag, match and length.
    pub(super) fn find_exact(&self, rule: &LtmRule) -> Option<u32> {
        let groups = self.tags.get(rule.tag.index())?;
        let group = groups.iter().find(|group| group.is_of(rule))?;
        let values = rule.matching.value();
        let row = group.index.find(self.hasher.hash(values), |row| group.is_row(*row, values))?;
        Some(group.step(*row).entry.slot)
    }

    /// Adds a rule; there is none with its tag, match and length.
    pub(super) fn insert(&mut self, rule: &LtmRule, entry: EntryRef) {
        if self.tags.len() <= rule.tag.index() {
            self.tags.resize_with(rule.tag.index() + 1, Vec::new);
        }
        let groups = &mut self.tags[rule.tag.index()];
        let place = groups.iter().position(|group| group.is_of(rule)).unwrap_or_else(|| {
            let place = groups.partition_point(|group| group.length > rule.length);
            groups.insert(place, Group::new(&rule.matching, rule.length));
            self.masks_count += 1;
            place
        });
        groups[place].insert(&self.hasher, rule, entry);
    }

    /// Takes out a rule.
    pub(super) fn remove(&mut self, rule: &LtmRule) {
        let Some(groups) = self.tags.get_mut(rule.tag.index()) else { return };
        let Some(place) = groups.iter().position(|group| group.is_of(rule)) else { return };
        groups[place].remove(&self.hasher, rule.matching.value());
        if groups[place].index.is_empty() {
            groups.remove(place);
            self.masks_count -= 1;
            // Numbers of tags that are high are seldom in use.
            while self.tags.last().is_some_and(Vec::is_empty) {
                self.tags.pop();
            }
        }
    }

    /// How many masks there are, those of different tags counted apart.
    pub(super) const fn masks_count(&self) -> usize {
        self.masks_count
    }
}

impl Group {
    fn new(matching: &Match, length: u16) -> Self {
        Self {
            mask: matching.mask().clone(),
            words: matching.mask().iter().filter_map(mask_word).collect(),
            length,
            index: HashTable::new(),
            rows: Vec::new(),
            free: Vec::new(),
        }
    }

    fn is_of(&self, rule: &LtmRule) -> bool {
        self.length == rule.length && self.mask == *rule.matching.mask()
    }

    #[inline]
    fn find(&self, hasher: &KeyHasher, key: &FlowKey) -> Option<Step> {
        let key = key.words();
        let is_same = |row: &u32| {
            let own = self.row(*row).iter().zip(&self.words);
            own.fold(0, |differing, (own, word)| differing | own ^ word.of(key)) == 0
        };
        let row = self.index.find(hasher.hash_masked(key, &self.words), is_same)?;
        Some(self.step(*row))
    }

    fn is_row(&self, row: u32, values: &[u64]) -> bool {
        self.row(row).starts_with(values)
    }

    #[inline]
    fn row(&self, row: u32) -> &[u64] {
        let start = self.start(row);
        &self.rows[start..start + self.width()]
    }

    #[inline]
    fn step(&self, row: u32) -> Step {
        let step = self.start(row) + self.words.len();
        let (entry, next) = (self.rows[step], self.rows[step + 1]);
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
        let (slot, generation, tag) = (entry as u32, (entry >> 32) as u32, next as u32);
        let then = if next & END == 0 { Next::Tag(Tag::new(tag)) } else { Next::End };
        Step { entry: EntryRef { slot, generation }, next: then, rewrites: next & REWRITES != 0 }
    }

    #[inline]
    const fn width(&self) -> usize {
        self.words.len() + STEP_WORDS
    }

    #[inline]
    const fn start(&self, row: u32) -> usize {
        row as usize * self.width()
    }

    fn insert(&mut self, hasher: &KeyHasher, rule: &LtmRule, entry: EntryRef) {
        let (values, width) = (rule.matching.value(), self.width());
        let row = self.free.pop().unwrap_or_else(|| {
            let row = self.rows.len() / width;
            self.rows.resize(self.rows.len() + width, 0);
            u32::try_from(row).unwrap_or(u32::MAX)
        });
        let start = self.start(row);
        let next = match rule.next {
            Next::Tag(tag) => u64::from(tag.number()),
            Next::End => END,
        };
        let rewrites = if rule.rewrite.mask().is_empty() { 0 } else { REWRITES };
        let step = [u64::from(entry.generation) << 32 | u64::from(entry.slot), next | rewrites];
        let whole = values.iter().chain(&step);
        self.rows[start..].iter_mut().zip(whole).for_each(|(own, word)| *own = *word);
        let (rows, words) = (&self.rows, values.len());
        let row_hash = |row: &u32| {
            let start = *row as usize * width;
            hasher.hash(&rows[start..start + words])
        };
        self.index.insert_unique(hasher.hash(values), row, row_hash);
    }

    fn remove(&mut self, hasher: &KeyHasher, values: &[u64]) {
        let (rows, width) = (&self.rows, self.width());
        let is_same = |row: &u32| {
            let start = *row as usize * width;
            rows[start..start + width].starts_with(values)
        };
        if let Ok(found) = self.index.find_entry(hasher.hash(values), is_same) {
            let (row, _) = found.remove();
            self.free.push(row);
        }
    }
}

/// A word of a mask; every index of a word fits.
fn mask_word((index, bits): (usize, u64)) -> Option<MaskWord> {
    u8::try_from(index).ok().map(|index| MaskWord { index, bits })
}
