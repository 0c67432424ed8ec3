//! Random numbers from a seed, equal on every machine and in every version.
//!
//! The random numbers of a workload depend only on its seed. The processor, library versions, and
//! the order in which parts of the program use random numbers have no influence. So each purpose
//! has its own named stream ([`Seed::stream`]): more samples for one purpose leave others
//! unchanged. The generator is xoshiro256\*\* (D. Blackman and S. Vigna, *Scrambled Linear
//! Pseudorandom Number Generators*, ACM TOMS 47, 2021). SplitMix64 fills its state, as its authors
//! advise. The generators of random numbers use only integer arithmetic.
//!
//! The numbers are for workloads and are not cryptographically secure.

/// The origin of all random numbers of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// Creates the seed with the given number.
    ///
    /// Consecutive numbers give independent streams.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the seed.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns a seed for a part of the workload, independent of other parts.
    #[must_use]
    pub fn child(self, name: &str) -> Self {
        // The name is hashed from a start that depends on the seed.
        Self(hash(mix(self.0 ^ FNV_OFFSET), name))
    }

    /// Returns the stream of random numbers for one purpose.
    #[must_use]
    pub fn stream(self, name: &str) -> RandomStream {
        let mut at = self.child(name).0;
        let state = [(); 4].map(|()| {
            at = at.wrapping_add(GOLDEN_GAMMA);
            mix(at)
        });
        RandomStream { state }
    }
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct RandomStream {
    state: [u64; 4],
}

impl RandomStream {
    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a uniform number below the bound; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // D. Lemire, Fast Random Integer Generation in an Interval, 2019.
        let mut product = u128::from(self.bits()) * u128::from(bound);
        if low_half(product) < bound {
            let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
            while low_half(product) < threshold {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        high_half(product)
    }

    /// Returns a random index of a list of `length` items; 0 for an empty list.
    pub fn index(&mut self, length: usize) -> usize {
        let index = self.below(u64::try_from(length).unwrap_or(u64::MAX));
        usize::try_from(index).unwrap_or(0)
    }

    /// Returns a uniform number in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a value of 53 bits fits exactly")]
        let numerator = (self.bits() >> 11) as f64;
        numerator * UNIT
    }

    /// Returns true with a probability; never for NaN.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns a uniformly chosen item; `None` for an empty list.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Shuffles the items of a list.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last.saturating_add(1)));
        }
    }
}

/// Hashes a text by FNV-1a, from the state `start`.
///
/// The result never changes between versions.
fn hash(start: u64, text: &str) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// Hashes a text; the result never changes between versions.
pub(crate) fn number_of(text: &str) -> u64 {
    hash(FNV_OFFSET, text)
}

/// Applies the output function of SplitMix64.
///
/// Source: G. Steele, D. Lea and C. Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA
/// 2014.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the lower 64 bits of a product.
#[expect(clippy::cast_possible_truncation, reason = "the cast takes the requested half")]
const fn low_half(product: u128) -> u64 {
    product as u64
}

/// Returns the upper 64 bits of a product.
const fn high_half(product: u128) -> u64 {
    (product >> 64) as u64
}

/// The step of the state of SplitMix64.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// The first state of the hash FNV-1a.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// The factor of the hash FNV-1a.
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// 2^-53: the distance of two random numbers from 0 to 1.
const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The state 1, 2, 3, 4, as in the reference implementation's own test vectors.
        let mut stream = RandomStream { state: [1, 2, 3, 4] };
        let published = [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240];
        assert_eq!([(); 4].map(|()| stream.bits()), published);
    }

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        let mut stream = Seed::new(1).stream("rules");
        let first = [(); 4].map(|()| stream.below(1_000_000));
        assert_eq!(first, [738_575, 649_605, 455_720, 823_365]);
    }

    #[test]
    fn streams_of_other_names_and_seeds_differ() {
        let first = |seed: u64, name: &str| Seed::new(seed).stream(name).bits();
        let all = [first(1, "a"), first(1, "b"), first(2, "a"), first(0, "a"), first(0, "")];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one), "{all:?}");
        }
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut stream = Seed::new(7).stream("even");
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[stream.index(6)] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn samples_lie_in_their_range(seed: u64, bound in 0_u64..) {
            let mut stream = Seed::new(seed).stream("range");
            let sampled = stream.below(bound);
            prop_assert!(sampled < bound || (bound == 0 && sampled == 0));
            prop_assert!((0.0..1.0).contains(&stream.unit()));
        }

        #[test]
        fn a_shuffle_keeps_every_item(seed: u64, length in 0_usize..50) {
            let mut items: Vec<usize> = (0..length).collect();
            Seed::new(seed).stream("shuffle").shuffle(&mut items);
            items.sort_unstable();
            prop_assert_eq!(items, (0..length).collect::<Vec<_>>());
        }
    }
}
