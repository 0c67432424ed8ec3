//! The changes P1 to P5 for every engine, with the same rules, entries and changes.
//!
//! `kairo-updates` measures the default engine and the iterative engine in more rounds. This
//! experiment also measures the engines that run as circuits, and the published design with its
//! defects. If the published design evicts fewer entries than other engines, it missed some
//! entries. Published values are shown for the published design only.

use std::sync::Arc;

use shunt_pipebench::published::Figure;
use shunt_pipeline::{Evictor, FlowModCommand, Iterative};

use super::{
    engines::{ENGINES, PIPELINES, RIVAL},
    patterns::{ALL_KINDS, PACKETS_PER_US, PATTERNS},
    workload::{Clock, UpdateWorkload, Watched},
};
use crate::experiment::{Better, Row, Run, Samples};

/// Number of cached flows, in thousands.
const FLOWS: usize = 100;

const CHANGE: &str = "CPU of the eviction engine for one change, by engine";
const EVICTED: &str = "entries evicted by a change, by engine";
const STALE: &str = "stale packets at 100 Gbit/s of 64 bytes, by engine (computed)";

const SPEED_UP: &str = "speed-up over the iterative engine, by engine";
const STALE_RATIO: &str = "stale packets with the iterative engine, divided by those with this engine, \
                     by engine (computed)";
const MEAN: &str = "CPU of the eviction engine for one change, mean of P1 to P5, by engine";

/// Name of the published design among the engines.
const PUBLISHED: &str = "published";

const WHY_PUBLISHED: &str = "the same design on another machine with other rules; the cost of a \
                             circuit step depends on packets per rule and on rule width, and \
                             neither was published";

const WHY_MIRROR: &str = "the published design: one step of its circuit passes all packets that \
                          match a changed rule through every later table; these rules match \
                          nearly all packets";
const WHY_RELATIONAL: &str = "each changed rule is a query that finds more entries than it \
                              evicts, in traces (dbsp's sorted batches of rows) that are searched \
                              one by one";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    run.begin(pipelines.len() * PATTERNS.len() * (ENGINES.len() + 1));
    let thousands = run.either(FLOWS, FLOWS / 10);
    let rounds = run.either(3, 1);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let mut outcomes = Vec::new();
        for update in PATTERNS {
            let name = format!("{pipeline}:low:{thousands}k:updates={update}@100ms");
            let title = format!("{pipeline} {update}");
            let (workload, rival) = run.step(&format!("{title} iterative"), |_| {
                let workload = UpdateWorkload::of(&name);
                let iterative = Box::new(Iterative::new(Arc::clone(&workload.pipeline)));
                let rival = measure(&workload, iterative, Clock::Thread, rounds);
                (workload, rival)
            });
            for engine in ENGINES {
                let title = format!("{title} {}", engine.name);
                let ours = run.step(&title, |_| {
                    measure(&workload, (engine.new)(&workload.pipeline), engine.clock, rounds)
                });
                let [change, stale, evicted] =
                    rows_of(&title, &ours, &rival, workload.keys.len() as f64);
                outcomes.push(Outcome {
                    engine: engine.name,
                    us: [&ours, &rival].map(|watched| watched.spent.in_pairs().median()),
                    fewer: stale.ratio().map_or(1.0, |ratio| ratio.middle),
                });
                let kind = format!("Kairo, {}", update.to_uppercase());
                let published = published_us(pipeline, &kind, engine.name, run.is_quick);
                let change = match published {
                    Some(_) => change.beside_published(published, WHY_PUBLISHED),
                    None => change,
                };
                rows.extend([change, stale, evicted]);
            }
        }
        rows.extend(
            ENGINES.iter().flat_map(|engine| means(pipeline, engine.name, &outcomes, run.is_quick)),
        );
    }
    let metrics = [SPEED_UP, STALE_RATIO, MEAN, CHANGE, STALE, EVICTED];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// Results of a kind of change with an engine.
struct Outcome {
    engine: &'static str,
    /// Microseconds of the engine, and of the iterative engine.
    us: [f64; 2],
    /// Factor by which fewer packets are stale.
    fewer: f64,
}

