//! What an engine costs while nothing changes: CPU of a flow that is set up, and memory.
//!
//! As A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, Table 4.4: the
//! overhead over the iterative engine, with 200,000 flows and P2 every ten seconds. Its time of set-up is
//! that of starting a switch, with circuits to compile; here it is that of a flow.

use std::sync::Arc;

use serde_json::{Value, json};
use shunt_datapath::cache::{KeyHasher, MegaflowCache};
use shunt_gigaflow::ltm::{Shelf, Store as _};
use shunt_pipebench::published::Figure;
use shunt_pipeline::{Evictor, FlowModCommand, Iterative, Time};

use super::{
    engines::PIPELINES,
    scene::{Clock, Scene, Watched, entry},
};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
};

const SET_UP: &str = "more CPU of a flow that is set up than with the iterative engine";
const MEMORY: &str = "more memory than with the iterative engine";
const CPU: &str =
    "more CPU of ten cores than with the iterative engine, one P2 in ten seconds (computed)";
const RESIDENT: &str = "memory of a process with tables and a full cache";

/// Ten seconds of ten cores, in microseconds.
const TEN_SECONDS_OF_TEN: f64 = 1e8;

const WHY_MEMORY: &str = "the published figure is a part of the 3 GB that OVS-DPDK has; ours of a \
                          process that holds tables, cache and engine alone";
const WHY_CPU: &str = "the published engine costs more while it takes up flows than it saves at \
                       changes; the iterative one of ours is cheap between changes and dear at each";

/// The engines: without an index, and ours.
const ENGINES: [&str; 2] = ["iterative", "direct"];

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    run.begin(PIPELINES.len() * ENGINES.len());
    let mut rows = Vec::new();
    for pipeline in PIPELINES {
        let [without, with] = ENGINES.map(|engine| {
            Measured::of(&run.part("kairo-overhead", &format!("{pipeline} {engine}")))
        });
        rows.extend(rows_of(pipeline, &without, &with, run.is_quick));
    }
    let metrics = [SET_UP, MEMORY, CPU, RESIDENT];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// What one engine costs, measured in a process of its own.
struct Measured {
    /// Microseconds of CPU of a flow, in rounds.
    set_up: Samples,
    /// Bytes of the process.
    resident: f64,
    /// Microseconds of CPU of a change.
    change: f64,
}

impl Measured {
    fn of(value: &Value) -> Self {
        let number = |name: &str| value[name].as_f64().unwrap_or_default();
        let set_up = value["set_up"].as_array().into_iter().flatten();
        Self {
            set_up: Samples(set_up.filter_map(Value::as_f64).collect()),
            resident: number("resident"),
            change: number("change"),
        }
    }
}

fn rows_of(pipeline: &str, without: &Measured, with: &Measured, is_quick: bool) -> [Row; 4] {
    let more = |with: f64, without: f64| 100.0 * (with / without - 1.0);
    let published = |metric: &str| {
        let figure = Figure::find(metric, pipeline, "-", "P2 every 10 s").filter(|_| !is_quick);
        figure.map(|figure| figure.value)
    };
    let row = |metric, figure: &str, ours: Samples, why| {
        let published = published(figure);
        let why = if published.is_some() { why } else { "" };
        Row { ours, published, why, ..Row::new(pipeline, metric, "%") }
    };
    // The published time of set-up is that of starting a switch, in which circuits are compiled.
    let rounds = with.set_up.0.iter().zip(&without.set_up.0);
    let set_up = Samples(rounds.map(|(with, without)| more(*with, *without)).collect());
    let memory = more(with.resident, without.resident);
    let spent = 100.0 * (with.change - without.change) / TEN_SECONDS_OF_TEN;
    [
        Row { ours: set_up, ..Row::new(pipeline, SET_UP, "%") },
        row(MEMORY, "memory_overhead", memory.into(), WHY_MEMORY),
        Row { ours: spent.into(), ..Row::new(pipeline, CPU, "%") }
            .beside_another(published("cpu_overhead"), WHY_CPU),
        Row {
            better: Better::Neither,
            ours: (with.resident / f64::from(1 << 20)).into(),
            rival: Some((
                "the iterative engine".to_owned(),
                (without.resident / f64::from(1 << 20)).into(),
            )),
            ..Row::new(pipeline, RESIDENT, "MiB")
        },
    ]
}

/// One pipeline with one engine: prints what it costs.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let Some((pipeline, engine)) = part.split_once(' ') else { panic!("there is no part {part}") };
    let name = format!("{pipeline}:low:{}k:updates=p2@100ms", run.either(200, 10));
    let scene = Scene::of(&name);
    let new = || -> Box<dyn Evictor> {
        match engine {
            "direct" => Box::new(shunt_kairo::Direct::new(scene.pipeline.version(), 1)),
            _ => Box::new(Iterative::new(Arc::clone(&scene.pipeline))),
        }
    };
    let set_up = (0..run.either(5, 3)).map(|_| Cache::default().fill(&scene, &mut *new()));
    let set_up: Vec<f64> = set_up.collect();
    let (mut cache, mut kept) = (Cache::default(), new());
    cache.fill(&scene, &mut *kept);
    while kept.tidy() {}
    let resident = cpu::resident_bytes(std::process::id());
    drop((cache, kept));
    let mut watched = Watched::new(new(), scene.keys.len(), Clock::Thread);
    watched.load(&scene);
    for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
        let change = scene.change(command, &scene.changing);
        watched.meet(&change, &scene);
    }
    let change = watched.spent.0.iter().sum::<f64>() / watched.spent.0.len().max(1) as f64;
    println!("{}", json!({ "set_up": set_up, "resident": resident, "change": change }));
}

/// A cache of whole entries.
struct Cache {
    cache: MegaflowCache,
    shelf: Shelf,
}

impl Default for Cache {
    fn default() -> Self {
        Self { cache: MegaflowCache::new(KeyHasher::new(1), 1), shelf: Shelf::default() }
    }
}

impl Cache {
    /// Sets up every flow. Answers with microseconds of CPU for each.
    fn fill(&mut self, scene: &Scene, engine: &mut dyn Evictor) -> f64 {
        let (pipeline, version) = (&scene.pipeline, scene.pipeline.version());
        let ns = cpu::timed(|| {
            for key in &scene.keys {
                let traversal = Arc::new(pipeline.translate(key, version));
                if let Some(made) = self.shelf.make(&traversal, Time::ZERO) {
                    self.cache.insert(key, &traversal.mask, made);
                    engine.installed(entry(made.slot, made.generation), &traversal);
                }
                self.shelf.clear_notes();
            }
        });
        ns as f64 / 1e3 / scene.keys.len().max(1) as f64
    }
}
