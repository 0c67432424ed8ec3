//! The changes P1 to P5 of A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per
//! Second Era*, Table 4.3.
//!
//! A change selects a table that has more rules than the update. The change adds the rules of the
//! update as one batch, and removes the rules as one batch. `flap` is a change of one rule.

use std::sync::Arc;

use shunt_kairo::Direct;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{Evictor, FlowModCommand, Iterative};

use super::{
    engines::{PIPELINES, RIVAL},
    one_rule,
    workload::{Clock, UpdateWorkload, Watched},
};
use crate::experiment::{Better, Row, Run, Samples};

/// Names of the changes in the table of the paper.
pub(super) const PATTERNS: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];
/// Name of the change of one rule.
const FLAP: &str = "flap";
/// Number of times that all entries are registered again.
const LOADS: usize = 3;
/// Number of rounds with the rival.
const RIVAL_ROUNDS: usize = 4;

const CHANGE: &str = "CPU of the eviction engine for one change";
const MEAN: &str = "speed-up over the iterative engine";
const STALE_RATIO: &str =
    "stale packets with the iterative engine, divided by those with this engine (computed)";
const STALE: &str = "stale packets at 100 Gbit/s of 64 bytes (computed)";
const EVICTED: &str = "entries evicted by a change";
const EVICTED_UNCHANGED: &str = "evicted entries with the same actions before and after the change";
const LOAD: &str = "CPU to register a cache entry with the eviction engine, by pipeline";
const LOAD_OF_EIGHT: &str =
    "CPU to register eight table lookups of an entry with the eviction engine, by pipeline";

/// Label of the mean over all kinds of changes except the single rule.
pub(super) const ALL_KINDS: &str = "P1 to P5";

/// Packets of 64 bytes per microsecond at 100 Gbit/s, including gap and preamble.
pub(super) const PACKETS_PER_US: f64 = 148.8;

/// Mean fraction of the run of the engine during which an entry is stale.
///
/// The fraction is 1 if all entries are evicted at the end, and 0.5 if one by one.
const STALE_FRACTION: f64 = 1.0;
/// Mean fraction of the run with a stale entry, if entries are evicted one by one.
const ONE_BY_ONE: f64 = 0.5;

const WHY_STALE: &str = "the published values are packets in rounds under traffic; ours are \
                         computed from cost and evictions of a change, and the published rules \
                         are unknown";

const WHY_MEAN: &str = "the published engine keeps a copy of every table as a circuit; ours \
                        finds entries by their regions, at the cost shown";

const WHY_LOAD: &str = "the iterative engine keeps only a list, and pays at each change: it \
                        translates every entry again";

/// Results of one update.
struct Outcome {
    name: String,
    entries: f64,
    ours: Watched,
    theirs: Watched,
    /// Microseconds to register an entry: with our engine, and with the rival.
    load: [Samples; 2],
    /// Average number of visits.
    visits: f64,
    /// Published number of stale packets with the published engine.
    published_stale: Option<f64>,
}

const fn pipelines(run: &Run) -> &'static [&'static str] {
    if run.is_quick { PIPELINES.split_at(1).0 } else { PIPELINES }
}

/// Runs updates of every kind, and single rules with many entries.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(pipelines(run).len() * (PATTERNS.len() + 1) + one_rule::steps());
    let mut rows = rows(run);
    rows.extend(one_rule::run(run));
    rows
}

