//! Runs all pipelines and localities, and measures revalidation.

use std::{hint::black_box, sync::Arc};

use shunt_flow::FlowKey;
use shunt_pipebench::published::Figure;
use shunt_pipeline::{EntryId, Evictor, Iterative, OwnerId, Traversal};

use super::{
    caches::{ENTRIES, HITS, MISSES, entries, of_packets},
    set_up_phases::{PARTS, RATE, TABLE, of_set_up},
};
use crate::experiments::loaded::{LOCALITIES, Loaded, PIPELINES, published_name, workload};
use crate::{
    cpu,
    experiment::{Row, Run, Samples},
};

const REVALIDATION: &str = "CPU to revalidate all entries after one change";

/// Numbers of revalidated entries.
const SIZES: [usize; 3] = [8_000, 16_000, 64_000];
/// The published number of entries, for pipelines that have such a number.
const MANY: usize = 500_000;
const MANY_ROUNDS: usize = 2;

const MANY_REMARK: &str = "ours is the CPU of one thread; the published time is of a switch with an \
                        unknown number of threads and an unknown rule set";

/// Runs all pipelines and localities.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let of_many: Vec<&str> =
        PIPELINES.into_iter().filter(|pipeline| many(pipeline).is_some()).collect();
    let of_many = if run.is_quick { Vec::new() } else { of_many };
    run.begin(PIPELINES.len() * LOCALITIES.len() * 2 + of_many.len());
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        for locality in LOCALITIES {
            let name = published_name(pipeline, locality, run.either(1, 5));
            let (workload, loaded) = run.step(&format!("{name}, generated"), |_| {
                let workload = workload(&name);
                let loaded = Loaded::new(&workload);
                (workload, loaded)
            });
            let is_quick = run.is_quick;
            rows.extend(run.step(&format!("{name}, packets"), |_| {
                let mut rows =
                    of_packets(pipeline, locality, &workload, &entries(&loaded), is_quick);
                if locality == LOCALITIES[0] {
                    let rounds = if is_quick { 3 } else { 5 };
                    rows.extend(of_set_up(pipeline, &workload, &loaded, rounds));
                    rows.extend(of_revalidation(pipeline, &loaded, rounds));
                }
                rows
            }));
        }
    }
    for pipeline in of_many {
        let name = format!("{pipeline}:high:{MANY}");
        rows.push(run.step(&format!("{name}, revalidation"), |_| {
            let loaded = Loaded::new(&workload(&name));
            let row = measure_revalidation(pipeline, &loaded, &loaded.keys, MANY_ROUNDS);
            row.beside_published(many(pipeline), MANY_REMARK)
        }));
    }
    let order = [HITS, MISSES, ENTRIES, PARTS, TABLE, RATE, REVALIDATION];
    rows.sort_by_key(|row| order.iter().position(|metric| *metric == row.metric));
    rows
}

/// Registers an entry for each traversal with an engine.
pub(super) fn register_entries<E: Evictor>(mut engine: E, traversals: &[Arc<Traversal>]) -> E {
    for (slot, traversal) in (0..).zip(traversals) {
        engine.installed(EntryId { owner: OwnerId(0), slot, generation: 0 }, traversal);
    }
    engine
}

/// Returns the published time to revalidate many entries, in milliseconds.
fn many(pipeline: &str) -> Option<f64> {
    let figure = Figure::find("revalidation_500K", pipeline, "-", "500K megaflows")?;
    Some(1000.0 * figure.value)
}

fn of_revalidation(pipeline: &str, loaded: &Loaded, rounds: usize) -> Vec<Row> {
    let sizes = SIZES.into_iter().filter_map(|size| loaded.keys.get(..size));
    sizes.map(|keys| measure_revalidation(pipeline, loaded, keys, rounds)).collect()
}

/// Measures the revalidation of all entries by the iterative engine.
///
/// The change before the revalidation does not affect the entries.
fn measure_revalidation(pipeline: &str, loaded: &Loaded, keys: &[FlowKey], rounds: usize) -> Row {
    let mut ours = Samples::default();
    for _ in 0..rounds {
        let traversals: Vec<_> = keys.iter().map(|key| loaded.translate(key)).collect();
        let iterative = Iterative::new(Arc::clone(&loaded.pipeline));
        let mut engine = register_entries(iterative, &traversals);
        let change = loaded.change();
        let version = change.version;
        let ns = cpu::measure_ns(|| drop(black_box(engine.apply(&change.deltas, version))));
        ours.0.push(ns as f64 / 1e6);
    }
    let name = format!("{pipeline}: {}K entries", keys.len() / 1000);
    Row { ours, ..Row::new(name, REVALIDATION, "ms") }
}
