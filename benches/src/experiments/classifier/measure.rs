//! The rounds, and the rows of the rounds.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::json;
use shunt_classifier::testing::workload::Priorities;

use super::{OurTable, Rival, Workload, workload};
use crate::experiment::{Better, Row, Run, Samples, target};

/// Values of one round of one classifier, in the order of [`METRICS`].
pub(crate) type Figures = [f64; METRICS.len()];

const METRICS: [(&str, &str); 5] = [
    ("CPU of a lookup that also returns the megaflow mask", "ns"),
    ("CPU of a lookup that returns no mask", "ns"),
    ("CPU to insert a rule", "ns"),
    ("CPU to remove a rule", "ns"),
    (MEMORY, "bytes"),
];

/// Resident memory of our classifier;
/// heap of the rival without the matches of the rules.
///
/// The two values do not measure the same.
const MEMORY: &str = "memory of a rule";

const TABLES: &[&str] =
    &["random", "specific", "acl_10k", "fw_10k", "ipc_10k", "acl_100k", "fw_100k", "ipc_100k"];
const QUICK_TABLES: &[&str] = &["random", "specific", "acl_10k"];

const RIVAL_NAME: &str = "Open vSwitch's classifier";

/// Builds the rival if this machine has the tools.
pub(crate) fn prepare() {
    let folder = target().join("rival");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/rival/build.sh");
    if folder.join("classifier").is_file() {
        return;
    }
    println!("building Open vSwitch's library from Debian's source, once: a few minutes");
    let built = Command::new("sh").arg(script).arg(&folder).stdout(Stdio::null()).status();
    if !built.is_ok_and(|status| status.success()) {
        println!(
            "measuring without {RIVAL_NAME}: {script} failed (needs gcc, make, python3, apt-get)"
        );
    }
}

/// Starts the rival with a workload, if it was built.
pub(crate) fn start_rival(run: &Run, workload: &Workload) -> Option<Rival> {
    let program: PathBuf = target().join("rival/classifier");
    program.is_file().then(|| Rival::start(&program, workload, run.folder.path()))
}

/// Runs the experiment with all tables.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let tables = if run.is_quick { QUICK_TABLES } else { TABLES };
    run.begin(tables.len());
    let mut all: Vec<Vec<Row>> = METRICS.iter().map(|_| Vec::new()).collect();
    for table in tables {
        let value = run.part("classifier", table);
        let samples = |subject: &str, index: usize| {
            let rounds = value[subject].as_array().into_iter().flatten();
            Samples(rounds.filter_map(|round| round[index].as_f64()).collect())
        };
        let name = value["name"].as_str().unwrap_or_default();
        for (index, ((metric, unit), rows)) in METRICS.iter().zip(&mut all).enumerate() {
            let rival = samples("rival", index);
            let rival = (!rival.0.is_empty()).then(|| (RIVAL_NAME.to_owned(), rival));
            let better = if *metric == MEMORY { Better::Neither } else { Better::Less };
            let ours = samples("ours", index);
            let row = Row { better, ours, rival, ..Row::new(name, metric, unit) };
            let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
            rows.push(Row { reason: if is_worse { why_worse(metric) } else { "" }, ..row });
        }
    }
    all.concat()
}

/// Returns the reason why our classifier is worse in a metric.
fn why_worse(metric: &str) -> &'static str {
    match metric {
        "CPU to insert a rule" | "CPU to remove a rule" => {
            "Shunt also stores the values of each rule in filters (single addresses, and prefixes \
             of masks), by which a lookup skips the hash table of a mask; lookups are faster"
        }
        _ => "",
    }
}

/// Runs one table, and prints the values of each round.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let workload = workload_of(run, part);
    let mut ours = OurTable::new(&workload);
    let mut rival = start_rival(run, &workload);
    if let Some(rival) = &mut rival {
        assert_eq!(rival.ask::<i32>("answers"), ours.answers(), "both return the same rules");
    }
    let (mut own_rounds, mut rival_rounds) = (Vec::new(), Vec::new());
    for _ in 0..run.either(6, 2) {
        own_rounds.push(ours.figures());
        rival_rounds.extend(rival.as_mut().map(figures));
    }
    let name = workload.title();
    println!("{}", json!({ "name": name, "ours": own_rounds, "rival": rival_rounds }));
}

fn workload_of(run: &Run, name: &str) -> Workload {
    let packets_count = run.either(20_000, 10_000);
    let synthetic = |priorities| workload::synthetic(100_000, 600, priorities, packets_count);
    match name {
        "random" => synthetic(Priorities::Random),
        "specific" => synthetic(Priorities::Specific),
        name => workload::class_bench(name, packets_count),
    }
}

/// Queries the values of the rival.
fn figures(rival: &mut Rival) -> Figures {
    let mut first = |command: &str| rival.ask::<f64>(command).first().copied().unwrap_or_default();
    let (rules_count, packets_count) = (first("rules"), first("packets"));
    let (masked, plain, bytes) = (first("masked"), first("plain"), first("bytes"));
    let rebuild: Vec<f64> = rival.ask("rebuild");
    let Some([remove, insert]) = rebuild.first_chunk() else {
        panic!("the rival returned too few numbers");
    };
    [
        masked / packets_count,
        plain / packets_count,
        insert / rules_count,
        remove / rules_count,
        bytes / rules_count,
    ]
}
