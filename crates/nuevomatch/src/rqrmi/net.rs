//! A neural net in its executable form: at most nine linear parts.
//!
//! A net of one input and eight ReLU neurons is a piecewise linear function with at most eight
//! borders. [`CompiledNet`] stores the linear parts, and a lookup evaluates one of them. So a proof
//! about a compiled net is a proof about the code that lookups run.
//!
//! # Each part is monotone
//!
//! [`LinearFunction::output`] is a chain of five steps: subtract the first key of the part (exact,
//! in integers), convert to `f32`, multiply and add with one rounding, clamp, truncate. Each step
//! is monotone in its input, because the rounding of a monotone function is monotone. So the output
//! only rises or only falls over the whole part, by the sign of the slope. The certificate depends
//! only on this property.

use crate::simd::Vector;

/// Number of hidden neurons of a net, and of borders between its parts.
pub(crate) const NEURONS: usize = 8;

/// Number of parts of a net.
pub(crate) const PARTS: usize = NEURONS + 1;

/// A net as it is executed: the first key and the linear function of each part.
///
/// A net has two cache lines. A lookup compares the key with all borders at once and reads one
/// linear function.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct CompiledNet {
    /// The first key of each part, in ascending order.
    ///
    /// A part is empty if the next part begins at the same key.
    bases: [u32; PARTS],
    /// The linear function of each part.
    lines: [LinearFunction; PARTS],
}

/// A linear function of the distance to the first key of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(crate) struct LinearFunction {
    /// Growth of the output per key.
    pub(crate) slope: f32,
    /// Output at the first key of the part.
    pub(crate) intercept: f32,
}

/// An interval of keys, including both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyInterval {
    /// The first key of the interval.
    pub(crate) first: u32,
    /// The last key of the interval.
    pub(crate) last: u32,
}

impl CompiledNet {
    /// Builds a net from its parts. Bases must be sorted, and lines must be finite.
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

    /// Returns the first key and the linear function of the part that has `key`.
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
    /// The intervals are the keys of each part. Keys below the first base also use the first part,
    /// but their distance wraps around, so they form a separate interval. No key that reaches a
    /// trained net is below the first base.
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
    /// `limit` must be below 2^24.
    #[inline(always)]
    pub(crate) fn output<V: Vector>(self, vector: V, distance: u32, limit: f32) -> u32 {
        let value = self.slope.mul_add(distance as f32, self.intercept);
        // With the operands in this order, each comparison is one instruction, and NaN becomes 0.
        let value = if value > 0.0 { value } else { 0.0 };
        let value = if value < limit { value } else { limit };
        vector.truncate(value)
    }
}

impl KeyInterval {
    /// The interval of all keys.
    pub(crate) const ALL: Self = Self { first: 0, last: u32::MAX };
}

const _: () = assert!(size_of::<CompiledNet>() == 128, "a net is two cache lines");
