//! The kernels in plain Rust: the fallback, and the oracle of the vector kernels.

use super::line::{BLOCK_RULES, Line, MatchJob};
use crate::blocks::{BlockLayout, LaneKind, match_five_tuples, packed_key};

/// Number of rules of a block, in the type of `MatchJob::rules`.
const BLOCK: u16 = 16;

const _: () = assert!(BLOCK as usize == BLOCK_RULES);

/// Moves each position to the child of its node for the key.
pub(super) fn descend(nodes: &[Line], last: u32, keys: &[u32], positions: &mut [u32]) {
    for (key, position) in keys.iter().zip(positions) {
        let node = &nodes[*position as usize];
        let below: u32 = node.0.iter().map(|start| u32::from(start <= key)).sum();
        *position = step(*position, below, last);
    }
}

/// Returns the position of a key in a level of a tree.
///
/// `below` is the number of starts in the node that are at most the key.
///
/// The first start of a node is at most every key in the node, because the search of the upper
/// level compared this start.
#[inline]
pub(super) fn step(node: u32, below: u32, last: u32) -> u32 {
    (node * 16 + below.saturating_sub(1)).min(last)
}

/// Sets a bit for each rule of a block that matches its key.
pub(super) fn match_blocks<const N: usize>(
    layout: &BlockLayout<N>,
    lines: &[Line],
    keys: &[[u32; N]],
    jobs: &[MatchJob],
    masks: &mut [u64],
) {
    for_blocks(layout.lines(), lines, keys, jobs, masks, |block, key| {
        match_block(layout, block, key)
    });
}

/// Finds the best rank of the rules that match each key.
pub(super) fn best_ranks<const N: usize, const B: usize>(
    layout: &BlockLayout<N>,
    lines: &[Line],
    keys: &[[u32; N]],
    jobs: &[MatchJob],
    ranks: &mut [u64; B],
) {
    for_best(layout.lines(), jobs, ranks, |job| {
        let block = job.block(lines, layout.lines());
        best_rank(layout, block, match_block(layout, block, &keys[usize::from(job.key)]))
    });
}

/// Returns the best rank of the rules of a mask; the largest number if it is empty.
#[inline(always)]
pub(super) fn best_rank<const N: usize>(layout: &BlockLayout<N>, block: &[Line], mask: u16) -> u64 {
    let rank = layout.rank(block, mask.trailing_zeros() as usize % BLOCK_RULES);
    if mask == 0 { u64::MAX } else { rank }
}

/// Runs all jobs, and keeps the better rank of each key.
///
/// `best_of_block` returns the best rank of the matching rules of a block, or the largest rank.
/// First all jobs compare their first blocks. Jobs without a match then compare their second
/// blocks, and so on. So no branch in the loop depends on a comparison. Unused rules of a block
/// have the largest rank.
#[inline(always)]
pub(super) fn for_best<const B: usize>(
    block_lines: usize,
    jobs: &[MatchJob],
    ranks: &mut [u64; B],
    best_of_block: impl Fn(MatchJob) -> u64,
) {
    let mut unmatched = [MatchJob::default(); B];
    let mut count = 0;
    for job in jobs {
        let rank = best_of_block(*job);
        let best = &mut ranks[usize::from(job.key) % B];
        *best = rank.min(*best);
        unmatched[count % B] = job.after_block(block_lines);
        count += usize::from((rank == u64::MAX) & (job.rules > BLOCK));
    }
    while count > 0 {
        let jobs = count;
        count = 0;
        for at in 0..jobs {
            let job = unmatched[at % B];
            let rank = best_of_block(job);
            let best = &mut ranks[usize::from(job.key) % B];
            *best = rank.min(*best);
            unmatched[count % B] = job.after_block(block_lines);
            count += usize::from((rank == u64::MAX) & (job.rules > BLOCK));
        }
    }
}

/// Runs all jobs by a function that compares one key with one block.
#[inline(always)]
pub(super) fn for_blocks<const N: usize>(
    block_lines: usize,
    lines: &[Line],
    keys: &[[u32; N]],
    jobs: &[MatchJob],
    masks: &mut [u64],
    match_block: impl Fn(&[Line], &[u32; N]) -> u16,
) {
    for (job, mask) in jobs.iter().zip(masks) {
        let key = &keys[usize::from(job.key)];
        let (mut found, mut at, mut first) = (0, 0, job.first as usize);
        while at < job.rules {
            let live = (job.rules - at).min(BLOCK);
            let bits = match_block(&lines[first..first + block_lines], key);
            found |= u64::from(bits & (u16::MAX >> (BLOCK - live))) << at;
            at += BLOCK;
            first += block_lines;
        }
        *mask = found;
    }
}

/// Returns a bit for each rule of a block that matches a key.
fn match_block<const N: usize>(layout: &BlockLayout<N>, block: &[Line], key: &[u32; N]) -> u16 {
    if let Some(block) = layout.five_tuples(block) {
        return match_five_tuples(block, packed_key(key));
    }
    let mut mask = 0;
    for rule in 0..BLOCK_RULES {
        let contains = layout.slots().iter().zip(key).all(|(slot, key)| {
            let key = key & slot.max;
            let agrees = slot.mask.is_none_or(|mask| match slot.kind {
                LaneKind::Absent => true,
                LaneKind::Prefix | LaneKind::Word => {
                    (key ^ slot.low.word(block, rule)) & mask.word(block, rule) == 0
                }
                LaneKind::Half => (key ^ slot.low.half(block, rule)) & mask.half(block, rule) == 0,
                LaneKind::Byte => (key ^ slot.low.byte(block, rule)) & mask.byte(block, rule) == 0,
            });
            agrees
                && match slot.kind {
                    LaneKind::Absent => true,
                    LaneKind::Prefix => {
                        let differ = key ^ slot.low.word(block, rule);
                        differ.checked_shr(slot.high.byte(block, rule)).unwrap_or(0) == 0
                    }
                    LaneKind::Word => {
                        slot.low.word(block, rule) <= key && key <= slot.high.word(block, rule)
                    }
                    LaneKind::Half => {
                        slot.low.half(block, rule) <= key && key <= slot.high.half(block, rule)
                    }
                    LaneKind::Byte => {
                        slot.low.byte(block, rule) <= key && key <= slot.high.byte(block, rule)
                    }
                }
        });
        mask |= u16::from(contains) << rule;
    }
    mask
}
