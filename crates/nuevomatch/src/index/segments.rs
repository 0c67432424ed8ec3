//! Linear segments over sorted starts, with certified windows.
//!
//! The starts are divided into segments by a greedy algorithm. A segment is extended while one line
//! through its first point predicts all positions of the segment with an error of at most
//! [`SegmentSettings::error_wanted`]. The upper bits of a key select an entry of the radix root,
//! which lists the segments of such keys. A search in this list gives the segment, and the line of
//! the segment predicts the position.
//!
//! The length of the searched window comes from the exact errors of the prediction code, as in
//! [`rqrmi`](crate::rqrmi). A line with large rounding errors has a longer window, and never a
//! wrong one.

use crate::{
    Error,
    index::{FindBatch, FindLanes, SortedStarts, StartIndex, Windows, check_count, check_starts},
    rqrmi::{CertifiedError, KeyInterval, LinearFunction, Responsibility, STARTS_MAX, position},
    simd::{InstructionSet, ScalarVector, Vector},
};

/// The parameters of linear segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSettings {
    /// Largest error of a prediction in positions, apart from rounding.
    pub error_wanted: u32,
}

impl Default for SegmentSettings {
    /// Returns an error of 7 in both directions, for which the window is one vector.
    fn default() -> Self {
        Self { error_wanted: 7 }
    }
}

/// An index of linear segments.
#[derive(Clone, Debug)]
pub struct LinearSegments {
    /// The starts, in ascending order.
    starts: SortedStarts,
    /// The first key of each segment.
    bases: SortedStarts,
    /// The linear function of each segment.
    lines: Vec<LinearFunction>,
    /// The radix root: the range of segments for each value of the upper bits of a key.
    roots: Vec<SegmentRange>,
    /// Number of lower bits of a key that the radix root does not use.
    root_shift: u32,
    /// The largest position of a start.
    limit: f32,
    /// The greatest errors of predictions over all keys, in positions.
    error: CertifiedError,
    /// The vector instructions that lookups use.
    instructions: InstructionSet,
}

/// A range of consecutive segments.
#[derive(Clone, Copy, Debug)]
struct SegmentRange {
    /// Index of the first segment.
    first: u32,
    /// Number of segments.
    length: u32,
}

impl LinearSegments {
    /// Returns the greatest errors of predictions over all keys.
    pub fn error(&self) -> CertifiedError {
        self.error
    }

    /// Returns the number of segments.
    pub fn segments_count(&self) -> usize {
        self.lines.len()
    }
}

/// Divides `starts` into segments; returns the first key and the line of each.
fn fit(starts: &[u32], error_wanted: u32) -> (Vec<u32>, Vec<LinearFunction>) {
    let (mut bases, mut lines) = (Vec::new(), Vec::new());
    let mut first = 0;
    while first < starts.len() {
        let base = if first == 0 { 0 } else { starts[first] };
        let mut slopes = SlopeRange { low: 0.0, high: f64::INFINITY };
        let mut end = first;
        while end < starts.len() {
            let first_key = starts[end].max(base);
            let last_key = starts.get(end + 1).map_or(u32::MAX, |next| next - 1);
            let distances = [first_key - base, last_key - base];
            let extended = slopes.constrained(distances, (end - first) as f64, error_wanted);
            // The first range of a segment always fits: the intercept of the line is its position.
            if extended.low > extended.high && end > first {
                break;
            }
            slopes = extended;
            end += 1;
        }
        bases.push(base);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the certificate includes the rounding"
        )]
        let slope = slopes.middle() as f32;
        lines.push(LinearFunction { slope, intercept: first as f32 + 0.5 });
        first = end;
    }
    (bases, lines)
}

/// The range of slopes for which all predictions of a segment are close enough.
#[derive(Clone, Copy, Debug)]
struct SlopeRange {
    /// The least slope that is close enough.
    low: f64,
    /// The greatest slope; infinite without a bound.
    high: f64,
}

