//! What a change of rules costs the eviction engine: the direct one, and beside it the one that
//! translates every entry anew.
//!
//! The changes are those of A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per
//! Second Era*, Table 4.3 (P1 to P5): a table that has more rules than the update is chosen, and
//! that many of its rules come as one batch and go as one batch. `flap` is one rule. What was evicted
//! is translated and installed again before the next change, so that every round begins with the
//! same entries. What is timed is the engine's own CPU, from the deltas to the list of entries.
//!
//! Besides, rules of all tables go and come one by one, under many and very many entries, and all
//! engines that are built meet the same: the tail tells how long a barrier waits at worst.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match, text::NoPortNames};
use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::{Relational, Visits};
use shunt_pipebench::{Progress, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowMod, FlowModCommand, Iterative,
    OwnerId, Pipeline, PortInfo, Time, Version, text::parse_rule,
};

use crate::{
    cpu,
    experiment::{Better, Row, Run, Samples},
};

const PIPELINES: &[&str] = &["ofd", "psc", "ols", "ant"];
const UPDATES: &[&str] = &["flap", "p1", "p2", "p3", "p4", "p5"];
const BRIDGE: BridgeId = BridgeId::new(1);
/// Ports that the bridge has.
const PORTS: u32 = 256;
/// Rounds in which the rival takes part.
const RIVAL_ROUNDS: usize = 4;
const RIVAL: &str = "the iterative engine";

/// An engine of `shunt-kairo`.
struct Engine {
    name: &'static str,
    new: fn(Version) -> Box<dyn Evictor>,
    clock: Clock,
}

/// Whose CPU an engine uses.
#[derive(Clone, Copy)]
enum Clock {
    Thread,
    /// It has threads of its own.
    #[cfg(feature = "dbsp")]
    Process,
}

const ENGINES: &[Engine] = &[
    Engine { name: "direct", new: |at| Box::new(Direct::new(at)), clock: Clock::Thread },
    #[cfg(feature = "dbsp")]
    Engine { name: "visits", new: |at| Box::new(Visits::new(at)), clock: Clock::Thread },
    #[cfg(feature = "dbsp")]
    Engine { name: "relational", new: |at| Box::new(Relational::new(at)), clock: Clock::Process },
];

/// Thousands of flows under which one rule changes, as they are called, and in a quick run.
const SIZES: [(&str, usize, usize); 2] = [("100K", 100, 10), ("1M", 1000, 20)];

/// A pipeline with its flows, and the rules that come and go.
struct Scene {
    pipeline: Arc<Pipeline>,
    /// Rules that are there from the beginning.
    base: Vec<String>,
    changing: Vec<String>,
    /// A packet of each entry.
    keys: Vec<FlowKey>,
}

/// An engine, and which entries it watches.
struct Watched {
    engine: Box<dyn Evictor>,
    clock: Clock,
    generations: Vec<u32>,
    /// Microseconds of CPU for each change.
    spent: Samples,
    evicted: Samples,
}

/// What it costs to take up all entries.
struct Load {
    /// Microseconds of CPU for each.
    us: f64,
    /// Bytes for each visit, besides the traversals.
    bytes: f64,
}

/// All updates of all pipelines.
pub(crate) fn run(run: &mut Run) -> Vec<Row> {
    let pipelines = if run.is_quick { &PIPELINES[..1] } else { PIPELINES };
    run.begin(pipelines.len() * UPDATES.len() + SIZES.len());
    let mut rows = Vec::new();
    for pipeline in pipelines {
        for update in UPDATES {
            let name = format!("{pipeline}:low:{}k:updates={update}@1s", run.either(100, 10));
            let rounds = if *update == "flap" { run.either(100, 10) } else { run.either(4, 2) };
            rows.extend(
                run.step(&name, |_| measure(&name, &format!("{pipeline} {update}"), rounds)),
            );
        }
    }
    for (label, thousands, quick) in SIZES {
        let name =
            format!("{}:low:{}k:updates=flap@1s", PIPELINES[0], run.either(thousands, quick));
        let rounds = run.either(200, 20);
        rows.extend(run.step(&format!("one rule, {label}"), |_| one_rule(&name, label, rounds)));
    }
    rows.sort_by_key(|row| METRICS.iter().position(|metric| *metric == row.metric));
    rows
}

