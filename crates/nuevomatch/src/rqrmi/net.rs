//! A net in its executable form: at most nine linear parts.
//!
//! A net of one input and eight ReLU neurons is a piecewise linear function with at most eight borders.
//! [`CompiledNet`] stores its parts, and a lookup evaluates one of them. So a statement about a compiled
//! net is a statement about the code that runs.
//!
//! # Each part is monotone
//!
//! [`LinearFunction::output`] is a chain of five steps: subtract the first key of the part (exact, in integers),
//! convert to `f32`, multiply and add with one rounding, clamp, truncate. Each step is monotone in its
//! input: the rounding of a monotone function is monotone. So the output rises or falls over the whole
//! part, with the sign of the slope. The certificate depends on this fact and on no other.

use crate::simd::Vector;

/// Number of hidden neurons of a net, hence of borders between its parts.
pub(crate) const NEURONS: usize = 8;

/// Number of parts of a net.
pub(crate) const PARTS: usize = NEURONS + 1;

/// A net as it is executed: the first key of each part, and its line.
///
/// Two cache lines. A lookup compares the key with all borders at once and reads one line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct CompiledNet {
    /// First key of each part, in ascending order.
    ///
    /// A part is empty if the next one begins at the same key.
    bases: [u32; PARTS],
    lines: [LinearFunction; PARTS],
}

/// Linear function of the distance to the first key of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct LinearFunction {
    pub(crate) slope: f32,
    pub(crate) intercept: f32,
}

/// Interval of keys, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyInterval {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl CompiledNet {
    /// Builds a net from its parts. Bases are sorted, and lines are finite.
    pub(crate) fn new(bases: [u32; PARTS], lines: [LinearFunction; PARTS]) -> Self {
        assert!(bases.is_sorted(), "the parts of a net are in the order of their keys");
        let is_finite =
            |line: &LinearFunction| line.slope.is_finite() && line.intercept.is_finite();
        assert!(lines.iter().all(is_finite), "the lines of a net are finite");
        Self { bases, lines }
    }

    /// Returns a net with the same output for every key from `first` on.
    pub(crate) fn constant(first: u32, output: f32) -> Self {
        let mut bases = [u32::MAX; PARTS];
        bases[0] = first;
        Self::new(bases, [LinearFunction { slope: 0.0, intercept: output }; PARTS])
    }

    /// Returns base and line of the part that serves `key`.
    #[inline(always)]
    pub(crate) fn part<V: Vector>(&self, vector: V, key: u32) -> (u32, LinearFunction) {
        let [_, borders @ ..] = &self.bases;
        let part = vector.count8(borders, key) as usize;
        (self.bases[part], self.lines[part])
    }

    /// Returns the output for `key`, from 0 to `limit`.
    #[inline(always)]
    pub(crate) fn output<V: Vector>(&self, vector: V, key: u32, limit: f32) -> u32 {
        let (base, line) = self.part(vector, key);
        line.output(vector, key.wrapping_sub(base), limit)
    }

    /// Divides `interval` into intervals over which the output is monotone.
    ///
    /// These are the keys of each part. Keys below the first base use the first part too, but their
    /// distance wraps, so they are an interval of their own. No key of a trained net is below it.
    pub(crate) fn monotone_intervals(
        &self,
        interval: KeyInterval,
    ) -> impl Iterator<Item = KeyInterval> {
        let bases = self.bases;
        (0..=PARTS).filter_map(move |part| {
            let first = if part == 0 { 0 } else { bases[part - 1] };
            let last = match bases.get(part) {
                Some(next) => next.checked_sub(1)?,
                None => u32::MAX,
            };
            let (first, last) = (first.max(interval.first), last.min(interval.last));
            (first <= last).then_some(KeyInterval { first, last })
        })
    }
}

impl LinearFunction {
    /// Returns the value at a distance, clamped to `0..=limit` and truncated.
    ///
    /// `limit` is below 2^24.
    #[inline(always)]
    pub(crate) fn output<V: Vector>(self, vector: V, distance: u32, limit: f32) -> u32 {
        let value = self.slope.mul_add(distance as f32, self.intercept);
        // In this order each comparison is one instruction, and NaN becomes 0.
        let value = if value > 0.0 { value } else { 0.0 };
        let value = if value < limit { value } else { limit };
        vector.truncate(value)
    }
}

impl KeyInterval {
    /// Every key.
    pub(crate) const ALL: Self = Self { first: 0, last: u32::MAX };
}

const _: () = assert!(size_of::<CompiledNet>() == 128, "a net is two cache lines");
