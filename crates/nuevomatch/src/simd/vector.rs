//! Lookups that are written once and compiled for each instruction set.
//!
//! A lookup in a learned index is a [`VectorWork`] over the trait [`Vector`].
//! [`InstructionSet::run`] runs this work with the instructions of the processor. Comparisons use
//! integers, and a fused multiply-add has one correctly rounded result. So all instruction sets
//! return the same bits.
//!
//! [`InstructionSet::run`]: super::InstructionSet::run

/// The vector operations of one instruction set.
///
/// A value of a type with this trait is the proof that the processor has the instructions.
/// [`ScalarVector`] needs no proof.
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
    /// Does the work with the operations of `vector`.
    ///
    /// Implementations must be `#[inline(always)]`. Only then does the compiler use the instruction
    /// set of the caller.
    fn run<V: Vector>(self, vector: V);
}

/// The vector operations in plain Rust.
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