const METRICS: [&str; 5] = [
    "one change, engine",
    "entries evicted by a change",
    "one rule, engine",
    "loading an entry",
    "memory of a visit, engine",
];

/// Rules go and come one by one, all over the tables.
fn one_rule(workload: &str, label: &str, rounds: usize) -> Vec<Row> {
    let scene = Scene::of(workload);
    let apart = (scene.base.len() / rounds).max(1);
    let mut rows = Vec::new();
    for engine in ENGINES {
        let empty = (engine.new)(scene.pipeline.version());
        let mut watched = Watched::new(empty, scene.keys.len(), engine.clock);
        let load = watched.load(&scene);
        for rule in scene.base.iter().step_by(apart) {
            for command in [FlowModCommand::DeleteStrict, FlowModCommand::Add] {
                let change = scene.change(command, std::slice::from_ref(rule));
                watched.meet(&change, &scene);
            }
        }
        let name = |what| format!("{}, one rule {label} entries {what}", engine.name);
        let tails = [("p50", 50), ("p99", 99), ("max", 100)];
        rows.extend(tails.map(|(what, percent)| Row {
            ours: quantile(&watched.spent, percent).into(),
            ..Row::new(name(what), METRICS[2], "us")
        }));
        let name = format!("{}, {label}: {} entries", engine.name, scene.keys.len());
        rows.push(Row { ours: load.us.into(), ..Row::new(&name, METRICS[3], "us") });
        rows.push(Row { ours: load.bytes.into(), ..Row::new(&name, METRICS[4], "B") });
    }
    rows
}

/// What so many of a hundred samples do not exceed.
fn quantile(samples: &Samples, percent: usize) -> f64 {
    let mut sorted = samples.0.clone();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

fn measure(workload: &str, name: &str, rounds: usize) -> Vec<Row> {
    let scene = Scene::of(workload);
    let version = scene.pipeline.version();
    let direct = Box::new(Direct::new(version));
    let mut direct = Watched::new(direct, scene.keys.len(), Clock::Thread);
    let iterative = Box::new(Iterative::new(Arc::clone(&scene.pipeline)));
    let mut iterative = Watched::new(iterative, scene.keys.len(), Clock::Thread);
    let loaded = [&mut direct, &mut iterative].map(|watched| watched.load(&scene));
    for round in 0..rounds {
        for command in [FlowModCommand::Add, FlowModCommand::DeleteStrict] {
            let change = scene.change(command, &scene.changing);
            direct.meet(&change, &scene);
            // It takes most of a second, each time the same.
            if round < RIVAL_ROUNDS {
                iterative.meet(&change, &scene);
            }
        }
    }
    let entries = scene.keys.len() as f64;
    let share = |own: &Samples| Samples(own.0.iter().map(|own| 100.0 * own / entries).collect());
    let rival = |samples| Some((RIVAL.to_owned(), samples));
    let name = format!("{name}, {} rules, {} entries", scene.changing.len(), scene.keys.len());
    vec![
        Row {
            rival: rival(iterative.spent),
            ours: direct.spent,
            ..Row::new(&name, METRICS[0], "us")
        },
        Row {
            rival: rival(share(&iterative.evicted)),
            ours: share(&direct.evicted),
            better: Better::Neither,
            ..Row::new(&name, METRICS[1], "%")
        },
        Row {
            ours: loaded[0].us.into(),
            rival: rival(loaded[1].us.into()),
            ..Row::new(&name, METRICS[3], "us")
        },
    ]
}

impl Scene {
    fn of(name: &str) -> Self {
        let name = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let workload = Workload::of(&name, &Progress::hidden());
        let workload = workload.unwrap_or_else(|error| panic!("{name}: {error}"));
        let pipeline = Arc::new(Pipeline::new(1));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let ports = (1..=PORTS).map(PortInfo::datapath).collect();
        assert!(pipeline.set_ports(BRIDGE, ports).is_ok(), "the bridge is there");
        let base: Vec<_> = workload.base_rules().map(|rule| rule.text.clone()).collect();
        let mods: Vec<_> = base.iter().map(|rule| parsed(FlowModCommand::Add, rule)).collect();
        let applied = pipeline.apply(BRIDGE, &mods, Time::ZERO);
        assert!(applied.is_ok(), "the rules of {name} are legal");
        let changing = &workload.updates().changing;
        let changing = changing.iter().map(|rule| workload.rules()[*rule].text.clone()).collect();
        let keys = entries(&pipeline, workload.flows().iter().map(|flow| flow.key()));
        Self { pipeline, base, changing, keys }
    }

    /// Rules come, or go.
    fn change(&self, command: FlowModCommand, rules: &[String]) -> Change {
        let text = |rule: &'_ String| match command {
            FlowModCommand::Add => rule.clone(),
            _ => rule.split("actions=").next().unwrap_or_default().trim_end_matches(',').to_owned(),
        };
        let mods: Vec<_> = rules.iter().map(|rule| parsed(command, &text(rule))).collect();
        let change = self.pipeline.apply(BRIDGE, &mods, Time::ZERO);
        let change = change.unwrap_or_else(|error| panic!("a change is refused: {error}"));
        self.pipeline.reclaim(change.version);
        change
    }
}

