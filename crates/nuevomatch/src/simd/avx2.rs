//! Kernels with 256-bit vectors (AVX2).
//!
//! AVX2 has no unsigned comparison: `a <= b` is `max(a, b) == b`. A block of 16 rules has two
//! vectors of words, or one vector of half words, per array.

#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "loads take pointers, and the features are known at run time")]
#![expect(clippy::cast_possible_truncation, reason = "kernels compare low bits, return 16 bits")]
#![expect(clippy::cast_sign_loss, reason = "a mask is a set of bits, not a number")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_and_si128, _mm_cmpeq_epi8, _mm_cvttss_si32, _mm_loadu_si128,
    _mm_max_epu8, _mm_min_epu8, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_ss, _mm_set1_epi8,
    _mm_setzero_si128, _mm_srli_si128, _mm_xor_si128, _mm256_and_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32, _mm256_cvtepu8_epi32,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_max_epu16, _mm256_max_epu32,
    _mm256_min_epu16, _mm256_min_epu32, _mm256_movemask_ps, _mm256_or_si256, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_setzero_si256, _mm256_srli_epi32, _mm256_srlv_epi32, _mm256_sub_epi8,
    _mm256_sub_epi16, _mm256_subs_epu8, _mm256_subs_epu16, _mm256_xor_si256,
};

use super::{
    kernels::vector_kernels,
    line::{Line, MatchJob},
    scalar::{best_rank, for_best, for_blocks, step},
    vector::{Vector, VectorWork},
};
use crate::blocks::{
    ArrayOffset, BlockLayout, FiveTupleBlock, LaneKind, five_tuple_rank, packed_key,
};

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
}

vector_kernels!(Avx2, "avx2,fma,popcnt");

/// Returns how many of eight bounds are at most `key`.
#[inline]
#[target_feature(enable = "avx2,fma,popcnt")]
fn count8(bounds: &[u32; 8], key: u32) -> u32 {
    at_most(bounds, key).count_ones()
}

/// Returns how many of sixteen bounds are at most `key`.
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

/// Converts to an integer, without the range check of the conversion of Rust.
#[inline]
#[target_feature(enable = "avx2,fma,popcnt")]
fn truncate(value: f32) -> u32 {
    _mm_cvttss_si32(_mm_set_ss(value)).cast_unsigned()
}

/// Moves each position to the child of its node for the key.
#[target_feature(enable = "avx2,popcnt")]
fn descend(nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
    for (key, position) in keys.iter().zip(positions) {
        let [low, high] = ArrayOffset::halves(&nodes[*position as usize]);
        let key = _mm256_set1_epi32(key.cast_signed());
        let below = |starts| word_mask(_mm256_cmpeq_epi32(_mm256_max_epu32(starts, key), key));
        let below = below(load_half(low)).count_ones() + below(load_half(high)).count_ones();
        *position = step(*position, below, last);
    }
}

/// Compares a key with a block of 5-tuples, described in `blocks/five_tuple.rs`.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn match_five_tuples(block: &FiveTupleBlock, key: &[u32; 4]) -> u16 {
    let halves = block.each_ref().map(ArrayOffset::halves);
    match_eight_tuples(&halves, 0, key) | match_eight_tuples(&halves, 1, key) << 8
}

/// Compares a key with one half of a block of 5-tuples.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn match_eight_tuples(block: &[[&[u32; 8]; 2]; 6], half: usize, key: &[u32; 4]) -> u16 {
    let [sources, destinations, ports, spans, rest] =
        std::array::from_fn(|line| load_half(block[line][half]));
    let [source, destination, key_ports, protocol] =
        key.each_ref().map(|word| _mm256_set1_epi32(word.cast_signed()));
    let differ = _mm256_xor_si256(source, sources);
    let sources = _mm256_srlv_epi32(differ, _mm256_and_si256(rest, _mm256_set1_epi32(0xff)));
    let differ = _mm256_xor_si256(destination, destinations);
    let destinations = _mm256_srlv_epi32(differ, _mm256_srli_epi32::<24>(rest));
    let ports = _mm256_subs_epu16(_mm256_sub_epi16(key_ports, ports), spans);
    let span = _mm256_srli_epi32::<8>(rest);
    let protocols = _mm256_subs_epu8(_mm256_sub_epi8(protocol, rest), span);
    let protocols = _mm256_and_si256(protocols, _mm256_set1_epi32(0xff00));
    let differ = _mm256_or_si256(sources, destinations);
    let differ = _mm256_or_si256(differ, _mm256_or_si256(ports, protocols));
    word_mask(_mm256_cmpeq_epi32(differ, _mm256_setzero_si256()))
}