impl SlopeRange {
    /// Returns the slopes that also fit a range at `distances` from the base.
    ///
    /// `steps` is the position of this range in the segment. Predictions are truncated, so the line
    /// should give `steps + 0.5`.
    fn constrained(self, distances: [u32; 2], steps: f64, error_wanted: u32) -> Self {
        let error = f64::from(error_wanted);
        let [first, last] = distances.map(f64::from);
        let mut slopes = self;
        if first > 0.0 {
            slopes.low = slopes.low.max((steps - error) / first);
        }
        if last > 0.0 {
            slopes.high = slopes.high.min((steps + error) / last);
        }
        slopes
    }

    /// Returns the slope in the middle, or the least one if there is no greatest.
    fn middle(self) -> f64 {
        if self.high.is_finite() { (self.low + self.high) / 2.0 } else { self.low }
    }
}

/// Returns the entries of the radix root, and the number of ignored key bits.
///
/// `bases` are the first keys of the segments.
fn radix_root(bases: &[u32]) -> (Vec<SegmentRange>, u32) {
    // The root has about four entries per segment, and between 2 and 65,536 entries in total.
    let bits = (bases.len().ilog2() + 3).min(16);
    let shift = u32::BITS - bits;
    let range = |entry: u32| {
        let first_key = entry << shift;
        let first = position(bases, first_key);
        let last = position(bases, first_key | ((1 << shift) - 1));
        SegmentRange { first, length: last - first + 1 }
    };
    ((0..1 << bits).map(range).collect(), shift)
}

impl FindLanes for LinearSegments {
    #[inline(always)]
    fn find_lanes<V: Vector, const N: usize>(
        &self,
        vector: V,
        keys: &[u32; N],
        positions: &mut [u32; N],
    ) {
        let (roots, root_shift) = (&*self.roots, self.root_shift);
        let mut windows = Windows::of(|lane| {
            let root = roots[(keys[lane] >> root_shift) as usize];
            (root.first, root.length)
        });
        self.bases.search(vector, keys, &mut windows, positions);
        let segments = &*positions;
        let (bases, lines, limit) = (self.bases.starts(), &*self.lines, self.limit);
        let CertifiedError { below, above } = self.error;
        let length = (below + above + 1).min(self.starts.len());
        let first_max = self.starts.len() - length;
        let mut windows = Windows::of(|lane| {
            let segment = segments[lane] as usize;
            let distance = keys[lane].wrapping_sub(bases[segment]);
            let predicted = lines[segment].output(vector, distance, limit);
            (predicted.saturating_sub(below).min(first_max), length)
        });
        self.starts.search(vector, keys, &mut windows, positions);
    }
}

impl LinearSegments {
    /// Computes the exact errors of predictions over all keys.
    fn certify(&mut self) {
        let (bases, lines) = (self.bases.starts(), &*self.lines);
        let keys_of_segment = |segment: usize| KeyInterval {
            first: bases[segment],
            last: bases.get(segment + 1).map_or(u32::MAX, |next| next - 1),
        };
        let monotone = |_| (0..bases.len()).map(keys_of_segment);
        let mut error = CertifiedError::default();
        let mut segment = 0;
        Responsibility::new(self.starts.starts(), &[KeyInterval::ALL]).for_each_end(
            monotone,
            |key, expected| {
                // The keys are in ascending order, so the segment only advances.
                while bases.get(segment + 1).is_some_and(|next| *next <= key) {
                    segment += 1;
                }
                let distance = key - bases[segment];
                error.include(lines[segment].output(ScalarVector, distance, self.limit), expected);
            },
        );
        self.error = error;
    }
}

impl StartIndex for LinearSegments {
    type Settings = SegmentSettings;

