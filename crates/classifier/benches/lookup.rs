//! Measures lookup, masked lookup, insertion, removal and the searches of flow-mods.
//!
//! Tables are from `testing::workload`. Tables of 100 and 1,000 rules with up to 100 masks fit into
//! the L2 cache; a table of 100,000 rules with 600 masks does not. Half of the packets match a
//! rule. The oracle runs on the small tables. `cargo xtask bench classifier` compares the
//! classifier with that of Open vSwitch, and also reports the bytes per rule.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use shunt_classifier::{
    Classifier, Linear, Priority, Rank, TupleSpace, Version,
    testing::workload::{self, Priorities, RankedRules},
};
use shunt_flow::FlowMask;

const SIZES: &[(&str, usize, usize)] =
    &[("100", 100, 10), ("1k", 1000, 100), ("100k", 100_000, 600)];

/// Adds the rules to a classifier, each with its age as the value.
fn with_rules<C: Classifier<u64>>(mut table: C, rules: &RankedRules) -> C {
    for (matching, rank) in rules {
        table.insert(matching.clone(), *rank, Version::ZERO, rank.age);
    }
    table
}

/// Measures lookups with and without masks in one classifier.
fn bench_lookup(
    criterion: &mut Criterion,
    name: &str,
    table: &impl Classifier<u64>,
    rules: &RankedRules,
) {
    let packets = workload::packets(16_384, rules);
    let mut next = packets.iter().cycle();
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    group.bench_function("lookup", |bencher| {
        bencher.iter(|| next.next().and_then(|key| table.lookup(black_box(key), Version::ZERO)));
    });
    group.bench_function("lookup_masked", |bencher| {
        bencher.iter(|| {
            let mut mask = FlowMask::EMPTY;
            let key = next.next().map(black_box);
            let found = key.and_then(|key| table.lookup_masked(key, Version::ZERO, &mut mask));
            black_box(mask);
            found
        });
    });
    group.finish();
}

/// Measures lookups in tuple spaces, and in linear lists of few rules.
fn lookups(criterion: &mut Criterion) {
    for (size, rules_count, masks_count) in SIZES {
        for priorities in [Priorities::Random, Priorities::Specific] {
            let rules = workload::rules(*rules_count, *masks_count, priorities);
            let table = with_rules(TupleSpace::new(1), &rules);
            bench_lookup(criterion, &format!("tuple_space/{size}/{priorities:?}"), &table, &rules);
            if *rules_count <= 1000 {
                let table = with_rules(Linear::new(), &rules);
                bench_lookup(criterion, &format!("linear/{size}/{priorities:?}"), &table, &rules);
            }
        }
    }
}

/// Measures insertion and removal of all rules of a table.
fn changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tuple_space/change");
    for (size, rules_count, masks_count) in SIZES {
        let rules = workload::rules(*rules_count, *masks_count, Priorities::Random);
        group.throughput(Throughput::Elements(*rules_count as u64));
        group.sample_size(10);
        group.bench_function(format!("insert/{size}"), |bencher| {
            let empty = || TupleSpace::new(1);
            bencher.iter_batched(empty, |table| with_rules(table, &rules), BatchSize::PerIteration);
        });
        group.bench_function(format!("remove/{size}"), |bencher| {
            let full = || with_rules(TupleSpace::new(1), &rules);
            let empty = |mut table: TupleSpace<u64>| {
                for (matching, rank) in &rules {
                    table.remove(matching, *rank, Version::ZERO);
                }
                table.reclaim(Version::ZERO);
                table
            };
            bencher.iter_batched(full, empty, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Measures replacing a rule by a rule with the same match and priority.
///
/// The table has rules of several priorities with this match.
///
/// The table reclaims removed rules after many replacements, as in the switch.
fn replacements(criterion: &mut Criterion) {
    let (matching, _) = workload::rules(1, 1, Priorities::Random).remove(0);
    let priority = |number| Priority::new(u16::try_from(number).unwrap_or(u16::MAX));
    let mut group = criterion.benchmark_group("tuple_space/replace");
    group.throughput(Throughput::Elements(1));
    for (priorities, retired_max) in [(1, 1024), (200, 1024), (200, 16_384)] {
        let mut table = TupleSpace::new(1);
        let rank = |age: u64| Rank { priority: priority(age % priorities), age };
        let mut age = 0_u64;
        group.bench_function(format!("{priorities}_priorities/{retired_max}_retired"), |bencher| {
            bencher.iter(|| {
                let (old, new) = (age.checked_sub(priorities), rank(age));
                let (now, next) = (Version::new(age), Version::new(age + 1));
                let found = table.find_exact(black_box(&matching), new.priority, now).copied();
                assert_eq!(found, old);
                if let Some(old) = old {
                    table.remove(&matching, rank(old), next);
                }
                table.insert(matching.clone(), new, next, age);
                if age.is_multiple_of(retired_max) {
                    table.reclaim(next);
                }
                age += 1;
            });
        });
    }
    group.finish();
}

/// Measures the searches for existing rules before a flow-mod changes a table.
fn overlap_searches(criterion: &mut Criterion) {
    let rules = workload::rules(100_000, 600, Priorities::Random);
    let table = with_rules(TupleSpace::new(1), &rules);
    let mut next = rules.iter().cycle();
    let mut group = criterion.benchmark_group("tuple_space/overlap");
    group.throughput(Throughput::Elements(1));
    group.bench_function("overlaps", |bencher| {
        bencher.iter(|| {
            let asked = next.next().map(black_box);
            asked.map(|(matching, rank)| table.overlaps(matching, rank.priority, Version::ZERO))
        });
    });
    group.bench_function("rules_within", |bencher| {
        bencher.iter(|| {
            let asked = next.next().map(black_box);
            asked.map(|(matching, _)| table.rules_within(matching, Version::ZERO).count())
        });
    });
    group.finish();
}

criterion_group!(benches, lookups, changes, replacements, overlap_searches);
criterion_main!(benches);
