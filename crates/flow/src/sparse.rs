//! Sparse masks, keys and matches, which store only the non-zero words.
//!
//! Most masks use three to eight of the [`FLOW_WORDS`] words of a key, and most keys a dozen.
//! Sparse forms hash, mask and compare only those words. Long-lived data is stored in sparse form.

use std::{fmt, sync::Arc};

use crate::{
    FieldId, FlowKey, FlowMask, PortNo,
    layout::{FLOW_WORDS, HEADER_START, Stage, word},
};

/// A set of word indices: bit `i` is set for word `i` of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WordMap(u128);

impl WordMap {
    /// The set without words.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of the words that are not zero.
    #[must_use]
    pub fn nonzero(words: &[u64; FLOW_WORDS]) -> Self {
        let (eights, last) = words.as_chunks::<8>();
        let mut map = u128::from(nonzero(last)) << (FLOW_WORDS - last.len());
        for (eight, first) in eights.iter().zip((0_u32..).step_by(8)) {
            // Most keys and masks have no hidden words, or a few adjacent ones.
            if eight.iter().fold(0, |all, word| all | word) != 0 {
                map |= u128::from(nonzero(eight)) << first;
            }
        }
        Self(map)
    }

    /// Returns the set of the first `count` words.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        Self((1 << count) - 1)
    }

    /// Returns the set with one more word.
    #[must_use]
    pub const fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    /// Returns the union with another set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the words of this set that are not in another.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the set as two words, with the indices below 64 in the first.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the function returns each half separately"
    )]
    const fn halves(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    /// Joins the two words of a map.
    fn from_halves([low, high]: [u64; 2]) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Returns the number of words in the set.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the number of words of the set below `index`.
    #[must_use]
    pub const fn count_below(self, index: usize) -> usize {
        (self.0 & ((1 << index) - 1)).count_ones() as usize
    }

    /// Returns whether the set has word `index`.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// Returns the indices of the words, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        // Stepping by one word needs half the instructions of stepping by two.
        let [mut low, mut high] = self.halves();
        std::iter::from_fn(move || {
            let (rest, first) = if low != 0 { (&mut low, 0) } else { (&mut high, 64) };
            let index = rest.trailing_zeros() as usize;
            *rest &= rest.wrapping_sub(1);
            (index < 64).then_some(first + index)
        })
    }
}

/// The non-zero words of a key or mask, shared.
/// Two words mark the positions of the non-zero words, which follow.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SparseWords(Arc<[u64]>);

const _: () = assert!(HEADER_START == 64, "headers are the upper half of a map");

/// Number of words before the non-zero words.
const HEAD: usize = 2;

impl SparseWords {
    /// Creates the sparse form of some words.
    fn new(words: &[u64; FLOW_WORDS]) -> Self {
        Self::of(WordMap::nonzero(words), words)
    }

    /// Stores the words of `map`, none of which is zero.
    fn of(map: WordMap, words: &[u64; FLOW_WORDS]) -> Self {
        let values = map.iter().map(|index| words[index]);
        Self(exactly(HEAD + map.count(), map.halves().into_iter().chain(values)))
    }

    /// Returns the map of the words that are present.
    fn map(&self) -> WordMap {
        let halves = self.0.first_chunk();
        halves.map_or(WordMap::EMPTY, |halves| WordMap::from_halves(*halves))
    }

    /// Returns the present words, in order.
    fn words(&self) -> &[u64] {
        self.0.get(HEAD..).unwrap_or_default()
    }

    /// Returns the present words with their positions in a key.
    fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.map().iter().zip(self.words().iter().copied())
    }

    /// Returns a word of the key; an absent word is zero.
    fn word(&self, index: usize) -> u64 {
        let map = self.map();
        if map.contains(index) { self.words()[map.count_below(index)] } else { 0 }
    }

    /// Returns the value of a field.
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

    /// Returns whether the nonzero words of `words` are exactly the words of this map.
    fn is_of(&self, words: &[u64; FLOW_WORDS]) -> bool {
        self.map() == WordMap::nonzero(words) && self.iter().all(|(i, word)| words[i] == word)
    }

    /// Writes the non-zero words to their positions in `words`.
    fn write_to(&self, words: &mut [u64; FLOW_WORDS]) {
        self.iter().for_each(|(index, word)| words[index] = word);
    }
}

/// Collects `count` words; an iterator of known length fills a single allocation.
fn exactly(count: usize, mut words: impl Iterator<Item = u64>) -> Arc<[u64]> {
    (0..count).map(|_| words.next().unwrap_or_default()).collect()
}

