//! The keys that reach a net, and the ranges of starts that have these keys.

use crate::{
    rqrmi::{model::RmiStage, net::KeyInterval},
    simd::ScalarVector,
};

/// The keys that reach a net, with the ranges of starts that have these keys.
///
/// Range `k` has the keys from start `k` up to the next start. Range 0 also has the keys below all
/// starts.
pub(crate) struct Responsibility<'a> {
    /// The first key of each range, in ascending order.
    starts: &'a [u32],
    /// The intervals of keys, in ascending order.
    intervals: Vec<IntervalRanges>,
    /// Number of overlaps between a range and an interval.
    ranges_count: u64,
}

/// An interval of keys, and the ranges that overlap it.
struct IntervalRanges {
    /// The interval of keys.
    keys: KeyInterval,
    /// Index of the first range that overlaps the interval.
    range_first: u32,
    /// Number of ranges in all intervals up to and including this one.
    ranges_end: u64,
}

/// The mean and the standard deviation of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// The mean of the keys.
    pub(crate) mean: f64,
    /// The standard deviation of the keys.
    pub(crate) deviation: f64,
}

impl<'a> Responsibility<'a> {
    /// Returns the responsibility for sorted and disjoint `intervals`.
    pub(crate) fn new(starts: &'a [u32], intervals: &[KeyInterval]) -> Self {
        let mut ranges_count = 0;
        let with_ranges = intervals.iter().map(|keys| {
            let range_first = position(starts, keys.first);
            ranges_count += u64::from(position(starts, keys.last) - range_first) + 1;
            IntervalRanges { keys: *keys, range_first, ranges_end: ranges_count }
        });
        Self { starts, intervals: with_ranges.collect(), ranges_count }
    }

    /// Returns the number of overlaps between a range and an interval.
    pub(crate) fn ranges_count(&self) -> u64 {
        self.ranges_count
    }

    /// Returns the smallest interval that has all keys; `None` if there are no keys.
    pub(crate) fn span(&self) -> Option<KeyInterval> {
        let (first, last) = (self.intervals.first()?, self.intervals.last()?);
        Some(KeyInterval { first: first.keys.first, last: last.keys.last })
    }

    /// Returns the mean and deviation of uniformly distributed keys, by a formula.
    ///
    /// The source is "Scaling Open vSwitch with a Computational Cache", appendix A.1.
    pub(crate) fn distribution(&self) -> Distribution {
        // Keys are relative to the first key, so that the difference of two large squares loses
        // little precision.
        let origin = self.span().map_or(0.0, |span| f64::from(span.first));
        let (mut weight, mut mean, mut square) = (0.0, 0.0, 0.0);
        for interval in &self.intervals {
            let a = f64::from(interval.keys.first) - origin;
            let b = f64::from(interval.keys.last) - origin;
            let keys_count = b - a + 1.0;
            weight += keys_count;
            mean += keys_count * (a + b) / 2.0;
            square += keys_count * (a * a + a * b + b * b) / 3.0;
        }
        if weight == 0.0 {
            return Distribution { mean: 0.0, deviation: 1.0 };
        }
        mean /= weight;
        let variance = square / weight - mean * mean;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        Distribution { mean: mean + origin, deviation }
    }

    /// Returns the keys of the overlap with number `index`, and its range.
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^32 ranges")]
    pub(crate) fn overlap(&self, index: u64) -> (KeyInterval, u32) {
        let at = self.intervals.partition_point(|interval| interval.ranges_end <= index);
        let ranges_before = at.checked_sub(1).map_or(0, |before| self.intervals[before].ranges_end);
        let interval = &self.intervals[at];
        let range = interval.range_first + (index - ranges_before) as u32;
        let keys = range_keys(self.starts, range);
        let keys = KeyInterval {
            first: keys.first.max(interval.keys.first),
            last: keys.last.min(interval.keys.last),
        };
        (keys, range)
    }

    /// Calls `visit` with keys at which errors are greatest, and with their positions.
    ///
    /// `monotone` divides an interval of keys into intervals over which predictions are monotone.
    /// `visit` is called with both ends of each overlap of such an interval with a range. The
    /// predictions for keys between the two ends are between the predictions for the ends, and all
    /// these keys have the same position. Keys are in ascending order if the intervals of
    /// `monotone` are.
    pub(crate) fn for_each_end<I: Iterator<Item = KeyInterval>>(
        &self,
        monotone: impl Fn(KeyInterval) -> I,
        mut visit: impl FnMut(u32, u32),
    ) {
        for keys in self.intervals.iter().flat_map(|interval| monotone(interval.keys)) {
            let mut range = position(self.starts, keys.first);
            let mut first = keys.first;
            loop {
                let last = range_keys(self.starts, range).last.min(keys.last);
                visit(first, range);
                visit(last, range);
                if last == keys.last {
                    break;
                }
                first = last + 1;
                range += 1;
            }
        }
    }
}

