//! A hash table of keys under one mask: the subtable of a flow cache.
//!
//! A row holds the masked words of a key and a few words of the caller, in whole cache lines. A
//! burst of packets passes the table in steps: all hashes ([`MaskedTable::tag`]), all slots of the
//! index ([`MaskedTable::candidate`]), all rows ([`MaskedTable::confirm`]). Each step is a loop of
//! independent loads. So a table larger than the processor caches costs a burst a few memory
//! latencies, not one per packet.

mod index;

use std::hint::black_box;

use self::index::{NO_ROW, RowIndex};
use crate::{
    SparseMask,
    hash::{KeyHasher, MaskWord},
    layout::FLOW_WORDS,
};

/// A table of keys under one mask, with `TAIL` words of the caller for each key.
#[derive(Debug)]
pub struct MaskedTable<const TAIL: usize> {
    /// The words of the mask that are not zero.
    mask: Box<[MaskWord]>,
    /// The row of each key, by its hash.
    index: RowIndex,
    /// The rows; each has as many lines as its words need.
    lines: Vec<RowLine>,
    /// Number of cache lines of a row.
    lines_per_row: usize,
    /// Numbers of unused rows.
    free: Vec<u32>,
}

/// One cache line of a row.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct RowLine([u64; WORDS_PER_LINE]);

/// Number of words in a cache line.
const WORDS_PER_LINE: usize = 8;

/// The first row that may be the row of a key, if such a row exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCandidate(u32);

impl RowCandidate {
    /// The number of no row.
    pub const NONE: Self = Self(NO_ROW);
}

impl<const TAIL: usize> MaskedTable<TAIL> {
    /// Creates an empty table for a mask.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a key has fewer than 256 words")]
    pub fn new(mask: &SparseMask) -> Self {
        let words = mask.iter().map(|(index, bits)| MaskWord { index: index as u8, bits });
        Self {
            mask: words.collect(),
            index: RowIndex::new(),
            lines: Vec::new(),
            lines_per_row: (mask.words().len() + TAIL).div_ceil(WORDS_PER_LINE).max(1),
            free: Vec::new(),
        }
    }

    /// Returns whether the table has no row.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the words of a key under the mask.
    pub fn masked<'a>(&'a self, key: &'a [u64; FLOW_WORDS]) -> impl Iterator<Item = u64> + 'a {
        self.mask.iter().map(|word| word.of(key))
    }

    /// Returns the tag under which the index stores a key.
    #[must_use]
    #[inline]
    pub fn tag(&self, hasher: &KeyHasher, key: &[u64; FLOW_WORDS]) -> u32 {
        RowIndex::tag(hasher.hash_masked(key, &self.mask))
    }

    /// Returns the first row with a tag.
    #[must_use]
    #[inline]
    pub fn candidate(&self, tag: u32) -> RowCandidate {
        RowCandidate(self.index.candidate(tag))
    }

    /// Returns the row of `key`; `candidate` is the first row with its tag.
    #[must_use]
    #[inline]
    pub fn confirm(
        &self,
        candidate: RowCandidate,
        tag: u32,
        key: &[u64; FLOW_WORDS],
    ) -> Option<u32> {
        let RowCandidate(row) = candidate;
        if row == NO_ROW {
            return None;
        }
        if self.row_is(row, key) {
            return Some(row);
        }
        // Two rows rarely have the same tag: one key in thousands needs a second comparison, even
        // in a large table.
        self.index.find(tag, |row| self.row_is(row, key))
    }

    /// Loads a row and the mask into the processor cache before they are compared.
    ///
    /// The step is so short that the loads of many packets overlap. A row that does not exist is ignored.
    #[inline]
    pub fn fetch(&self, row: u32) {
        let start = row as usize * self.lines_per_row;
        if let Some(lines) = self.lines.get(start..start + self.lines_per_row) {
            // A mask of five words, as those of a 5-tuple, is in two cache lines.
            let ends = [self.mask.first(), self.mask.last()];
            let mask = ends.into_iter().flatten().fold(0, |sum, word| sum | word.bits);
            black_box(lines.iter().fold(mask, |sum, line| sum | line.0[0]));
        }
    }

    /// Returns whether a row has the masked words of `key`.
    ///
    /// For a row that was never added the result is false. A removed row keeps its words: the
    /// caller checks its tail.
    #[must_use]
    #[inline]
    pub fn covers(&self, row: u32, key: &[u64; FLOW_WORDS]) -> bool {
        self.has(row) && self.row_is(row, key)
    }

    /// Returns the row of `key`.
    #[must_use]
    #[inline]
    pub fn find(&self, hasher: &KeyHasher, key: &[u64; FLOW_WORDS]) -> Option<u32> {
        let tag = self.tag(hasher, key);
        self.confirm(self.candidate(tag), tag, key)
    }

    /// Returns the row of a key with these masked words.
    #[must_use]
    pub fn find_words(&self, hasher: &KeyHasher, words: &[u64]) -> Option<u32> {
        self.index.find(RowIndex::tag(hasher.hash(words)), |row| self.words_of(row).eq(words))
    }

    /// Returns the words of the caller in a row.
    #[must_use]
    #[inline]
    pub fn tail(&self, row: u32) -> [u64; TAIL] {
        std::array::from_fn(|at| {
            let (line, word) = self.word_position(row, self.mask.len() + at);
            self.lines[line].0[word]
        })
    }

    /// Sets the words of the caller in a row.
    pub fn set_tail(&mut self, row: u32, tail: [u64; TAIL]) {
        for (at, own) in tail.into_iter().enumerate() {
            let (line, word) = self.word_position(row, self.mask.len() + at);
            self.lines[line].0[word] = own;
        }
    }

