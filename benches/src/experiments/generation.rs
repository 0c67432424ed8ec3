//! Cost of generating workloads: rule sets of a million rules, and a capture of ten million
//! packets.
//!
//! Each rule set or capture is generated in a separate process, so that the memory is counted
//! alone.

use std::{hint::black_box, path::Path, time::Instant};

use serde_json::json;
use shunt_pipebench::{
    Progress, Seed,
    classbench::{BuiltinSet, FilterRequest, generate},
    workload::{Workload, write_capture},
};

use super::loaded::workload;
use crate::{
    cpu,
    experiment::{Row, Run, Samples},
};

const TIME: &str = "generation time";
const MEMORY: &str = "peak memory of generation";

/// Destination of a capture, so that no disk access is measured.
const NOWHERE: &str = "/dev/null";

/// Runs all cases of workload generation.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let (rules, flows) = (run.either(1_000_000, 100_000), run.either(100_000, 10_000));
    let rule_sets = BuiltinSet::ALL.map(|set| format!("{set} {rules} rules"));
    let capture = format!("psc:high:{flows}:packets={}", 100 * flows);
    let parts: Vec<String> = rule_sets.into_iter().chain([capture]).collect();
    let rounds = run.either(3, 1);
    run.begin(parts.len() * rounds);
    let mut rows = Vec::new();
    for part in parts {
        let (mut seconds, mut bytes) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            let value = run.part("generation", &part);
            let number = |name: &str| value[name].as_f64().unwrap_or_default();
            seconds.0.push(number("seconds"));
            bytes.0.push(number("bytes") / f64::from(1 << 20));
        }
        rows.push(Row { ours: seconds, ..Row::new(part.clone(), TIME, "s") });
        rows.push(Row { ours: bytes, ..Row::new(part, MEMORY, "MiB") });
    }
    rows.sort_by_key(|row| row.metric == MEMORY);
    rows
}

/// Generates one rule set or capture, and prints its cost.
pub(crate) fn run_part(_: &mut Run, part: &str) {
    let start = Instant::now();
    match part.split_once(' ') {
        Some((set, rules)) => make_rules(set, rules.trim_end_matches(" rules")),
        None => make_capture(&workload(part)),
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = cpu::most_resident_bytes(std::process::id());
    println!("{}", json!({ "seconds": seconds, "bytes": bytes }));
}

fn make_rules(set: &str, rules: &str) {
    let found = BuiltinSet::ALL.into_iter().find(|one| one.name() == set);
    let (Some(set), Ok(rules)) = (found, rules.parse()) else {
        panic!("there are no {rules} rules of {set}");
    };
    let (parameters, request) = (set.parameters(), FilterRequest::new(rules));
    let filters = generate(&parameters, &request, Seed::new(1), &Progress::hidden());
    black_box(filters.unwrap_or_else(|error| panic!("{set}: {error}")));
}

fn make_capture(workload: &Workload) {
    let written = write_capture(workload, Path::new(NOWHERE), &Progress::hidden());
    written.unwrap_or_else(|error| panic!("{NOWHERE}: {error}"));
}