/// Compares a key with 16 values, ignoring the lowest `shifts` bits of each.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn prefixes(values: &Line, shifts: &[u32; 4], key: u32) -> u16 {
    let shifts = load_quarter(shifts);
    let key = _mm256_set1_epi32(key.cast_signed());
    let [first, second] = ArrayOffset::halves(values);
    let equal = |values, shifts| {
        let differ = _mm256_xor_si256(key, values);
        let differ = _mm256_srlv_epi32(differ, _mm256_cvtepu8_epi32(shifts));
        word_mask(_mm256_cmpeq_epi32(differ, _mm256_setzero_si256()))
    };
    equal(load_half(first), shifts) | equal(load_half(second), _mm_srli_si128::<8>(shifts)) << 8
}

/// Returns the ranges of 16 words that contain `key`, as one bit each.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn words(low: &Line, high: &Line, key: u32) -> u16 {
    let key = _mm256_set1_epi32(key.cast_signed());
    let contains = |low, high| {
        let from = _mm256_cmpeq_epi32(_mm256_max_epu32(low, key), key);
        let to = _mm256_cmpeq_epi32(_mm256_min_epu32(high, key), key);
        word_mask(_mm256_and_si256(from, to))
    };
    let ([low, more_low], [high, more_high]) =
        (ArrayOffset::halves(low), ArrayOffset::halves(high));
    contains(load_half(low), load_half(high))
        | contains(load_half(more_low), load_half(more_high)) << 8
}

/// Returns the ranges of 16 half words that contain `key`, as one bit each.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn halves(low: &[u32; 8], high: &[u32; 8], key: u32) -> u16 {
    let (low, high) = (load_half(low), load_half(high));
    let key = _mm256_set1_epi16((key as u16).cast_signed());
    let from = _mm256_cmpeq_epi16(_mm256_max_epu16(low, key), key);
    let to = _mm256_cmpeq_epi16(_mm256_min_epu16(high, key), key);
    let both = _mm256_and_si256(from, to);
    half_mask(both)
}

/// Returns the ranges of 16 bytes that contain `key`, as one bit each.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn bytes(low: &[u32; 4], high: &[u32; 4], key: u32) -> u16 {
    let (low, high) = (load_quarter(low), load_quarter(high));
    let key = _mm_set1_epi8((key as u8).cast_signed());
    let from = _mm_cmpeq_epi8(_mm_max_epu8(low, key), key);
    let to = _mm_cmpeq_epi8(_mm_min_epu8(high, key), key);
    _mm_movemask_epi8(_mm_and_si128(from, to)) as u16
}

/// Compares a key with 16 words, each in the bits of its mask.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masked_words(values: &Line, masks: &Line, key: u32) -> u16 {
    let key = _mm256_set1_epi32(key.cast_signed());
    let agree = |values, masks| {
        let differ = _mm256_and_si256(_mm256_xor_si256(key, values), masks);
        word_mask(_mm256_cmpeq_epi32(differ, _mm256_setzero_si256()))
    };
    let ([values, more_values], [masks, more_masks]) =
        (ArrayOffset::halves(values), ArrayOffset::halves(masks));
    agree(load_half(values), load_half(masks))
        | agree(load_half(more_values), load_half(more_masks)) << 8
}

/// Compares a key with 16 half words, each in the bits of its mask.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masked_halves(values: &[u32; 8], masks: &[u32; 8], key: u32) -> u16 {
    let (values, masks) = (load_half(values), load_half(masks));
    let differ = _mm256_xor_si256(_mm256_set1_epi16((key as u16).cast_signed()), values);
    half_mask(_mm256_cmpeq_epi16(_mm256_and_si256(differ, masks), _mm256_setzero_si256()))
}

/// Compares a key with 16 bytes, each in the bits of its mask.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn masked_bytes(values: &[u32; 4], masks: &[u32; 4], key: u32) -> u16 {
    let (values, masks) = (load_quarter(values), load_quarter(masks));
    let differ = _mm_xor_si128(_mm_set1_epi8((key as u8).cast_signed()), values);
    _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(differ, masks), _mm_setzero_si128())) as u16
}

/// Returns one bit for each half word of the result of a comparison.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn half_mask(compared: __m256i) -> u16 {
    let (low, high) = (_mm256_castsi256_si128(compared), _mm256_extracti128_si256::<1>(compared));
    _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u16
}

/// Returns one bit for each word of the result of a comparison.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn word_mask(compared: __m256i) -> u16 {
    _mm256_movemask_ps(_mm256_castsi256_ps(compared)) as u16
}

/// Loads half a cache line.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn load_half(words: &[u32; 8]) -> __m256i {
    // SAFETY: the array is 32 bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// Loads a quarter of a cache line.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn load_quarter(words: &[u32; 4]) -> __m128i {
    // SAFETY: the array is 16 bytes, and the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}
