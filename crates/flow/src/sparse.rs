//! Sparse masks, keys and masked values: only the words that are used.
//!
//! Most masks use three to eight of the [`FLOW_WORDS`] words of a key, and most keys a dozen.
//! Hashing, masking and comparing through these forms touches those words and no others, and what is
//! kept for long is kept in them.

use std::{fmt, sync::Arc};

use crate::{
    FieldId, FlowKey, FlowMask, PortNo,
    layout::{FLOW_WORDS, HEADER_START, Stage, word},
};

/// A set of word indices: bit `i` stands for word `i` of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WordMap(u128);

impl WordMap {
    /// The set of no word.
    pub const EMPTY: Self = Self(0);

    /// The set of those words that are not zero.
    #[must_use]
    pub fn nonzero(words: &[u64; FLOW_WORDS]) -> Self {
        let (eights, last) = words.as_chunks::<8>();
        let mut map = u128::from(nonzero(last)) << (FLOW_WORDS - last.len());
        for (eight, first) in eights.iter().zip((0_u32..).step_by(8)) {
            // Most keys and masks have no hidden words, or a few side by side.
            if eight.iter().fold(0, |all, word| all | word) != 0 {
                map |= u128::from(nonzero(eight)) << first;
            }
        }
        Self(map)
    }

    /// The set of the first `count` words.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    /// The set with one more word.
    #[must_use]
    pub const fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    /// The words of this set and of another.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The words of this set that are not in another.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The set in two words, the indices below 64 in the first.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are what is asked for")]
    const fn halves(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    fn from_halves([low, high]: [u64; 2]) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Number of words in the set.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Number of words of the set that lie below `index`.
    #[must_use]
    pub const fn count_below(self, index: usize) -> usize {
        (self.0 & ((1 << index) - 1)).count_ones() as usize
    }

    /// Whether the set holds word `index`.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// The indices, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        // Steps of one word are half as long as those of two.
        let [mut low, mut high] = self.halves();
        std::iter::from_fn(move || {
            let (rest, first) = if low != 0 { (&mut low, 0) } else { (&mut high, 64) };
            let index = rest.trailing_zeros() as usize;
            *rest &= rest.wrapping_sub(1);
            (index < 64).then_some(first + index)
        })
    }
}

/// The non-zero words of a key or mask, shared: which they are, in two words, and then they.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SparseWords(Arc<[u64]>);

const _: () = assert!(HEADER_START == 64, "headers are the upper half of a map");

/// Words before the non-zero ones.
const HEAD: usize = 2;

impl SparseWords {
    fn new(words: &[u64; FLOW_WORDS]) -> Self {
        Self::of(WordMap::nonzero(words), words)
    }

    /// Of the words of `map`, none of which is zero.
    fn of(map: WordMap, words: &[u64; FLOW_WORDS]) -> Self {
        let values = map.iter().map(|index| words[index]);
        Self(exactly(HEAD + map.count(), map.halves().into_iter().chain(values)))
    }

    fn map(&self) -> WordMap {
        let halves = self.0.first_chunk();
        halves.map_or(WordMap::EMPTY, |halves| WordMap::from_halves(*halves))
    }

    fn words(&self) -> &[u64] {
        self.0.get(HEAD..).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.map().iter().zip(self.words().iter().copied())
    }

    fn word(&self, index: usize) -> u64 {
        let map = self.map();
        if map.contains(index) { self.words()[map.count_below(index)] } else { 0 }
    }

    fn field(&self, field: FieldId) -> u128 {
        let slot = field.slot();
        let index = usize::from(slot.word);
        let value = if slot.width == 128 {
            u128::from(self.word(index)) << 64 | u128::from(self.word(index + 1))
        } else {
            u128::from(self.word(index) >> slot.shift)
        };
        value & field.value_max()
    }

    fn is_of(&self, words: &[u64; FLOW_WORDS]) -> bool {
        self.map() == WordMap::nonzero(words) && self.iter().all(|(i, word)| words[i] == word)
    }

    fn write_to(&self, words: &mut [u64; FLOW_WORDS]) {
        self.iter().for_each(|(index, word)| words[index] = word);
    }
}

/// So many words. An iterator of known length fills the one allocation that is made.
fn exactly(count: usize, mut words: impl Iterator<Item = u64>) -> Arc<[u64]> {
    (0..count).map(|_| words.next().unwrap_or_default()).collect()
}

/// Which of at most eight words are not zero.
fn nonzero(words: &[u64]) -> u64 {
    let bit = |bits, (word, place): (&u64, u32)| bits | u64::from(*word != 0) << place;
    words.iter().zip(0..).fold(0, bit)
}

