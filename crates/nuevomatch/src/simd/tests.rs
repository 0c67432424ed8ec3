//! Tests that all kernels return the same bits as the oracle.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    blocks::{BlockLayout, BlockRun, LayoutDemand, RuleArena},
    rule::{PRIORITY_MAX, PriorityRule},
    schema::lane_max,
};

/// Generates ends of ranges: values next to each other, at borders, and any values.
fn value() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..4,
        (0_u32..4).prop_map(|below| u32::MAX - below),
        (0_u32..32).prop_map(|bit| 1 << bit),
        Just(0x8000_0000),
        Just(0x7fff_ffff),
        any::<u32>(),
    ]
}

/// Generates a range of a lane.
fn range(width: u8, only_prefixes: bool) -> impl Strategy<Value = (u32, u32)> {
    let max = lane_max(width);
    (value(), value(), 0_u32..33).prop_map(move |(a, b, free)| {
        if only_prefixes {
            let free = u32::MAX.checked_shl(free).map_or(u32::MAX, |mask| !mask) & max;
            ((a & max) & !free, (a & max) | free)
        } else {
            let (a, b) = (a & max, b & max);
            (a.min(b), a.max(b))
        }
    })
}

/// Generates a rule.
fn rule<const N: usize>(
    widths: [u8; N],
    [prefixes, masks]: [[bool; N]; 2],
) -> impl Strategy<Value = PriorityRule<N>> {
    let ranges: Vec<_> = (0..N).map(|lane| range(widths[lane], prefixes[lane])).collect();
    let numbers = (vec(any::<u32>(), N..=N), 0..=PRIORITY_MAX, any::<u32>());
    (ranges, numbers).prop_map(move |(ranges, (bits, priority, value))| PriorityRule {
        low: std::array::from_fn(|lane| ranges[lane].0),
        high: std::array::from_fn(|lane| ranges[lane].1),
        // Masks have few bits, so that some keys match.
        mask: std::array::from_fn(|lane| {
            let mask = bits[lane] & bits[lane] >> 7 & bits[lane] >> 13 & lane_max(widths[lane]);
            if masks[lane] { mask } else { 0 }
        }),
        priority,
        value,
    })
}

/// Buckets of rules, and keys that are corners of rules or any values.
type MatchCase<const N: usize> = (Vec<Vec<PriorityRule<N>>>, Vec<[u32; N]>);

/// Generates buckets of rules, and keys.
fn case<const N: usize>(
    widths: [u8; N],
    kinds: [[bool; N]; 2],
) -> impl Strategy<Value = MatchCase<N>> {
    let buckets = vec(vec(rule(widths, kinds), 0..=64), 1..4);
    let key = (vec((any::<prop::sample::Index>(), 0_u32..5, value()), N..=N), any::<u8>());
    (buckets, vec(key, 1..33)).prop_map(|(buckets, keys)| {
        let rules: Vec<PriorityRule<N>> = buckets.iter().flatten().copied().collect();
        let lane_value = |lane: usize, (rule, choice, any): &(prop::sample::Index, u32, u32)| {
            if rules.is_empty() {
                return *any;
            }
            let rule = rule.get(&rules);
            match choice {
                0 => rule.low[lane],
                1 => rule.high[lane],
                2 => rule.high[lane].wrapping_add(1),
                3 => rule.low[lane].wrapping_sub(1),
                _ => *any,
            }
        };
        let key = |(lanes, _): &(Vec<_>, u8)| std::array::from_fn(|at| lane_value(at, &lanes[at]));
        let keys = keys.iter().map(key).collect();
        (buckets, keys)
    })
}

/// The priorities of the rules of a test case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CasePriorities {
    None,
    SameAsValue,
    Any,
}

/// Generates the kinds of priorities of rules.
fn priorities() -> impl Strategy<Value = CasePriorities> {
    prop::sample::select(vec![
        CasePriorities::None,
        CasePriorities::SameAsValue,
        CasePriorities::Any,
    ])
}

