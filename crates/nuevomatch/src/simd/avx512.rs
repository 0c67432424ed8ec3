//! Kernels with 512-bit vectors (AVX-512).
//!
//! One instruction compares a key with one end of the ranges of 16 rules, and the result is a mask.
//! No branch depends on a comparison.

#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads take pointers, and the features are known at run time")]
#![expect(clippy::cast_possible_truncation, reason = "kernels compare low bits, return 16 bits")]

use std::arch::{
    asm,
    x86_64::{
        __m128i, __m256i, __m512i, _mm_cmpge_epu8_mask, _mm_cmple_epu8_mask, _mm_cvttss_si32,
        _mm_loadu_si128, _mm_set_ss, _mm_set1_epi8, _mm_testn_epi8_mask, _mm_xor_si128,
        _mm256_cmpge_epu16_mask, _mm256_cmple_epu16_mask, _mm256_cmple_epu32_mask,
        _mm256_loadu_si256, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_testn_epi16_mask,
        _mm256_xor_si256, _mm512_and_si512, _mm512_cmpge_epu32_mask, _mm512_cmple_epu32_mask,
        _mm512_cvtepu8_epi32, _mm512_load_si512, _mm512_loadu_si512, _mm512_or_si512,
        _mm512_set1_epi32, _mm512_srli_epi32, _mm512_srlv_epi32, _mm512_sub_epi8, _mm512_sub_epi16,
        _mm512_subs_epu8, _mm512_subs_epu16, _mm512_testn_epi32_mask, _mm512_xor_si512,
    },
};

use super::{
    kernels::vector_kernels,
    line::{Line, MatchJob},
    scalar::{best_rank, for_best, for_blocks, step},
    vector::{Vector, VectorWork},
};
use crate::blocks::{BlockLayout, FiveTupleBlock, LaneKind, five_tuple_rank, packed_key};

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
}

vector_kernels!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt");

/// Returns how many of eight bounds are at most `key`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn count8(bounds: &[u32; 8], key: u32) -> u32 {
    _mm256_cmple_epu32_mask(load_half(bounds), _mm256_set1_epi32(key.cast_signed())).count_ones()
}

/// Returns how many of sixteen bounds are at most `key`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn count16(bounds: &[u32; 16], key: u32) -> u32 {
    // SAFETY: the array is 64 bytes, and the load needs no alignment.
    let bounds = unsafe { _mm512_loadu_si512(bounds.as_ptr().cast()) };
    _mm512_cmple_epu32_mask(bounds, _mm512_set1_epi32(key.cast_signed())).count_ones()
}

/// Converts to an integer, without the range check of the conversion of Rust.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt")]
fn truncate(value: f32) -> u32 {
    _mm_cvttss_si32(_mm_set_ss(value)).cast_unsigned()
}

/// Moves each position to the child of its node for the key.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn descend(nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
    for (key, position) in keys.iter().zip(positions) {
        let node = load(&nodes[*position as usize]);
        let below = _mm512_cmple_epu32_mask(node, _mm512_set1_epi32(key.cast_signed()));
        *position = step(*position, below.count_ones(), last);
    }
}

/// Compares a key with a block of 5-tuples, described in `blocks/five_tuple.rs`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn match_five_tuples(block: &FiveTupleBlock, key: &[u32; 4]) -> u16 {
    let [sources, destinations, ports, spans, rest, _] = block;
    let rest = load(rest);
    let [source, destination, key_ports, protocol] =
        key.each_ref().map(|word| _mm512_set1_epi32(word.cast_signed()));
    let differ = _mm512_xor_si512(source, load(sources));
    let sources = shift_right(differ, _mm512_and_si512(rest, _mm512_set1_epi32(0xff)));
    let differ = _mm512_xor_si512(destination, load(destinations));
    let destinations = shift_right(differ, _mm512_srli_epi32::<24>(rest));
    let ports = _mm512_subs_epu16(_mm512_sub_epi16(key_ports, load(ports)), load(spans));
    let span = _mm512_srli_epi32::<8>(rest);
    let protocols = _mm512_subs_epu8(_mm512_sub_epi8(protocol, rest), span);
    let protocols = _mm512_and_si512(protocols, _mm512_set1_epi32(0xff00));
    let differ = _mm512_or_si512(sources, destinations);
    let differ = _mm512_or_si512(differ, _mm512_or_si512(ports, protocols));
    _mm512_testn_epi32_mask(differ, differ)
}