/// A packet of each entry that a cache of masked headers makes for packets.
fn entries(pipeline: &Pipeline, keys: impl Iterator<Item = FlowKey>) -> Vec<FlowKey> {
    let mut seen = std::collections::HashSet::new();
    let placed = keys.map(|mut key| {
        key.set_bridge(BRIDGE.number().into());
        key
    });
    let is_new = |key: &FlowKey| {
        let traversal = pipeline.translate(key, pipeline.version());
        seen.insert(Match::of(&traversal.key, &traversal.mask))
    };
    placed.filter(is_new).collect()
}

fn parsed(command: FlowModCommand, text: &str) -> FlowMod {
    let rule = parse_rule(command, text, &NoPortNames);
    rule.unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Watched {
    fn new(engine: Box<dyn Evictor>, entries: usize, clock: Clock) -> Self {
        let (spent, evicted) = (Samples::default(), Samples::default());
        Self { engine, clock, generations: vec![0; entries], spent, evicted }
    }

    /// Installs all entries.
    fn load(&mut self, scene: &Scene) -> Load {
        let version = scene.pipeline.version();
        let translate = |key| Arc::new(scene.pipeline.translate(key, version));
        let traversals: Vec<_> = scene.keys.iter().map(translate).collect();
        let visits = traversals.iter().map(|traversal| traversal.visits.len()).sum::<usize>();
        let resident = || cpu::resident_bytes(std::process::id());
        let before = resident();
        let ns = self.clock.timed(|| {
            for (slot, traversal) in (0..).zip(&traversals) {
                self.engine.installed(entry(slot, 0), traversal);
            }
        });
        while self.engine.tidy() {}
        Load {
            us: ns / 1e3 / scene.keys.len() as f64,
            bytes: (resident() - before).max(0.0) / visits as f64,
        }
    }

    /// Meets a change, and then takes up again what it lost.
    fn meet(&mut self, change: &Change, scene: &Scene) {
        let mut evicted = Vec::new();
        let engine = &mut self.engine;
        let ns = self.clock.timed(|| evicted = engine.apply(&change.deltas, change.version));
        self.spent.0.push(ns / 1e3);
        self.evicted.0.push(evicted.len() as f64);
        for id in evicted {
            let slot = id.slot as usize;
            self.generations[slot] += 1;
            let traversal = scene.pipeline.translate(&scene.keys[slot], scene.pipeline.version());
            self.engine.installed(entry(id.slot, self.generations[slot]), &Arc::new(traversal));
        }
        while self.engine.tidy() {}
    }
}

impl Clock {
    /// Nanoseconds of CPU that `run` needs.
    fn timed(self, run: impl FnOnce()) -> f64 {
        match self {
            Self::Thread => cpu::timed(run) as f64,
            #[cfg(feature = "dbsp")]
            Self::Process => {
                let account = cpu::Account::open(std::process::id());
                run();
                account.spent().run_ns
            }
        }
    }
}

const fn entry(slot: u32, generation: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation }
}
