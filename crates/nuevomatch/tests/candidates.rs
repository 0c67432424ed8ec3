//! Compares the index over boxes with a linear scan.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic when a test fails")]

use std::ops::ControlFlow;

use proptest::{collection::vec, prelude::*};
use shunt_nuevomatch::{BoxRule, CandidateIndex, Error, KeySchema, PartitionSettings};

const WIDTHS: [u32; 3] = [32, 12, 3];

type Rule = BoxRule<3>;
type Index = CandidateIndex<3>;

fn schema() -> KeySchema {
    KeySchema::new(&WIDTHS).unwrap()
}

fn max(lane: usize) -> u32 {
    u32::MAX >> (32 - WIDTHS[lane])
}

/// Generates ranges that often touch, nest, cross, and reach the ends of the lane.
fn range(lane: usize) -> impl Strategy<Value = (u32, u32)> {
    let max = max(lane);
    let end = prop_oneof![0_u32..40, (0_u32..8).prop_map(|below| u32::MAX - below), any::<u32>()];
    prop_oneof![
        Just((0, max)),
        end.clone().prop_map(move |value| (value & max, value & max)),
        (0_u32..40, 0_u32..6).prop_map(move |(value, free)| {
            let low = (value & max) >> free << free;
            (low, low | ((1 << free) - 1) & max)
        }),
        (end.clone(), end).prop_map(move |(a, b)| ((a & max).min(b & max), (a & max).max(b & max))),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    (range(0), range(1), range(2), 0_u32..1000).prop_map(|(a, b, c, value)| BoxRule {
        low: [a.0, b.0, c.0],
        high: [a.1, b.1, c.1],
        value,
    })
}

fn settings() -> impl Strategy<Value = PartitionSettings> {
    (0_usize..4, 1_usize..65, 0_usize..101).prop_map(|(sets_max, bucket_rules, spare_percent)| {
        PartitionSettings { sets_max, bucket_rules, spare_percent, coverage_permille_min: 10 }
    })
}

/// Returns keys next to the corners of rules, and any keys.
fn keys(rules: &[Rule], seeds: &[(usize, [u32; 3])]) -> Vec<[u32; 3]> {
    let key = |(at, any): &(usize, [u32; 3])| {
        let Some(rule) = rules.get(at % rules.len().max(1)) else { return *any };
        std::array::from_fn(|lane| match any[lane] % 5 {
            0 => rule.low[lane],
            1 => rule.high[lane],
            2 => rule.low[lane].wrapping_sub(1),
            3 => rule.high[lane].wrapping_add(1),
            _ => any[lane],
        })
    };
    seeds.iter().map(key).collect()
}

fn seeds() -> impl Strategy<Value = Vec<(usize, [u32; 3])>> {
    vec((any::<usize>(), any::<[u32; 3]>()), 1..80)
}

fn scan(rules: &[Rule], key: &[u32; 3]) -> Vec<u32> {
    let inside = std::array::from_fn(|lane| key[lane] & max(lane));
    let mut values: Vec<u32> =
        rules.iter().filter(|rule| rule.contains(&inside)).map(|rule| rule.value).collect();
    values.sort_unstable();
    values
}

fn check(index: &Index, rules: &[Rule], keys: &[[u32; 3]]) {
    let mut found = vec![Vec::new(); keys.len()];
    index.find_batch(keys, |position, value| {
        found[position].push(value);
        ControlFlow::Continue(())
    });
    for (key, mut found) in keys.iter().zip(found) {
        let mut single = Vec::new();
        let none = index.find(key, |value| {
            single.push(value);
            false
        });
        assert_eq!((none, &single), (None, &found), "one key and a batch agree on {key:?}");
        found.sort_unstable();
        assert_eq!(found, scan(rules, key), "{key:?}");
    }
    assert_eq!(index.len(), rules.len());
}

fn build(rules: &[Rule], settings: &PartitionSettings) -> (Index, Vec<Rule>, Vec<Rule>) {
    let (index, left_out) = Index::build(&schema(), rules, settings).unwrap();
    assert!(left_out.is_sorted_by(|a, b| a < b));
    let is_out = |at: &usize| left_out.binary_search(&u32::try_from(*at).unwrap()).is_ok();
    let (out, inside): (Vec<usize>, Vec<usize>) = (0..rules.len()).partition(is_out);
    let of = |positions: Vec<usize>| positions.into_iter().map(|at| rules[at]).collect();
    (index, of(inside), of(out))
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Rule),
    InsertOut(usize),
    Remove(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        rule().prop_map(Op::Insert),
        any::<usize>().prop_map(Op::InsertOut),
        any::<usize>().prop_map(Op::Remove),
    ];
    vec(op, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..Default::default() })]

    #[test]
    fn a_build_finds_what_a_scan_finds(
        rules in vec(rule(), 0..300),
        settings in settings(),
        seeds in seeds(),
    ) {
        let (index, inside, _) = build(&rules, &settings);
        check(&index, &inside, &keys(&rules, &seeds));
    }

    #[test]
    fn updates_in_place_equal_a_scan(
        rules in vec(rule(), 0..100),
        settings in settings(),
        ops in ops(),
        seeds in seeds(),
    ) {
        let (mut index, mut inside, out) = build(&rules, &settings);
        let mut all = rules;
        for op in ops {
            match op {
                Op::Insert(rule) => {
                    if index.insert(&rule) {
                        inside.push(rule);
                    }
                    all.push(rule);
                }
                Op::InsertOut(at) if !out.is_empty() => {
                    let rule = out[at % out.len()];
                    if index.insert(&rule) {
                        inside.push(rule);
                    }
                }
                Op::Remove(at) if !all.is_empty() => {
                    let rule = all[at % all.len()];
                    let at = inside.iter().position(|other| *other == rule);
                    assert_eq!(index.remove(&rule), at.is_some(), "{rule:?}");
                    at.map(|at| inside.swap_remove(at));
                }
                Op::InsertOut(_) | Op::Remove(_) => {}
            }
        }
        check(&index, &inside, &keys(&all, &seeds));
    }

    /// Tests that after a break `found` is not called for the same key again.
    /// For the other keys `found` is called with all values.
    #[test]
    fn a_search_can_stop_for_one_key(
        rules in vec(rule(), 1..200),
        seeds in seeds(),
    ) {
        let (index, inside, _) = build(&rules, &PartitionSettings::default());
        let keys = keys(&rules, &seeds);
        let mut counts = vec![0; keys.len()];
        index.find_batch(&keys, |position, _| {
            counts[position] += 1;
            if position % 2 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        for (at, key) in keys.iter().enumerate() {
            let all = scan(&inside, key).len();
            prop_assert_eq!(counts[at], if at % 2 == 0 { all.min(1) } else { all });
        }
    }
}

fn point(value: u32) -> Rule {
    BoxRule { low: [value, 1, 1], high: [value, 1, 1], value }
}

#[test]
fn pending_keys_alone_are_searched() {
    let rules: Vec<Rule> = (0..100).map(point).collect();
    let (index, _, _) = build(&rules, &PartitionSettings::default());
    let keys: Vec<[u32; 3]> = (0..32).map(|value| [value, 1, 1]).collect();
    let mut found = Vec::new();
    let rest = index.find_pending(&keys, 0x8000_0005, |position, value| {
        found.push((position, value));
        if position == 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!((found, rest), (vec![(0, 0), (2, 2), (31, 31)], 4));
}

#[test]
fn an_empty_range_is_refused_with_its_rule() {
    let mut rules = [point(1), point(2), point(3)];
    rules[1].low[1] = 9;
    let error = Index::build(&schema(), &rules, &PartitionSettings::default()).unwrap_err();
    assert_eq!(error, Error::EmptyRange { rule: 1, lane: 1, low: 9, high: 1 });
    assert_eq!(
        error.to_string(),
        "rule 1: the range in lane 1 begins at 9 and ends at 1: swap the two ends"
    );
    rules[1].low[1] = 1;
    rules[2].high[2] = 8;
    let error = Index::build(&schema(), &rules, &PartitionSettings::default()).unwrap_err();
    assert_eq!(error, Error::OutsideLane { rule: 2, lane: 2, high: 8, max: 7 });
}

#[test]
fn a_rule_without_values_is_not_inserted() {
    let rules: Vec<Rule> = (0..10).map(point).collect();
    let (mut index, _, _) = build(&rules, &PartitionSettings::default());
    let mut empty = point(3);
    empty.low[2] = 2;
    let mut outside = point(3);
    outside.high[2] = 8;
    for rule in [empty, outside] {
        assert!(!index.insert(&rule) && !index.remove(&rule));
    }
    assert_eq!(index.len(), 10);
}

#[test]
fn another_number_of_lanes_is_an_error() {
    let error =
        CandidateIndex::<3>::build(&KeySchema::five_tuple(), &[], &PartitionSettings::default());
    assert_eq!(error.unwrap_err(), Error::LaneCount { lanes: 5, expected: 3 });
}

#[test]
fn a_bucket_holds_from_one_to_64_rules() {
    for bucket_rules in [0, 65] {
        let settings = PartitionSettings { bucket_rules, ..Default::default() };
        let error = Index::build(&schema(), &[], &settings).unwrap_err();
        assert_eq!(error, Error::BucketRules { bucket_rules, max: 64 });
    }
}

#[test]
fn no_rules_find_nothing_and_take_nothing() {
    let (mut index, inside, out) = build(&[], &PartitionSettings::default());
    assert!(index.is_empty() && inside.is_empty() && out.is_empty());
    assert_eq!(index.find(&[0, 0, 0], |_| true), None);
    assert!(!index.insert(&point(1)) && !index.remove(&point(1)));
    index.find_batch(&[], |_, _| ControlFlow::Continue(()));
}

#[test]
fn the_whole_domain_and_its_last_key_match() {
    let whole = BoxRule { low: [0; 3], high: [u32::MAX, 4095, 7], value: 5 };
    let (mut index, _, _) = build(&[whole], &PartitionSettings::default());
    for key in [[0; 3], [u32::MAX, 4095, 7], [u32::MAX; 3]] {
        assert_eq!(index.find(&key, |_| true), Some(5));
    }
    assert!(index.remove(&whole) && !index.remove(&whole));
    assert_eq!(index.find(&[0; 3], |_| true), None);
    assert!(index.insert(&whole));
    assert_eq!(index.find(&[7; 3], |_| true), Some(5));
}

/// Tests that a bucket holds 64 rules, and that no iSet holds the other rules.
#[test]
fn overlapping_rules_fill_one_bucket() {
    let whole = |value| BoxRule { low: [0; 3], high: [u32::MAX, 4095, 7], value };
    let rules: Vec<Rule> = (0..100).map(whole).collect();
    let settings = PartitionSettings { sets_max: 1, ..Default::default() };
    let (mut index, inside, out) = build(&rules, &settings);
    assert_eq!((inside.len(), out.len()), (40, 60));
    assert_eq!(inside, rules[..40]);
    let taken = out.iter().take_while(|rule| index.insert(rule)).count();
    assert_eq!(taken, 24);
    let mut found = Vec::new();
    index.find(&[9; 3], |value| {
        found.push(value);
        false
    });
    assert_eq!(found, (0..64).collect::<Vec<_>>());
}

#[test]
fn equal_rules_are_removed_one_by_one() {
    let (mut index, _, _) = build(&[point(4), point(4)], &PartitionSettings::default());
    let mut count = 0;
    index.find(&[4, 1, 1], |_| {
        count += 1;
        false
    });
    assert_eq!(count, 2);
    assert!(index.remove(&point(4)) && index.remove(&point(4)) && !index.remove(&point(4)));
}

/// Tests that growing and emptying buckets again and again needs no more blocks.
#[test]
fn blocks_of_grown_buckets_are_used_again() {
    let rules: Vec<Rule> = (0..1000).map(|i| point(i * 100)).collect();
    let (mut index, _, _) = build(&rules, &PartitionSettings::default());
    let mut bytes = Vec::new();
    for round in 0..20 {
        let base = round * 5000;
        let more: Vec<Rule> = (0..30).map(|i| point(base + i * 3 + 1)).collect();
        let taken: Vec<&Rule> = more.iter().filter(|rule| index.insert(rule)).collect();
        assert!(taken.len() > 20, "{} of 30", taken.len());
        assert!(taken.into_iter().all(|rule| index.remove(rule)));
        bytes.push(index.statistics().block_bytes);
    }
    assert_eq!(index.len(), 1000);
    assert!(bytes[19] <= bytes[0] * 2, "{bytes:?}");
}

#[test]
fn a_schema_of_no_lanes_has_one_key() {
    let schema = KeySchema::new(&[]).unwrap();
    let rule = BoxRule { low: [], high: [], value: 3 };
    let settings = PartitionSettings::default();
    let (index, left_out) = CandidateIndex::<0>::build(&schema, &[rule], &settings).unwrap();
    assert_eq!((index.find(&[], |_| true), left_out.len()), (None, 1));
}

#[test]
fn fields_of_no_bits_match_every_key() {
    let schema = KeySchema::new(&[0, 32]).unwrap();
    let rules: Vec<BoxRule<2>> =
        (0..50).map(|i| BoxRule { low: [0, i], high: [0, i], value: i }).collect();
    let settings = PartitionSettings::default();
    let (index, left_out) = CandidateIndex::<2>::build(&schema, &rules, &settings).unwrap();
    assert_eq!((index.find(&[77, 30], |_| true), left_out), (Some(30), vec![]));
}
