//! The keys of visits in columns of half words, so that a scan runs at memory speed.
//!
//! If no projection fits the mask of a rule, the search for the rule examines every visit of a
//! group. To read the key of a visit, it would follow a row to the entry, the traversal and the
//! key, all in different memory. A column instead holds one half word of all keys, in the order of
//! the rows. An IPv4 address fills half a word, and every processor compares several half words at
//! once. So a scan of a million visits takes about a millisecond, and a projection is filled
//! without reading the entries.

use std::ops::Range;

use shunt_flow::{FlowMask, SparseKey, SparseMask};

use super::rule_query::RuleQuery;

/// The half words of keys that distinguish the visits of a group best.
#[derive(Default)]
pub(super) struct Columns(Vec<Column>);

/// One half word of the keys of all visits of a group.
struct Column {
    /// Index of the word in the key.
    word: usize,
    /// The number of bits below the half word in its word: 0 or 32.
    shift: u32,
    /// The bits of the half word that every lookup of the group consulted.
    bits: u32,
    /// The half word of each row, by the position of the row.
    values: Vec<u32>,
}

/// The condition of a rule on a column.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnTest {
    /// Index of the column.
    column: usize,
    /// The bits to compare.
    bits: u32,
    /// The value that these bits must have.
    value: u32,
}

/// The conditions of a rule on the columns of a group, with most bits first.
///
/// The conditions compare the bits that are in the mask of the rule and in the columns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColumnTests {
    /// The conditions, of which only the first `count` are in use.
    all: [ColumnTest; COLUMNS_MAX],
    /// Number of conditions.
    count: usize,
    /// True if the conditions compare all bits of the rule.
    /// If so, every visit that passes the conditions overlaps the rule.
    pub(super) is_exact: bool,
}

/// Maximum number of columns of a group; each takes four bytes per visit.
const COLUMNS_MAX: usize = 8;

/// Number of rows that are compared at once: the number of bits of a `u64`.
const BLOCK: u32 = u64::BITS;

/// Number of blocks that are sampled before a scan to find the most selective test.
const SAMPLES: u32 = 4;

impl Columns {
    /// Creates columns for the keys of lookups that consulted `mask`.
    pub(super) fn new(mask: &SparseMask) -> Self {
        let halves = mask.iter().flat_map(|(word, bits)| {
            [0, 32].map(|shift| Column { word, shift, bits: half(bits, shift), values: Vec::new() })
        });
        let mut columns: Vec<_> = halves.filter(|column| column.bits != 0).collect();
        columns.sort_by_key(|column| std::cmp::Reverse(column.bits.count_ones()));
        columns.truncate(COLUMNS_MAX);
        // The halves of one word become neighbours, so that `put` reads each word once.
        columns.sort_by_key(|column| column.word);
        Self(columns)
    }

    /// Returns the consulted bits that the columns hold.
    pub(super) fn mask(&self) -> SparseMask {
        let mut mask = FlowMask::EMPTY;
        for column in &self.0 {
            mask.words_mut()[column.word] |= u64::from(column.bits) << column.shift;
        }
        SparseMask::from(&mask)
    }

    /// Writes a key at a position in use, or at the position after the last one.
    pub(super) fn put(&mut self, position: u32, key: &SparseKey) {
        let (mut index, mut word) = (usize::MAX, 0);
        for column in &mut self.0 {
            if column.word != index {
                (index, word) = (column.word, key.word(column.word));
            }
            let value = half(word, column.shift);
            match column.values.get_mut(position as usize) {
                Some(slot) => *slot = value,
                None => column.values.push(value),
            }
        }
    }

    /// Returns the bits of a word of the key at a position that the columns hold.
    pub(super) fn word(&self, position: u32, word: usize) -> u64 {
        let halves = self.0.iter().filter(|column| column.word == word);
        let value = |column: &Column| column.values.get(position as usize).copied();
        let placed = |column| u64::from(value(column).unwrap_or_default()) << column.shift;
        halves.map(placed).sum()
    }

    /// Returns the conditions of a rule on the columns.
    pub(super) fn tests(&self, query: &RuleQuery<'_>) -> ColumnTests {
        let mut tests = ColumnTests::default();
        for (column, Column { word, shift, bits, .. }) in self.0.iter().enumerate() {
            let bits = bits & half(query.mask.word(*word), *shift);
            if bits != 0 {
                let value = bits & half(query.key.words()[*word], *shift);
                tests.all[tests.count] = ColumnTest { column, bits, value };
                tests.count += 1;
            }
        }
        let all = &mut tests.all[..tests.count];
        all.sort_unstable_by_key(|test| std::cmp::Reverse(test.bits.count_ones()));
        let bits_count: u32 = all.iter().map(|test| test.bits.count_ones()).sum();
        tests.is_exact = bits_count == query.bits_count;
        tests
    }

