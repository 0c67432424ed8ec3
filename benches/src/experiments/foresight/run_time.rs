//! Predictors at run time on coflows: their shares of the perfect gain.
//!
//! The perfect gain is the number of misses that perfect forecasts save.
//!
//! The coflows are the coflows of `foresight-coflows`. With a recorded trace, each distribution
//! runs once more with the sizes, arrivals and racks of the trace. This repository does not contain
//! the trace, because the trace has no known licence. [`TRACE`] names the file of the trace.

use std::{env, path::Path};

use super::{
    coflows::{COFLOWINESS, DISTRIBUTIONS, PORTS},
    traffic::Coflows,
    wired_switch::{Measured, WiredSwitch},
};
use crate::{
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// Environment variable with the path of a trace of `coflow-benchmark`.
const TRACE: &str = "SHUNT_COFLOW_TRACE";

/// The origin of the coflows of the trace.
pub(super) const RECORDED: &str = "recorded";

/// The names of the runs, and the predictors of each run.
const CHOICES: [(&str, &[&str]); 4] = [
    ("none", &[]),
    ("successor", &["successor"]),
    ("all", &["reply", "siblings", "successor", "periodic"]),
    ("perfect", &[]),
];

/// Index in [`CHOICES`] of the run without predictors.
const NONE: usize = 0;
/// Index in [`CHOICES`] of the run with perfect forecasts.
const PERFECT: usize = 3;

const GAIN: &str = "share of the misses that perfect forecasts save";
const MISSES: &str = "packets that missed";
const FIRST_PACKET_MEAN: &str = "mean latency of the first packet of a flow";
const FIRST_MEDIAN: &str = "median latency of the first packet of a flow";
const CPU: &str = "CPU of the switch for a packet";
const SPENT: &str = "time of predictors and forecasts for a new flow";

/// Runs both distributions with all shares, of generated and of recorded coflows.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    if Contender::both_on_devices().is_empty() {
        return Vec::new();
    }
    let traces = traces();
    let shares: &[u32] = if run.is_quick { &[0, 50, 100] } else { &COFLOWINESS };
    let (rounds, scale) = (run.either(3, 1), if run.is_quick { 10 } else { 1 });
    run.begin(traces.len() * DISTRIBUTIONS.len() * shares.len() * rounds * CHOICES.len());
    let mut rows = Vec::new();
    for (origin, suffix) in &traces {
        for distribution in &DISTRIBUTIONS {
            for share in shares {
                let name = format!("{}{suffix}", distribution.workload(*share, scale));
                let coflows = Coflows::new(&name, distribution.gap_ns);
                let title = format!("{origin}, {}, {share} %", distribution.title);
                let mut measured: Vec<Vec<Measured>> = CHOICES.iter().map(|_| Vec::new()).collect();
                for _ in 0..rounds {
                    for (choice, measured) in measured.iter_mut().enumerate() {
                        let what = format!("{title}, {}", CHOICES[choice].0);
                        let result = run.step(&what, |folder| measure(folder, &coflows, choice));
                        measured.push(result);
                    }
                }
                rows.extend(rows_of(&title, &measured));
            }
        }
    }
    // The main metric first.
    rows.sort_by_key(|row| row.metric != GAIN);
    rows
}

/// Returns the origins of coflows, with the end of the workload names.
pub(super) fn traces() -> Vec<(&'static str, String)> {
    let mut traces = vec![("generated", String::new())];
    match env::var(TRACE) {
        Ok(path) if Path::new(&path).is_file() => {
            traces.push((RECORDED, format!(":trace={path}")));
        }
        Ok(path) => eprintln!("SKIPPED the recorded coflows: {TRACE} is {path}, which is no file"),
        Err(_) => eprintln!(
            "SKIPPED the recorded coflows: set {TRACE} to the file FB2010-1Hr-150-0.txt of \
             coflow-benchmark"
        ),
    }
    traces
}

fn measure(folder: &Path, coflows: &Coflows, choice: usize) -> Measured {
    let (is_perfect, predictors) = (choice == PERFECT, Some(CHOICES[choice].1));
    let setup =
        Setup { keeps_entries: true, forecasts: is_perfect, predictors, ..Setup::default() };
    let wired = WiredSwitch::new(&Contender::ours(), folder, PORTS, &coflows.rules, &setup);
    if is_perfect {
        wired.preload(&coflows.predicted_flows());
    }
    wired.measure(&coflows.plan)
}

fn rows_of(title: &str, measured: &[Vec<Measured>]) -> Vec<Row> {
    let samples = |choice: usize, value: fn(&Measured) -> f64| -> Samples {
        Samples(measured[choice].iter().map(value).collect())
    };
    let mut rows = Vec::new();
    for (choice, (name, predictors)) in CHOICES.iter().enumerate() {
        let title = format!("{title} predictable, {name}");
        if !predictors.is_empty() {
            let (ours, better) = (gain(measured, choice), Better::More);
            if !ours.0.is_empty() {
                rows.push(Row { ours, better, ..Row::new(title.clone(), GAIN, "%") });
            }
            rows.push(Row {
                ours: samples(choice, Measured::spent),
                ..Row::new(title.clone(), SPENT, "ns")
            });
        }
        let mut row = |metric, unit, value: fn(&Measured) -> f64| {
            let rival = || ("without predictors".to_owned(), samples(NONE, value));
            let rival = (choice != NONE).then(rival);
            let ours = samples(choice, value);
            rows.push(Row { ours, rival, ..Row::new(title.clone(), metric, unit) });
        };
        row(MISSES, "packets", Measured::misses);
        row(FIRST_PACKET_MEAN, "us", Measured::first_mean);
        row(FIRST_MEDIAN, "us", Measured::first_median);
        row(CPU, "ns", Measured::cpu);
    }
    rows
}

/// Returns the share of misses that predictors save.
///
/// The share is relative to the misses that perfect forecasts save. The result is empty if perfect
/// forecasts save no misses.
fn gain(measured: &[Vec<Measured>], choice: usize) -> Samples {
    let rounds = measured[NONE].iter().zip(&measured[choice]).zip(&measured[PERFECT]);
    let shares = rounds.filter_map(|((none, own), perfect)| {
        let possible = none.misses() - perfect.misses();
        (possible > 0.0).then(|| 100.0 * (none.misses() - own.misses()) / possible)
    });
    Samples(shares.collect())
}
