//! The words of a mask side by side, and their hash taken stage by stage.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::{FixedState, FoldHasher};
use shunt_flow::{FlowKey, SparseMask};

/// One word of a mask, with its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskWord {
    pub(super) index: usize,
    pub(super) bits: u64,
}

impl MaskWord {
    pub(super) fn all(mask: &SparseMask) -> Box<[Self]> {
        mask.iter().map(|(index, bits)| Self { index, bits }).collect()
    }

    pub(super) const fn apply(self, key: &FlowKey) -> u64 {
        key.words()[self.index] & self.bits
    }
}

/// The hash of a key under a mask: of more and more of its words, each hashed once.
pub(super) struct Scan<'a> {
    key: &'a FlowKey,
    words: &'a [MaskWord],
    hashed_count: usize,
    hasher: FoldHasher<'static>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(key: &'a FlowKey, words: &'a [MaskWord], hashing: &FixedState) -> Self {
        Self { key, words, hashed_count: 0, hasher: hashing.build_hasher() }
    }

    /// The hash of the first `count` words; never fewer than at the call before.
    pub(super) fn hash_until(&mut self, count: usize) -> u64 {
        let words = &self.words[self.hashed_count..count];
        // As 128 bits each word is one multiplication; as 64 bits they would be paired in a buffer.
        words.iter().for_each(|word| self.hasher.write_u128(word.apply(self.key).into()));
        self.hashed_count = count;
        self.hasher.finish()
    }
}
