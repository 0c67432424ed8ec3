//! Vector kernels: one search step of a tree, and the comparison of keys with blocks of 16 rules.
//!
//! Each kernel exists for AVX-512, for AVX2 and in plain Rust. All versions of a kernel return the
//! same bits. [`InstructionSet::best`] chooses the version at run time. The unsafe code of the
//! crate is in this folder.

mod avx2;
mod avx512;
mod instruction_set;
mod kernels;
mod line;
mod prefetch;
mod scalar;
mod vector;

#[cfg(test)]
mod tests;

pub(crate) use instruction_set::InstructionSet;
pub(crate) use line::{BATCH_MAX, BLOCK_RULES, LINE_WORDS, Line, MatchJob};
pub(crate) use vector::{ScalarVector, Vector, VectorWork};
