//! Time to build the classifier with each index over starts, and the memory of the classifier.
//!
//! The time includes training and certificate of a learned index. Times are CPU times of one
//! thread.

use std::hint::black_box;

use serde_json::json;
use shunt_nuevomatch::{
    KeySchema, LinearSegments, NuevoMatch, NuevoMatchSettings, StartIndex, StaticTree,
    rqrmi::CertifiedModel,
};

use super::rule_sets::{RuleSet, names};
use crate::{
    cpu,
    experiment::{Row, Run, Samples},
};

/// The indexes: name in a part, and metric.
const INDEXES: [(&str, &str); 3] = [
    ("tree", "CPU to build the classifier with a tree"),
    ("segments", "CPU to build the classifier with linear segments"),
    ("model", "CPU to build the classifier with a trained RQ-RMI"),
];

const BYTES: &str = "memory of a rule";

/// Runs all rule sets.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let names = names(run.is_quick);
    run.begin(names.len());
    let parts: Vec<_> = names.iter().map(|name| run.part("nuevomatch-build", name)).collect();
    let mut rows = Vec::new();
    for (index, metric) in INDEXES {
        for part in &parts {
            let values = part[index].as_array().map(Vec::as_slice).unwrap_or_default();
            let ours = Samples(values.iter().filter_map(serde_json::Value::as_f64).collect());
            let name = part["name"].as_str().unwrap_or_default();
            rows.push(Row { ours, ..Row::new(name, metric, "ms") });
        }
    }
    for part in &parts {
        let ours = Samples::from(part["bytes"].as_f64().unwrap_or_default());
        let name = part["name"].as_str().unwrap_or_default();
        rows.push(Row { ours, ..Row::new(name, BYTES, "B") });
    }
    rows
}

/// Builds the classifiers of one rule set, and prints the times.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let set = RuleSet::new(part);
    let rounds = run.either(5, 1);
    let built = build::<StaticTree>(&set).1;
    let statistics = built.statistics();
    let (mut tree, mut segments, mut model) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        tree.push(build::<StaticTree>(&set).0);
        segments.push(build::<LinearSegments>(&set).0);
        model.push(build::<CertifiedModel>(&set).0);
    }
    println!(
        "{}",
        json!({
            "name": set.name,
            "tree": tree,
            "segments": segments,
            "model": model,
            "bytes": statistics.bytes as f64 / set.rules.len() as f64,
        })
    );
}

/// Builds a classifier, and returns the milliseconds and the classifier.
fn build<I: StartIndex>(set: &RuleSet) -> (f64, NuevoMatch<5, I>) {
    let (schema, settings) = (KeySchema::five_tuple(), NuevoMatchSettings::default());
    let mut built = None;
    let ns = cpu::measure_ns(|| {
        built = NuevoMatch::<5, I>::build(&schema, black_box(&set.rules), &settings).ok();
    });
    (ns as f64 / 1e6, built.unwrap_or_else(|| panic!("{}: not built", set.name)))
}
