//! Bit identity of all kernels with the oracle.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    BoxRule,
    blocks::{BlockLayout, BlockRun, RuleArena},
    schema::lane_max,
};

/// Ends of ranges: values next to each other, at borders, and any.
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

fn rule<const N: usize>(widths: [u8; N], prefixes: [bool; N]) -> impl Strategy<Value = BoxRule<N>> {
    let ranges: Vec<_> = (0..N).map(|lane| range(widths[lane], prefixes[lane])).collect();
    (ranges, any::<u32>()).prop_map(|(ranges, value)| BoxRule {
        low: std::array::from_fn(|lane| ranges[lane].0),
        high: std::array::from_fn(|lane| ranges[lane].1),
        value,
    })
}

/// Buckets of rules, and keys that are corners of rules or any values.
type MatchCase<const N: usize> = (Vec<Vec<BoxRule<N>>>, Vec<[u32; N]>);

fn case<const N: usize>(
    widths: [u8; N],
    prefixes: [bool; N],
) -> impl Strategy<Value = MatchCase<N>> {
    let buckets = vec(vec(rule(widths, prefixes), 0..=64), 1..4);
    let key = (vec((any::<prop::sample::Index>(), 0_u32..5, value()), N..=N), any::<u8>());
    (buckets, vec(key, 1..33)).prop_map(|(buckets, keys)| {
        let rules: Vec<BoxRule<N>> = buckets.iter().flatten().copied().collect();
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

fn check<const N: usize>(widths: [u8; N], (buckets, keys): &MatchCase<N>) {
    let rules: Vec<BoxRule<N>> = buckets.iter().flatten().copied().collect();
    let mut arena = RuleArena::new(BlockLayout::new(&widths, &rules));
    let fill = |rules: &Vec<BoxRule<N>>| -> BlockRun {
        let mut run = arena.add_run(rules.len().div_ceil(BLOCK_RULES).max(1)).unwrap();
        rules.iter().for_each(|rule| arena.push(&mut run, rule));
        run
    };
    let runs: Vec<BlockRun> = buckets.iter().map(fill).collect();
    for (run, rules) in runs.iter().zip(buckets) {
        let read: Vec<BoxRule<N>> = (0..rules.len()).map(|at| arena.rule(*run, at)).collect();
        assert_eq!(&read, rules);
    }
    let jobs: Vec<(MatchJob, u64)> = (0..keys.len())
        .flat_map(|key| (0..runs.len()).map(move |run| (key, run)))
        .map(|(key, run)| {
            let inside: [u32; N] =
                std::array::from_fn(|lane| keys[key][lane] & lane_max(widths[lane]));
            let contains = buckets[run].iter().map(|rule| rule.contains(&inside));
            let mask = contains.enumerate().fold(0, |mask, (at, is)| mask | u64::from(is) << at);
            let (first, rules) = (runs[run].first, u32::from(runs[run].rules));
            (MatchJob { key: u32::try_from(key).unwrap(), first, rules }, mask)
        })
        .collect();
    let (jobs, expected): (Vec<MatchJob>, Vec<u64>) = jobs.into_iter().unzip();
    for instructions in InstructionSet::all() {
        let mut masks = vec![u64::MAX; jobs.len()];
        instructions.match_blocks(arena.layout(), arena.lines(), keys, &jobs, &mut masks);
        assert_eq!(masks, expected, "{instructions:?}");
    }
}

const FIVE_TUPLE: [u8; 5] = [32, 32, 16, 16, 8];
const MIXED: [u8; 8] = [32, 0, 20, 17, 16, 12, 8, 3];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

    #[test]
    fn five_tuples_match_alike(case in case(FIVE_TUPLE, [true, true, false, false, false])) {
        check(FIVE_TUPLE, &case);
    }

    #[test]
    fn ranges_of_addresses_match_alike(case in case(FIVE_TUPLE, [false; 5])) {
        check(FIVE_TUPLE, &case);
    }

    #[test]
    fn all_kinds_of_lanes_match_alike(
        case in case(MIXED, [true, false, true, false, false, false, false, false]),
    ) {
        check(MIXED, &case);
    }
}
