//! Samples packets for set duelling.
//!
//! Sampling is random, because a counter would sample the same flows of periodic traffic again and
//! again. The gap between two sampled packets is a random number of packets up to twice the mean
//! gap. So a packet that is not sampled costs one subtraction.
//!
//! A sampled packet that hits costs an additional translation. So the mean gap doubles while there
//! are fewer than [`MISSES_PER_SAMPLE`] misses per sample. A sampled packet that misses costs
//! nothing extra, since every miss is translated. If nearly all packets hit, set duelling costs
//! nearly nothing.

use shunt_flow::hash::split_mix;

/// A random sampler of packets.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The configured and least mean gap in packets; with 0 no packet is sampled.
    one_in: u32,
    /// The current mean gap in packets.
    mean: u32,
    /// Packets to skip before the next sample.
    left: u32,
    /// Samples since the mean gap was last adjusted.
    sampled: u32,
    /// Number of misses when the mean gap was last adjusted.
    misses: u64,
    /// The state of the random numbers.
    state: u64,
}

/// Number of samples after which the mean gap is adjusted.
const SAMPLES_PER_ADJUSTMENT: u32 = 16;

/// Mean number of misses per sample below which the mean gap grows.
const MISSES_PER_SAMPLE: u64 = 8;

/// The greatest mean gap in packets.
const MEAN_MAX: u32 = 1 << 16;

impl Sampler {
    /// Returns a sampler of at most one packet in `one_in` on average; 0 is none.
    pub(super) const fn new(one_in: u32, seed: u64) -> Self {
        Self { one_in, mean: one_in, left: 0, sampled: 0, misses: 0, state: seed }
    }

    /// Returns whether the next packet is sampled.
    ///
    /// `misses` is the number of misses so far.
    #[inline]
    pub(super) fn next(&mut self, misses: u64) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.one_in > 0 && self.sample_now(misses)
    }

    /// Samples this miss, and adjusts the mean distance of samples.
    fn sample_now(&mut self, misses: u64) -> bool {
        self.sampled += 1;
        if self.sampled == SAMPLES_PER_ADJUSTMENT {
            self.sampled = 0;
            let since = misses.saturating_sub(std::mem::replace(&mut self.misses, misses));
            let per_sample = since / u64::from(SAMPLES_PER_ADJUSTMENT);
            if per_sample < MISSES_PER_SAMPLE {
                self.mean = self.mean.saturating_mul(2).min(MEAN_MAX.max(self.one_in));
            } else if per_sample >= 2 * MISSES_PER_SAMPLE {
                self.mean = (self.mean / 2).max(self.one_in);
            }
        }
        self.left = self.below(self.mean.saturating_mul(2) - 1);
        true
    }

    /// Returns a random number below `bound`.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below `bound`")]
    const fn below(&mut self, bound: u32) -> u32 {
        ((split_mix(&mut self.state) as u128 * bound as u128) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of sampled packets if one in `miss_one_in` packets misses.
    fn count_sampled(one_in: u32, packets: u64, miss_one_in: u64) -> usize {
        let mut sampler = Sampler::new(one_in, 1);
        (0..packets).filter(|packet| sampler.next(packet / miss_one_in)).count()
    }

    #[test]
    fn sampling_keeps_its_rate_if_most_miss() {
        let count = count_sampled(32, 320_000, 1);
        assert!((9_000..11_000).contains(&count), "{count}");
        assert_eq!(count_sampled(0, 1000, 1), 0);
    }

    #[test]
    fn sampling_follows_the_number_of_misses() {
        let count = count_sampled(32, 1_000_000, 100);
        assert!(count < 10_000 / 4, "{count}");
    }

    #[test]
    fn periodic_flows_are_sampled_equally_often() {
        let mut sampler = Sampler::new(32, 1);
        let mut flows = [0_u32; 64];
        for packet in 0..640_000_u64 {
            if sampler.next(packet) {
                flows[(packet % 64) as usize] += 1;
            }
        }
        assert!(flows.iter().all(|count| *count > 200), "{flows:?}");
    }
}
