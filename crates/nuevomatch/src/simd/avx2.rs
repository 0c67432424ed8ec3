//! Kernels of 256-bit vectors.
//!
//! AVX2 has no unsigned comparison: `a <= b` is `max(a, b) == b`. A block of 16 rules is two
//! vectors of words, or one of half words.

#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads take pointers, and the features are known at run time")]
#![expect(clippy::cast_possible_truncation, reason = "kernels compare low bits, return 16 bits")]
#![expect(clippy::cast_sign_loss, reason = "masks are bits")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cvttss_si32, _mm_loadu_si128,
    _mm_max_epu8, _mm_min_epu8, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_ss, _mm_set1_epi8,
    _mm_setzero_si128, _mm_srli_si128, _mm_xor_si128, _mm256_and_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32, _mm256_cvtepu8_epi32,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_max_epu16, _mm256_max_epu32,
    _mm256_min_epu16, _mm256_min_epu32, _mm256_movemask_ps, _mm256_set1_epi16, _mm256_set1_epi32,
    _mm256_setzero_si256, _mm256_srlv_epi32, _mm256_xor_si256,
};

use super::{
    line::{Line, MatchJob},
    scalar::{for_blocks, step},
    vector::{Vector, VectorWork},
};
use crate::blocks::{BlockLayout, LaneKind, Quarter};

/// Proof that the processor has AVX2, FMA and POPCNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Returns the proof if the processor has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("popcnt");
        has.then_some(Self(()))
    }

    #[inline]
    pub(super) fn descend(self, nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { descend(nodes, last, keys, positions) }
    }

    #[inline]
    pub(super) fn run<W: VectorWork>(self, work: W) {
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { run(self, work) }
    }

    #[inline]
    pub(super) fn match_blocks<const N: usize>(
        self,
        layout: &BlockLayout<N>,
        lines: &[Line],
        keys: &[[u32; N]],
        jobs: &[MatchJob],
        masks: &mut [u64],
    ) {
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { match_blocks(layout, lines, keys, jobs, masks) }
    }
}

impl Vector for Avx2 {
    #[inline(always)]
    fn count8(self, bounds: &[u32; 8], key: u32) -> u32 {
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { count8(bounds, key) }
    }

    #[inline(always)]
    fn count16(self, bounds: &[u32; 16], key: u32) -> u32 {
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { count16(bounds, key) }
    }

    #[inline(always)]
    fn truncate(self, value: f32) -> u32 {
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { truncate(value) }
    }
}

/// Does work that uses the functions below.
#[target_feature(enable = "avx2,fma,popcnt")]
fn run<W: VectorWork>(vector: Avx2, work: W) {
    work.run(vector);
}

#[inline]
#[target_feature(enable = "avx2,fma,popcnt")]
fn count8(bounds: &[u32; 8], key: u32) -> u32 {
    at_most(bounds, key).count_ones()
}

#[inline]
#[target_feature(enable = "avx2,fma,popcnt")]
fn count16(bounds: &[u32; 16], key: u32) -> u32 {
    let (halves, _) = bounds.as_chunks();
    at_most(&halves[0], key).count_ones() + at_most(&halves[1], key).count_ones()
}

/// Returns one bit for each of `bounds` that is at most `key`.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn at_most(bounds: &[u32; 8], key: u32) -> u8 {
    let key = _mm256_set1_epi32(key.cast_signed());
    word_mask(_mm256_cmpeq_epi32(_mm256_max_epu32(load_half(bounds), key), key)) as u8
}

/// Converts without the check of the range that the language's conversion has.
#[inline]
#[target_feature(enable = "avx2,fma,popcnt")]
fn truncate(value: f32) -> u32 {
    _mm_cvttss_si32(_mm_set_ss(value)).cast_unsigned()
}

#[target_feature(enable = "avx2,popcnt")]
fn descend(nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
    for (key, position) in keys.iter().zip(positions) {
        let [low, high] = Quarter::pairs(&nodes[*position as usize]);
        let key = _mm256_set1_epi32(key.cast_signed());
        let below = |starts| word_mask(_mm256_cmpeq_epi32(_mm256_max_epu32(starts, key), key));
        let below = below(load_half(low)).count_ones() + below(load_half(high)).count_ones();
        *position = step(*position, below, last);
    }
}

