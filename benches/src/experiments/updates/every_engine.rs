//! The changes P1 to P5 for every engine, with the same rules, entries and changes.
//!
//! `kairo-updates` has them for the engine as installed, beside the iterative one, in more rounds; here
//! the engines in circuits stand beside both, and the published design with its holes: where it evicts
//! fewer, it has missed some.

use std::sync::Arc;

use shunt_pipeline::{Evictor, FlowModCommand, Iterative};

use super::{
    engines::{ENGINES, PIPELINES, RIVAL},
    patterns::{PACKETS_PER_US, PATTERNS},
    scene::{Clock, Scene, Watched},
};
use crate::experiment::{Better, Row, Run, Samples};

/// Thousands of flows.
const FLOWS: usize = 100;

const CHANGE: &str = "one change, by engines";
const EVICTED: &str = "entries evicted by a change, by engines";
const STALE: &str =
    "packets that meet what is stale, at 100 Gbit/s of 64 bytes, by engines (computed)";

const WHY_MIRROR: &str = "the published design: a step of its circuit goes through every table behind the \
                          change, for all packets of rules that are as wide as a table";
const WHY_RELATIONAL: &str = "each rule of a change is a question, and what it finds is wider than what it \
                              ends; both are looked up in traces of batches";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    run.begin(pipelines.len() * PATTERNS.len() * (ENGINES.len() + 1));
    let thousands = run.either(FLOWS, FLOWS / 10);
    let rounds = run.either(3, 1);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        for update in PATTERNS {
            let name = format!("{pipeline}:low:{thousands}k:updates={update}@100ms");
            let title = format!("{pipeline} {update}");
            let (scene, rival) = run.step(&format!("{title} iterative"), |_| {
                let scene = Scene::of(&name);
                let iterative = Box::new(Iterative::new(Arc::clone(&scene.pipeline)));
                let rival = measure(&scene, (iterative, Clock::Thread), rounds);
                (scene, rival)
            });
            for engine in ENGINES {
                let title = format!("{title} {}", engine.name);
                let ours = run.step(&title, |_| {
                    measure(&scene, ((engine.new)(&scene.pipeline), engine.clock), rounds)
                });
                rows.extend(rows_of(&title, &ours, &rival, scene.keys.len() as f64));
            }
        }
    }
    let metrics = [CHANGE, STALE, EVICTED];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn measure(scene: &Scene, (engine, clock): (Box<dyn Evictor>, Clock), rounds: usize) -> Watched {
    let mut watched = Watched::new(engine, scene.keys.len(), clock);
    watched.load(scene);
    for _ in 0..rounds {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            watched.meet(&scene.change(command, &scene.changing), scene);
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
        Row { why: if is_worse { why(name) } else { "" }, ..row }
    };
    let change = row(CHANGE, "us", ours.spent.in_pairs(), theirs.spent.in_pairs());
    // Each entry of the iterative engine goes when its turn comes, in the middle on average.
    let stale = row(STALE, "count", stale(ours), stale(theirs).map(|packets| packets / 2.0));
    let evicted = row(EVICTED, "%", share(ours), share(theirs));
    [change, stale, Row { better: Better::Neither, why: "", ..evicted }]
}

fn why(name: &str) -> &'static str {
    match name.rsplit(' ').next() {
        Some("mirror") => WHY_MIRROR,
        Some("relational") => WHY_RELATIONAL,
        _ => "",
    }
}
