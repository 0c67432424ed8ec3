//! Coverage of iSets, and the costs of a classifier by the capacity of its buckets.
//!
//! Buckets of one rule are the strict iSets of the first paper, and buckets of 40 rules are the
//! relaxed iSets of the second paper. The coverage does not vary between rounds.

use std::hint::black_box;

use serde_json::{Value, json};
use shunt_nuevomatch::{
    BucketCapacity, KeySchema, NuevoMatch, NuevoMatchSettings, PartitionSettings, StaticTree,
    rqrmi::CertifiedModel,
};

use super::{building::build_with, rule_sets::RuleSet};
use crate::{
    cpu,
    experiment::{Better, Row, Samples},
};

/// The metrics of strict iSets: the first one to four of them.
const STRICT: [&str; 4] = [
    "rules in one strict iSet",
    "rules in two strict iSets",
    "rules in three strict iSets",
    "rules in four strict iSets",
];

/// The metrics of relaxed iSets with buckets of 40 rules.
const RELAXED: [&str; 3] =
    ["rules in one relaxed iSet", "rules in two relaxed iSets", "rules in three relaxed iSets"];

/// Capacity of buckets in the papers.
const PUBLISHED_CAPACITY: usize = 40;

/// The compared capacities of buckets.
const CAPACITIES: [usize; 7] = [8, 16, 24, 32, 40, 48, 56];

/// Keys of one call.
const BATCH: usize = 32;

/// Number of packets of a measurement.
const PACKETS: usize = 65_536;

const CAPACITY_BUILD: &str = "CPU to build the classifier with a trained RQ-RMI, by capacity";
const CAPACITY_LOOKUP: &str = "CPU of a lookup in batches of 32 packets, by capacity of buckets";

/// Returns the settings of iSets with buckets of `bucket_rules` rules.
fn settings(bucket_rules: usize, sets_max: usize) -> NuevoMatchSettings {
    let partition =
        PartitionSettings { sets_max, bucket_rules, spare_percent: 0, coverage_permille_min: 0 };
    NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, seed: 1 }
}

/// Returns the share of the rules in the first iSets, in percent.
fn covered(set: &RuleSet, bucket_rules: usize, sets_max: usize) -> Vec<f64> {
    let settings = settings(bucket_rules, sets_max);
    let built = NuevoMatch::<5, StaticTree>::build(&KeySchema::five_tuple(), &set.rules, &settings);
    let statistics = built.unwrap_or_else(|error| panic!("{}: {error}", set.name)).statistics();
    let mut rules = 0;
    let shares = (0..sets_max).map(|at| {
        rules += statistics.sets.get(at).map_or(0, |set| set.rules);
        rules as f64 * 100.0 / set.rules.len() as f64
    });
    shares.collect()
}

/// Returns the coverage of a rule set, for [`coverage_rows`].
pub(super) fn coverage(set: &RuleSet) -> Value {
    json!({
        "strict": covered(set, 1, STRICT.len()),
        "relaxed": covered(set, PUBLISHED_CAPACITY, RELAXED.len()),
    })
}

/// Returns the rows of the coverage of all rule sets.
pub(super) fn coverage_rows(parts: &[Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (kind, metrics) in [("strict", &STRICT[..]), ("relaxed", &RELAXED[..])] {
        for (at, metric) in metrics.iter().enumerate() {
            rows.extend(parts.iter().map(|part| {
                let ours = part["coverage"][kind][at].as_f64().unwrap_or_default();
                let name = part["name"].as_str().unwrap_or_default();
                Row { ours: ours.into(), better: Better::More, ..Row::new(name, metric, "%") }
            }));
        }
    }
    rows
}

/// Measures builds and lookups of a rule set with each capacity of buckets.
pub(super) fn capacities(set: &RuleSet, rounds: usize) -> Vec<Value> {
    let packets = set.packets(PACKETS);
    let mut costs = CAPACITIES.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..rounds {
        for (capacity, (build_ms, lookup_ns)) in CAPACITIES.into_iter().zip(&mut costs) {
            let settings = settings(capacity, RELAXED.len());
            let (ms, built) = build_with::<CertifiedModel>(set, &settings);
            build_ms.push(ms);
            lookup_ns.push(look_up(&built, &packets));
        }
    }
    let values = CAPACITIES.into_iter().zip(costs);
    values
        .map(|(rules, (build, lookup))| json!({ "rules": rules, "build": build, "lookup": lookup }))
        .collect()
}

/// Returns the nanoseconds of CPU time for one packet.
fn look_up(classifier: &NuevoMatch<5, CertifiedModel>, packets: &[[u32; 5]]) -> f64 {
    let mut best = [None; BATCH];
    let ns = cpu::measure_ns(|| {
        for packets in packets.chunks(BATCH) {
            classifier.lookup_batch(packets, &mut best);
            black_box(&best);
        }
    });
    ns as f64 / packets.len() as f64
}

/// Returns the rows of all capacities of the rule sets that have them.
pub(super) fn capacity_rows(parts: &[Value]) -> Vec<Row> {
    let mut rows = Vec::new();
    let metrics = [("build", CAPACITY_BUILD, "ms"), ("lookup", CAPACITY_LOOKUP, "ns")];
    for (key, metric, unit) in metrics {
        for part in parts {
            let set = part["name"].as_str().unwrap_or_default();
            for costs in part["capacities"].as_array().into_iter().flatten() {
                let values = costs[key].as_array().into_iter().flatten();
                let ours = Samples(values.filter_map(Value::as_f64).collect());
                let name = format!("{set}, buckets of {}", costs["rules"]);
                rows.push(Row { ours, ..Row::new(name, metric, unit) });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets of more rules cover more, and each further iSet covers more.
    #[test]
    fn coverage_grows_with_isets_and_buckets() {
        let set = RuleSet::new("fw_1k");
        let coverage = coverage(&set);
        let rows = coverage_rows(&[json!({ "name": set.name, "coverage": coverage })]);
        assert_eq!(rows.len(), STRICT.len() + RELAXED.len());
        let shares: Vec<f64> = rows.iter().map(|row| row.ours.median()).collect();
        let (strict, relaxed) = shares.split_at(STRICT.len());
        assert!(strict.is_sorted() && relaxed.is_sorted(), "{shares:?}");
        assert!(strict[0] > 0.0 && relaxed[0] > strict[0] && relaxed[2] <= 100.0, "{shares:?}");
    }

    #[test]
    fn each_capacity_has_a_build_and_a_lookup() {
        let set = RuleSet::new("fw_1k");
        let part = json!({ "name": "fw_1k", "capacities": capacities(&set, 1) });
        let rows = capacity_rows(&[part]);
        assert_eq!(rows.len(), 2 * CAPACITIES.len());
        assert_eq!(rows[0].name, "fw_1k, buckets of 8");
        assert!(rows.iter().all(|row| row.ours.median() > 0.0));
    }
}