/// Returns the position of the last start that is at most `key`.
///
/// Keys below all starts have position 0.
#[expect(clippy::cast_possible_truncation, reason = "there are at most 2^32 starts")]
pub(crate) fn position(starts: &[u32], key: u32) -> u32 {
    starts.partition_point(|start| *start <= key).saturating_sub(1) as u32
}

/// Returns the first and the last key of the range with this number.
fn range_keys(starts: &[u32], range: u32) -> KeyInterval {
    let range = range as usize;
    let first = if range == 0 { 0 } else { starts[range] };
    let last = starts.get(range + 1).map_or(u32::MAX, |next| next - 1);
    KeyInterval { first, last }
}

impl RmiStage {
    /// Returns the keys that reach each of the `width` nets of the next stage.
    ///
    /// The intervals of a net are sorted and disjoint. `keys` has the keys that reach each net of
    /// this stage. The result is exact, because every border comes from outputs of the code that
    /// lookups run.
    pub(crate) fn route(&self, keys: &[Vec<KeyInterval>], width: usize) -> Vec<Vec<KeyInterval>> {
        let mut routed = vec![Vec::new(); width];
        for (net, intervals) in self.nets.iter().zip(keys) {
            let output = |key| net.output(ScalarVector, key, self.limit);
            for keys in intervals.iter().flat_map(|interval| net.monotone_intervals(*interval)) {
                for_each_run(keys, output, |run, output| routed[output as usize].push(run));
            }
        }
        for intervals in &mut routed {
            intervals.sort_unstable_by_key(|interval| interval.first);
            // Adjacent intervals are joined.
            intervals.dedup_by(|next, before| {
                let touches = before.last.checked_add(1) == Some(next.first);
                if touches {
                    before.last = next.last;
                }
                touches
            });
        }
        routed
    }
}

/// Calls `visit` with each run of keys that have one output.
///
/// Outputs are monotone over `keys`, so equal outputs at two keys mean equal outputs between them.
fn for_each_run(
    keys: KeyInterval,
    output: impl Fn(u32) -> u32,
    mut visit: impl FnMut(KeyInterval, u32),
) {
    let last_output = output(keys.last);
    let mut first = keys.first;
    loop {
        let current = output(first);
        if current == last_output {
            return visit(KeyInterval { first, last: keys.last }, current);
        }
        // The output is `current` up to at least `inside`, and different from `outside` on.
        let (mut inside, mut outside) = (first, keys.last);
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            if output(middle) == current {
                inside = middle;
            } else {
                outside = middle;
            }
        }
        visit(KeyInterval { first, last: inside }, current);
        first = outside;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the formulas with sums over all keys.
    #[test]
    fn distribution_is_that_of_all_keys() {
        let parts = [(3, 9), (20, 20), (100, 357)];
        let intervals = parts.map(|(first, last)| KeyInterval { first, last });
        let keys: Vec<f64> =
            parts.iter().flat_map(|(first, last)| *first..=*last).map(f64::from).collect();
        let mean = keys.iter().sum::<f64>() / keys.len() as f64;
        let variance =
            keys.iter().map(|key| (key - mean) * (key - mean)).sum::<f64>() / keys.len() as f64;
        let Distribution { mean: closed, deviation } =
            Responsibility::new(&[0, 50], &intervals).distribution();
        assert!((closed - mean).abs() < 1e-9, "{closed} {mean}");
        // The formula is for real numbers, and the sum is over integers.
        assert!((deviation - variance.sqrt()).abs() < 1.0, "{deviation} {}", variance.sqrt());
    }

    #[test]
    fn overlaps_are_counted_over_all_intervals() {
        let intervals =
            [(0, 4), (8, 25), (27, 27)].map(|(first, last)| KeyInterval { first, last });
        let responsibility = Responsibility::new(&[0, 10, 20, 30], &intervals);
        let overlaps: Vec<(u32, u32, u32)> = (0..responsibility.ranges_count())
            .map(|index| responsibility.overlap(index))
            .map(|(keys, range)| (keys.first, keys.last, range))
            .collect();
        assert_eq!(overlaps, [(0, 4, 0), (8, 9, 0), (10, 19, 1), (20, 25, 2), (27, 27, 2)]);
    }

    #[test]
    fn runs_of_falling_outputs_are_found() {
        let mut runs = Vec::new();
        let keys = KeyInterval { first: 10, last: u32::MAX };
        let output = |key| if key < 12 { 5 } else { u32::from(key < u32::MAX) };
        for_each_run(keys, output, |run, output| runs.push((run.first, run.last, output)));
        assert_eq!(
            runs,
            [(10, 11, 5), (12, u32::MAX - 1, 1), (u32::MAX, u32::MAX, 0)],
            "first key, last key, output"
        );
    }
}