    /// Returns whether the key at a position passes the conditions of a rule.
    pub(super) fn pass(&self, tests: &ColumnTests, position: u32) -> bool {
        self.pass_all(tests.as_slice(), position)
    }

    /// Returns the positions in `range` with keys that pass the conditions of a rule.
    pub(super) fn passing<'c>(
        &'c self,
        tests: &ColumnTests,
        range: Range<u32>,
    ) -> impl Iterator<Item = u32> + use<'c> {
        let tests = self.most_selective_first(*tests, &range);
        let end = range.end;
        let blocks = range.step_by(BLOCK as usize).map(move |from| from..end.min(from + BLOCK));
        blocks.flat_map(move |block| {
            let passing = self.passing_of_block(tests.as_slice(), &block);
            ones(passing).map(move |position| block.start + position)
        })
    }

    /// Puts the test first that the fewest sampled rows pass.
    ///
    /// The number of bits of a test does not decide the order. For example, nearly all rows pass
    /// sixteen bits of the Ethernet type, and few rows pass eight bits of an address.
    fn most_selective_first(&self, mut tests: ColumnTests, range: &Range<u32>) -> ColumnTests {
        let step = (range.end - range.start) / SAMPLES;
        if tests.count < 2 || step < SAMPLES * BLOCK {
            return tests;
        }
        let passing = |test: &ColumnTest| {
            let samples = (0..SAMPLES).map(|sample| range.start + sample * step);
            let blocks = samples.map(|start| self.block(test, &(start..start + BLOCK)));
            blocks.map(|values| test.passing(values).count_ones()).sum::<u32>()
        };
        let mut ranked = [(u32::MAX, ColumnTest::default()); COLUMNS_MAX];
        for (slot, test) in ranked.iter_mut().zip(tests.as_slice()) {
            *slot = (passing(test), *test);
        }
        ranked[..tests.count].sort_by_key(|(passing, _)| *passing);
        for (test, (_, ranked)) in tests.all.iter_mut().zip(ranked) {
            *test = ranked;
        }
        tests
    }

    /// Returns the values of a tested column in a block.
    fn block(&self, test: &ColumnTest, block: &Range<u32>) -> &[u32] {
        &self.0[test.column].values[block.start as usize..block.end as usize]
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|column| column.values.capacity() * size_of::<u32>()).sum()
    }

    /// Returns the rows of a block that pass the tests, as one bit per row.
    fn passing_of_block(&self, tests: &[ColumnTest], block: &Range<u32>) -> u64 {
        let Some((first, others)) = tests.split_first() else {
            return u64::MAX >> (BLOCK - (block.end - block.start));
        };
        let values = self.block(first, block);
        // In most blocks no row passes. Testing for any passing row is faster than computing the
        // bits of all rows.
        if !first.passes_some(values) {
            return 0;
        }
        others.iter().fold(first.passing(values), |passing, test| match passing {
            0 => 0,
            passing => passing & test.passing(self.block(test, block)),
        })
    }

    /// Returns whether the row at a position passes all tests.
    fn pass_all(&self, tests: &[ColumnTest], position: u32) -> bool {
        tests.iter().all(|test| {
            let value = self.0[test.column].values.get(position as usize);
            value.is_some_and(|value| test.passes(*value))
        })
    }
}

impl ColumnTests {
    /// Returns the conditions in use.
    fn as_slice(&self) -> &[ColumnTest] {
        &self.all[..self.count]
    }
}

impl ColumnTest {
    /// Returns whether a value passes the test.
    const fn passes(self, value: u32) -> bool {
        (value ^ self.value) & self.bits == 0
    }

    /// Returns whether one of the values passes the test.
    /// The code has no branch per value, so that the processor compares many values at once.
    fn passes_some(self, values: &[u32]) -> bool {
        values.iter().fold(false, |found, value| found | self.passes(*value))
    }

    /// Returns the values of a block that pass the test, as one bit per value.
    fn passing(self, values: &[u32]) -> u64 {
        let mut passed = [0_u8; BLOCK as usize];
        passed.iter_mut().zip(values).for_each(|(own, value)| *own = self.passes(*value).into());
        let (eights, _) = passed.as_chunks();
        let bits = eights.iter().map(|eight| ones_of_bytes(u64::from_le_bytes(*eight)));
        bits.zip(0..).fold(0, |all, (bits, eight): (u64, u32)| all | bits << (8 * eight))
    }
}

/// Returns the half of a word above `shift` bits.
#[expect(clippy::cast_possible_truncation, reason = "the function returns half of the word")]
const fn half(word: u64, shift: u32) -> u32 {
    (word >> shift) as u32
}