/// Shifts each word to the right by its count; counts above 31 give 0.
///
/// Inline assembly is used, because the compiler replaces the intrinsic by a shift and a comparison
/// if it knows some of the counts.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn shift_right(words: __m512i, counts: __m512i) -> __m512i {
    let shifted;
    // SAFETY: the instruction is a part of AVX-512 F, and reads and writes registers alone.
    unsafe {
        asm!(
            "vpsrlvd {shifted}, {words}, {counts}",
            shifted = lateout(zmm_reg) shifted,
            words = in(zmm_reg) words,
            counts = in(zmm_reg) counts,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    shifted
}

/// Compares a key with 16 values, ignoring the lowest `shifts` bits of each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn prefixes(values: &Line, shifts: &[u32; 4], key: u32) -> u16 {
    let (values, shifts) = (load(values), load_quarter(shifts));
    let differ = _mm512_xor_si512(_mm512_set1_epi32(key.cast_signed()), values);
    let differ = _mm512_srlv_epi32(differ, _mm512_cvtepu8_epi32(shifts));
    _mm512_testn_epi32_mask(differ, differ)
}

/// Returns the ranges of 16 words that contain `key`, as one bit each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn words(low: &Line, high: &Line, key: u32) -> u16 {
    let (low, high) = (load(low), load(high));
    let key = _mm512_set1_epi32(key.cast_signed());
    _mm512_cmple_epu32_mask(low, key) & _mm512_cmpge_epu32_mask(high, key)
}

/// Returns the ranges of 16 half words that contain `key`, as one bit each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn halves(low: &[u32; 8], high: &[u32; 8], key: u32) -> u16 {
    let (low, high) = (load_half(low), load_half(high));
    let key = _mm256_set1_epi16((key as u16).cast_signed());
    _mm256_cmple_epu16_mask(low, key) & _mm256_cmpge_epu16_mask(high, key)
}

/// Returns the ranges of 16 bytes that contain `key`, as one bit each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn bytes(low: &[u32; 4], high: &[u32; 4], key: u32) -> u16 {
    let (low, high) = (load_quarter(low), load_quarter(high));
    let key = _mm_set1_epi8((key as u8).cast_signed());
    _mm_cmple_epu8_mask(low, key) & _mm_cmpge_epu8_mask(high, key)
}

/// Compares a key with 16 words, each in the bits of its mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn masked_words(values: &Line, masks: &Line, key: u32) -> u16 {
    let (values, masks) = (load(values), load(masks));
    let differ = _mm512_xor_si512(_mm512_set1_epi32(key.cast_signed()), values);
    _mm512_testn_epi32_mask(differ, masks)
}

/// Compares a key with 16 half words, each in the bits of its mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn masked_halves(values: &[u32; 8], masks: &[u32; 8], key: u32) -> u16 {
    let (values, masks) = (load_half(values), load_half(masks));
    let differ = _mm256_xor_si256(_mm256_set1_epi16((key as u16).cast_signed()), values);
    _mm256_testn_epi16_mask(differ, masks)
}

/// Compares a key with 16 bytes, each in the bits of its mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn masked_bytes(values: &[u32; 4], masks: &[u32; 4], key: u32) -> u16 {
    let (values, masks) = (load_quarter(values), load_quarter(masks));
    let differ = _mm_xor_si128(_mm_set1_epi8((key as u8).cast_signed()), values);
    _mm_testn_epi8_mask(differ, masks)
}

/// Loads a cache line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load(line: &Line) -> __m512i {
    // SAFETY: a line is 64 bytes, aligned to 64.
    unsafe { _mm512_load_si512((&raw const *line).cast()) }
}

/// Loads half a cache line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load_half(words: &[u32; 8]) -> __m256i {
    // SAFETY: the array is 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// Loads a quarter of a cache line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
fn load_quarter(words: &[u32; 4]) -> __m128i {
    // SAFETY: the array is 16 bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}