#[target_feature(enable = "avx2,popcnt")]
fn match_blocks<const N: usize>(
    layout: &BlockLayout<N>,
    lines: &[Line],
    keys: &[[u32; N]],
    jobs: &[MatchJob],
    masks: &mut [u64],
) {
    for_blocks(layout.lines(), lines, keys, jobs, masks, |block, key| {
        let mut mask = u16::MAX;
        for (slot, key) in layout.slots().iter().zip(key) {
            let key = key & slot.max;
            let (low, high) = (slot.low, slot.high);
            mask &= match slot.kind {
                LaneKind::Absent => u16::MAX,
                LaneKind::Prefix => {
                    prefixes(low.line(block), load_quarter(high.quarter(block)), key)
                }
                LaneKind::Word => words(low.line(block), high.line(block), key),
                LaneKind::Half => {
                    halves(load_half(low.pair(block)), load_half(high.pair(block)), key)
                }
                LaneKind::Byte => {
                    bytes(load_quarter(low.quarter(block)), load_quarter(high.quarter(block)), key)
                }
            };
            if let Some(bits) = slot.mask {
                mask &= match slot.kind {
                    LaneKind::Absent => u16::MAX,
                    LaneKind::Prefix | LaneKind::Word => {
                        masked_words(low.line(block), bits.line(block), key)
                    }
                    LaneKind::Half => {
                        masked_halves(load_half(low.pair(block)), load_half(bits.pair(block)), key)
                    }
                    LaneKind::Byte => {
                        let values = load_quarter(low.quarter(block));
                        masked_bytes(values, load_quarter(bits.quarter(block)), key)
                    }
                };
            }
        }
        mask
    });
}

/// Compares a key with 16 values of which the lowest `shifts` bits do not count.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn prefixes(values: &Line, shifts: __m128i, key: u32) -> u16 {
    let key = _mm256_set1_epi32(key.cast_signed());
    let [first, second] = Quarter::pairs(values);
    let equal = |values, shifts| {
        let differ = _mm256_xor_si256(key, values);
        let differ = _mm256_srlv_epi32(differ, _mm256_cvtepu8_epi32(shifts));
        word_mask(_mm256_cmpeq_epi32(differ, _mm256_setzero_si256()))
    };
    equal(load_half(first), shifts) | equal(load_half(second), _mm_srli_si128::<8>(shifts)) << 8
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn words(low: &Line, high: &Line, key: u32) -> u16 {
    let key = _mm256_set1_epi32(key.cast_signed());
    let contains = |low, high| {
        let from = _mm256_cmpeq_epi32(_mm256_max_epu32(low, key), key);
        let to = _mm256_cmpeq_epi32(_mm256_min_epu32(high, key), key);
        word_mask(_mm256_and_si256(from, to))
    };
    let ([low, more_low], [high, more_high]) = (Quarter::pairs(low), Quarter::pairs(high));
    contains(load_half(low), load_half(high))
        | contains(load_half(more_low), load_half(more_high)) << 8
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn halves(low: __m256i, high: __m256i, key: u32) -> u16 {
    let key = _mm256_set1_epi16((key as u16).cast_signed());
    let from = _mm256_cmpeq_epi16(_mm256_max_epu16(low, key), key);
    let to = _mm256_cmpeq_epi16(_mm256_min_epu16(high, key), key);
    let both = _mm256_and_si256(from, to);
    half_mask(both)
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn bytes(low: __m128i, high: __m128i, key: u32) -> u16 {
    let key = _mm_set1_epi8((key as u8).cast_signed());
    let from = _mm_cmpeq_epi8(_mm_max_epu8(low, key), key);
    let to = _mm_cmpeq_epi8(_mm_min_epu8(high, key), key);
    _mm_movemask_epi8(_mm_and_si128(from, to)) as u16
}

/// Compares a key with 16 values in the bits of their masks.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masked_words(values: &Line, masks: &Line, key: u32) -> u16 {
    let key = _mm256_set1_epi32(key.cast_signed());
    let agree = |values, masks| {
        let differ = _mm256_and_si256(_mm256_xor_si256(key, values), masks);
        word_mask(_mm256_cmpeq_epi32(differ, _mm256_setzero_si256()))
    };
    let ([values, more_values], [masks, more_masks]) =
        (Quarter::pairs(values), Quarter::pairs(masks));
    agree(load_half(values), load_half(masks))
        | agree(load_half(more_values), load_half(more_masks)) << 8
}

/// Compares a key with 16 values in the bits of their masks.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masked_halves(values: __m256i, masks: __m256i, key: u32) -> u16 {
    let differ = _mm256_xor_si256(_mm256_set1_epi16((key as u16).cast_signed()), values);
    half_mask(_mm256_cmpeq_epi16(_mm256_and_si256(differ, masks), _mm256_setzero_si256()))
}

/// Compares a key with 16 values in the bits of their masks.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masked_bytes(values: __m128i, masks: __m128i, key: u32) -> u16 {
    let differ = _mm_xor_si128(_mm_set1_epi8((key as u8).cast_signed()), values);
    _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(differ, masks), _mm_setzero_si128())) as u16
}

/// Returns one bit for each half word of a comparison.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn half_mask(compared: __m256i) -> u16 {
    let (low, high) = (_mm256_castsi256_si128(compared), _mm256_extracti128_si256::<1>(compared));
    _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16
}

/// Returns one bit for each word of a comparison.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn word_mask(compared: __m256i) -> u16 {
    _mm256_movemask_ps(_mm256_castsi256_ps(compared)) as u16
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn load_half(words: &[u32; 8]) -> __m256i {
    // SAFETY: the array is 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn load_quarter(words: &[u32; 4]) -> __m128i {
    // SAFETY: the array is 16 bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}