/// A flow mask that holds only its non-zero words.
///
/// Cloning is cheap: the words are shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SparseMask(SparseWords);

impl SparseMask {
    /// The mask of these words, where `map` has all that are not zero.
    #[must_use]
    pub fn of_words(map: WordMap, words: &[u64; FLOW_WORDS]) -> Self {
        let zero = map.iter().filter(|index| words[*index] == 0);
        let exact = zero.fold(map, |map, index| WordMap(map.0 & !(1 << index)));
        debug_assert!(exact == WordMap::nonzero(words), "the map has the words that are used");
        Self(SparseWords::of(exact, words))
    }

    /// Which words are not zero.
    #[must_use]
    pub fn map(&self) -> WordMap {
        self.0.map()
    }

    /// The non-zero words, by ascending index.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.0.words()
    }

    /// Index and bits of every non-zero word, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter()
    }

    /// As [`Self::iter`], without hidden words.
    pub fn headers(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let [hidden, mut rest] = self.map().halves();
        let words = self.words().get(hidden.count_ones() as usize..).unwrap_or_default();
        words.iter().map(move |word| {
            let index = HEADER_START + rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (index, *word)
        })
    }

    /// The bits of one word of the [`layout`](crate::layout).
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.0.word(index)
    }

    /// The bits of a field that are set, right-aligned.
    #[must_use]
    pub fn field(&self, field: FieldId) -> u128 {
        self.0.field(field)
    }

    /// Whether no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words().is_empty()
    }

    /// Number of bits that are set.
    #[must_use]
    pub fn bits_count(&self) -> u32 {
        self.words().iter().map(|word| word.count_ones()).sum()
    }

    /// Whether every bit of `mask` is also in this one.
    #[must_use]
    pub fn has_all_of(&self, mask: &Self) -> bool {
        mask.iter().all(|(index, bits)| bits & !self.word(index) == 0)
    }

    /// Where its words are in memory: equal for clones, and for no other mask while it lives.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.0.as_ptr().addr()
    }

    /// Whether another has the same words in memory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0.0) > 1
    }

    /// The mask without its hidden words.
    #[must_use]
    pub fn without_hidden(&self) -> Self {
        let map = self.map();
        let hidden_count = map.count_below(HEADER_START);
        if hidden_count == 0 {
            return self.clone();
        }
        let [_, headers] = map.halves();
        let words = self.words()[hidden_count..].iter().copied();
        let count = HEAD + words.len();
        Self(SparseWords(exactly(count, [0, headers].into_iter().chain(words))))
    }

    /// How many of [`Self::words`] belong to stages up to and including `stage`.
    #[must_use]
    pub fn words_until(&self, stage: Stage) -> usize {
        self.map().count_below(stage.words().end)
    }

    /// The bits of `key` under this mask, one word per word of the mask.
    pub fn apply<'a>(&'a self, key: &'a FlowKey) -> impl Iterator<Item = u64> + 'a {
        self.iter().map(|(index, mask)| key.words()[index] & mask)
    }

    /// Index and bits of every non-zero word, ascending, and what a key has under them.
    pub fn over<'a>(&'a self, key: &'a SparseKey) -> impl Iterator<Item = (usize, u64, u64)> + 'a {
        let mut words = key.0.iter().peekable();
        self.iter().map(move |(index, bits)| {
            while words.next_if(|(own, _)| *own < index).is_some() {}
            let word = words.next_if(|(own, _)| *own == index);
            (index, bits, word.map_or(0, |(_, word)| word & bits))
        })
    }

    /// Whether two keys agree in every bit of this mask.
    #[must_use]
    pub fn agree(&self, key: &FlowKey, other: &FlowKey) -> bool {
        self.apply(key).eq(self.apply(other))
    }
}

impl From<&FlowMask> for SparseMask {
    fn from(mask: &FlowMask) -> Self {
        Self(SparseWords::new(mask.words()))
    }
}

impl fmt::Debug for SparseMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(i, word)| (i, format!("{word:016x}")))).finish()
    }
}

/// A flow key that holds only its non-zero words.
///
/// Cloning is cheap: the words are shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SparseKey(SparseWords);

