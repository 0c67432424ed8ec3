//! Predictors at run time, on traffic with and without structure.
//!
//! Each workload runs without predictors, with each predictor, and with a forecast of every flow.
//! No predictor can save more than the run with all forecasts. All runs of a round have the same
//! packets.

use std::path::Path;

use super::{
    traffic::{Coflows, HOSTS, Plan, all_to_all, call_graph, host_rules, random, ring},
    wired_switch::{Measured, WiredSwitch, source},
};
use crate::{
    experiment::{Better, Row, Run, Samples},
    switch::{Contender, Setup},
};

/// The predictors of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PredictorChoice {
    title: &'static str,
    names: &'static [&'static str],
    /// True if every flow is preloaded.
    is_perfect: bool,
}

const CHOICES: [PredictorChoice; 5] = [
    PredictorChoice { title: "none", names: &[], is_perfect: false },
    PredictorChoice { title: "reply", names: &["reply"], is_perfect: false },
    PredictorChoice { title: "successor", names: &["successor"], is_perfect: false },
    PredictorChoice {
        title: "all",
        names: &["reply", "siblings", "successor", "periodic"],
        is_perfect: false,
    },
    PredictorChoice { title: "perfect", names: &[], is_perfect: true },
];

/// A workload of the foresight experiment.
struct ForesightWorkload {
    /// The value of `--only` that selects the workload.
    name: &'static str,
    title: &'static str,
    ports: u32,
    rules: Vec<String>,
    plan: Plan,
    /// Packets before the measured packets.
    warm_up: Option<Plan>,
    /// Milliseconds after which an entry without hits expires.
    idle_ms: u32,
    /// True if packets are sent faster than the switch forwards them.
    is_saturated: bool,
}

/// The names of all workloads.
const NAMES: [&str; 6] =
    ["service-calls", "all-to-all", "ring", "coflows", "no-structure", "saturated"];

const MISSES: &str = "packets that missed";
const SAVED: &str = "misses saved, of those without predictors";
const FIRST_PACKET_MEDIAN: &str = "median latency of the first packet of a flow";
const CPU: &str = "CPU of the switch for a packet";
const HITS: &str = "forecasts that a packet hit, of those hit, expired or evicted";
const LOST: &str = "packets lost";
const THROUGHPUT: &str = "packets forwarded in a second";
const SLOW_PATH: &str = "CPU of the switch for a new flow";
const SPENT: &str = "time of predictors and forecasts for a new flow";
const NOT_PAUSED: &str = "predictors that were not paused in eleven seconds";

/// Returns the values of `--only`.
pub(crate) fn names() -> Vec<&'static str> {
    NAMES.to_vec()
}

/// Runs the workloads of `--only` with all predictors. The default is all
/// workloads.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    if Contender::both_on_devices().is_empty() {
        return Vec::new();
    }
    let workloads = workloads(run);
    let rounds = run.either(3, 1);
    run.begin(workloads.len() * rounds * CHOICES.len());
    let mut rows = Vec::new();
    for workload in &workloads {
        let mut measured: Vec<Vec<Measured>> = CHOICES.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (choice, measured) in CHOICES.iter().zip(&mut measured) {
                // The entries of a perfect forecast fill the cache before the first packet.
                if workload.is_saturated && choice.is_perfect {
                    continue;
                }
                let what = format!("{}, {}", workload.title, choice.title);
                measured.push(run.step(&what, |folder| measure(folder, workload, *choice)));
            }
        }
        let rows_of = if workload.is_saturated { cost_rows } else { rows_of };
        rows.extend(rows_of(workload.title, &measured));
        if workload.warm_up.is_some() {
            rows.extend(pause_rows(workload.title, &measured));
        }
    }
    // The main metric first.
    rows.sort_by_key(|row| row.metric != SAVED);
    rows
}

/// Returns the workloads that the options select.
///
/// A cache of default size has space for a forecast of each flow and its reply.
fn workloads(run: &Run) -> Vec<ForesightWorkload> {
    let scale = if run.is_quick { 10 } else { 1 };
    let coflows = Coflows::new(
        &format!(
            "coflow:low:{}:coflowiness=1:sizes=search:packets={}",
            50_000 / scale,
            50_000 / scale
        ),
        60_000,
    );
    let of = |name, title, plan, idle_ms| ForesightWorkload {
        name,
        title,
        ports: HOSTS,
        rules: host_rules(),
        plan,
        warm_up: None,
        idle_ms,
        is_saturated: false,
    };
    let mut all = vec![
        of(NAMES[0], "service calls", call_graph(8_000 / scale, 400_000), 10_000),
        of(NAMES[1], "all-to-all", all_to_all(30 / scale + 3, 500_000_000), 200),
        of(NAMES[2], "ring", ring(30 / scale + 3, 500_000_000), 200),
        ForesightWorkload {
            name: NAMES[3],
            title: "coflows",
            ports: HOSTS + 1,
            rules: coflows.rules,
            plan: coflows.plan,
            warm_up: None,
            idle_ms: 10_000,
            is_saturated: false,
        },
        ForesightWorkload {
            // A predictor that saves too little is paused after ten seconds.
            warm_up: Some(random(180_000 / scale, 60_000, 13)),
            ..of(NAMES[4], "no structure", random(60_000 / scale, 60_000, 17), 2_000)
        },
        ForesightWorkload {
            // Each packet is a new flow, so the slow path determines the throughput.
            warm_up: Some(random(180_000 / scale, 60_000, 19)),
            is_saturated: true,
            ..of(NAMES[5], "no structure, saturated", random(400_000 / scale, 0, 23), 2_000)
        },
    ];
    all.retain(|own| run.chooses("--only", own.name));
    all
}

