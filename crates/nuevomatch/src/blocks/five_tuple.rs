//! Blocks of rules over IPv4 5-tuples with address prefixes, compared by few instructions.
//!
//! Each of the six lines has one word for each rule:
//!
//! | line | word |
//! | --- | --- |
//! | 0 | source |
//! | 1 | destination |
//! | 2 | first source port, and first destination port in the upper half |
//! | 3 | last port minus first port, likewise |
//! | 4 | bytes from the lowest: free bits of the source, first protocol, last minus first protocol, free bits of the destination |
//! | 5 | value |
//!
//! A range `first..=last` contains `x` exactly if `(x - first) mod 2^n <= last - first`. If the
//! range contains `x`, a saturating subtraction of the right side from the left side gives 0. So
//! each lane of a rule gives a word that is 0 if the lane matches. A bitwise OR of the words of all
//! lanes, and one comparison with 0, give the matching rules of a block.

use crate::{
    rule::{PriorityRule, rank},
    simd::{BLOCK_RULES, Line},
};

/// Lines of a block of 5-tuples without priorities.
pub(crate) const FIVE_TUPLE_LINES: usize = 6;

/// Position of the line of values.
pub(super) const VALUES_LINE: usize = 5;

/// One block of 5-tuples.
pub(crate) type FiveTupleBlock = [Line; FIVE_TUPLE_LINES];

/// Returns a key as kernels compare it: source, destination, ports, protocol.
///
/// Bits above the width of a lane are dropped. The protocol is in the second byte of its word.
#[inline]
pub(crate) fn packed_key<const N: usize>(key: &[u32; N]) -> [u32; 4] {
    let Some(&[source, destination, from, to, protocol]) = key.first_chunk::<5>() else {
        return [0; 4];
    };
    [source, destination, from & 0xffff | to << 16, (protocol & 0xff) << 8]
}

/// Returns the rank of the rule at a position of a block of `L` lines.
///
/// The last line has the priorities. In a block without a line of priorities, the values are the
/// priorities.
#[inline]
pub(crate) fn five_tuple_rank<const L: usize>(block: &[Line; L], at: usize) -> u64 {
    let word = |line: usize| block[line].0[at % BLOCK_RULES];
    rank(word(L - 1), word(VALUES_LINE))
}

/// Writes a rule to its position in a block, except for its value and its priority.
pub(super) fn write<const N: usize>(
    block: &mut FiveTupleBlock,
    at: usize,
    rule: &PriorityRule<N>,
    free_bits: [u32; 2],
) {
    let (low, span) =
        (|lane: usize| rule.low[lane], |lane: usize| rule.high[lane] - rule.low[lane]);
    block[0].0[at] = low(0);
    block[1].0[at] = low(1);
    block[2].0[at] = low(2) | low(3) << 16;
    block[3].0[at] = span(2) | span(3) << 16;
    block[4].0[at] = free_bits[0] | low(4) << 8 | span(4) << 16 | free_bits[1] << 24;
}

/// Reads the ranges of the rule at a position of a block.
pub(super) fn read<const N: usize>(block: &FiveTupleBlock, at: usize, rule: &mut PriorityRule<N>) {
    let [source, destination, ports, spans, rest] = std::array::from_fn(|line| block[line].0[at]);
    let free = |bits: u32| u32::MAX.checked_shr(u32::BITS - bits).unwrap_or(0);
    let low = [source, destination, ports & 0xffff, ports >> 16, rest >> 8 & 0xff];
    let span =
        [free(rest & 0xff), free(rest >> 24), spans & 0xffff, spans >> 16, rest >> 16 & 0xff];
    for (lane, (low, span)) in low.into_iter().zip(span).enumerate() {
        (rule.low[lane], rule.high[lane]) = (low, low + span);
    }
}

/// Compares a key with a block in plain Rust; bit `i` is set if rule `i` matches.
pub(crate) fn match_block(block: &FiveTupleBlock, key: [u32; 4]) -> u16 {
    let [source, destination, ports, protocol] = key;
    let mut mask = 0;
    for at in 0..BLOCK_RULES {
        let word = |line: usize| block[line].0[at];
        let differs = |address: u32, line: usize, free: u32| {
            (address ^ word(line)).checked_shr(free).is_some_and(|differ| differ != 0)
        };
        let is_outside = |key: u32, low: u32, span: u32, max: u32| {
            (key & max).wrapping_sub(low & max) & max > span & max
        };
        let rest = word(4);
        let is_match = !differs(source, 0, rest & 0xff)
            && !differs(destination, 1, rest >> 24)
            && !is_outside(ports, word(2), word(3), 0xffff)
            && !is_outside(ports >> 16, word(2) >> 16, word(3) >> 16, 0xffff)
            && !is_outside(protocol >> 8, rest >> 8, rest >> 16, 0xff);
        mask |= u16::from(is_match) << at;
    }
    mask
}
