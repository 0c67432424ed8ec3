//! Masks while they grow: dense, with a note of the words that are used.
//!
//! A translation has a handful of masks, each of 81 words of which it uses a few. With the note,
//! nothing that is done to them looks at the others: neither clearing nor adding, nor making one
//! sparse.

use shunt_flow::{FieldId, FlowMask, SparseMask, WordMap, layout::FLOW_WORDS};

/// A mask that grows.
#[derive(Clone, Default)]
pub(super) struct Bits {
    mask: FlowMask,
    /// Every word that has bits, and perhaps others.
    used: WordMap,
}

/// Multiplies hashes: the golden ratio, as foldhash and others have it.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Bits {
    pub(super) const EMPTY: Self = Self { mask: FlowMask::EMPTY, used: WordMap::EMPTY };

    /// The bits of a word.
    pub(super) const fn word(&self, word: usize) -> u64 {
        self.mask.words()[word]
    }

    /// The bits of a field, right-aligned.
    pub(super) fn field(&self, field: FieldId) -> u128 {
        self.mask.field(field)
    }

    /// The words with bits, and perhaps others.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        self.used.iter().map(|word| (word, self.word(word)))
    }

    pub(super) fn add(&mut self, word: usize, bits: u64) {
        if bits != 0 {
            self.mask.words_mut()[word] |= bits;
            self.used = self.used.with(word);
        }
    }

    /// The words.
    pub(super) const fn words(&self) -> &[u64; FLOW_WORDS] {
        self.mask.words()
    }

    /// Adds all bits of so many words at the beginning.
    pub(super) fn add_first(&mut self, count: usize) {
        self.mask.words_mut()[..count].fill(u64::MAX);
        self.used = self.used.union(WordMap::first(count));
    }

    /// Makes it another mask.
    pub(super) fn set(&mut self, mask: &SparseMask) {
        self.clear();
        mask.iter().for_each(|(word, bits)| self.mask.words_mut()[word] = bits);
        self.used = mask.map();
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        self.add_some(other, |_, bits| bits);
    }

    /// Adds those bits of another mask that `keep` leaves of each word.
    pub(super) fn add_some(&mut self, other: &Self, keep: impl Fn(usize, u64) -> u64) {
        let words = self.mask.words_mut();
        other.iter().for_each(|(word, bits)| words[word] |= keep(word, bits));
        self.used = self.used.union(other.used);
    }

    pub(super) fn clear(&mut self) {
        let words = self.mask.words_mut();
        self.used.iter().for_each(|word| words[word] = 0);
        self.used = WordMap::EMPTY;
    }

    /// What a lookup consults, added by `look_up` to a mask without bits.
    pub(super) fn fill<T>(&mut self, look_up: impl FnOnce(&mut FlowMask) -> T) -> T {
        self.clear();
        let found = look_up(&mut self.mask);
        self.used = WordMap::nonzero(self.mask.words());
        found
    }

    pub(super) fn is(&self, other: &SparseMask) -> bool {
        let others = self.used.without(other.map());
        other.iter().all(|(word, bits)| self.word(word) == bits)
            && others.iter().all(|word| self.word(word) == 0)
    }

    /// A number that equal masks have in common, for a guess at where an equal one is.
    pub(super) fn hash(&self) -> u64 {
        let words = self.iter().filter(|(_, bits)| *bits != 0);
        let hash = words.fold(0, |hash: u64, (word, bits)| {
            (hash.rotate_left(5) ^ bits ^ word as u64).wrapping_mul(ODD)
        });
        hash >> 32
    }

    pub(super) fn sparse(&self) -> SparseMask {
        SparseMask::of_words(self.used, self.mask.words())
    }
}
