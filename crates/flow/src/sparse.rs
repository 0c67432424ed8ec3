//! Sparse masks and masked values: only the words that are used.
//!
//! Most masks use three to eight of the [`FLOW_WORDS`] words of a key.
//! Hashing, masking and comparing through these forms touches those words and no others.

use std::{fmt, sync::Arc};

use crate::{
    FlowKey, FlowMask,
    layout::{FLOW_WORDS, Stage},
};

/// A set of word indices: bit `i` stands for word `i` of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WordMap(u128);

impl WordMap {
    /// The set of those words that are not zero.
    #[must_use]
    pub fn nonzero(words: &[u64; FLOW_WORDS]) -> Self {
        let bit = |map, (index, word): (usize, &u64)| map | u128::from(*word != 0) << index;
        Self(words.iter().enumerate().fold(0, bit))
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
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let index = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (index < 128).then_some(index)
        })
    }
}

/// A flow mask that holds only its non-zero words.
///
/// Cloning is cheap: the words are shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SparseMask {
    map: WordMap,
    words: Arc<[u64]>,
}

impl SparseMask {
    /// Which words are not zero.
    #[must_use]
    pub const fn map(&self) -> WordMap {
        self.map
    }

    /// The non-zero words, by ascending index.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Index and bits of every non-zero word, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.map.iter().zip(self.words.iter().copied())
    }

    /// Whether no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many of [`Self::words`] belong to stages up to and including `stage`.
    #[must_use]
    pub const fn words_until(&self, stage: Stage) -> usize {
        self.map.count_below(stage.words().end)
    }

    /// The bits of `key` under this mask, one word per word of the mask.
    pub fn apply<'a>(&'a self, key: &'a FlowKey) -> impl Iterator<Item = u64> + 'a {
        self.iter().map(|(index, mask)| key.words()[index] & mask)
    }
}

impl From<&FlowMask> for SparseMask {
    fn from(mask: &FlowMask) -> Self {
        let map = WordMap::nonzero(mask.words());
        Self { map, words: map.iter().map(|index| mask.words()[index]).collect() }
    }
}

impl fmt::Debug for SparseMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(i, word)| (i, format!("{word:016x}")))).finish()
    }
}

/// A mask and the value that a key must have under it.
///
/// Bits of the value outside the mask are zero, so equal matches are equal values.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Match {
    mask: SparseMask,
    value: Box<[u64]>,
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
        let value = mask.apply(key).collect();
        Self { mask, value }
    }

    /// The match of every key.
    #[must_use]
    pub fn any() -> Self {
        Self::new(&FlowKey::ZERO, &FlowMask::EMPTY)
    }

    /// The mask.
    #[must_use]
    pub const fn mask(&self) -> &SparseMask {
        &self.mask
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
        self.mask.map.iter().zip(&self.value).for_each(|(i, word)| key.words_mut()[i] = *word);
        key
    }

    /// Whether `key` matches.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.mask.apply(key).zip(&self.value).all(|(word, value)| word == *value)
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
        let words = self.mask.iter().zip(&self.value);
        let text = |((i, mask), value): ((usize, u64), &u64)| (i, format!("{value:x}/{mask:x}"));
        f.debug_map().entries(words.map(text)).finish()
    }
}