    /// Sets the caller's words of the row with these masked words.
    /// Adds a row if needed, and returns the row.
    pub fn put(&mut self, hasher: &KeyHasher, words: &[u64], tail: [u64; TAIL]) -> u32 {
        let tag = RowIndex::tag(hasher.hash(words));
        let row = self.index.find(tag, |row| self.words_of(row).eq(words));
        let row = row.unwrap_or_else(|| self.add(tag, words));
        self.set_tail(row, tail);
        row
    }

    /// Adds a row for masked words that have no row yet, and returns the row.
    pub fn put_new(&mut self, hasher: &KeyHasher, words: &[u64], tail: [u64; TAIL]) -> u32 {
        debug_assert!(
            self.find_words(hasher, words).is_none(),
            "the caller adds only masked words that have no row yet"
        );
        let row = self.add(RowIndex::tag(hasher.hash(words)), words);
        self.set_tail(row, tail);
        row
    }

    /// Adds a row with this tag; returns its number.
    fn add(&mut self, tag: u32, words: &[u64]) -> u32 {
        let row = self.new_row(words);
        self.index.insert(tag, row);
        row
    }

    /// Removes a row, if it exists.
    pub fn remove(&mut self, hasher: &KeyHasher, row: u32) {
        if self.has(row) {
            let words: Vec<u64> = self.words_of(row).copied().collect();
            if self.index.remove(RowIndex::tag(hasher.hash(&words)), row) {
                self.free.push(row);
            }
        }
    }

    /// Returns whether a row was ever added.
    #[must_use]
    pub const fn has(&self, row: u32) -> bool {
        (row as usize + 1) * self.lines_per_row <= self.lines.len()
    }

    /// Returns the numbers of all rows, in no particular order.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.index.rows()
    }

    /// Returns the words of the mask: index, bits, value in the row.
    pub fn masked_row(&self, row: u32) -> impl Iterator<Item = (usize, u64, u64)> {
        let mask = self.mask.iter().map(|word| (usize::from(word.index), word.bits));
        mask.zip(self.words_of(row)).map(|((index, bits), value)| (index, bits, *value))
    }

    /// Returns the masked words of a row.
    pub fn words_of(&self, row: u32) -> impl Iterator<Item = &u64> {
        let start = row as usize * self.lines_per_row;
        self.lines[start..].iter().flat_map(|line| &line.0).take(self.mask.len())
    }

    /// Returns whether a row equals `key` under the mask.
    #[inline]
    fn row_is(&self, row: u32, key: &[u64; FLOW_WORDS]) -> bool {
        let start = row as usize * self.lines_per_row;
        let mut words = self.mask.iter();
        let mut differing = 0;
        for line in &self.lines[start..start + self.lines_per_row] {
            for (own, word) in line.0.iter().zip(words.by_ref()) {
                differing |= own ^ word.of(key);
            }
        }
        differing == 0
    }

    /// Returns the line and the offset of a word of a row.
    #[inline]
    const fn word_position(&self, row: u32, word: usize) -> (usize, usize) {
        (row as usize * self.lines_per_row + word / WORDS_PER_LINE, word % WORDS_PER_LINE)
    }

    /// Stores the words of a key in a free row, or in a new one.
    #[expect(clippy::cast_possible_truncation, reason = "rows are counted in u32")]
    fn new_row(&mut self, words: &[u64]) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            let row = self.lines.len() / self.lines_per_row;
            let zero = RowLine([0; WORDS_PER_LINE]);
            self.lines.resize(self.lines.len() + self.lines_per_row, zero);
            row as u32
        });
        let start = row as usize * self.lines_per_row;
        let own = self.lines[start..].iter_mut().flat_map(|line| &mut line.0);
        own.zip(words).for_each(|(own, word)| *own = *word);
        row
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FieldId, FlowKey, FlowMask};

    /// Returns a key with two values.
    fn key(source: u8, target: u8) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::Ipv4Src, u128::from(source));
        key.set_field(FieldId::TcpDst, u128::from(target));
        key
    }

    proptest! {
        #[test]
        fn a_masked_key_finds_its_last_row(
            mask in (0..8_u8, 0..8_u8),
            ops in prop::collection::vec((any::<bool>(), 0..8_u8, 0..8_u8), 0..100),
        ) {
            let mut bits = FlowMask::EMPTY;
            bits.add_bits(FieldId::Ipv4Src, u128::from(mask.0));
            bits.add_bits(FieldId::TcpDst, u128::from(mask.1));
            let hasher = KeyHasher::new(1);
            let mut table: MaskedTable<2> = MaskedTable::new(&SparseMask::from(&bits));
            let mut model = std::collections::BTreeMap::new();
            for (number, (comes, source, target)) in (0..).zip(ops) {
                let key = key(source, target);
                let masked = (source & mask.0, target & mask.1);
                if comes {
                    let words: Vec<u64> = table.masked(key.words()).collect();
                    let row = table.put(&hasher, &words, [number, !number]);
                    prop_assert_eq!(table.find_words(&hasher, &words), Some(row));
                    model.insert(masked, number);
                } else if let Some(row) = table.find(&hasher, key.words()) {
                    table.remove(&hasher, row);
                    prop_assert!(model.remove(&masked).is_some());
                }
                prop_assert_eq!(table.is_empty(), model.is_empty());
                prop_assert_eq!(table.rows().count(), model.len());
                for (source, target) in (0..8).flat_map(|source| (0..8).map(move |t| (source, t))) {
                    let found = table.find(&hasher, self::key(source, target).words());
                    let expected = model.get(&(source & mask.0, target & mask.1));
                    prop_assert_eq!(
                        found.map(|row| table.tail(row)),
                        expected.map(|number| [*number, !*number])
                    );
                }
            }
        }
    }
}