/// Returns the published microseconds of the published design.
fn published_us(pipeline: &str, kind: &str, engine: &str, is_quick: bool) -> Option<f64> {
    let is_of_it = engine == PUBLISHED && !is_quick;
    let figure = Figure::find("tte", pipeline, "-", kind).filter(|_| is_of_it);
    figure.map(|figure| figure.value * 1e3)
}

/// Returns the means of an engine over all kinds of changes.
///
/// The speed-up is the ratio of mean times, so that expensive changes weigh most, as in the
/// published ratio.
fn means(pipeline: &str, engine: &str, outcomes: &[Outcome], is_quick: bool) -> [Row; 3] {
    let mean = |of: fn(&Outcome) -> f64| {
        let own = outcomes.iter().filter(|outcome| outcome.engine == engine);
        own.map(of).sum::<f64>() / PATTERNS.len() as f64
    };
    let [ours, theirs] = [mean(|own| own.us[0]), mean(|own| own.us[1])];
    let name = format!("{pipeline} {engine}, {ALL_KINDS}");
    let reason = if theirs < ours { reason(engine) } else { "" };
    let times = |metric, times: f64, published: &str| {
        let figure = Figure::find(published, pipeline, "-", ALL_KINDS);
        let figure = figure.filter(|_| engine == PUBLISHED && !is_quick);
        Row { better: Better::More, ours: times.into(), reason, ..Row::new(&name, metric, "x") }
            .beside_published(figure.map(|figure| figure.value), WHY_PUBLISHED)
    };
    let kinds = format!("Kairo, {ALL_KINDS}");
    let us = Row {
        ours: ours.into(),
        rival: Some((RIVAL.to_owned(), theirs.into())),
        reason,
        ..Row::new(&name, MEAN, "us")
    };
    [
        times(SPEED_UP, theirs / ours, "tte_speedup"),
        times(STALE_RATIO, mean(|own| own.fewer), "stale_reduction"),
        us.beside_published(published_us(pipeline, &kinds, engine, is_quick), WHY_PUBLISHED),
    ]
}

/// Number of times that the rules of a workload are added and removed.
pub(super) fn measure(
    workload: &UpdateWorkload,
    engine: Box<dyn Evictor>,
    clock: Clock,
    rounds: usize,
) -> Watched {
    let mut watched = Watched::new(engine, workload.keys.len(), clock);
    watched.load(workload);
    for _ in 0..rounds {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            watched.apply_and_restore(&workload.change(command, &workload.changing), workload);
        }
    }
    watched
}

fn rows_of(name: &str, ours: &Watched, theirs: &Watched, entries: f64) -> [Row; 3] {
    let rival = |samples| Some((RIVAL.to_owned(), samples));
    let share =
        |watched: &Watched| watched.evicted.in_pairs().map(|evicted| 100.0 * evicted / entries);
    let stale =
        |watched: &Watched| watched.stale_us(entries).in_pairs().map(|us| us * PACKETS_PER_US);
    let row = |metric, unit, ours: Samples, theirs: Samples| {
        let row = Row { ours, rival: rival(theirs), ..Row::new(name, metric, unit) };
        let is_worse = row.ratio().is_some_and(|ratio| ratio.middle < 1.0);
        Row { reason: if is_worse { reason(name) } else { "" }, ..row }
    };
    let change = row(CHANGE, "us", ours.spent.in_pairs(), theirs.spent.in_pairs());
    // The iterative engine evicts entries one by one, so on average an entry is stale for half of
    // the run of the engine.
    let stale = row(STALE, "count", stale(ours), stale(theirs).map(|packets| packets / 2.0));
    let evicted = row(EVICTED, "%", share(ours), share(theirs));
    [change, stale, Row { better: Better::Neither, reason: "", ..evicted }]
}

fn reason(name: &str) -> &'static str {
    match name.rsplit(' ').next() {
        Some(PUBLISHED) => WHY_MIRROR,
        Some("relational") => WHY_RELATIONAL,
        _ => "",
    }
}