    /// Fits the segments, and certifies them.
    /// The index has at most [`STARTS_MAX`] starts.
    fn build(starts: &[u32], settings: &SegmentSettings) -> Result<Self, Error> {
        check_count(starts, STARTS_MAX)?;
        check_starts(starts);
        let (bases, lines) = fit(starts, settings.error_wanted);
        let (roots, root_shift) = radix_root(&bases);
        let mut index = Self {
            starts: SortedStarts::new(starts.to_vec()),
            bases: SortedStarts::new(bases),
            lines,
            roots,
            root_shift,
            limit: (starts.len() - 1) as f32,
            error: CertifiedError::default(),
            instructions: InstructionSet::best(),
        };
        index.certify();
        Ok(index)
    }

    fn find_batch(&self, keys: &[u32], positions: &mut [u32]) {
        let positions = &mut positions[..keys.len()];
        self.instructions.run(FindBatch { index: self, keys, positions });
    }

    fn bytes(&self) -> usize {
        self.starts.bytes()
            + self.bases.bytes()
            + size_of_val(&*self.lines)
            + size_of_val(&*self.roots)
    }

    fn certified_error(&self) -> Option<u32> {
        Some(self.error.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::test_starts::{
        GATE_STRIDE, check_index, check_strided_keys, patterns, uniform_starts,
    };

    /// Returns the segments of starts with the default settings.
    fn build(starts: &[u32]) -> LinearSegments {
        LinearSegments::build(starts, &SegmentSettings::default()).unwrap()
    }

    /// The number is checked before the starts are read.
    #[test]
    fn too_many_starts_are_an_error() {
        let starts: Vec<u32> = (0..).take(STARTS_MAX + 1).collect();
        let error = LinearSegments::build(&starts, &SegmentSettings::default()).unwrap_err();
        assert_eq!(error, Error::TooManyStarts { starts: STARTS_MAX + 1, max: STARTS_MAX });
    }

    #[test]
    fn every_pattern_is_found_with_each_instruction_set() {
        for (name, starts) in patterns() {
            for error_wanted in [0, 7, 100] {
                let settings = SegmentSettings { error_wanted };
                let mut index = LinearSegments::build(&starts, &settings).unwrap();
                for instructions in InstructionSet::all() {
                    index.instructions = instructions;
                    let name = format!("{name}, error {error_wanted}, {instructions:?}");
                    check_index(&name, &index, &starts);
                }
            }
        }
    }

    #[test]
    fn segment_errors_stay_within_the_requested_bound() {
        for (name, starts) in patterns() {
            let index = build(&starts);
            // Positions are below 2^17, so rounding errors are far below 0.5.
            assert!(index.error().max() <= 7, "{name}: {:?}", index.error());
        }
        let line: Vec<u32> = (0..10_000).map(|i| i * 1000).collect();
        let index = build(&line);
        assert!(index.segments_count() <= 2, "{} segments", index.segments_count());
    }

    /// Compares the certified errors with the errors of all keys of 16 bits.
    #[test]
    fn certified_errors_equal_those_of_all_keys() {
        for (name, starts) in patterns() {
            let starts: Vec<u32> = starts.into_iter().filter(|start| *start <= 0xffff).collect();
            let index = build(&starts);
            let mut error = CertifiedError::default();
            for key in (0..=0xffff).chain([u32::MAX]) {
                let segment = position(index.bases.starts(), key) as usize;
                let distance = key - index.bases.starts()[segment];
                let predicted = index.lines[segment].output(ScalarVector, distance, index.limit);
                error.include(predicted, position(&starts, key));
            }
            assert_eq!(index.error(), error, "{name}");
        }
    }

    /// Checks lookups of one key in `stride` in segments of several starts.
    fn check_models(stride: usize) {
        for starts in [uniform_starts(31_000), patterns().pop().unwrap().1] {
            let index = build(&starts);
            check_strided_keys("segments", &index, &starts, stride);
        }
    }

    #[test]
    fn keys_over_the_whole_domain_are_found() {
        check_models(GATE_STRIDE);
    }

    /// Looks up all keys of 32 bits.
    #[test]
    #[ignore = "takes minutes: cargo test --release -p shunt-nuevomatch every_key_of_32_bits -- --ignored"]
    fn every_key_of_32_bits_is_found() {
        check_models(1);
    }
}
