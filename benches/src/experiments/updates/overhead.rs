//! Overhead of an engine without rule changes: CPU of flow set-up, and memory.
//!
//! This reproduces A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second
//! Era*, Table 4.4: the overhead over the iterative engine with 200,000 flows and one P2 every ten
//! seconds. The published set-up time is the time to start a switch and compile its circuits. Here
//! the set-up time is the time to set up a flow.
//!
//! The published memory overhead is relative to OVS-DPDK. So OVS-DPDK gets the same rules. OVS-DPDK
//! also gets as many of the flows as its buffers have packets for.

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};
use shunt_datapath::cache::{KeyHasher, MegaflowCache};
use shunt_gigaflow::ltm::{Store as _, VecStore};
use shunt_pipebench::published::Figure;
use shunt_pipeline::{Evictor, FlowModCommand, Iterative, Time};

use super::{
    engines::PIPELINES,
    workload::{Clock, UpdateWorkload, Watched, entry},
};
use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
    experiments::{
        captures::{Files, await_flows},
        forwarding::FORWARDING_CPU,
    },
    switch::{Contender, Setup},
};

const WHY_SET_UP: &str = "published is the time to set up a switch and compile circuits; ours is \
                          the CPU of engine and translation for a flow's first packet";

const SET_UP: &str = "extra CPU of flow set-up over the iterative engine";
const MEMORY: &str = "extra memory over the iterative engine";
const MEMORY_RATIO: &str = "memory of the engine relative to OVS-DPDK with the same flows";
const ENGINE: &str = "memory of the engine";
const CPU: &str =
    "extra CPU of ten cores over the iterative engine, one update P2 every ten seconds (computed)";
const RESIDENT: &str = "memory of a process with tables and a full cache";

/// Ten seconds of ten cores, in microseconds.
const TEN_SECONDS_OF_TEN: f64 = 1e8;

const WHY_OF_RIVAL: &str = "the published engine keeps a copy of every table as a circuit, in 3 \
                            GB; OVS-DPDK has 1 GB of huge pages here, and half as many flows";
const WHY_CPU: &str = "the published engine costs more for flow set-up than it saves at changes; \
                       our iterative engine is cheap between changes and expensive at each";

/// The engines: the engine without an index, and the default engine.
const ENGINES: [&str; 2] = ["iterative", "direct"];

/// Number of cached flows, in thousands.
const FLOWS: usize = 200;
/// Flows that OVS-DPDK gets, too, in thousands.
const FLOWS_OF_RIVAL: usize = 100;

pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let rival = Contender::OpenVSwitchDpdk.if_installed();
    run.begin(PIPELINES.len() * (ENGINES.len() + rival.iter().len() * (ENGINES.len() + 1)));
    let mut rows = Vec::new();
    let flows = run.either(FLOWS, FLOWS / 20);
    for pipeline in PIPELINES {
        let [without, with] = measure_both(run, pipeline, flows);
        rows.extend(rows_of(pipeline, &without, &with, run.is_quick));
        if let Some(rival) = &rival {
            let flows = run.either(FLOWS_OF_RIVAL, FLOWS_OF_RIVAL / 20);
            let [without, with] = measure_both(run, pipeline, flows);
            let title = format!("{pipeline} {flows}K, {}", rival.name());
            let bytes = run.step(&title, |folder| memory_of(rival, pipeline, flows, folder));
            let engine = with.resident - without.resident;
            rows.extend(rows_of_rival(pipeline, engine, &rival.name(), bytes, run.is_quick));
        }
    }
    let metrics = [SET_UP, MEMORY_RATIO, ENGINE, MEMORY, CPU, RESIDENT];
    rows.sort_by_key(|row: &Row| metrics.iter().position(|metric| *metric == row.metric));
    rows
}

/// Measures both engines with `flows` thousand flows.
fn measure_both(run: &mut Run, pipeline: &str, flows: usize) -> [Measured; 2] {
    ENGINES.map(|engine| {
        Measured::of(&run.part("kairo-overhead", &format!("{pipeline} {engine} {flows}")))
    })
}

/// Returns the memory of a switch with the rules and flows of a pipeline.
///
/// The memory includes huge pages.
fn memory_of(rival: &Contender, pipeline: &str, flows: usize, folder: &Path) -> f64 {
    // One packet per flow.
    let files = Files::of(&format!("{pipeline}:low:{flows}k:packets={flows}k"), folder);
    let (ports, cpu) = (files.ports, Some(FORWARDING_CPU));
    let setup = Setup { ports, cpu, keeps_entries: true, ..Setup::default() };
    let switch = rival.start(folder, &setup);
    switch.ofctl(&["--bundle"], "add-flows", &[&files.rules.display().to_string()]);
    await_flows(&*switch);
    cpu::resident_bytes(switch.id()) + cpu::huge_bytes(switch.id())
}

