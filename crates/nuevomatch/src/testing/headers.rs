//! Headers near the borders of rules, and the random numbers of generators.

use crate::PriorityRule;

/// Random words from a seed: the SplitMix64 generator.
#[derive(Clone, Debug)]
pub(super) struct RandomWords(u64);

impl RandomWords {
    /// Returns a generator with this seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next random number.
    const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns the next 32 random bits.
    pub(super) const fn word(&mut self) -> u32 {
        (self.draw() >> 32) as u32
    }

    /// Returns a random element.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns a random number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        let wide = u128::from(self.draw()) * limit as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

/// An endless stream of headers in rules, at the borders of rules, and anywhere.
///
/// Half of the headers are inside of a random rule. A quarter has lanes of two rules. An eighth has
/// lanes at the borders of a rule, or one value outside of them. All other keys have random lanes.
#[derive(Clone, Debug)]
pub struct HeaderStream<'a> {
    rules: &'a [PriorityRule<5>],
    random: RandomWords,
}

/// The greatest value of each lane.
const LANE_MAX: [u32; 5] = [u32::MAX, u32::MAX, 0xffff, 0xffff, 0xff];

impl<'a> HeaderStream<'a> {
    /// Starts a stream; a seed always gives the same headers.
    #[must_use]
    pub const fn new(rules: &'a [PriorityRule<5>], seed: u64) -> Self {
        Self { rules, random: RandomWords::new(seed) }
    }

    /// Writes the next headers.
    pub fn fill(&mut self, headers: &mut [[u32; 5]]) {
        headers.iter_mut().for_each(|header| *header = self.header());
    }

    /// Returns a random IPv4 5-tuple.
    fn header(&mut self) -> [u32; 5] {
        let kind = self.random.word() % 8;
        if self.rules.is_empty() || kind == 0 {
            return LANE_MAX.map(|max| self.random.word() & max);
        }
        let (one, two) = (self.random.pick(self.rules), self.random.pick(self.rules));
        std::array::from_fn(|lane| {
            let word = self.random.word();
            let rule = if kind < 3 && word & 1 == 0 { &two } else { &one };
            let (low, high) = (rule.low[lane], rule.high[lane]);
            let value = match (kind, word >> 30) {
                (3, 0) => low.wrapping_sub(1),
                (3, 1) => low,
                (3, 2) => high,
                (3, _) => high.wrapping_add(1),
                _ => low + inside(word, high - low),
            };
            value & LANE_MAX[lane]
        })
    }
}

/// Returns a number from 0 to `last`, for a random word.
fn inside(word: u32, last: u32) -> u32 {
    let wide = u64::from(word.rotate_left(16)) * (u64::from(last) + 1);
    u32::try_from(wide >> 32).unwrap_or(last)
}
