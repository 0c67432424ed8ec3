//! The words of a mask, and the hash of a key in these words.
//!
//! The hash is a sum over words. Each masked word is mixed with its own secret and multiplied, so
//! the terms of the sum are independent. So the hash of a stage can end after any word.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use shunt_flow::{FlowKey, FlowMask, SparseMask, layout::FLOW_WORDS};

/// One word of a mask, with its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashedWord {
    /// Index of the word in a key.
    pub(super) index: usize,
    /// The bits of the mask in the word.
    pub(super) bits: u64,
    /// The secret of the word, which makes its hash unpredictable.
    secret: u64,
}

/// The secrets of a table: one for each word of a key, and a common factor.
#[derive(Clone, Debug)]
pub(super) struct Hashing {
    /// The secret of each word of a key.
    secrets: Box<[u64]>,
    /// The odd factor by which all hashes are multiplied.
    factor: u64,
}

impl Hashing {
    /// Derives the secrets from a seed.
    pub(super) fn new(seed: &FixedState) -> Self {
        let secrets = (0..FLOW_WORDS).map(|index| seed.hash_one(index)).collect();
        // The factor is odd, so that no bit of a word is lost.
        Self { secrets, factor: seed.hash_one(FLOW_WORDS) | 1 }
    }

    /// Creates secrets with which all keys have the same hash.
    #[cfg(test)]
    pub(super) fn colliding() -> Self {
        Self { secrets: vec![0; FLOW_WORDS].into(), factor: 0 }
    }

    /// Returns the words of a mask, each with its secret.
    pub(super) fn words(&self, mask: &SparseMask) -> Box<[HashedWord]> {
        let word = |(index, bits)| HashedWord { index, bits, secret: self.secrets[index] };
        mask.iter().map(word).collect()
    }

    /// Returns the hash of a key under these words.
    pub(super) fn hash(&self, words: &[HashedWord], key: &FlowKey) -> u64 {
        words.iter().fold(0, |sum: u64, word| {
            let product = u128::from(word.apply(key) ^ word.secret) * u128::from(self.factor);
            #[expect(clippy::cast_possible_truncation, reason = "the two halves are folded")]
            let folded = (product >> 64) as u64 ^ product as u64;
            sum.wrapping_add(folded)
        })
    }
}

impl HashedWord {
    /// Returns the masked word of a key.
    pub(super) const fn apply(self, key: &FlowKey) -> u64 {
        key.words()[self.index] & self.bits
    }
}

/// Adds the bits of these words to a mask.
pub(super) fn add_words(mask: &mut FlowMask, words: &[HashedWord]) {
    words.iter().for_each(|word| mask.words_mut()[word.index] |= word.bits);
}

/// Returns whether a mask has every bit of these words.
pub(super) fn has_words(mask: &FlowMask, words: &[HashedWord]) -> bool {
    words.iter().all(|word| word.bits & !mask.words()[word.index] == 0)
}

/// Returns the number of bits that [`add_words`] would add.
pub(super) fn added_bits_count(mask: &FlowMask, words: &[HashedWord]) -> u32 {
    words.iter().map(|word| (word.bits & !mask.words()[word.index]).count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use shunt_flow::FieldId;

    use super::*;

    #[test]
    fn each_word_bit_flips_half_of_the_hash() {
        let hashing = Hashing::new(&FixedState::with_seed(11));
        let mut mask = FlowMask::EMPTY;
        mask.add_field(FieldId::Metadata);
        let words = hashing.words(&SparseMask::from(&mask));
        let [metadata] = &*words else { panic!("metadata is a word") };
        let hash = |value: u64| {
            let mut key = FlowKey::ZERO;
            key.words_mut()[metadata.index] = value;
            hashing.hash(&words, &key)
        };
        let values: Vec<u64> = (0..200_u64).map(|own| own.wrapping_mul(0x9e37_79b9_7f4a)).collect();
        let mut changed = 0;
        for bit in 0..64 {
            let of_bit =
                values.iter().map(|value| (hash(*value) ^ hash(value ^ 1 << bit)).count_ones());
            let of_bit: u32 = of_bit.sum();
            // Every single bit must change the hash. If a bit does not change the hash, keys that
            // differ only in this bit collide.
            assert!(of_bit > 10 * 200, "bit {bit} changes {of_bit} bits of 200 hashes");
            changed += of_bit;
        }
        let mean = f64::from(changed) / f64::from(64 * 200);
        assert!((28.0..36.0).contains(&mean), "{mean} bits of 64");
    }
}