fn rows_of_rival(pipeline: &str, engine: f64, rival: &str, bytes: f64, is_quick: bool) -> [Row; 2] {
    let published = Figure::find("memory_overhead", pipeline, "-", "P2 every 10 s");
    let published = published.filter(|_| !is_quick).map(|figure| figure.value);
    let mebibytes = |bytes: f64| Samples::from(bytes / f64::from(1 << 20));
    [
        Row { ours: (100.0 * engine / bytes).into(), ..Row::new(pipeline, MEMORY_RATIO, "%") }
            .beside_published(published, WHY_OF_RIVAL),
        Row {
            better: Better::Neither,
            ours: mebibytes(engine),
            rival: Some((format!("all memory of {rival}"), mebibytes(bytes))),
            ..Row::new(pipeline, ENGINE, "MiB")
        },
    ]
}

/// Overhead of one engine, measured in a separate process.
struct Measured {
    /// CPU microseconds per flow, for each round.
    set_up: Samples,
    /// Resident memory of the process in bytes.
    resident: f64,
    /// CPU microseconds of a change.
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

fn rows_of(pipeline: &str, without: &Measured, with: &Measured, is_quick: bool) -> [Row; 5] {
    let more = |with: f64, without: f64| 100.0 * (with / without - 1.0);
    let published = |metric: &str| {
        let figure = Figure::find(metric, pipeline, "-", "P2 every 10 s").filter(|_| !is_quick);
        figure.map(|figure| figure.value)
    };
    let rounds = with.set_up.0.iter().zip(&without.set_up.0);
    let set_up = Samples(rounds.map(|(with, without)| more(*with, *without)).collect());
    let memory = more(with.resident, without.resident);
    let spent = 100.0 * (with.change - without.change) / TEN_SECONDS_OF_TEN;
    [
        Row { ours: set_up, ..Row::new(pipeline, SET_UP, "%") }
            .beside_another(published("set_up_overhead"), WHY_SET_UP),
        Row { ours: memory.into(), ..Row::new(pipeline, MEMORY, "%") },
        Row { ours: spent.into(), ..Row::new(pipeline, CPU, "%") }
            .beside_another(published("cpu_overhead"), WHY_CPU),
        resident_row(pipeline, with),
        resident_row(&format!("{pipeline}, the iterative engine"), without),
    ]
}

fn resident_row(name: &str, measured: &Measured) -> Row {
    let ours = (measured.resident / f64::from(1 << 20)).into();
    Row { better: Better::Neither, ours, ..Row::new(name, RESIDENT, "MiB") }
}

/// Runs one pipeline with one engine, and prints the results.
pub(crate) fn run_part(run: &mut Run, part: &str) {
    let words: Vec<&str> = part.split(' ').collect();
    let [pipeline, engine, flows] = words[..] else { panic!("there is no part {part}") };
    let name = format!("{pipeline}:low:{flows}k:updates=p2@100ms");
    let workload = UpdateWorkload::of(&name);
    let new = || -> Box<dyn Evictor> {
        match engine {
            "direct" => Box::new(shunt_kairo::Direct::new(workload.pipeline.version(), 1)),
            _ => Box::new(Iterative::new(Arc::clone(&workload.pipeline))),
        }
    };
    let set_up = (0..run.either(5, 3)).map(|_| Cache::default().fill(&workload, &mut *new()));
    let set_up: Vec<f64> = set_up.collect();
    let (mut cache, mut kept) = (Cache::default(), new());
    cache.fill(&workload, &mut *kept);
    while kept.run_maintenance() {}
    let resident = cpu::resident_bytes(std::process::id());
    drop((cache, kept));
    let mut watched = Watched::new(new(), workload.keys.len(), Clock::Thread);
    watched.load(&workload);
    for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
        let change = workload.change(command, &workload.changing);
        watched.apply_and_restore(&change, &workload);
    }
    let change = watched.spent.0.iter().sum::<f64>() / watched.spent.0.len().max(1) as f64;
    println!("{}", json!({ "set_up": set_up, "resident": resident, "change": change }));
}

/// A megaflow cache with a store of its entries.
struct Cache {
    cache: MegaflowCache,
    store: VecStore,
}

impl Default for Cache {
    fn default() -> Self {
        Self { cache: MegaflowCache::new(KeyHasher::new(1), 1), store: VecStore::default() }
    }
}

impl Cache {
    /// Sets up every flow; returns the CPU microseconds per flow.
    fn fill(&mut self, workload: &UpdateWorkload, engine: &mut dyn Evictor) -> f64 {
        let (pipeline, version) = (&workload.pipeline, workload.pipeline.version());
        let ns = cpu::measure_ns(|| {
            for key in &workload.keys {
                let traversal = Arc::new(pipeline.translate(key, version));
                if let Some(made) = self.store.make(&traversal, Time::ZERO) {
                    self.cache.insert(key, &traversal.mask, made.into());
                    engine.installed(entry(made.slot, made.generation), &traversal);
                }
                self.store.clear_notes();
            }
        });
        ns as f64 / 1e3 / workload.keys.len().max(1) as f64
    }
}
