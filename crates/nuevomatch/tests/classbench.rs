//! Tests the coverage of iSets and the results of lookups with ClassBench rule-sets.
//!
//! `SHUNT_CLASSBENCH` names a folder with `stats.tsv`, and rule-sets in `rules/`, plain or as `.zst`.
//! Published rule-sets are not in the repository, so the tests are skipped without the variable.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{collections::BTreeMap, env, fs, path::PathBuf, process::Command};

use shunt_nuevomatch::{
    BestMatch, BucketCapacity, KeySchema, NuevoMatch, NuevoMatchSettings, PartitionSettings,
    PriorityRule, parse_classbench,
};

const FOLDER: &str = "SHUNT_CLASSBENCH";

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn folder() -> Option<PathBuf> {
    let folder = env::var_os(FOLDER).map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: {FOLDER} names no folder of ClassBench rule-sets");
    }
    folder
}

/// Returns a rule-set, if the folder has it.
fn rules(name: &str) -> Option<Vec<PriorityRule<5>>> {
    let plain = folder()?.join("rules").join(name);
    let packed = plain.with_extension("zst");
    let text = if plain.exists() {
        fs::read_to_string(plain).unwrap()
    } else if packed.exists() {
        let output = Command::new("zstd").arg("-dc").arg(packed).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    } else {
        return None;
    };
    Some(parse_classbench(&text).unwrap())
}

/// Returns the rows of `stats.tsv` by rule-set, each with its cells by column.
fn statistics() -> Option<BTreeMap<String, BTreeMap<String, String>>> {
    let text = fs::read_to_string(folder()?.join("stats.tsv")).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').map(str::to_owned));
    let columns: Vec<String> = lines.next().unwrap().collect();
    Some(
        lines
            .map(|mut cells| {
                (cells.next().unwrap(), columns[1..].iter().cloned().zip(cells).collect())
            })
            .collect(),
    )
}

fn fixed(bucket_rules: usize) -> NuevoMatchSettings {
    let partition =
        PartitionSettings { sets_max: 3, bucket_rules, spare_percent: 0, coverage_permille_min: 0 };
    NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, seed: 1 }
}

/// Tests that the coverage is as listed in `stats.tsv` or better.
///
/// Later iSets depend on how ties of the first one are decided, so one percent less is allowed.
#[test]
fn coverage_is_as_listed() {
    let Some(statistics) = statistics() else { return };
    let schema = KeySchema::five_tuple();
    let mut sets = 0;
    for (name, row) in &statistics {
        let Some(rules) = rules(name) else { continue };
        sets += 1;
        assert_eq!(rules.len().to_string(), row["rules"], "{name}");
        for (capacity, listed) in [(40, 3), (16, 2), (8, 2)] {
            let classifier =
                NuevoMatch::<5>::build(&schema, &rules, &fixed(capacity)).unwrap().statistics();
            let mut covered = 0;
            for at in 0..listed {
                covered += classifier.sets.get(at).map_or(0, |set| set.rules);
                let percent = covered as f64 * 100.0 / rules.len() as f64;
                let expected: f64 = row[&format!("r{capacity}_{}", at + 1)].parse().unwrap();
                let slack = if at == 0 { 0.051 } else { 1.0 };
                assert!(
                    percent + slack >= expected,
                    "{name}: {} iSets of buckets of {capacity} cover {percent}, listed {expected}",
                    at + 1
                );
            }
        }
    }
    assert!(sets >= 20, "{sets} rule-sets");
}

/// Compares lookups at the corners of the rules of small rule-sets with a scan.
#[test]
fn answers_equal_a_scan() {
    let Some(statistics) = statistics() else { return };
    let schema = KeySchema::five_tuple();
    for name in statistics.keys().filter(|name| name.ends_with("_1k")) {
        let Some(rules) = rules(name) else { continue };
        let keys: Vec<[u32; 5]> = rules
            .iter()
            .flat_map(|rule| {
                let rule = rule.as_box();
                let outside = rule.high.map(|high| high.wrapping_add(1));
                [rule.low, rule.high, outside]
            })
            .map(|[a, b, c, d, e]| [a, b, c & 0xffff, d & 0xffff, e & 0xff])
            .collect();
        for settings in [NuevoMatchSettings::default(), fixed(16)] {
            let classifier = NuevoMatch::<5>::build(&schema, &rules, &settings).unwrap();
            let mut best = vec![None; keys.len()];
            classifier.lookup_batch(&keys, &mut best);
            for (key, best) in keys.iter().zip(best) {
                let expected = rules
                    .iter()
                    .find(|rule| rule.matches(key))
                    .map(|rule| BestMatch { priority: rule.priority(), value: rule.value() });
                assert_eq!(best, expected, "{name}: {key:?}");
            }
        }
    }
}
