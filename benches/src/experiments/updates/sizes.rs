//! The same update in sizes: of the update, and of the cache.
//!
//! As A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, figures 4.7a
//! and 4.7b: a part of the rules of one table goes and comes (P2 is a tenth of all rules), under as
//! many entries as flows make.

use std::sync::Arc;

use shunt_kairo::Direct;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{FlowModCommand, Iterative};

use super::{
    engines::{PIPELINES, RIVAL},
    scene::{Clock, Scene, Watched},
};
use crate::experiment::{Better, Row, Run};

/// Hundredths of all rules.
const SHARES: [usize; 5] = [2, 4, 6, 8, 10];
/// Thousands of flows.
const FLOWS: [usize; 3] = [50, 100, 250];

const BY_SHARE: &str = "one change, by the share of all rules";
const BY_ENTRIES: &str = "one change of a tenth of all rules, by entries";
const FASTER: &str = "times faster than the iterative engine, by the share of all rules";

const WHY: &str = "here a change costs what it evicts, the published engine's what it reads; how many \
                   entries the published one evicted is not said";

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    run.begin(pipelines.len() * (SHARES.len() + FLOWS.len() + 1));
    let scale = run.either(1, 10);
    let mut rows = Vec::new();
    for pipeline in pipelines {
        let flows = 100 / scale;
        let name = format!("{pipeline}:low:{flows}k:updates=p2@100ms");
        let scene = run.step(&name, |_| Scene::of(&name));
        for share in SHARES {
            let title = format!("{pipeline} {share} %");
            // What P2 changes is a tenth of all rules.
            let rules = (scene.changing.len() * share / 10).max(1);
            let measured = run.step(&title, |_| measure(&scene, rules));
            let faster = measured[1].spent.median() / measured[0].spent.median();
            let figure =
                Figure::find("tte_speedup", pipeline, "-", &format!("{share} % of the rules"));
            let published = figure.filter(|_| scale == 1).map(|figure| figure.value);
            rows.push(Row {
                better: Better::More,
                ours: faster.into(),
                published,
                why: published.map_or("", |_| WHY),
                ..Row::new(title.clone(), FASTER, "x")
            });
            rows.push(row(title, BY_SHARE, measured));
        }
        drop(scene);
        for thousands in FLOWS {
            let name = format!("{pipeline}:low:{}k:updates=p2@100ms", thousands / scale);
            let (entries, measured) = run.step(&name, |_| {
                let scene = Scene::of(&name);
                (scene.keys.len(), measure(&scene, scene.changing.len()))
            });
            rows.push(row(format!("{pipeline} {entries} entries"), BY_ENTRIES, measured));
        }
    }
    let metrics = [FASTER, BY_SHARE, BY_ENTRIES];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

fn row(name: String, metric: &'static str, [ours, theirs]: [Watched; 2]) -> Row {
    Row {
        ours: ours.spent,
        rival: Some((RIVAL.to_owned(), theirs.spent)),
        ..Row::new(name, metric, "us")
    }
}

/// So many rules go and come, three times; first ours, then the rival.
fn measure(scene: &Scene, rules: usize) -> [Watched; 2] {
    let direct = Box::new(Direct::new(scene.pipeline.version()));
    let iterative = Box::new(Iterative::new(Arc::clone(&scene.pipeline)));
    let mut both = [
        Watched::new(direct, scene.keys.len(), Clock::Thread),
        Watched::new(iterative, scene.keys.len(), Clock::Thread),
    ];
    for watched in &mut both {
        watched.load(scene);
    }
    let changing = scene.changing.get(..rules).unwrap_or(&scene.changing);
    for _ in 0..3 {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            let change = scene.change(command, changing);
            for watched in &mut both {
                watched.meet(&change, scene);
            }
        }
    }
    both
}