/// Packs eight bytes of zero or one into eight bits.
///
/// A multiplication moves each byte to its own bit of the upper byte.
const fn ones_of_bytes(bytes: u64) -> u64 {
    bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Returns the positions of the bits that are set, ascending.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let position = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (position < u64::BITS).then_some(position)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_flow::FlowKey;
    use shunt_pipeline::{Priority, Rank};

    use super::*;

    /// The words of the test keys. Each has bits in both halves.
    const WORDS: [usize; 6] = [3, 40, 64, 65, 70, 80];

    /// Generates a word with few values.
    fn bits() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just(u64::MAX),
            Just(0xff00),
            Just(0xffff << 40),
            any::<u64>().prop_map(|bits| bits & bits >> 7),
        ]
    }

    /// Generates the words of a key.
    fn words(strategy: impl Strategy<Value = u64>) -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(strategy, WORDS.len())
    }

    /// Returns a key with some words.
    fn key(words: &[u64]) -> FlowKey {
        let mut key = FlowKey::ZERO;
        WORDS.iter().zip(words).for_each(|(word, value)| key.words_mut()[*word] = *value);
        key
    }

    /// Returns a mask with some words.
    fn mask(words: &[u64]) -> SparseMask {
        let mut mask = FlowMask::EMPTY;
        WORDS.iter().zip(words).for_each(|(word, bits)| mask.words_mut()[*word] = *bits);
        SparseMask::from(&mask)
    }

    #[test]
    fn the_most_selective_test_is_first() {
        // All rows have the same sixteen bits in one column. In the second column, few rows have
        // the same eight bits.
        let group = mask(&[0xffff, 0xff, 0, 0, 0, 0]);
        let mut columns = Columns::new(&group);
        for position in 0..4 * SAMPLES * BLOCK {
            let words = [0x0800, u64::from(position % 200), 0, 0, 0, 0];
            columns.put(position, &SparseKey::from(&key(&words)));
        }
        let (rank, value) =
            (Rank { priority: Priority::new(1), age: 1 }, key(&[0x0800, 7, 0, 0, 0, 0]));
        let bits_count = group.bits_count();
        let tests = columns.tests(&RuleQuery { rank, mask: &group, bits_count, key: value });
        let words = |tests: &ColumnTests| -> Vec<usize> {
            tests.as_slice().iter().map(|test| columns.0[test.column].word).collect()
        };
        assert_eq!(words(&tests), [WORDS[0], WORDS[1]]);
        let many = columns.most_selective_first(tests, &(0..4 * SAMPLES * BLOCK));
        assert_eq!(words(&many), [WORDS[1], WORDS[0]]);
        let scan_threshold = columns.most_selective_first(tests, &(0..BLOCK));
        assert_eq!(words(&scan_threshold), [WORDS[0], WORDS[1]], "not worth a look");
    }

    proptest! {
        #[test]
        fn key_passes_if_all_column_bits_agree(
            group in words(bits()),
            rule_bits in words(bits()),
            keys in prop::collection::vec(words((0u64..3).prop_map(|n| n << 40 | n << 9 | n)), 1..300),
            (sample, ends) in (any::<prop::sample::Index>(), any::<[prop::sample::Index; 2]>()),
            times in prop_oneof![Just(1_usize), Just(12)],
        ) {
            let keys = vec![keys; times].concat();
            let mut columns = Columns::new(&mask(&group));
            let held = FlowMask::from(&columns.mask());
            // Each position is written twice, so that the second write replaces a key.
            for _ in 0..2 {
                let all = (0..).zip(&keys);
                all.for_each(|(position, words)| columns.put(position, &SparseKey::from(&key(words))));
            }
            let (rule, rank) = (mask(&rule_bits), Rank { priority: Priority::new(1), age: 1 });
            let under = sample.get(&keys).iter().zip(&rule_bits).map(|(value, bits)| value & bits);
            let value = key(&under.collect::<Vec<_>>());
            let bits_count = rule.bits_count();
            let tests = columns.tests(&RuleQuery { rank, mask: &rule, bits_count, key: value.clone() });
            let agrees = |own: &FlowKey| {
                let words = own.words().iter().zip(value.words()).zip(held.words()).enumerate();
                words.into_iter().all(|(word, ((own, value), held))| {
                    (own ^ value) & held & rule.word(word) == 0
                })
            };
            let positions: Vec<u32> = (0..).take(keys.len() + 1).collect();
            let [from, to] = ends.map(|end| *end.get(&positions));
            let range = from.min(to)..from.max(to);
            let expected: Vec<u32> =
                range.clone().filter(|at| agrees(&key(&keys[*at as usize]))).collect();
            prop_assert_eq!(columns.passing(&tests, range.clone()).collect::<Vec<_>>(), expected);
            for position in range {
                let own = key(&keys[position as usize]);
                prop_assert_eq!(columns.pass(&tests, position), agrees(&own));
                for (word, held) in held.words().iter().enumerate() {
                    prop_assert_eq!(columns.word(position, word) & held, own.words()[word] & held);
                }
            }
            let is_all = rule.iter().all(|(word, bits)| bits & !held.words()[word] == 0);
            prop_assert_eq!(tests.is_exact, is_all);
        }
    }
}
