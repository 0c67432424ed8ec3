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
    experiment::{Better, Row, Run, Samples},
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

/// The traces with geometric means over the sets of a size, and the metrics.
const MEANS: [(usize, &str); 2] = [
    (0, "times faster in batches of 32 packets, geometric mean"),
    (1, "times faster for flows by Zipf's law, geometric mean"),
];

/// The published means over TupleMerge with 500,000 rules, as in [`MEANS`].
const PUBLISHED_MEANS: [f64; 2] = [1.6, 1.06];

const WHY_MEAN: &str = "buckets of rules are compared 16 at once, and a tree finds them; the \
                        published classifier has strict iSets, neural networks and a remainder in \
                        TupleMerge";

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
    rows.extend(mean_rows(&parts));
    rows
}

/// Returns the rows of the geometric means over all sets of a size.
///
/// A mean compares with a rival that takes part in each set of the size.
fn mean_rows(parts: &[Value]) -> Vec<Row> {
    let mut sizes: Vec<&str> = parts.iter().map(size_of).collect();
    sizes.dedup();
    let mut rows = Vec::new();
    for ((trace, metric), published) in MEANS.into_iter().zip(PUBLISHED_MEANS) {
        let kind = kind(trace, SIZES[0].1);
        for size in &sizes {
            let own: Vec<&Value> = parts.iter().filter(|part| size_of(part) == *size).collect();
            let rivals = own.first().and_then(|part| part["rivals"].as_array());
            for rival in rivals.into_iter().flatten().filter_map(Value::as_str) {
                let ratio = |part: &&Value| {
                    let ours = samples(part, OURS, &kind).median();
                    samples(part, rival, &kind).median() / ours
                };
                let logarithms: f64 = own.iter().map(|part| ratio(part).ln()).sum();
                let mean = (logarithms / own.len() as f64).exp();
                if !mean.is_normal() {
                    continue;
                }
                let published = (*size == "500k" && rival == "TupleMerge").then_some(published);
                let row = Row::new(format!("mean of the sets of {size}, {rival}"), metric, "");
                let row = Row { ours: mean.into(), better: Better::More, ..row };
                rows.push(row.beside_published(published, WHY_MEAN));
            }
        }
    }
    rows
}

/// Returns the size of the rule set of a part, as in `acl_10k: 9977 rules`.
fn size_of(part: &Value) -> &str {
    let name = part["name"].as_str().unwrap_or_default();
    let set = name.split(':').next().unwrap_or_default();
    set.rsplit('_').next().unwrap_or_default()
}

/// Returns the nanoseconds of a classifier for one kind of lookup.
fn samples(part: &Value, classifier: &str, kind: &str) -> Samples {
    let values = part["times"][classifier][kind].as_array();
    let values = values.map(Vec::as_slice).unwrap_or_default();
    Samples(values.iter().filter_map(Value::as_f64).collect())
}

/// Returns a row for each rival of a part.
///
/// The first rival is tuple space search. The rows of the others name them.
fn part_rows(part: &Value, kind: &str, metric: &'static str) -> Vec<Row> {
    let name = part["name"].as_str().unwrap_or_default();
    let rivals = part["rivals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |(at, rival): (usize, &Value)| {
        let rival = rival.as_str().unwrap_or_default();
        let title = if at == 0 { name.to_owned() } else { format!("{name}, {rival}") };
        let compared = Some((rival.to_owned(), samples(part, rival, kind)));
        Row { ours: samples(part, OURS, kind), rival: compared, ..Row::new(title, metric, "ns") }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_geometric_and_by_size() {
        let part = |name: &str, ours: f64, theirs: f64| {
            let times = |ns: f64| json!({ "0 batch": [ns], "1 batch": [ns] });
            let times = json!({ OURS: times(ours), "TupleMerge": times(theirs) });
            json!({ "name": name, "rivals": ["TupleMerge"], "times": times })
        };
        let parts = [
            part("acl_1k: 999 rules", 10.0, 20.0),
            part("fw_1k: 993 rules", 10.0, 80.0),
            part("acl_500k: 499962 rules", 50.0, 100.0),
        ];
        let rows = mean_rows(&parts);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names[..2],
            ["mean of the sets of 1k, TupleMerge", "mean of the sets of 500k, TupleMerge"]
        );
        assert!((rows[0].ours.median() - 4.0).abs() < 1e-9, "{:?}", rows[0].ours);
        assert_eq!((rows[0].published, rows[1].published), (None, Some(1.6)));
        assert_eq!((rows.len(), rows[3].published), (4, Some(1.06)));
        assert_eq!(mean_rows(&[json!({ "name": "acl_1k", "rivals": ["none"] })]).len(), 0);
    }
}