fn measure(folder: &Path, workload: &ForesightWorkload, choice: PredictorChoice) -> Measured {
    let setup = Setup {
        forecasts: choice.is_perfect,
        predictors: Some(choice.names),
        // A perfect forecast precedes each packet, so its entries must not expire.
        idle_ms: Some(if choice.is_perfect { 600_000 } else { workload.idle_ms }),
        ..Setup::default()
    };
    let wired =
        WiredSwitch::new(&Contender::ours(), folder, workload.ports, &workload.rules, &setup);
    let mut warm_up = None;
    if choice.is_perfect {
        wired.preload(&workload.plan.with_replies());
    } else if let Some(plan) = &workload.warm_up {
        warm_up = Some(wired.measure(plan));
    }
    let mut measured = wired.measure(&workload.plan);
    measured.warm_up = warm_up.map(|own| own.forecasts).unwrap_or_default();
    measured
}

/// Returns the predictors that traffic without structure did not pause, and their
/// time.
///
/// The bound of the project is that each predictor is paused within ten seconds.
fn pause_rows(workload: &str, measured: &[Vec<Measured>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (choice, own) in CHOICES.iter().zip(measured).filter(|(own, _)| !own.names.is_empty()) {
        let was_paused =
            |own: &Measured, name: &str| source(&own.warm_up, name)["pauses"].as_u64() > Some(0);
        let not_paused =
            |own: &Measured| choice.names.iter().filter(|name| !was_paused(own, name)).count();
        let title = format!("{workload}, {}", choice.title);
        let ours = Samples(own.iter().map(|own| not_paused(own) as f64).collect());
        rows.push(Row { ours, ..Row::new(title.clone(), NOT_PAUSED, "predictors") });
        let ours = Samples(own.iter().map(Measured::spent).collect());
        rows.push(Row { ours, ..Row::new(title, SPENT, "ns") });
    }
    rows
}

/// Returns the cost of predictors for a slow path that is never idle.
///
/// The bound of the project is 2 % of the throughput and of the time of the slow path.
fn cost_rows(workload: &str, measured: &[Vec<Measured>]) -> Vec<Row> {
    let samples =
        |own: &[Measured], value: fn(&Measured) -> f64| Samples(own.iter().map(value).collect());
    let mut rows = Vec::new();
    for (choice, measured_of) in CHOICES.iter().zip(measured).filter(|(own, _)| !own.is_perfect) {
        let row = |metric, unit, better, value: fn(&Measured) -> f64| {
            let rival = || ("without predictors".to_owned(), samples(&measured[0], value));
            let rival = (!choice.names.is_empty()).then(rival);
            let title = format!("{workload}, {}", choice.title);
            Row {
                ours: samples(measured_of, value),
                rival,
                better,
                ..Row::new(title, metric, unit)
            }
        };
        rows.push(row(THROUGHPUT, "1/s", Better::More, Measured::throughput));
        rows.push(row(SLOW_PATH, "ns", Better::Less, Measured::cpu));
    }
    rows
}

fn rows_of(workload: &str, measured: &[Vec<Measured>]) -> Vec<Row> {
    let samples =
        |own: &[Measured], value: fn(&Measured) -> f64| Samples(own.iter().map(value).collect());
    let row = |choice: usize, metric, unit, value: fn(&Measured) -> f64| {
        let title = format!("{workload}, {}", CHOICES[choice].title);
        let rival =
            (choice > 0).then(|| ("without predictors".to_owned(), samples(&measured[0], value)));
        Row { ours: samples(&measured[choice], value), rival, ..Row::new(title, metric, unit) }
    };
    let mut rows = Vec::new();
    for choice in 0..CHOICES.len() {
        if choice > 0 {
            let saved = measured[0]
                .iter()
                .zip(&measured[choice])
                .map(|(none, own)| 100.0 * (1.0 - own.misses() / none.misses().max(1.0)));
            let title = format!("{workload}, {}", CHOICES[choice].title);
            let (ours, better) = (Samples(saved.collect()), Better::More);
            rows.push(Row { ours, better, ..Row::new(title, SAVED, "%") });
        }
        rows.push(row(choice, MISSES, "packets", Measured::misses));
        rows.push(row(choice, FIRST_PACKET_MEDIAN, "us", Measured::first_median));
        rows.push(row(choice, CPU, "ns", Measured::cpu));
        rows.push(row(choice, LOST, "%", |own| 100.0 * own.lost()));
        for name in CHOICES[choice].names {
            let precision = measured[choice].iter().map(|own| {
                let counts = source(&own.forecasts, name);
                let count = |name: &str| counts[name].as_f64().unwrap_or_default();
                let settled = count("hits") + count("wrong") + count("evicted");
                100.0 * count("hits") / settled.max(1.0)
            });
            let title = format!("{workload}, {}: {name}", CHOICES[choice].title);
            let (ours, better) = (Samples(precision.collect()), Better::More);
            rows.push(Row { ours, better, ..Row::new(title, HITS, "%") });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Progress;

    #[test]
    fn an_option_selects_workloads() {
        let run = |options: &[&str]| Run {
            is_quick: true,
            folder: tempfile::tempdir().unwrap(),
            options: options.iter().map(|word| (*word).to_owned()).collect(),
            progress: Progress::new(1),
            skipped: None,
        };
        let chosen = |options: &[&str]| -> Vec<&str> {
            workloads(&run(options)).iter().map(|own| own.name).collect()
        };
        assert_eq!(chosen(&[]), NAMES);
        assert_eq!(chosen(&["--only", "no-structure,saturated"]), NAMES[4..]);
    }
}
