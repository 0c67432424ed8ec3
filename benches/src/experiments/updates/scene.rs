//! Tables full of rules, the rules that come and go, and an engine that watches entries.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match, text::NoPortNames};
use shunt_pipebench::{Progress, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowMod, FlowModCommand, OwnerId, Pipeline,
    PortInfo, Time, Traversal, text::parse_rule,
};

use crate::{cpu, experiment::Samples};

pub(super) const BRIDGE: BridgeId = BridgeId::new(1);
/// Ports that the bridge has.
const PORTS: u32 = 256;

/// What dbsp calls the threads that step circuits.
#[cfg(feature = "dbsp")]
const WORKERS: &str = "dbsp-worker";

/// Whose CPU an engine uses.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    Thread,
    /// That of its circuit too; not of those that merge what lies in traces, at their leisure.
    #[cfg(feature = "dbsp")]
    Circuit,
}

/// A pipeline with its flows, and the rules that come and go.
pub(super) struct Scene {
    pub(super) pipeline: Arc<Pipeline>,
    /// Rules that are there from the beginning.
    pub(super) base: Vec<String>,
    pub(super) changing: Vec<String>,
    /// A packet of each entry.
    pub(super) keys: Vec<FlowKey>,
}

/// An engine, and which entries it watches.
pub(super) struct Watched {
    engine: Box<dyn Evictor>,
    clock: Clock,
    generations: Vec<u32>,
    /// How each is translated now.
    traversals: Vec<Arc<Traversal>>,
    /// Microseconds of CPU for each change.
    pub(super) spent: Samples,
    pub(super) evicted: Samples,
    /// Of those that a change evicted, the percentage whose actions are the same after it.
    pub(super) kept: Samples,
}

/// What it costs to take up all entries.
pub(super) struct Load {
    /// Microseconds of CPU for each.
    pub(super) us: f64,
    /// Bytes for each visit, besides the traversals.
    pub(super) bytes: f64,
    /// Visits of an entry, on average.
    pub(super) visits: f64,
}

impl Scene {
    pub(super) fn of(name: &str) -> Self {
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
    pub(super) fn change(&self, command: FlowModCommand, rules: &[String]) -> Change {
        let mods = rules.iter().map(|rule| match command {
            FlowModCommand::Add => parsed(command, rule),
            _ => parsed(command, match_of(rule)),
        });
        let mods: Vec<_> = mods.collect();
        let change = self.pipeline.apply(BRIDGE, &mods, Time::ZERO);
        let change = change.unwrap_or_else(|error| panic!("a change is refused: {error}"));
        self.pipeline.reclaim(change.version);
        change
    }
}

/// What a rule matches, as a strict deletion names it.
pub(super) fn match_of(rule: &str) -> &str {
    rule.split("actions=").next().unwrap_or_default().trim_end_matches(',')
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
    pub(super) fn new(engine: Box<dyn Evictor>, entries: usize, clock: Clock) -> Self {
        let [spent, evicted, kept] = [const { Samples(Vec::new()) }; 3];
        let (generations, traversals) = (vec![0; entries], Vec::new());
        Self { engine, clock, generations, traversals, spent, evicted, kept }
    }

    /// Installs all entries.
    pub(super) fn load(&mut self, scene: &Scene) -> Load {
        let version = scene.pipeline.version();
        let translate = |key| Arc::new(scene.pipeline.translate(key, version));
        self.traversals = scene.keys.iter().map(translate).collect();
        let visits = self.traversals.iter().map(|traversal| traversal.visits.len()).sum::<usize>();
        let resident = || cpu::resident_bytes(std::process::id());
        let before = resident();
        let ns = self.clock.timed(|| {
            for (slot, traversal) in (0..).zip(&self.traversals) {
                self.engine.installed(entry(slot, 0), traversal);
            }
        });
        self.run_maintenance();
        cpu::rest();
        Load {
            us: ns / 1e3 / scene.keys.len() as f64,
            bytes: (resident() - before).max(0.0) / visits as f64,
            visits: visits as f64 / scene.keys.len() as f64,
        }
    }

    /// Microseconds of each change, weighed by the share of so many entries that it evicted: for so
    /// long every packet would meet what is stale, if it stays so to the end of the change.
    pub(super) fn stale_us(&self, entries: f64) -> Samples {
        let each = self.spent.0.iter().zip(&self.evicted.0);
        Samples(each.map(|(us, evicted)| us * evicted / entries).collect())
    }

    /// Meets a change. Answers with what it lost.
    pub(super) fn apply(&mut self, change: &Change) -> Vec<EntryId> {
        let mut evicted = Vec::new();
        let engine = &mut self.engine;
        let ns = self.clock.timed(|| evicted = engine.apply(&change.deltas, change.version));
        self.spent.0.push(ns / 1e3);
        self.evicted.0.push(evicted.len() as f64);
        evicted
    }

    /// Does what was put off.
    pub(super) fn run_maintenance(&mut self) {
        while self.engine.run_maintenance() {}
    }

    /// Does what was put off; answers with the microseconds of the longest piece that is done at once.
    pub(super) fn tidy_us(&mut self) -> f64 {
        let mut longest: f64 = 0.0;
        let mut is_more = true;
        while is_more {
            let engine = &mut self.engine;
            longest = longest.max(self.clock.timed(|| is_more = engine.run_maintenance()) / 1e3);
        }
        longest
    }

    /// Meets a change, takes up again what it lost, and does what was put off.
    pub(super) fn meet(&mut self, change: &Change, scene: &Scene) {
        self.meet_untidy(change, scene);
        self.run_maintenance();
    }

    /// Meets a change, and then takes up again what it lost. What the engine puts off it keeps.
    pub(super) fn meet_untidy(&mut self, change: &Change, scene: &Scene) {
        let evicted = self.apply(change);
        let mut kept = 0;
        for id in &evicted {
            let slot = id.slot as usize;
            self.generations[slot] += 1;
            let traversal = scene.pipeline.translate(&scene.keys[slot], scene.pipeline.version());
            let before = &mut self.traversals[slot];
            kept += usize::from(traversal.actions == before.actions);
            *before = Arc::new(traversal);
            self.engine.installed(entry(id.slot, self.generations[slot]), before);
        }
        if !evicted.is_empty() {
            self.kept.0.push(100.0 * kept as f64 / evicted.len() as f64);
        }
    }
}

impl Clock {
    /// Nanoseconds of CPU that `run` needs.
    fn timed(self, run: impl FnOnce()) -> f64 {
        match self {
            Self::Thread => cpu::timed(run) as f64,
            #[cfg(feature = "dbsp")]
            Self::Circuit => {
                let workers = || cpu::threads_ns(std::process::id(), WORKERS);
                let before = workers();
                let own = cpu::timed(run);
                (own + workers() - before) as f64
            }
        }
    }
}

pub(super) const fn entry(slot: u32, generation: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation }
}
