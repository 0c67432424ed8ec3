//! Time to build the classifier with each index over starts, its memory, and its iSets.
//!
//! The time includes training and certificate of a learned index. Times are CPU times of one
//! thread.

use std::hint::black_box;

use serde_json::{Value, json};
use shunt_nuevomatch::{
    KeySchema, LinearSegments, NuevoMatch, NuevoMatchSettings, StartIndex, StaticTree,
    rqrmi::CertifiedModel,
};

use super::{
    partitions::{capacities, capacity_rows, coverage, coverage_rows},
    rule_sets::{RuleSet, names},
};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
};

/// The indexes: name in a part, and metric.
const INDEXES: [(&str, &str); 3] = [
    ("tree", "CPU to build the classifier with a tree"),
    ("segments", "CPU to build the classifier with linear segments"),
    ("model", "CPU to build the classifier with a trained RQ-RMI"),
];

const BYTES: &str = "memory of a rule";

const INDEX_BYTES: &str = "memory of the trained RQ-RMI with its starts";

/// Rate of changes with nine tenths of the rules in iSets, by rebuilds alone.
///
/// After U changes of R rules, R * exp(-U / R) rules are in iSets. So a rebuild of T seconds allows
/// R * ln(1 / 0.9) / T changes per second.
const REBUILD_RATE: &str = "rule changes per second at 90 % coverage by rebuilds alone, computed";

/// The published rate of [`REBUILD_RATE`], for 100,000 and for 500,000 rules.
const PUBLISHED_RATE: f64 = 19_000.0;

const WHY_RATE: &str = "a build takes less time than the published training: certificates in one \
                        pass, nets that start as lines, and few starts in relaxed iSets";

/// Published milliseconds to train, by the size of the rule set.
const PUBLISHED_TRAINING: [(&str, f64); 2] = [("_100k", 500.0), ("_500k", 1000.0)];

const WHY_TRAINING: &str = "published for the training alone, by another processor; ours includes \
                            partition, certificates and copies of all rules";

/// Published KB of index and remainder of an access list, by its size.
const PUBLISHED_KB: [(&str, f64); 4] =
    [("_1k", 15.6), ("_10k", 192.8), ("_100k", 21.3), ("_500k", 46.1)];

const WHY_KB: &str = "published for strict iSets, with the remainder in TupleMerge";

/// Runs all rule sets.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let names = names(run.is_quick);
    run.begin(names.len());
    let parts: Vec<_> = names.iter().map(|name| run.part("nuevomatch-build", name)).collect();
    let mut rows = Vec::new();
    for (index, metric) in INDEXES {
        for part in &parts {
            let row = Row { ours: builds(part, index), ..Row::new(name(part), metric, "ms") };
            let published = published(part, &PUBLISHED_TRAINING).filter(|_| index == "model");
            rows.push(row.beside_another(published, WHY_TRAINING));
        }
    }
    for part in &parts {
        let ours = Samples::from(part["bytes"].as_f64().unwrap_or_default());
        rows.push(Row { ours, ..Row::new(name(part), BYTES, "B") });
    }
    for part in &parts {
        let ours = Samples::from(part["index_kb"].as_f64().unwrap_or_default());
        let is_list = name(part).starts_with("acl");
        let published = published(part, &PUBLISHED_KB).filter(|_| is_list);
        let row = Row { ours, ..Row::new(name(part), INDEX_BYTES, "KB") };
        rows.push(row.beside_another(published, WHY_KB));
    }
    rows.extend(parts.iter().map(rebuild_row));
    rows.extend(coverage_rows(&parts));
    rows.extend(capacity_rows(&parts));
    rows
}

/// Returns the name of the rule set of a part.
fn name(part: &Value) -> &str {
    part["name"].as_str().unwrap_or_default()
}

/// Returns the milliseconds of all builds with an index.
fn builds(part: &Value, index: &str) -> Samples {
    let values = part[index].as_array().map(Vec::as_slice).unwrap_or_default();
    Samples(values.iter().filter_map(Value::as_f64).collect())
}

