//! Dense masks that grow during a translation, with a map of the used words.
//!
//! A translation has a handful of masks, each of 81 words of which it uses a few. With the map,
//! clearing, adding and conversion to a sparse mask visit only the used words.

use shunt_flow::{FieldId, FlowMask, SparseMask, WordMap, layout::FLOW_WORDS};

/// A dense mask that grows during a translation.
#[derive(Clone, Default)]
pub(in crate::translate) struct GrowingMask {
    /// The bits that were added so far.
    mask: FlowMask,
    /// All words that have bits, and possibly words without bits.
    used: WordMap,
}

/// The multiplier of hashes: the golden ratio, as in foldhash.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl GrowingMask {
    pub(in crate::translate) const EMPTY: Self =
        Self { mask: FlowMask::EMPTY, used: WordMap::EMPTY };

    /// Returns the bits of a word.
    pub(in crate::translate) const fn word(&self, word: usize) -> u64 {
        self.mask.words()[word]
    }

    /// Returns the bits of a field, right-aligned.
    pub(in crate::translate) fn field(&self, field: FieldId) -> u128 {
        self.mask.field(field)
    }

    /// Returns all words that have bits, and possibly words without bits.
    pub(in crate::translate) fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.used.iter().map(|word| (word, self.word(word)))
    }

    /// Adds bits of a word.
    pub(in crate::translate) fn add(&mut self, word: usize, bits: u64) {
        if bits != 0 {
            self.mask.words_mut()[word] |= bits;
            self.used = self.used.with(word);
        }
    }

    /// Returns all words of the mask.
    pub(in crate::translate) const fn words(&self) -> &[u64; FLOW_WORDS] {
        self.mask.words()
    }

    /// Sets all bits of the first `count` words.
    pub(in crate::translate) fn add_first(&mut self, count: usize) {
        self.mask.words_mut()[..count].fill(u64::MAX);
        self.used = self.used.union(WordMap::first(count));
    }

    /// Replaces the bits of the mask by those of `mask`.
    pub(in crate::translate) fn set(&mut self, mask: &SparseMask) {
        self.clear();
        mask.iter().for_each(|(word, bits)| self.mask.words_mut()[word] = bits);
        self.used = mask.map();
    }

    /// Adds all bits of another mask.
    pub(in crate::translate) fn add_all(&mut self, other: &Self) {
        self.add_some(other, |_, bits| bits);
    }

    /// Adds bits of another mask: for each word, the bits that `keep` returns.
    pub(in crate::translate) fn add_some(
        &mut self,
        other: &Self,
        keep: impl Fn(usize, u64) -> u64,
    ) {
        let words = self.mask.words_mut();
        other.iter().for_each(|(word, bits)| words[word] |= keep(word, bits));
        self.used = self.used.union(other.used);
    }

    /// Removes all bits of the mask.
    pub(in crate::translate) fn clear(&mut self) {
        let words = self.mask.words_mut();
        self.used.iter().for_each(|word| words[word] = 0);
        self.used = WordMap::EMPTY;
    }

    /// Replaces the mask by the bits that the lookup `look_up` consults.
    pub(in crate::translate) fn fill<T>(&mut self, look_up: impl FnOnce(&mut FlowMask) -> T) -> T {
        self.clear();
        let found = look_up(&mut self.mask);
        self.used = WordMap::nonzero(self.mask.words());
        found
    }

    /// Returns whether the mask equals `other`.
    pub(in crate::translate) fn is(&self, other: &SparseMask) -> bool {
        let others = self.used.without(other.map());
        other.iter().all(|(word, bits)| self.word(word) == bits)
            && others.iter().all(|word| self.word(word) == 0)
    }

    /// Returns a hash of the mask, by which an equal mask is found.
    pub(in crate::translate) fn hash(&self) -> u64 {
        let words = self.iter().filter(|(_, bits)| *bits != 0);
        let hash = words.fold(0, |hash: u64, (word, bits)| {
            (hash.rotate_left(5) ^ bits ^ word as u64).wrapping_mul(ODD)
        });
        hash >> 32
    }

    /// Returns the mask in the form that an entry keeps.
    pub(in crate::translate) fn sparse(&self) -> SparseMask {
        SparseMask::of_words(self.used, self.mask.words())
    }
}
