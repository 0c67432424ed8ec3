//! Keys of visits by word, one beside the other, so that a group is looked through at the speed of
//! memory.
//!
//! A rule of a mask that no projection serves yet looks at every visit of a group. Behind a row are
//! an entry, its traversal and a key, each somewhere else; a column holds one word of all keys in the
//! order of their rows. So a rule passes over a million visits in about a millisecond, and a
//! projection is filled without a look at the entries.

use std::ops::Range;

use shunt_flow::{SparseKey, SparseMask};

use super::asked::Asked;

/// The words of keys by which a group tells its visits apart best.
#[derive(Default)]
pub(super) struct Columns(Vec<Column>);

struct Column {
    word: usize,
    /// By position.
    values: Vec<u64>,
}

/// What a rule asks of the word of a column; where it looks at none of the bits, nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Test {
    /// Which column.
    column: usize,
    bits: u64,
    value: u64,
}

/// What a rule asks of the columns of a group, by the bits that both look at: the sharpest first.
#[derive(Debug, Default)]
pub(super) struct Tests {
    all: [Test; COLUMNS_MAX],
    /// They are all that the rule matches: its region and that of a visit which passes overlap.
    pub(super) are_all: bool,
}

/// Words that are held: each costs eight bytes of a visit.
const COLUMNS_MAX: usize = 4;

impl Columns {
    /// Columns for keys of which every lookup consulted `mask`.
    pub(super) fn new(mask: &SparseMask) -> Self {
        let mut words: Vec<_> = mask.iter().map(|(word, bits)| (bits.count_ones(), word)).collect();
        words.sort_unstable_by(|one, other| other.cmp(one));
        let column = |(_, word)| Column { word, values: Vec::new() };
        Self(words.into_iter().take(COLUMNS_MAX).map(column).collect())
    }

    /// Puts a key at a position: one that had a key before, or the next.
    pub(super) fn put(&mut self, position: u32, key: &SparseKey) {
        for Column { word, values } in &mut self.0 {
            let value = key.word(*word);
            match values.get_mut(position as usize) {
                Some(place) => *place = value,
                None => values.push(value),
            }
        }
    }

    /// A word of the key at a position, if it is held.
    pub(super) fn word(&self, position: u32, word: usize) -> Option<u64> {
        let column = self.0.iter().find(|column| column.word == word)?;
        column.values.get(position as usize).copied()
    }

    /// What a rule asks of keys of which every lookup consulted `mask`.
    pub(super) fn tests(&self, mask: &SparseMask, asked: &Asked<'_>) -> Tests {
        let mut tests = Tests::default();
        let mut count = 0;
        for ((column, Column { word, .. }), test) in self.0.iter().enumerate().zip(&mut tests.all) {
            let bits = asked.mask.word(*word) & mask.word(*word);
            count += bits.count_ones();
            *test = Test { column, bits, value: asked.key.words()[*word] & bits };
        }
        tests.are_all = count == asked.bits_count;
        tests.all.sort_unstable_by_key(|test| std::cmp::Reverse(test.bits.count_ones()));
        tests
    }

    /// Whether the key at a position passes.
    pub(super) fn pass(&self, tests: &Tests, position: u32) -> bool {
        tests.all.iter().filter(|test| test.bits != 0).all(|test| {
            let value = self.0[test.column].values.get(position as usize);
            value.is_some_and(|value| test.passes(*value))
        })
    }

    /// The positions in `range` whose keys pass.
    pub(super) fn passing<'c>(
        &'c self,
        tests: &'c Tests,
        range: Range<u32>,
    ) -> impl Iterator<Item = u32> + 'c {
        let first = tests.all.first().filter(|test| test.bits != 0);
        let values =
            first.and_then(|first| self.0[first.column].values.get(range.start as usize..));
        let asked = values.zip(first).map(|(values, first)| {
            let passing =
                values.iter().zip(range.clone()).filter(|(value, _)| first.passes(**value));
            passing.map(|(_, position)| position).filter(|at| self.pass(tests, *at))
        });
        // Without a question all pass.
        let all = if asked.is_some() { range.end..range.end } else { range };
        asked.into_iter().flatten().chain(all)
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|column| column.values.capacity() * size_of::<u64>()).sum()
    }
}

impl Test {
    const fn passes(self, value: u64) -> bool {
        (value ^ self.value) & self.bits == 0
    }
}