/// Returns the published value of a rule set.
fn published(part: &Value, values: &[(&str, f64)]) -> Option<f64> {
    let set = name(part).split(':').next().unwrap_or_default();
    values.iter().find(|(size, _)| set.ends_with(size)).map(|(_, value)| *value)
}

/// Returns the row of changes that rebuilds with RQ-RMI allow.
fn rebuild_row(part: &Value) -> Row {
    let rules = part["rules"].as_f64().unwrap_or_default();
    let changes = rules * (1.0_f64 / 0.9).ln();
    let ours = builds(part, "model").map(|ms| changes / (ms / 1e3).max(f64::MIN_POSITIVE));
    let row = Row { ours, better: Better::More, ..Row::new(name(part), REBUILD_RATE, "1/s") };
    let is_published = published(part, &PUBLISHED_TRAINING).is_some();
    row.beside_published(is_published.then_some(PUBLISHED_RATE), WHY_RATE)
}

/// Builds the classifiers of one rule set, and prints the times.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let set = RuleSet::new(part);
    let rounds = run.either(5, 1);
    let statistics = build::<StaticTree>(&set).1.statistics();
    let index_bytes: usize =
        build::<CertifiedModel>(&set).1.statistics().sets.iter().map(|set| set.index_bytes).sum();
    let (mut tree, mut segments, mut model) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        tree.push(build::<StaticTree>(&set).0);
        segments.push(build::<LinearSegments>(&set).0);
        model.push(build::<CertifiedModel>(&set).0);
    }
    // The paper varies the capacity for one set of IP chains with 500,000 rules.
    let varies = part.starts_with("ipc") && (run.is_quick || part.ends_with("_500k"));
    println!(
        "{}",
        json!({
            "name": set.name,
            "rules": set.rules.len(),
            "tree": tree,
            "segments": segments,
            "model": model,
            "bytes": statistics.bytes as f64 / set.rules.len() as f64,
            "index_kb": index_bytes as f64 / 1024.0,
            "coverage": coverage(&set),
            "capacities": if varies { capacities(&set, rounds) } else { Vec::new() },
        })
    );
}

/// Builds a classifier with default settings, and returns the milliseconds, too.
fn build<I: StartIndex>(set: &RuleSet) -> (f64, NuevoMatch<5, I>) {
    build_with(set, &NuevoMatchSettings::default())
}

/// Builds a classifier, and returns the milliseconds and the classifier.
pub(super) fn build_with<I: StartIndex>(
    set: &RuleSet,
    settings: &NuevoMatchSettings,
) -> (f64, NuevoMatch<5, I>) {
    let schema = KeySchema::five_tuple();
    let mut built = None;
    let ns = cpu::measure_ns(|| {
        built = NuevoMatch::<5, I>::build(&schema, black_box(&set.rules), settings).ok();
    });
    (ns as f64 / 1e6, built.unwrap_or_else(|| panic!("{}: not built", set.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebuild_rate_follows_from_the_build() {
        let part = json!({ "name": "fw_500k: 500000 rules", "rules": 500_000, "model": [100.0] });
        let row = rebuild_row(&part);
        // R * ln(1 / 0.9) / T, with R of 500,000 rules and T of 0.1 seconds.
        assert!((row.ours.median() - 526_803.0).abs() < 1.0, "{:?}", row.ours);
        assert_eq!((row.published, row.reason), (Some(PUBLISHED_RATE), WHY_RATE));
        let small = json!({ "name": "fw_1k: 993 rules", "rules": 993, "model": [1.0] });
        assert_eq!(rebuild_row(&small).published, None);
        let one_k = published(&small, &PUBLISHED_KB);
        assert_eq!((one_k, published(&part, &PUBLISHED_KB)), (Some(15.6), Some(46.1)));
    }
}
