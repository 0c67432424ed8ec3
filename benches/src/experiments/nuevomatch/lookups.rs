//! Lookups of the classifier and of its rivals, with the same rules and packets.
//!
//! The run stops if two classifiers find different rules. Times are CPU times of one thread, in
//! alternating rounds. Each rule set has a separate process.

use std::{collections::BTreeMap, hint::black_box};

use serde_json::{Value, json};
use shunt_nuevomatch::{KeySchema, NuevoMatch, NuevoMatchSettings};

use super::{
    lookup_rivals::{
        AclRival, CallSize, LookupRival, LookupTrace, TupleMergeRival, TupleSpaceRival,
    },
    rule_sets::{RuleSet, names},
};
use crate::{
    cpu,
    experiment::{Row, Run, Samples},
};

/// Keys of one call.
const BATCH: usize = 32;

/// Names of the metrics of one trace: lookups in batches and single ones.
struct TraceMetrics {
    batch: &'static str,
    single: &'static str,
}

/// The metrics of each trace, in the order of [`traces`].
const METRICS: [TraceMetrics; 4] = [
    TraceMetrics {
        batch: "CPU of a lookup, in batches of 32 packets",
        single: "CPU of a lookup, one packet at a time",
    },
    TraceMetrics {
        batch: "CPU of a lookup, for flows by Zipf's law",
        single: "CPU of a lookup, for flows by Zipf's law, one packet at a time",
    },
    TraceMetrics {
        batch: "CPU of a lookup, for packets at the borders of rules",
        single: "CPU of a lookup, for packets at the borders of rules, one at a time",
    },
    TraceMetrics {
        batch: "CPU of a lookup, for packets that few rules match",
        single: "CPU of a lookup, for packets that few rules match, one at a time",
    },
];

/// The sizes of calls, with their names in a part.
const SIZES: [(CallSize, &str); 2] = [(CallSize::Batch, "batch"), (CallSize::Single, "single")];

/// Nanoseconds of a packet by classifier, each round by kind of lookup.
type LookupTimes = BTreeMap<&'static str, BTreeMap<String, Vec<f64>>>;

/// Name of our classifier in a part.
const OURS: &str = "NuevoMatch";

/// Runs all rule sets.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let names = names(run.is_quick);
    run.begin(names.len());
    let parts: Vec<_> = names.iter().map(|name| run.part("nuevomatch-lookup", name)).collect();
    let mut rows = Vec::new();
    for (size, size_name) in SIZES {
        for (trace, metrics) in METRICS.iter().enumerate() {
            let metric = match size {
                CallSize::Batch => metrics.batch,
                CallSize::Single => metrics.single,
            };
            let kind = kind(trace, size_name);
            rows.extend(parts.iter().flat_map(|part| part_rows(part, &kind, metric)));
        }
    }
    rows
}

/// Returns a row for each rival of a part.
///
/// The first rival is tuple space search. The rows of the others name them.
fn part_rows(part: &Value, kind: &str, metric: &'static str) -> Vec<Row> {
    let name = part["name"].as_str().unwrap_or_default();
    let samples = |classifier: &str| {
        let values = part["times"][classifier][kind].as_array();
        let values = values.map(Vec::as_slice).unwrap_or_default();
        Samples(values.iter().filter_map(Value::as_f64).collect())
    };
    let rivals = part["rivals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |(at, rival): (usize, &Value)| {
        let rival = rival.as_str().unwrap_or_default();
        let title = if at == 0 { name.to_owned() } else { format!("{name}, {rival}") };
        let compared = Some((rival.to_owned(), samples(rival)));
        Row { ours: samples(OURS), rival: compared, ..Row::new(title, metric, "ns") }
    };
    rivals.iter().enumerate().map(row).collect()
}

/// Measures one rule set, and prints the times.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let set = RuleSet::new(part);
    let (schema, settings) = (KeySchema::five_tuple(), NuevoMatchSettings::default());
    let ours = NuevoMatch::<5>::build(&schema, &set.rules, &settings);
    let ours = ours.unwrap_or_else(|error| panic!("{part}: {error}"));
    let traces = traces(&set, run.either(65_536, 8_192));
    let mut rivals: Vec<Box<dyn LookupRival + '_>> = vec![
        Box::new(TupleSpaceRival::new(&set, &traces)),
        Box::new(TupleMergeRival::new(&set, &traces)),
    ];
    if let Some(acl) = AclRival::start(&set, &traces, run.folder.path()) {
        rivals.push(Box::new(acl));
    }
    for (at, packets) in traces.iter().enumerate() {
        let expected: Vec<Option<u32>> =
            packets.iter().map(|packet| ours.lookup(packet).map(|best| best.value)).collect();
        for rival in &mut rivals {
            let winners = rival.winners(at);
            let differing = winners.iter().zip(&expected).position(|(one, other)| one != other);
            let differing = differing.map(|packet| &packets[packet]);
            assert!(differing.is_none(), "{} and {OURS} differ: {differing:?}", rival.name());
            assert_eq!(winners.len(), expected.len(), "{} has all results", rival.name());
        }
    }
    let mut times = LookupTimes::new();
    for _ in 0..run.either(7, 2) {
        for (at, packets) in traces.iter().enumerate() {
            for (size, size_name) in SIZES {
                let mut add = |name: &'static str, ns: u64| {
                    let kinds = times.entry(name).or_default();
                    let rounds = kinds.entry(kind(at, size_name)).or_default();
                    rounds.push(ns as f64 / packets.len() as f64);
                };
                add(OURS, run_ns(&ours, packets, size));
                for rival in &mut rivals {
                    add(rival.name(), rival.run_ns(at, size));
                }
            }
        }
    }
    let rivals: Vec<&str> = rivals.iter().map(|rival| rival.name()).collect();
    println!("{}", json!({ "name": set.name, "rivals": rivals, "times": times }));
}

/// Returns the traces: uniform, Zipf, at borders, and without a specific rule.
fn traces(set: &RuleSet, count: usize) -> [LookupTrace; METRICS.len()] {
    [
        set.packets(count),
        set.zipf_packets(count),
        set.border_packets(count),
        set.strangers(count / 4),
    ]
}

/// Returns the nanoseconds of CPU time for all packets of a trace.
fn run_ns(ours: &NuevoMatch<5>, packets: &[[u32; 5]], size: CallSize) -> u64 {
    match size {
        CallSize::Batch => {
            let mut best = [None; BATCH];
            cpu::measure_ns(|| {
                for packets in packets.chunks(BATCH) {
                    ours.lookup_batch(packets, &mut best);
                    black_box(&best);
                }
            })
        }
        CallSize::Single => cpu::measure_ns(|| {
            for packet in packets {
                black_box(ours.lookup(black_box(packet)));
            }
        }),
    }
}

/// Returns the name of a kind of lookup in a part.
fn kind(trace: usize, size: &str) -> String {
    format!("{trace} {size}")
}