fn rows(run: &mut Run) -> Vec<Row> {
    let mut rows = Vec::new();
    for pipeline in pipelines(run) {
        let (mut times, mut fewer) = (Vec::new(), Vec::new());
        for update in [FLAP].into_iter().chain(PATTERNS) {
            let name = format!("{pipeline}:low:{}k:updates={update}@100ms", run.either(100, 10));
            let is_flap = update == FLAP;
            let rounds = if is_flap { run.either(100, 10) } else { run.either(4, 2) };
            let outcome = run.step(&name, |_| measure(&name, pipeline, update, rounds));
            let kind = update.to_uppercase();
            let figure = Figure::find("stale_packets", pipeline, "-", &format!("Kairo, {kind}"));
            let published_stale = figure.filter(|_| !run.is_quick).map(|figure| figure.value);
            let outcome = Outcome { published_stale, ..outcome };
            if is_flap {
                rows.extend(outcome.load_rows());
            } else {
                times.push(outcome.times());
                fewer.push(outcome.times_fewer());
                // A kind of update has a row with its own mean only if the paper has this mean.
                let row = row_of_means(
                    pipeline,
                    &kind,
                    STALE_RATIO,
                    &fewer[fewer.len() - 1..],
                    run.is_quick,
                );
                rows.extend(Figure::find("stale_reduction", pipeline, "-", &kind).map(|_| row));
            }
            rows.extend(outcome.rows());
        }
        let [ours, theirs] = [0, 1].map(|at| times.iter().map(|own| own[at]).sum::<f64>());
        rows.push(row_of_means(pipeline, ALL_KINDS, MEAN, &[theirs / ours], run.is_quick));
        rows.push(row_of_means(pipeline, ALL_KINDS, STALE_RATIO, &fewer, run.is_quick));
    }
    let metrics =
        [MEAN, STALE_RATIO, CHANGE, STALE, EVICTED, EVICTED_UNCHANGED, LOAD, LOAD_OF_EIGHT];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// Returns the mean ratios to the iterative engine, and the published ratios.
///
/// The published speed-up is the ratio of mean times, so that expensive updates weigh most.
fn row_of_means(
    pipeline: &str,
    kinds: &str,
    metric: &'static str,
    ratios: &[f64],
    is_quick: bool,
) -> Row {
    let published = if metric == MEAN { "tte_speedup" } else { "stale_reduction" };
    let published = Figure::find(published, pipeline, "-", kinds).filter(|_| !is_quick);
    let mean = ratios.iter().sum::<f64>() / ratios.len().max(1) as f64;
    let row = Row {
        better: Better::More,
        ours: mean.into(),
        ..Row::new(format!("{pipeline} {kinds}"), metric, "x")
    };
    row.beside_published(published.map(|figure| figure.value), WHY_MEAN)
}

fn measure(workload_name: &str, pipeline: &str, update: &str, rounds: usize) -> Outcome {
    let workload = UpdateWorkload::of(workload_name);
    let mut visits = 0.0;
    let mut loaded = |load: &mut [Samples; 2]| {
        let direct = Box::new(Direct::new(workload.pipeline.version(), 1));
        let iterative = Box::new(Iterative::new(Arc::clone(&workload.pipeline)));
        let both = [direct as Box<dyn Evictor>, iterative];
        let mut both = both.map(|one| Watched::new(one, workload.keys.len(), Clock::Thread));
        for (watched, samples) in both.iter_mut().zip(load) {
            let load = watched.load(&workload);
            visits = load.visits;
            samples.0.push(load.us);
        }
        both
    };
    let mut load = [Samples::default(), Samples::default()];
    for _ in 1..LOADS {
        drop(loaded(&mut load));
    }
    let [mut ours, mut theirs] = loaded(&mut load);
    for round in 0..rounds {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            let change = workload.change(command, &workload.changing);
            ours.apply_and_restore(&change, &workload);
            // The iterative engine takes most of a second, with little variation.
            if round < RIVAL_ROUNDS {
                theirs.apply_and_restore(&change, &workload);
            }
        }
    }
    let (rules, entries) = (workload.changing.len(), workload.keys.len());
    let name = format!("{pipeline} {update}, {rules} rules, {entries} entries");
    let entries = entries as f64;
    Outcome { name, entries, ours, theirs, load, visits, published_stale: None }
}

impl Outcome {
    /// Returns the median cost of the changes with our engine and with the rival.
    fn times(&self) -> [f64; 2] {
        [&self.ours, &self.theirs].map(|watched| watched.spent.in_pairs().median())
    }

    /// Returns the median of the factors by which fewer packets are stale.
    fn times_fewer(&self) -> f64 {
        let stale = |watched, part| self.stale(watched, part).median();
        stale(&self.theirs, ONE_BY_ONE) / stale(&self.ours, STALE_FRACTION)
    }

    /// Returns the number of stale packets at full rate.
    fn stale(&self, watched: &Watched, part: f64) -> Samples {
        watched.stale_us(self.entries).in_pairs().map(|us| us * part * PACKETS_PER_US)
    }

    fn rows(&self) -> [Row; 4] {
        let rival = |samples| Some((RIVAL.to_owned(), samples));
        let share = |own: &Samples| own.in_pairs().map(|own| 100.0 * own / self.entries);
        [
            Row {
                ours: self.ours.spent.in_pairs(),
                rival: rival(self.theirs.spent.in_pairs()),
                ..Row::new(&self.name, CHANGE, "us")
            },
            Row {
                ours: self.stale(&self.ours, STALE_FRACTION),
                rival: rival(self.stale(&self.theirs, ONE_BY_ONE)),
                ..Row::new(&self.name, STALE, "count")
            }
            .beside_another(self.published_stale, WHY_STALE),
            Row {
                ours: share(&self.ours.evicted),
                rival: rival(share(&self.theirs.evicted)),
                better: Better::Neither,
                ..Row::new(&self.name, EVICTED, "%")
            },
            Row {
                ours: self.ours.kept.clone(),
                better: Better::Neither,
                ..Row::new(&self.name, EVICTED_UNCHANGED, "%")
            },
        ]
    }

    fn load_rows(&self) -> [Row; 2] {
        let rival = |samples| Some((RIVAL.to_owned(), samples));
        let [ours, theirs] = &self.load;
        let of_eight = |load: &Samples| load.map(|us| us * 8.0 / self.visits);
        let name = format!("{}, {:.1} visits each", self.name, self.visits);
        [
            Row {
                ours: ours.clone(),
                rival: rival(theirs.clone()),
                reason: WHY_LOAD,
                ..Row::new(&name, LOAD, "us")
            },
            Row { ours: of_eight(ours), ..Row::new(&name, LOAD_OF_EIGHT, "us") },
        ]
    }
}
