//! The hash of flow keys: seeded, a few instructions per word, without a dependency chain.
//!
//! Words are hashed in pairs. Each word is mixed with its own secret, and the 128-bit products of
//! the pairs are added. The sum is a hash of the NH family of Black, Halevi, Krawczyk, Krovetz and
//! Rogaway (UMAC: Fast and Secure Message Authentication). Two given keys of one length collide
//! with probability 2^-64 over the choice of the secrets. The products do not depend on each other,
//! so a key of 18 words costs little more than nine parallel multiplications. A sponge such as
//! foldhash needs nine multiplications in sequence. NH alone distributes its low bits badly, so one
//! more multiplication folds the sum.
//!
//! Senders choose packets, so the secrets are derived from the seed of the process, and no hash
//! ever leaves the switch.

use crate::layout::FLOW_WORDS;

/// A hash function of flow keys, selected from a family by the seed.
#[derive(Clone)]
pub struct KeyHasher {
    /// The two secrets of each pair of words.
    secrets: [[u64; 2]; PAIRS_MAX],
    /// The secrets of the final step.
    fold: [u64; 2],
}

impl KeyHasher {
    /// Creates the hash function of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || split_mix(&mut state);
        let secrets = std::array::from_fn(|_| [next(), next()]);
        Self { secrets, fold: [next(), next()] }
    }

    /// Returns the hash of `words`.
    /// The number of words must be constant per table, and at most [`FLOW_WORDS`].
    #[must_use]
    #[inline]
    pub fn hash(&self, words: &[u64]) -> u64 {
        let (pairs, odd) = words.as_chunks();
        let mut sum = 0_u128;
        for (pair, secret) in pairs.iter().zip(&self.secrets) {
            sum = sum.wrapping_add(multiply(*pair, *secret));
        }
        if let [odd] = odd {
            sum = sum.wrapping_add(multiply([*odd, 0], self.secrets[pairs.len()]));
        }
        self.fold(sum)
    }

    /// Returns [`Self::hash`] of a number of words known at compile time.
    #[must_use]
    #[inline]
    pub fn hash_array<const N: usize>(&self, words: &[u64; N]) -> u64 {
        const { assert!(N.is_multiple_of(2) && N / 2 <= PAIRS_MAX) };
        let pair = |index: usize| [words[2 * index], words[2 * index + 1]];
        let products = (0..N / 2).map(|index| multiply(pair(index), self.secrets[index]));
        self.fold(products.fold(0, u128::wrapping_add))
    }

    /// Returns the hash of the bits of `key` that `mask` selects.
    ///
    /// The result equals [`Self::hash`] of the masked words.
    #[must_use]
    #[inline]
    pub fn hash_masked(&self, key: &[u64; FLOW_WORDS], mask: &[MaskWord]) -> u64 {
        let (pairs, odd) = mask.as_chunks::<2>();
        let mut sum = 0_u128;
        for (pair, secret) in pairs.iter().zip(&self.secrets) {
            sum = sum.wrapping_add(multiply(pair.map(|word| word.of(key)), *secret));
        }
        if let [odd] = odd {
            sum = sum.wrapping_add(multiply([odd.of(key), 0], self.secrets[pairs.len()]));
        }
        self.fold(sum)
    }

    /// Reduces a sum of products to a hash of 64 bits.
    #[expect(clippy::cast_possible_truncation, reason = "each half is used separately")]
    const fn fold(&self, sum: u128) -> u64 {
        let (high, low) = ((sum >> 64) as u64, sum as u64);
        let product = (high ^ self.fold[0]) as u128 * (low ^ self.fold[1]) as u128;
        (product >> 64) as u64 ^ product as u64 ^ low
    }
}

impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets must not be logged.
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

/// One word of a mask: its index in a key, and its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskWord {
    /// Index of the word in the key.
    pub index: u8,
    /// Bits of the word.
    pub bits: u64,
}

impl MaskWord {
    /// Returns the bits of this word of `key`.
    #[must_use]
    #[inline]
    pub fn of(self, key: &[u64; FLOW_WORDS]) -> u64 {
        key[usize::from(self.index)] & self.bits
    }
}

/// Pairs of words of the longest key.
const PAIRS_MAX: usize = FLOW_WORDS.div_ceil(2);

/// Multiplies two words, each with its secret added.
#[inline]
fn multiply(words: [u64; 2], secret: [u64; 2]) -> u128 {
    let mixed = |index: usize| u128::from(words[index].wrapping_add(secret[index]));
    mixed(0) * mixed(1)
}

/// Returns the next number of SplitMix64, which makes seeds.
/// The generator is by Steele, Lea and Flood.
#[must_use]
pub const fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_hash_is_hash_of_masked_words() {
        let hasher = KeyHasher::new(7);
        let key: [u64; FLOW_WORDS] = std::array::from_fn(|index| index as u64 * 0x0101_0101_0101);
        for count in 0..20 {
            let mask: Vec<MaskWord> =
                (0..count).map(|i| MaskWord { index: 80 - 3 * i, bits: 0xffff << i }).collect();
            let words: Vec<u64> = mask.iter().map(|word| word.of(&key)).collect();
            assert_eq!(hasher.hash_masked(&key, &mask), hasher.hash(&words));
        }
        let words: &[u64; 18] = key.last_chunk().unwrap();
        assert_eq!(hasher.hash_array(words), hasher.hash(words));
    }

    #[test]
    fn every_key_bit_flips_half_of_the_hash() {
        let hasher = KeyHasher::new(1);
        let words = [0_u64; 18];
        let plain = hasher.hash(&words);
        let mut turned_total = 0;
        for bit in 0..18 * 64 {
            let mut other = words;
            other[bit / 64] ^= 1 << (bit % 64);
            let turned = (plain ^ hasher.hash(&other)).count_ones();
            assert!((12..=52).contains(&turned), "bit {bit} turned {turned} bits");
            turned_total += turned;
        }
        let average = f64::from(turned_total) / f64::from(18 * 64);
        assert!((30.0..34.0).contains(&average), "{average}");
    }

    #[test]
    fn similar_keys_fill_buckets_evenly() {
        for seed in 0..4 {
            let hasher = KeyHasher::new(seed);
            let mut low = vec![0_u32; 256];
            let mut high = vec![0_u32; 128];
            for flow in 0..65_536_u64 {
                let mut words = [0_u64; 18];
                words[7] = 0x0a00_0001_0a00_0000 | flow >> 8;
                words[17] = (flow & 0xff) << 48;
                let hash = hasher.hash(&words);
                low[(hash & 0xff) as usize] += 1;
                high[(hash >> 57) as usize] += 1;
            }
            // Each count has a Poisson distribution with mean 256 (512); the bounds are six
            // standard deviations.
            assert!(low.iter().all(|count| (160..=352).contains(count)), "{low:?}");
            assert!(high.iter().all(|count| (376..=648).contains(count)), "{high:?}");
        }
    }

    #[test]
    fn another_seed_is_another_function() {
        assert_ne!(KeyHasher::new(1).hash(&[5; 18]), KeyHasher::new(2).hash(&[5; 18]));
    }
}
