//! Jitter: random shortening of intervals, so that sessions do not send at the same time.

use std::{num::NonZeroU8, time::Duration};

/// A source of randomly shortened intervals.
///
/// The random sequence is `SplitMix64` (Steele, Lea and Flood, Fast Splittable Pseudorandom Number
/// Generators). Equal seeds give equal intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JitterSource {
    /// State of the pseudo-random number generator.
    state: u64,
}

impl JitterSource {
    /// Creates a source from a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the interval, shortened by up to a quarter.
    ///
    /// With a detection multiplier of one, the interval is shortened by at least a tenth, so that
    /// the other end does not expire. Source: RFC 5880, 6.8.7.
    pub(crate) fn shorten(&mut self, interval: Duration, multiplier: NonZeroU8) -> Duration {
        let range = if multiplier == NonZeroU8::MIN { ALONE_RANGE } else { RANGE };
        let random = self.random().checked_rem(range).unwrap_or_default();
        let share = u32::try_from(random).unwrap_or_default().saturating_add(LEAST);
        interval.saturating_mul(share).checked_div(WHOLE).unwrap_or(interval)
    }

    /// Returns the next random number.
    const fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The whole interval; shares of it are in thousandths.
const WHOLE: u32 = 1000;

/// The least share of an interval, in thousandths.
const LEAST: u32 = 750;

/// Number of possible shares: from 750 to 1000 thousandths.
const RANGE: u64 = 251;

/// Number of possible shares with a detection multiplier of one:
/// from 750 to 900 thousandths.
const ALONE_RANGE: u64 = 151;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_shortened_within_the_limits() {
        let mut source = JitterSource::new(3);
        for (multiplier, expected) in [(1, 750..=900), (2, 750..=1000), (255, 750..=1000)] {
            let multiplier = NonZeroU8::new(multiplier).unwrap();
            let mut shares: Vec<_> = std::iter::repeat_with(|| {
                source.shorten(Duration::from_secs(1), multiplier).as_millis()
            })
            .take(10_000)
            .collect();
            shares.sort_unstable();
            assert_eq!((shares[0], shares[9999]), (*expected.start(), *expected.end()));
        }
    }
}
