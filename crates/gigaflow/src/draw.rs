//! Which packets are drawn for the duel.
//!
//! At random, since what repeats would fall in step with a counter: gaps between two that are drawn are
//! any number of packets up to twice the mean, so that all but one packet cost a subtraction. Each that
//! hits costs a translation, so the mean grows until it is but one for [`MISSES_PER_DRAW`] misses, which
//! are translated anyway: where nearly everything hits, the duel costs nearly nothing.

use shunt_flow::hash::split_mix;

/// Draws one packet in so many.
#[derive(Debug)]
pub(crate) struct Draw {
    /// The least mean gap; 0: none is drawn.
    one_in: u32,
    mean: u32,
    left: u32,
    /// Packets that were drawn since the mean was looked at, and misses by then.
    sampled: u32,
    misses: u64,
    state: u64,
}

/// Packets that are drawn before the mean is looked at again.
const DRAWS_PER_LOOK: u32 = 16;

/// Misses between two packets that are drawn, at least.
const MISSES_PER_DRAW: u64 = 8;

/// The greatest mean gap.
const MEAN_MAX: u32 = 1 << 16;

impl Draw {
    pub(crate) const fn new(one_in: u32, seed: u64) -> Self {
        Self { one_in, mean: one_in, left: 0, sampled: 0, misses: 0, state: seed }
    }

    /// Whether the next packet is drawn; so many have missed so far.
    #[inline]
    pub(crate) fn next(&mut self, misses: u64) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.one_in > 0 && self.draw(misses)
    }

    fn draw(&mut self, misses: u64) -> bool {
        self.sampled += 1;
        if self.sampled == DRAWS_PER_LOOK {
            self.sampled = 0;
            let since = misses.saturating_sub(std::mem::replace(&mut self.misses, misses));
            let per_draw = since / u64::from(DRAWS_PER_LOOK);
            if per_draw < MISSES_PER_DRAW {
                self.mean = self.mean.saturating_mul(2).min(MEAN_MAX.max(self.one_in));
            } else if per_draw >= 2 * MISSES_PER_DRAW {
                self.mean = (self.mean / 2).max(self.one_in);
            }
        }
        self.left = self.below(self.mean.saturating_mul(2) - 1);
        true
    }

    /// A number below `bound`.
    #[expect(clippy::cast_possible_truncation, reason = "below `bound`")]
    const fn below(&mut self, bound: u32) -> u32 {
        ((split_mix(&mut self.state) as u128 * bound as u128) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many packets are drawn, where one of `miss_one_in` misses.
    fn sampled(one_in: u32, packets: u64, miss_one_in: u64) -> usize {
        let mut draw = Draw::new(one_in, 1);
        (0..packets).filter(|packet| draw.next(packet / miss_one_in)).count()
    }

    #[test]
    fn one_in_so_many_is_drawn_where_most_miss() {
        let count = sampled(32, 320_000, 1);
        assert!((9_000..11_000).contains(&count), "{count}");
        assert_eq!(sampled(0, 1000, 1), 0);
    }

    #[test]
    fn few_are_drawn_where_few_miss() {
        let count = sampled(32, 1_000_000, 100);
        assert!(count < 10_000 / 4, "{count}");
    }

    #[test]
    fn what_comes_round_in_turn_is_drawn_alike() {
        let mut draw = Draw::new(32, 1);
        let mut flows = [0_u32; 64];
        for packet in 0..640_000_u64 {
            if draw.next(packet) {
                flows[(packet % 64) as usize] += 1;
            }
        }
        assert!(flows.iter().all(|count| *count > 200), "{flows:?}");
    }
}
