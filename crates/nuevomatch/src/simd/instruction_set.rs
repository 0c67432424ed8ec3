//! The choice of a kernel at run time.

#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, avx512::Avx512};
use super::{
    line::{Line, MatchJob},
    prefetch::prefetch,
    scalar,
    vector::{ScalarVector, VectorWork},
};
use crate::blocks::BlockLayout;

/// The instructions that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    /// Plain Rust.
    Scalar,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// 512-bit vectors with masks.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl InstructionSet {
    /// Returns the fastest set that the processor has.
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

    /// Returns all sets that the processor has.
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
    /// `positions` are nodes before, and positions of starts after. Each is at most `last`.
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

    /// Compares keys with the blocks of their jobs.
    ///
    /// Bit `i` of a mask is set if the rule `i` of the job contains its key.
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

    /// Compares keys with the blocks of their jobs, and keeps the better ranks.
    ///
    /// Rules of a job are in the order of ranks. There are at most `B` jobs and keys, each job has
    /// rules, and the layout has priorities.
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

    /// Does `work` with these instructions.
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

    /// Asks the processor to load lines.
    #[inline]
    pub(crate) fn prefetch(self, lines: &[Line]) {
        prefetch(lines);
    }
}
