//! Random numbers from a seed: the same ones on every machine and for ever.
//!
//! A workload is named by its seed, so its numbers may depend on nothing else: not on the order in
//! which parts of the program ask for them, not on a library's version, not on the processor.
//! Therefore each purpose has a stream of its own, by name ([`Seed::stream`]): drawing more for one
//! leaves the others as they were. The generator is xoshiro256\*\* (D. Blackman and S. Vigna,
//! *Scrambled Linear Pseudorandom Number Generators*, ACM TOMS 47, 2021), its state filled by
//! SplitMix64 as its authors advise; both are integer arithmetic.
//!
//! These numbers are for workloads, and hold against no one who wants to guess them.

/// The number that all randomness of a workload comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// The seed of this number; neighbouring numbers have nothing in common.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// A seed for a part of the workload, independent of those for other parts.
    #[must_use]
    pub fn child(self, name: &str) -> Self {
        // From a state that the seed sets.
        Self(hash(mix(self.0 ^ FNV_OFFSET), name))
    }

    /// The stream of random numbers for one purpose.
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
    /// 64 random bits.
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

    /// A number below the bound, each as likely as the others; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // D. Lemire, Fast Random Integer Generation in an Interval, 2019.
        let mut product = u128::from(self.bits()) * u128::from(bound);
        if low(product) < bound {
            let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
            while low(product) < threshold {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        high(product)
    }

    /// An index into something of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        let index = self.below(u64::try_from(length).unwrap_or(u64::MAX));
        usize::try_from(index).unwrap_or(0)
    }

    /// A number from 0 up to and without 1, a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
        let numerator = (self.bits() >> 11) as f64;
        numerator * UNIT
    }

    /// Whether something of this probability happens; one that is not a number never does.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of the items, each as likely as the others.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last.saturating_add(1)));
        }
    }
}

/// A number for a text that is the same for ever: FNV-1a from this state.
fn hash(start: u64, text: &str) -> u64 {
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// A number for a text that is the same for ever.
pub(crate) fn number_of(text: &str) -> u64 {
    hash(FNV_OFFSET, text)
}

/// The output function of SplitMix64 (G. Steele, D. Lea and C. Flood, *Fast Splittable Pseudorandom
/// Number Generators*, OOPSLA 2014).
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[expect(clippy::cast_possible_truncation, reason = "the half that is asked for")]
const fn low(product: u128) -> u64 {
    product as u64
}

const fn high(product: u128) -> u64 {
    (product >> 64) as u64
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
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
    fn a_seed_gives_the_same_numbers_for_ever() {
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
        fn what_is_drawn_lies_in_its_range(seed: u64, bound in 0_u64..) {
            let mut stream = Seed::new(seed).stream("range");
            let drawn = stream.below(bound);
            prop_assert!(drawn < bound || (bound == 0 && drawn == 0));
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
