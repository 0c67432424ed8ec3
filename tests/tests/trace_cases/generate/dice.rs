//! Numbers determined by a seed, which are equal on every machine.

/// A random number generator.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators".
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(1))
    }

    const fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`.
    #[expect(clippy::cast_possible_truncation, reason = "the number is less than a usize")]
    pub(crate) const fn below(&mut self, bound: usize) -> usize {
        (self.throw() % bound as u64) as usize
    }

    /// Returns true with a probability of `chance` percent.
    pub(crate) const fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// Returns one of several values.
    pub(crate) const fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns a port of the switch.
    pub(crate) const fn port(&mut self) -> usize {
        1 + self.below(6)
    }
}