impl SparseKey {
    /// One word of the [`layout`](crate::layout).
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.0.word(index)
    }

    /// The value of a field, right-aligned.
    #[must_use]
    pub fn field(&self, field: FieldId) -> u128 {
        self.0.field(field)
    }

    /// The port that the packet came in by.
    #[must_use]
    pub fn in_port(&self) -> PortNo {
        PortNo::new((self.word(usize::from(word::IN_PORT)) >> 32) as u32)
    }

    /// The number of the bridge whose tables the packet enters.
    #[must_use]
    pub fn bridge(&self) -> u64 {
        self.word(usize::from(word::BRIDGE))
    }

    /// Whether this is `key`.
    #[must_use]
    pub fn is_of(&self, key: &FlowKey) -> bool {
        self.0.is_of(key.words())
    }

    /// The key with these bits set in a word that has none of them.
    #[must_use]
    pub fn with_bits(&self, index: usize, bits: u64) -> Self {
        let (map, place) = (self.0.map(), self.0.map().count_below(index));
        if bits == 0 {
            return self.clone();
        }
        let (before, behind) = self.0.words().split_at(place);
        let behind = if map.contains(index) { &behind[1..] } else { behind };
        let words = before.iter().copied().chain([self.0.word(index) | bits]);
        let words = words.chain(behind.iter().copied());
        let map = map.with(index);
        Self(SparseWords(exactly(HEAD + map.count(), map.halves().into_iter().chain(words))))
    }
}

impl From<&FlowKey> for SparseKey {
    fn from(key: &FlowKey) -> Self {
        Self(SparseWords::new(key.words()))
    }
}

impl From<&SparseKey> for FlowKey {
    fn from(sparse: &SparseKey) -> Self {
        let mut key = Self::ZERO;
        sparse.0.write_to(key.words_mut());
        key
    }
}

impl fmt::Debug for SparseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&FlowKey::from(self), f)
    }
}

/// A mask and the value that a key must have under it.
///
/// Bits of the value outside the mask are zero, so equal matches are equal values. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Match {
    mask: SparseMask,
    value: Arc<[u64]>,
}

thread_local! {
    /// The match of every key, which is asked for often.
    static ANY: Match = Match::new(&FlowKey::ZERO, &FlowMask::EMPTY);
}

impl Match {
    /// The match of every key that agrees with `key` under `mask`.
    #[must_use]
    pub fn new(key: &FlowKey, mask: &FlowMask) -> Self {
        Self::with_mask(key, SparseMask::from(mask))
    }

    /// As [`Self::new`], with a mask that may be shared.
    #[must_use]
    pub fn with_mask(key: &FlowKey, mask: SparseMask) -> Self {
        let value = exactly(mask.words().len(), mask.apply(key));
        Self { mask, value }
    }

    /// The match of every key that agrees with `key` under `mask`, which it shares.
    #[must_use]
    pub fn of(key: &SparseKey, mask: &SparseMask) -> Self {
        let words = mask.over(key).map(|(_, _, value)| value);
        Self { mask: mask.clone(), value: exactly(mask.words().len(), words) }
    }

    /// The match of every key.
    #[must_use]
    pub fn any() -> Self {
        ANY.with(Self::clone)
    }

    /// The mask.
    #[must_use]
    pub const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// The same match, which shares `mask`, an equal one.
    #[must_use]
    pub fn sharing(self, mask: &SparseMask) -> Self {
        debug_assert_eq!(&self.mask, mask);
        Self { mask: mask.clone(), ..self }
    }

    /// The value under the mask, one word per word of the mask.
    #[must_use]
    pub fn value(&self) -> &[u64] {
        &self.value
    }

    /// The value as a key whose bits outside the mask are zero.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        self.mask.map().iter().zip(&*self.value).for_each(|(i, word)| key.words_mut()[i] = *word);
        key
    }

    /// Whether `key` matches.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.mask.apply(key).zip(&*self.value).all(|(word, value)| word == *value)
    }

    /// Whether some key matches both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mask, other_mask) = (FlowMask::from(&self.mask), FlowMask::from(&other.mask));
        let mut common = mask;
        let words = common.words_mut().iter_mut().zip(other_mask.words());
        words.for_each(|(word, other)| *word &= other);
        self.key().agrees_with(&other.key(), &common)
    }

    /// Whether every key that matches this one also matches `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let other_mask = FlowMask::from(&other.mask);
        other_mask.is_subset_of(&FlowMask::from(&self.mask))
            && self.key().agrees_with(&other.key(), &other_mask)
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.mask.iter().zip(&*self.value);
        let text = |((i, mask), value): ((usize, u64), &u64)| (i, format!("{value:x}/{mask:x}"));
        f.debug_map().entries(words.map(text)).finish()
    }
}
