//! Tests the coverage of iSets and the results of lookups with ClassBench rule-sets.
//!
//! `SHUNT_CLASSBENCH` names a folder with `stats.tsv`, and rule-sets in `rules/`, plain or as `.zst`.
//! Published rule-sets are not in the repository, so the tests of coverage are skipped without it.
//!
//! Lookups are also compared on generated rule-sets. `SHUNT_HEADERS=10000000` compares 10^7 distinct
//! headers of each rule-set with a linear scan, and 10^9 with TupleMerge. `SHUNT_RULE_SETS` names
//! the rule-sets, such as `acl_1k,fw1_10k`; the default is all of about 1,000 rules.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{collections::BTreeMap, env, fs, path::PathBuf, process::Command, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shunt_nuevomatch::{
    BestMatch, BucketCapacity, KeySchema, NuevoMatch, NuevoMatchSettings, PartitionSettings,
    PriorityRule, parse_classbench,
    testing::{CheckedSet, SyntheticSet},
};

/// Variable with the folder of ClassBench rule-sets.
const FOLDER: &str = "SHUNT_CLASSBENCH";

/// Variable with the number of headers that are compared with a scan.
const HEADERS: &str = "SHUNT_HEADERS";

/// The number of headers without the variable.
const HEADERS_DEFAULT: usize = 1_000;

/// Number of headers for TupleMerge, for each header that is compared with a scan.
const HEADERS_PER_SCAN: usize = 100;

/// Variable with the names of rule-sets.
const RULE_SETS: &str = "SHUNT_RULE_SETS";

fn folder() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
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
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn statistics() -> Option<BTreeMap<String, BTreeMap<String, String>>> {
    if folder().is_none() {
        eprintln!("skipped: {FOLDER} names no folder of ClassBench rule-sets");
    }
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

fn fixed_settings(bucket_rules: usize) -> NuevoMatchSettings {
    let partition =
        PartitionSettings { sets_max: 3, bucket_rules, spare_percent: 0, coverage_permille_min: 0 };
    NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, seed: 1 }
}

/// Tests that the coverage is as listed in `stats.tsv` or better.
///
/// Later iSets depend on how ties of the first one are decided, so one percent less is allowed.
#[test]
fn coverage_of_rule_sets_is_as_listed() {
    let Some(statistics) = statistics() else { return };
    let schema = KeySchema::five_tuple();
    let mut sets = 0;
    for (name, row) in &statistics {
        let Some(rules) = rules(name) else { continue };
        sets += 1;
        assert_eq!(rules.len().to_string(), row["rules"], "{name}");
        // Buckets of one rule are strict iSets.
        for (capacity, listed, column) in
            [(1, 4, "strict"), (40, 3, "r40_"), (16, 2, "r16_"), (8, 2, "r8_")]
        {
            let mut settings = fixed_settings(capacity);
            settings.partition.sets_max = listed;
            let classifier =
                NuevoMatch::<5>::build(&schema, &rules, &settings).unwrap().statistics();
            let mut covered = 0;
            for at in 0..listed {
                covered += classifier.sets.get(at).map_or(0, |set| set.rules);
                let percent = covered as f64 * 100.0 / rules.len() as f64;
                let expected: f64 = row[&format!("{column}{}", at + 1)].parse().unwrap();
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
        for settings in [NuevoMatchSettings::default(), fixed_settings(16)] {
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

/// Returns the names of the rule-sets to compare.
fn names() -> Vec<String> {
    if let Ok(names) = env::var(RULE_SETS) {
        return names.split(',').map(str::to_owned).collect();
    }
    let small = SyntheticSet::ALL.map(|set| format!("{}_1k", set.name()));
    let listed = folder().and_then(|_| statistics()).unwrap_or_default();
    small.into_iter().chain(listed.into_keys().filter(|name| name.ends_with("_1k"))).collect()
}

/// Returns the number of headers to compare with a scan.
fn headers_count() -> usize {
    let Ok(text) = env::var(HEADERS) else { return HEADERS_DEFAULT };
    text.parse().unwrap_or_else(|error| panic!("{HEADERS}={text}: {error}: give a whole number"))
}

/// Returns a progress bar, which [`advance`] shows after two seconds.
fn progress_bar(name: String, headers: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(headers as u64), ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("{prefix} {bar:40} {percent}% {eta} left").unwrap();
    bar.with_style(style).with_prefix(name)
}

/// Counts compared headers. Long comparisons have a bar on a terminal.
fn advance(bar: &ProgressBar, compared: usize) {
    bar.inc(compared as u64);
    if bar.is_hidden() && bar.elapsed() >= Duration::from_secs(2) {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
}

/// Returns a generated rule set (`acl_10k`), or one of ClassBench (`acl1_10k`).
fn checked_set(name: &str) -> CheckedSet {
    let (family, size) = name.split_once('_').unwrap_or((name, ""));
    let generated = SyntheticSet::ALL.into_iter().find(|set| set.name() == family);
    let rules = match (generated, size.trim_end_matches('k').parse::<u32>()) {
        (Some(set), Ok(thousands)) => set.rules(thousands * 1_000, 29),
        _ => rules(name).unwrap_or_else(|| {
            panic!("{RULE_SETS}: {name} is not a rule-set: name one such as acl_1k")
        }),
    };
    CheckedSet::new(rules).unwrap()
}

/// Compares distinct headers with a scan, which finds the first rule that matches.
#[test]
#[expect(clippy::print_stderr, reason = "a long comparison says how much it compared")]
fn distinct_headers_equal_the_linear_scan() {
    let count = headers_count();
    for name in names() {
        let set = checked_set(&name);
        let (bar, mut compared) = (progress_bar(format!("{name}, scan"), count), 0);
        let step = |headers| {
            compared += headers;
            advance(&bar, headers);
        };
        set.compare_with_scan(count, step, |wrong| panic!("{name}: {wrong:?}"));
        assert_eq!(compared, count);
        bar.finish_and_clear();
        eprintln!("{name}: {compared} distinct headers equal the scan");
    }
}

/// Compares headers with TupleMerge.
///
/// TupleMerge agrees with a scan for the headers of the other test.
#[test]
#[expect(clippy::print_stderr, reason = "a long comparison says how much it compared")]
fn headers_equal_tuple_merge() {
    let count = headers_count() * HEADERS_PER_SCAN;
    for name in names() {
        let set = checked_set(&name);
        let (bar, mut compared) = (progress_bar(format!("{name}, TupleMerge"), count), 0);
        let step = |headers| {
            compared += headers;
            advance(&bar, headers);
        };
        set.compare_with_tuple_merge(count, step, |wrong| panic!("{name}: {wrong:?}"));
        assert_eq!(compared, count);
        bar.finish_and_clear();
        eprintln!("{name}: {compared} headers equal TupleMerge");
    }
}
