//! Lookups of the classifier and of tuple space search, with the same rules and packets.
//!
//! The run stops if the two classifiers find different rules. Times are CPU times of one thread, in
//! alternating rounds. Each rule set has a separate process.

use std::hint::black_box;

use serde_json::json;
use shunt_classifier::{Classifier as _, Version};
use shunt_flow::FlowKey;
use shunt_nuevomatch::{KeySchema, NuevoMatch, NuevoMatchSettings};

use super::rule_sets::{RuleSet, key, names};
use crate::{
    cpu,
    experiment::{Row, Run, Samples},
};

/// Keys of one call.
const BATCH: usize = 32;

/// The measured kinds of lookups: name in a part, and metric.
const KINDS: [(&str, &str); 3] = [
    ("batch", "CPU of a lookup, in batches of 32 packets"),
    ("single", "CPU of a lookup, one packet at a time"),
    ("strangers", "CPU of a lookup, for packets that few rules match"),
];

const RIVAL: &str = "tuple space search";

/// Runs all rule sets.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let names = names(run.is_quick);
    run.begin(names.len());
    let parts: Vec<_> = names.iter().map(|name| run.part("nuevomatch-lookup", name)).collect();
    let samples = |value: &serde_json::Value| {
        let values = value.as_array().map(Vec::as_slice).unwrap_or_default();
        Samples(values.iter().filter_map(serde_json::Value::as_f64).collect())
    };
    let row = |(kind, metric): &(&str, &'static str), part: &serde_json::Value| {
        let name = part["name"].as_str().unwrap_or_default();
        let rival = Some((RIVAL.to_owned(), samples(&part["rival"][kind])));
        Row { ours: samples(&part["ours"][kind]), rival, ..Row::new(name, metric, "ns") }
    };
    KINDS
        .iter()
        .flat_map(|kind| parts.iter().map(|part| row(kind, part)).collect::<Vec<_>>())
        .collect()
}

/// Measures one rule set, and prints the times.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let set = RuleSet::new(part);
    let (schema, settings) = (KeySchema::five_tuple(), NuevoMatchSettings::default());
    let ours = NuevoMatch::<5>::build(&schema, &set.rules, &settings);
    let ours = ours.unwrap_or_else(|error| panic!("{part}: {error}"));
    let rival = set.tuple_space();
    let count = run.either(65_536, 8_192);
    let traces = [set.packets(count), set.strangers(count / 4)];
    let keys = traces.each_ref().map(|packets| packets.iter().map(key).collect::<Vec<FlowKey>>());
    for (packets, keys) in traces.iter().zip(&keys) {
        for (packet, key) in packets.iter().zip(keys) {
            let expected = rival.lookup(key, Version::ZERO).copied();
            assert_eq!(ours.lookup(packet).map(|best| best.value), expected, "{packet:?}");
        }
    }
    let mut best = [None; BATCH];
    let mut batches = |packets: &[[u32; 5]]| {
        let ns = cpu::timed(|| {
            for packets in packets.chunks(BATCH) {
                ours.lookup_batch(packets, &mut best);
                black_box(&best);
            }
        });
        ns as f64 / packets.len() as f64
    };
    let single = || {
        let ns = cpu::timed(|| {
            for packet in &traces[0] {
                black_box(ours.lookup(black_box(packet)));
            }
        });
        ns as f64 / traces[0].len() as f64
    };
    let tuple_space = |keys: &[FlowKey]| {
        let ns = cpu::timed(|| {
            for key in keys {
                black_box(rival.lookup(key, Version::ZERO));
            }
        });
        ns as f64 / keys.len() as f64
    };
    let mut measured = [(); 6].map(|()| Vec::new());
    for _ in 0..run.either(7, 2) {
        let round = [
            batches(&traces[0]),
            tuple_space(&keys[0]),
            single(),
            tuple_space(&keys[0]),
            batches(&traces[1]),
            tuple_space(&keys[1]),
        ];
        for (measured, ns) in measured.iter_mut().zip(round) {
            measured.push(ns);
        }
    }
    let [batch, rival_batch, single, rival_single, strangers, rival_strangers] = measured;
    println!(
        "{}",
        json!({
            "name": set.name,
            "ours": { "batch": batch, "single": single, "strangers": strangers },
            "rival": {
                "batch": rival_batch,
                "single": rival_single,
                "strangers": rival_strangers,
            },
        })
    );
}