/// Compares all instruction sets with plain code.
fn check<const N: usize>(
    widths: [u8; N],
    priorities: CasePriorities,
    (buckets, keys): &MatchCase<N>,
) {
    let has_priorities = priorities != CasePriorities::None;
    let mut buckets = buckets.clone();
    for bucket in &mut buckets {
        if priorities == CasePriorities::SameAsValue {
            bucket.iter_mut().for_each(|rule| rule.value = rule.priority);
        }
        bucket.sort_by_key(PriorityRule::rank);
    }
    let buckets = &buckets;
    let mut demand = LayoutDemand::new(has_priorities);
    buckets.iter().flatten().for_each(|rule| demand.add(rule));
    let mut arena = RuleArena::new(BlockLayout::new(&widths, &demand));
    let fill = |rules: &Vec<PriorityRule<N>>| -> BlockRun {
        let mut run = arena.add_run(rules.len().div_ceil(BLOCK_RULES).max(1)).unwrap();
        rules.iter().for_each(|rule| arena.push(&mut run, rule));
        run
    };
    let runs: Vec<BlockRun> = buckets.iter().map(fill).collect();
    for (run, rules) in runs.iter().zip(buckets) {
        for (at, rule) in rules.iter().enumerate() {
            let priority = if has_priorities { rule.priority } else { 0 };
            let expected = PriorityRule { priority, ..*rule };
            assert_eq!(arena.rule(*run, at), expected);
        }
    }
    let jobs: Vec<(MatchJob, u64)> = (0..keys.len())
        .flat_map(|key| (0..runs.len()).map(move |run| (key, run)))
        .map(|(key, run)| {
            let inside: [u32; N] =
                std::array::from_fn(|lane| keys[key][lane] & lane_max(widths[lane]));
            let contains = buckets[run].iter().map(|rule| rule.matches(&inside));
            let mask = contains.enumerate().fold(0, |mask, (at, is)| mask | u64::from(is) << at);
            let (first, rules) = (runs[run].first, runs[run].rules);
            (MatchJob { key: u16::try_from(key).unwrap(), first, rules }, mask)
        })
        .collect();
    let (jobs, expected): (Vec<MatchJob>, Vec<u64>) = jobs.into_iter().unzip();
    for instructions in InstructionSet::all() {
        let mut masks = vec![u64::MAX; jobs.len()];
        instructions.match_blocks(arena.layout(), arena.lines(), keys, &jobs, &mut masks);
        assert_eq!(masks, expected, "{instructions:?}");
    }
    if has_priorities {
        check_ranks(&arena, buckets, keys, &jobs, &expected);
    }
}

/// Compares the best ranks of all kernels with the best ranks by their match masks.
fn check_ranks<const N: usize>(
    arena: &RuleArena<N>,
    buckets: &[Vec<PriorityRule<N>>],
    keys: &[[u32; N]],
    jobs: &[MatchJob],
    masks: &[u64],
) {
    let ranks = jobs.iter().zip(masks).enumerate().map(|(at, (_, mask))| {
        let rules = &buckets[at % buckets.len()];
        rules.get(mask.trailing_zeros() as usize).map_or(u64::MAX, PriorityRule::rank)
    });
    let mut expected = [u64::MAX; BATCH_MAX];
    for (job, rank) in jobs.iter().zip(ranks) {
        let best = &mut expected[usize::from(job.key)];
        *best = rank.min(*best);
    }
    for instructions in InstructionSet::all() {
        let mut ranks = [u64::MAX; BATCH_MAX];
        for jobs in jobs.chunk_by(|a, b| a.key == b.key) {
            let jobs: Vec<MatchJob> = jobs.iter().copied().filter(|job| job.rules > 0).collect();
            let (layout, lines) = (arena.layout(), arena.lines());
            instructions.best_ranks(layout, lines, keys, &jobs, &mut ranks);
        }
        assert_eq!(ranks, expected, "{instructions:?}");
    }
}

/// Widths of the fields of an IPv4 5-tuple, in bits.
const FIVE_TUPLE: [u8; 5] = [32, 32, 16, 16, 8];
/// Widths of eight fields, one of them empty, in bits.
const MIXED: [u8; 8] = [32, 0, 20, 17, 16, 12, 8, 3];

/// No field is a prefix.
const NONE: [bool; 5] = [false; 5];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn all_kernels_match_five_tuples_as_the_oracle(
        case in case(FIVE_TUPLE, [[true, true, false, false, false], NONE]),
        priorities in priorities(),
    ) {
        check(FIVE_TUPLE, priorities, &case);
    }

    #[test]
    fn kernels_match_address_ranges_like_oracle(
        case in case(FIVE_TUPLE, [NONE, NONE]),
        priorities in priorities(),
    ) {
        check(FIVE_TUPLE, priorities, &case);
    }

    #[test]
    fn kernels_equal_oracle_for_all_lanes(
        case in case(MIXED, [[true, false, true, false, false, false, false, false], [true; 8]]),
        priorities in priorities(),
    ) {
        check(MIXED, priorities, &case);
    }
}
