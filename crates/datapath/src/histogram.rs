//! Histograms of durations, in buckets that double in length.

use std::time::Duration;

use crate::metrics::Counter;

/// Number of buckets; the last bucket holds durations of minutes.
const BUCKETS: usize = 40;

/// A histogram of durations, in buckets that double in length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Bucket *n* counts durations from half of 2^n nanoseconds up to 2^n.
    counts: [u64; BUCKETS],
    /// The sum of all durations.
    sum: Duration,
    /// The longest duration that was counted.
    longest: Duration,
}

/// A [`Histogram`] to which one thread adds, and which any thread reads.
#[derive(Debug)]
pub struct HistogramCounters {
    /// Number of values in each bucket.
    counts: [Counter; BUCKETS],
    /// The sum of all values in nanoseconds.
    sum_ns: Counter,
    /// The longest value in nanoseconds.
    longest_ns: Counter,
}

/// Returns a duration in nanoseconds; 64 bits suffice for 584 years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the bucket of a duration; very long durations are in the last bucket.
fn bucket_of(nanoseconds: u64) -> usize {
    ((u64::BITS - nanoseconds.leading_zeros()) as usize).min(BUCKETS - 1)
}

impl HistogramCounters {
    /// Counts a duration; only the writing thread may call this.
    pub fn add(&self, time: Duration) {
        let time = nanoseconds(time);
        self.counts[bucket_of(time)].add(1);
        self.sum_ns.add(time);
        self.longest_ns.set(self.longest_ns.get().max(time));
    }
}

impl Default for HistogramCounters {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| Counter::default()),
            sum_ns: Counter::default(),
            longest_ns: Counter::default(),
        }
    }
}

impl Histogram {
    /// Counts a duration in its bucket, and in the sum and the longest.
    pub fn add(&mut self, time: Duration) {
        self.counts[bucket_of(nanoseconds(time))] += 1;
        self.sum = self.sum.saturating_add(time);
        self.longest = self.longest.max(time);
    }

    /// Counts all durations that `counters` has counted.
    pub fn add_all(&mut self, counters: &HistogramCounters) {
        for (count, own) in self.counts.iter_mut().zip(&counters.counts) {
            *count += own.get();
        }
        self.sum = self.sum.saturating_add(Duration::from_nanos(counters.sum_ns.get()));
        self.longest = self.longest.max(Duration::from_nanos(counters.longest_ns.get()));
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    #[must_use]
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the longest duration that was counted.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the buckets up to the last bucket that is not empty.
    ///
    /// Each bucket is its upper bound and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let is_used = |count: &u64| *count > 0;
        let first = self.counts.iter().position(is_used).unwrap_or(BUCKETS);
        let last = self.counts.iter().rposition(is_used).unwrap_or_default();
        let own = self.counts.iter().enumerate().take(last + 1).skip(first);
        own.map(|(bucket, count)| (Duration::from_nanos(1 << bucket), *count))
    }

    /// Returns the duration below which `per_mille` of 1000 durations are.
    ///
    /// The result is the upper bound of a bucket.
    #[must_use]
    pub fn below(&self, per_mille: u64) -> Duration {
        let wanted = (self.count() * per_mille).div_ceil(1000);
        let mut seen = 0;
        let found = self.buckets().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(Duration::ZERO, |(below, _)| below.min(self.longest))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: Duration::ZERO, longest: Duration::ZERO }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn histogram_times_are_right_within_factor_two(
            times in prop::collection::vec(1..1_u64 << 36, 1..50),
        ) {
            let mut histogram = Histogram::default();
            times.iter().for_each(|time| histogram.add(Duration::from_nanos(*time)));
            prop_assert_eq!(histogram.count(), times.len() as u64);
            prop_assert_eq!(histogram.sum(), Duration::from_nanos(times.iter().sum()));
            for (below, count) in histogram.buckets() {
                let below = u64::try_from(below.as_nanos()).unwrap();
                let own = times.iter().filter(|time| **time < below && **time >= below / 2);
                prop_assert_eq!(own.count() as u64, count);
            }
            let mut sorted = times;
            sorted.sort_unstable();
            for per_mille in [1, 500, 990, 1000] {
                let place = (sorted.len() as u64 * per_mille).div_ceil(1000) - 1;
                let exact = Duration::from_nanos(sorted[usize::try_from(place).unwrap()]);
                let estimate = histogram.below(per_mille);
                prop_assert!(exact <= estimate && estimate <= exact * 2, "{exact:?} as {estimate:?}");
            }
        }

        #[test]
        fn counters_of_threads_add_up_to_a_histogram(
            threads in prop::collection::vec(prop::collection::vec(0..1_u64 << 50, 0..20), 0..4),
        ) {
            let (mut sum, mut expected) = (Histogram::default(), Histogram::default());
            for times in &threads {
                let counters = HistogramCounters::default();
                for time in times {
                    counters.add(Duration::from_nanos(*time));
                    expected.add(Duration::from_nanos(*time));
                }
                sum.add_all(&counters);
            }
            prop_assert_eq!(sum, expected);
        }
    }
}
