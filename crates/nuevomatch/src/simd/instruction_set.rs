//! The choice of the instruction set of kernels at run time.

#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use super::{
    line::{Line, MatchJob},
    prefetch::prefetch,
    scalar,
    vector::{ScalarVector, VectorWork},
};
use crate::blocks::BlockLayout;

/// The instruction set that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    /// Plain Rust, without vector instructions.
    Scalar,
    /// AVX2, with vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 512-bit vectors with masks.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl InstructionSet {
    /// Returns the fastest instruction set that the processor has.
    pub(crate) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = Avx512::detect() {
                return Self::Avx512(avx512);
            }
            if let Some(avx2) = Avx2::detect() {
                return Self::Avx2(avx2);
            }
        }
        Self::Scalar
    }

    /// Returns all instruction sets that the processor has.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx2::detect().map(Self::Avx2));
            all.extend(Avx512::detect().map(Self::Avx512));
        }
        all
    }

    /// Moves each key from its node of a level of a tree to its position in the level.
    ///
    /// Before the call, `positions` has the nodes of the keys. After the call it has positions of
    /// starts, each at most `last`.
    #[inline]
    pub(crate) fn descend(self, nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
        match self {
            Self::Scalar => scalar::descend(nodes, last, keys, positions),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.descend(nodes, last, keys, positions),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.descend(nodes, last, keys, positions),
        }
    }

    /// Compares the key of each job with the blocks of the job.
    ///
    /// Bit `i` of the mask of a job is set if the rule `i` of the job contains the key.
    #[inline]
    pub(crate) fn match_blocks<const N: usize>(
        self,
        layout: &BlockLayout<N>,
        lines: &[Line],
        keys: &[[u32; N]],
        jobs: &[MatchJob],
        masks: &mut [u64],
    ) {
        match self {
            Self::Scalar => scalar::match_blocks(layout, lines, keys, jobs, masks),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.match_blocks(layout, lines, keys, jobs, masks),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.match_blocks(layout, lines, keys, jobs, masks),
        }
    }

    /// Compares the key of each job with its blocks, and keeps the better rank.
    ///
    /// The rules of a job must be in the order of ranks. At most `B` jobs and keys are allowed,
    /// each job must have rules, and the layout must have priorities.
    #[inline]
    pub(crate) fn best_ranks<const N: usize, const B: usize>(
        self,
        layout: &BlockLayout<N>,
        lines: &[Line],
        keys: &[[u32; N]],
        jobs: &[MatchJob],
        ranks: &mut [u64; B],
    ) {
        match self {
            Self::Scalar => scalar::best_ranks(layout, lines, keys, jobs, ranks),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.best_ranks(layout, lines, keys, jobs, ranks),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.best_ranks(layout, lines, keys, jobs, ranks),
        }
    }

    /// Does `work` with the instructions of this set.
    #[inline]
    pub(crate) fn run<W: VectorWork>(self, work: W) {
        match self {
            Self::Scalar => work.run(ScalarVector),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(avx2) => avx2.run(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(avx512) => avx512.run(work),
        }
    }

    /// Asks the processor to load lines into its L1 cache.
    #[inline]
    pub(crate) fn prefetch(self, lines: &[Line]) {
        prefetch(lines);
    }
}
