//! Kernels of 512-bit vectors.
//!
//! A block of 16 rules is compared in one instruction for each end of a range, and the results are
//! masks. Nothing branches on a comparison.

#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads take pointers, and the features are known at run time")]
#![expect(clippy::cast_possible_truncation, reason = "kernels compare low bits, return 16 bits")]

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_cmpge_epu8_mask, _mm_cmple_epu8_mask, _mm_cvttss_si32,
    _mm_loadu_si128, _mm_set_ss, _mm_set1_epi8, _mm_testn_epi8_mask, _mm_xor_si128,
    _mm256_cmpge_epu16_mask, _mm256_cmple_epu16_mask, _mm256_cmple_epu32_mask, _mm256_loadu_si256,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_testn_epi16_mask, _mm256_xor_si256,
    _mm512_cmpge_epu32_mask, _mm512_cmple_epu32_mask, _mm512_cvtepu8_epi32, _mm512_load_si512,
    _mm512_loadu_si512, _mm512_set1_epi32, _mm512_srlv_epi32, _mm512_testn_epi32_mask,
    _mm512_xor_si512,
};

use super::{
    line::{Line, MatchJob},
    scalar::{for_blocks, step},
    vector::{Vector, VectorWork},
};
use crate::blocks::{BlockLayout, FIVE_TUPLE_LINES, LaneKind, Quarter};

/// Proof that the processor has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Returns the proof if the processor has the instructions.
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
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
        if layout.is_five_tuple() {
            // SAFETY: `self` exists only where `detect` found these features.
            unsafe { match_five_tuples(layout.lines(), lines, keys, jobs, masks) }
        } else {
            // SAFETY: `self` exists only where `detect` found these features.
            unsafe { match_blocks(layout, lines, keys, jobs, masks) }
        }
    }
}

impl Vector for Avx512 {
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn run<W: VectorWork>(vector: Avx512, work: W) {
    work.run(vector);
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn count8(bounds: &[u32; 8], key: u32) -> u32 {
    _mm256_cmple_epu32_mask(load_half(bounds), _mm256_set1_epi32(key.cast_signed())).count_ones()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn count16(bounds: &[u32; 16], key: u32) -> u32 {
    // SAFETY: the array is 64 bytes, and the load needs no alignment.
    let bounds = unsafe { _mm512_loadu_si512(bounds.as_ptr().cast()) };
    _mm512_cmple_epu32_mask(bounds, _mm512_set1_epi32(key.cast_signed())).count_ones()
}

/// Converts without the check of the range that the language's conversion has.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn truncate(value: f32) -> u32 {
    _mm_cvttss_si32(_mm_set_ss(value)).cast_unsigned()
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn descend(nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
    for (key, position) in keys.iter().zip(positions) {
        let node = load(&nodes[*position as usize]);
        let below = _mm512_cmple_epu32_mask(node, _mm512_set1_epi32(key.cast_signed()));
        *position = step(*position, below.count_ones(), last);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
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
                    prefixes(load(low.line(block)), load_quarter(high.quarter(block)), key)
                }
                LaneKind::Word => words(load(low.line(block)), load(high.line(block)), key),
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
                        masked_words(load(low.line(block)), load(bits.line(block)), key)
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

/// The kernel for IPv4 5-tuples with prefixes as addresses.
///
/// It makes no decisions about the layout.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn match_five_tuples<const N: usize>(
    block_lines: usize,
    lines: &[Line],
    keys: &[[u32; N]],
    jobs: &[MatchJob],
    masks: &mut [u64],
) {
    for_blocks(block_lines, lines, keys, jobs, masks, |block, key| {
        let (Some([source, destination, _, ports, more_ports, rest]), Some(key)) =
            (block.first_chunk::<FIVE_TUPLE_LINES>(), key.first_chunk::<5>())
        else {
            return 0;
        };
        let [shifts, more_shifts, first, last] = Quarter::all(rest);
        let [from, to] = Quarter::pairs(ports);
        let [more_from, more_to] = Quarter::pairs(more_ports);
        prefixes(load(source), load_quarter(shifts), key[0])
            & prefixes(load(destination), load_quarter(more_shifts), key[1])
            & halves(load_half(from), load_half(to), key[2])
            & halves(load_half(more_from), load_half(more_to), key[3])
            & bytes(load_quarter(first), load_quarter(last), key[4])
    });
}

/// Compares a key with 16 values of which the lowest `shifts` bits do not count.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn prefixes(values: __m512i, shifts: __m128i, key: u32) -> u16 {
    let differ = _mm512_xor_si512(_mm512_set1_epi32(key.cast_signed()), values);
    let differ = _mm512_srlv_epi32(differ, _mm512_cvtepu8_epi32(shifts));
    _mm512_testn_epi32_mask(differ, differ)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn words(low: __m512i, high: __m512i, key: u32) -> u16 {
    let key = _mm512_set1_epi32(key.cast_signed());
    _mm512_cmple_epu32_mask(low, key) & _mm512_cmpge_epu32_mask(high, key)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn halves(low: __m256i, high: __m256i, key: u32) -> u16 {
    let key = _mm256_set1_epi16((key as u16).cast_signed());
    _mm256_cmple_epu16_mask(low, key) & _mm256_cmpge_epu16_mask(high, key)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn bytes(low: __m128i, high: __m128i, key: u32) -> u16 {
    let key = _mm_set1_epi8((key as u8).cast_signed());
    _mm_cmple_epu8_mask(low, key) & _mm_cmpge_epu8_mask(high, key)
}

/// Compares a key with 16 values in the bits of their masks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn masked_words(values: __m512i, masks: __m512i, key: u32) -> u16 {
    let differ = _mm512_xor_si512(_mm512_set1_epi32(key.cast_signed()), values);
    _mm512_testn_epi32_mask(differ, masks)
}

/// Compares a key with 16 values in the bits of their masks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn masked_halves(values: __m256i, masks: __m256i, key: u32) -> u16 {
    let differ = _mm256_xor_si256(_mm256_set1_epi16((key as u16).cast_signed()), values);
    _mm256_testn_epi16_mask(differ, masks)
}

/// Compares a key with 16 values in the bits of their masks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn masked_bytes(values: __m128i, masks: __m128i, key: u32) -> u16 {
    let differ = _mm_xor_si128(_mm_set1_epi8((key as u8).cast_signed()), values);
    _mm_testn_epi8_mask(differ, masks)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load(line: &Line) -> __m512i {
    // SAFETY: a line is 64 bytes, aligned to 64.
    unsafe { _mm512_load_si512((&raw const *line).cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load_half(words: &[u32; 8]) -> __m256i {
    // SAFETY: the array is 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load_quarter(words: &[u32; 4]) -> __m128i {
    // SAFETY: the array is 16 bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}