/// Returns the positions of the non-zero words, among at most eight words.
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
    /// Creates a mask of `words`; `map` has all non-zero words.
    #[must_use]
    pub fn of_words(map: WordMap, words: &[u64; FLOW_WORDS]) -> Self {
        let zero = map.iter().filter(|index| words[*index] == 0);
        let exact = zero.fold(map, |map, index| WordMap(map.0 & !(1 << index)));
        debug_assert!(exact == WordMap::nonzero(words), "the map has the words that are used");
        Self(SparseWords::of(exact, words))
    }

    /// Returns the set of the words that are not zero.
    #[must_use]
    pub fn map(&self) -> WordMap {
        self.0.map()
    }

    /// Returns the non-zero words, by ascending index.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.0.words()
    }

    /// Returns index and bits of every non-zero word, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.0.iter()
    }

    /// Returns the words of [`Self::iter`] without those of hidden state.
    pub fn headers(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let [hidden, mut rest] = self.map().halves();
        let words = self.words().get(hidden.count_ones() as usize..).unwrap_or_default();
        words.iter().map(move |word| {
            let index = HEADER_START + rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (index, *word)
        })
    }

    /// Returns the bits of one word of the [`layout`](crate::layout).
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.0.word(index)
    }

    /// Returns the bits of a field that are set, right-aligned.
    #[must_use]
    pub fn field(&self, field: FieldId) -> u128 {
        self.0.field(field)
    }

    /// Returns whether no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words().is_empty()
    }

    /// Returns the number of bits that are set.
    #[must_use]
    pub fn bits_count(&self) -> u32 {
        self.words().iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether every bit of `mask` is also in this one.
    #[must_use]
    pub fn has_all_of(&self, mask: &Self) -> bool {
        mask.iter().all(|(index, bits)| bits & !self.word(index) == 0)
    }

    /// Returns the address of the words.
    /// While this mask lives, only its clones share the address.
    #[must_use]
    pub fn address(&self) -> usize {
        self.0.0.as_ptr().addr()
    }

    /// Returns whether another mask shares the words of this mask in memory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0.0) > 1
    }

    /// Returns the mask without the words of hidden state.
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

    /// Returns the number of [`Self::words`] in the stages up to and including `stage`.
    #[must_use]
    pub fn words_until(&self, stage: Stage) -> usize {
        self.map().count_below(stage.words().end)
    }

    /// Returns the bits of `key` under this mask, one word per word of the mask.
    pub fn apply<'a>(&'a self, key: &'a FlowKey) -> impl Iterator<Item = u64> + 'a {
        self.iter().map(|(index, mask)| key.words()[index] & mask)
    }

    /// Returns index, bits and masked value of every non-zero word, ascending.
    pub fn masked_words<'a>(
        &'a self,
        key: &'a SparseKey,
    ) -> impl Iterator<Item = (usize, u64, u64)> + 'a {
        let mut words = key.0.iter().peekable();
        self.iter().map(move |(index, bits)| {
            while words.next_if(|(own, _)| *own < index).is_some() {}
            let word = words.next_if(|(own, _)| *own == index);
            (index, bits, word.map_or(0, |(_, word)| word & bits))
        })
    }

    /// Returns whether two keys agree in every bit of this mask.
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
    /// Returns one word of the [`layout`](crate::layout).
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.0.word(index)
    }

    /// Returns the value of a field, right-aligned.
    #[must_use]
    pub fn field(&self, field: FieldId) -> u128 {
        self.0.field(field)
    }

    /// Returns the ingress port.
    #[must_use]
    pub fn in_port(&self) -> PortNo {
        PortNo::new((self.word(usize::from(word::IN_PORT)) >> 32) as u32)
    }

    /// Returns the number of the bridge that the packet is in.
    #[must_use]
    pub fn bridge(&self) -> u64 {
        self.word(usize::from(word::BRIDGE))
    }

    /// Returns whether this key equals `key`.
    #[must_use]
    pub fn is_of(&self, key: &FlowKey) -> bool {
        self.0.is_of(key.words())
    }

    /// Returns the key with `bits` set in a word, in which they must be clear.
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
    /// The bits that are matched.
    mask: SparseMask,
    /// The masked words of the value.
    value: Arc<[u64]>,
}

thread_local! {
    /// The match of every key, stored because it is used often.
    static ANY: Match = Match::new(&FlowKey::ZERO, &FlowMask::EMPTY);
}

impl Match {
    /// Creates the match of every key that agrees with `key` under `mask`.
    #[must_use]
    pub fn new(key: &FlowKey, mask: &FlowMask) -> Self {
        Self::with_mask(key, SparseMask::from(mask))
    }

    /// Creates the match of every key that agrees with `key` under a shared mask.
    #[must_use]
    pub fn with_mask(key: &FlowKey, mask: SparseMask) -> Self {
        let value = exactly(mask.words().len(), mask.apply(key));
        Self { mask, value }
    }

    /// Creates the match of every key that agrees with `key` under `mask`.
    /// The match shares the words of `mask`.
    #[must_use]
    pub fn of(key: &SparseKey, mask: &SparseMask) -> Self {
        let words = mask.masked_words(key).map(|(_, _, value)| value);
        Self { mask: mask.clone(), value: exactly(mask.words().len(), words) }
    }

    /// Returns the match of every key.
    #[must_use]
    pub fn any() -> Self {
        ANY.with(Self::clone)
    }

    /// Returns the mask: the bits that the match examines.
    #[must_use]
    pub const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// Returns the same match with `mask`, which must be equal, as its shared mask.
    #[must_use]
    pub fn sharing(self, mask: &SparseMask) -> Self {
        debug_assert_eq!(&self.mask, mask);
        Self { mask: mask.clone(), ..self }
    }

    /// Returns the value under the mask, one word per word of the mask.
    #[must_use]
    pub fn value(&self) -> &[u64] {
        &self.value
    }

    /// Returns the value as a key; bits outside the mask are zero.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        self.mask.map().iter().zip(&*self.value).for_each(|(i, word)| key.words_mut()[i] = *word);
        key
    }

    /// Returns whether `key` agrees with the match.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.mask.apply(key).zip(&*self.value).all(|(word, value)| word == *value)
    }

    /// Returns whether any key matches both this match and `other`.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mask, other_mask) = (FlowMask::from(&self.mask), FlowMask::from(&other.mask));
        let mut common = mask;
        let words = common.words_mut().iter_mut().zip(other_mask.words());
        words.for_each(|(word, other)| *word &= other);
        self.key().agrees_with(&other.key(), &common)
    }

    /// Returns whether every key that matches this match also matches `other`.
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
