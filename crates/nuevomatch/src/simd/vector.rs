//! Lookups that are written once and compiled for each instruction set.
//!
//! A lookup in a learned index is a [`VectorWork`] over the trait [`Vector`]. [`InstructionSet::run`] gives it
//! the instructions of the processor. Comparisons are of integers, and a fused multiply-add has one
//! correctly rounded result. So all instruction sets return the same bits.
//!
//! [`InstructionSet::run`]: super::InstructionSet::run

/// Operations of one instruction set.
///
/// Except for [`ScalarVector`], a value is the proof that the processor has the instructions.
pub(crate) trait Vector: Copy {
    /// Returns the number of `bounds` that are at most `key`.
    fn count8(self, bounds: &[u32; 8], key: u32) -> u32;

    /// Returns the number of `bounds` that are at most `key`.
    fn count16(self, bounds: &[u32; 16], key: u32) -> u32;

    /// Returns `value` without its fraction, for values from 0 to 2^24.
    fn truncate(self, value: f32) -> u32;
}

/// Work that is compiled once for each instruction set.
pub(crate) trait VectorWork {
    /// Does the work.
    ///
    /// Implementations are `#[inline(always)]`. Only then are they compiled with the instructions of
    /// their caller.
    fn run<V: Vector>(self, vector: V);
}

/// Operations in plain Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalarVector;

impl Vector for ScalarVector {
    #[inline(always)]
    fn count8(self, bounds: &[u32; 8], key: u32) -> u32 {
        bounds.iter().map(|bound| u32::from(*bound <= key)).sum()
    }

    #[inline(always)]
    fn count16(self, bounds: &[u32; 16], key: u32) -> u32 {
        bounds.iter().map(|bound| u32::from(*bound <= key)).sum()
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "values are from 0 to 2^24"
    )]
    fn truncate(self, value: f32) -> u32 {
        value as u32
    }
}
