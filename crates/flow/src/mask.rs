//! Flow masks: one bit per bit of a flow key.

use std::fmt;

use crate::{
    FieldId, SparseMask,
    layout::{self, FLOW_WORDS},
};

/// One bit per bit of a [`FlowKey`](crate::FlowKey).
/// A bit is set if a decision depends on that bit of the key.
#[derive(Clone, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct FlowMask {
    /// The words of the mask.
    words: [u64; FLOW_WORDS],
}

impl FlowMask {
    /// The mask without any bit.
    pub const EMPTY: Self = Self { words: [0; FLOW_WORDS] };

    /// Returns the words, in the order of [`crate::layout`].
    #[must_use]
    pub const fn words(&self) -> &[u64; FLOW_WORDS] {
        &self.words
    }

    /// Returns the words, to write.
    #[must_use]
    pub const fn words_mut(&mut self) -> &mut [u64; FLOW_WORDS] {
        &mut self.words
    }

    /// Returns the bits of a field that are set, right-aligned.
    #[must_use]
    pub fn field(&self, field: FieldId) -> u128 {
        field.slot().read(&self.words) & field.value_max()
    }

    /// Adds every bit of a field.
    pub fn add_field(&mut self, field: FieldId) {
        self.add_bits(field, u128::MAX);
    }

    /// Adds those bits of a field that are set in `bits`.
    pub fn add_bits(&mut self, field: FieldId, bits: u128) {
        field.slot().write(&mut self.words, u128::MAX, bits & field.value_max());
    }

    /// Removes those bits of a field that are set in `bits`.
    pub fn remove_bits(&mut self, field: FieldId, bits: u128) {
        field.slot().write(&mut self.words, 0, bits & field.value_max());
    }

    /// Adds every bit of `other`.
    pub fn add(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Adds every bit of a sparse mask.
    pub fn add_sparse(&mut self, other: &SparseMask) {
        other.iter().for_each(|(index, bits)| self.words[index] |= bits);
    }

    /// Removes every bit of `other`.
    pub fn remove(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
    }

    /// Returns whether every bit of this mask is also in `other`.
    #[must_use]
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| word & !other == 0)
    }

    /// Returns whether no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Returns the number of bits that are set.
    #[must_use]
    pub fn bits_count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

impl Default for FlowMask {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<&SparseMask> for FlowMask {
    fn from(sparse: &SparseMask) -> Self {
        let mut mask = Self::EMPTY;
        mask.add_sparse(sparse);
        mask
    }
}

impl fmt::Debug for FlowMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        layout::debug_words(&self.words, f)
    }
}
