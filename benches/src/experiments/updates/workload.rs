//! Tables full of rules, the rules that are added and removed, and an engine that watches entries.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match, text::NoPortNames};
use shunt_pipebench::{Progress, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowMod, FlowModCommand, OwnerId, Pipeline,
    PortInfo, Time, Traversal, text::parse_rule,
};

use crate::{cpu, experiment::Samples};

pub(super) const BRIDGE: BridgeId = BridgeId::new(1);
/// Number of ports of the bridge.
const PORTS: u32 = 256;

/// Name prefix of the threads in which dbsp runs circuits.
#[cfg(feature = "dbsp")]
const WORKERS: &str = "dbsp-worker";

/// The threads that an engine's CPU time includes.
#[derive(Clone, Copy)]
pub(super) enum Clock {
    Thread,
    /// The engine and its circuit threads, without the threads that merge traces.
    #[cfg(feature = "dbsp")]
    Circuit,
}

/// A pipeline with its flows, and the rules that are added and removed.
pub(super) struct UpdateWorkload {
    pub(super) pipeline: Arc<Pipeline>,
    /// Rules that are present from the start.
    pub(super) base: Vec<String>,
    pub(super) changing: Vec<String>,
    /// One packet per entry.
    pub(super) keys: Vec<FlowKey>,
}

/// An engine and the entries that it watches.
pub(super) struct Watched {
    engine: Box<dyn Evictor>,
    clock: Clock,
    generations: Vec<u32>,
    /// Current traversal of each entry.
    traversals: Vec<Arc<Traversal>>,
    /// CPU microseconds of each change.
    pub(super) spent: Samples,
    pub(super) evicted: Samples,
    /// Percentage of evicted entries with unchanged actions, for each change.
    pub(super) kept: Samples,
}

/// Cost of registering all entries.
pub(super) struct Load {
    /// CPU microseconds per entry.
    pub(super) us: f64,
    /// Bytes per visit, without the traversals.
    pub(super) bytes: f64,
    /// Average visits per entry.
    pub(super) visits: f64,
}

impl UpdateWorkload {
    pub(super) fn of(name: &str) -> Self {
        let name = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let workload = Workload::of(&name, &Progress::hidden());
        let workload = workload.unwrap_or_else(|error| panic!("{name}: {error}"));
        let pipeline = Arc::new(Pipeline::new(1));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let ports = (1..=PORTS).map(PortInfo::datapath).collect();
        assert!(pipeline.set_ports(BRIDGE, ports).is_ok(), "the bridge is there");
        let base: Vec<_> = workload.base_rules().map(|rule| rule.text.clone()).collect();
        let mods: Vec<_> = base.iter().map(|rule| flow_mod(FlowModCommand::Add, rule)).collect();
        let applied = pipeline.apply(BRIDGE, &mods, Time::ZERO);
        assert!(applied.is_ok(), "the rules of {name} are valid");
        let changing = &workload.updates().changing;
        let changing = changing.iter().map(|rule| workload.rules()[*rule].text.clone()).collect();
        let keys = entries(&pipeline, workload.flows().iter().map(|flow| flow.key()));
        Self { pipeline, base, changing, keys }
    }

    /// Adds or removes rules.
    pub(super) fn change(&self, command: FlowModCommand, rules: &[String]) -> Change {
        let mods = rules.iter().map(|rule| match command {
            FlowModCommand::Add => flow_mod(command, rule),
            _ => flow_mod(command, match_of(rule)),
        });
        let mods: Vec<_> = mods.collect();
        let change = self.pipeline.apply(BRIDGE, &mods, Time::ZERO);
        let change = change.unwrap_or_else(|error| panic!("a change is refused: {error}"));
        self.pipeline.reclaim(change.version);
        change
    }
}

/// Returns the match of a rule, for a strict deletion.
pub(super) fn match_of(rule: &str) -> &str {
    rule.split("actions=").next().unwrap_or_default().trim_end_matches(',')
}

/// Returns one packet per entry of a cache of masked headers.
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

fn flow_mod(command: FlowModCommand, text: &str) -> FlowMod {
    let rule = parse_rule(command, text, &NoPortNames);
    rule.unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Watched {
    pub(super) fn new(engine: Box<dyn Evictor>, entries: usize, clock: Clock) -> Self {
        let [spent, evicted, kept] = [const { Samples(Vec::new()) }; 3];
        let (generations, traversals) = (vec![0; entries], Vec::new());
        Self { engine, clock, generations, traversals, spent, evicted, kept }
    }

    /// Translates all flows of the workload, and registers their entries.
    pub(super) fn load(&mut self, workload: &UpdateWorkload) -> Load {
        let version = workload.pipeline.version();
        let translate = |key| Arc::new(workload.pipeline.translate(key, version));
        self.traversals = workload.keys.iter().map(translate).collect();
        let visits = self.traversals.iter().map(|traversal| traversal.visits.len()).sum::<usize>();
        let resident = || cpu::resident_bytes(std::process::id());
        let before = resident();
        let ns = self.clock.measure_ns(|| {
            for (slot, traversal) in (0..).zip(&self.traversals) {
                self.engine.installed(entry(slot, 0), traversal);
            }
        });
        self.run_maintenance();
        cpu::wait_until_idle();
        Load {
            us: ns / 1e3 / workload.keys.len() as f64,
            bytes: (resident() - before).max(0.0) / visits as f64,
            visits: visits as f64 / workload.keys.len() as f64,
        }
    }

    /// Returns the microseconds of each change,
    /// weighted by the evicted share of entries.
    ///
    /// The share is relative to `entries`. If entries remain until the end of the change, every
    /// packet is stale for this time.
    pub(super) fn stale_us(&self, entries: f64) -> Samples {
        let each = self.spent.0.iter().zip(&self.evicted.0);
        Samples(each.map(|(us, evicted)| us * evicted / entries).collect())
    }

    /// Applies a change; returns the evicted entries.
    pub(super) fn apply(&mut self, change: &Change) -> Vec<EntryId> {
        let mut evicted = Vec::new();
        let engine = &mut self.engine;
        let ns = self.clock.measure_ns(|| evicted = engine.apply(&change.deltas, change.version));
        self.spent.0.push(ns / 1e3);
        self.evicted.0.push(evicted.len() as f64);
        evicted
    }

    /// Runs all work that the eviction engine has deferred.
    pub(super) fn run_maintenance(&mut self) {
        while self.engine.run_maintenance() {}
    }

    /// Runs deferred work; returns the microseconds of the longest slice of this work.
    pub(super) fn longest_slice_us(&mut self) -> f64 {
        let mut longest: f64 = 0.0;
        let mut is_more = true;
        while is_more {
            let engine = &mut self.engine;
            longest =
                longest.max(self.clock.measure_ns(|| is_more = engine.run_maintenance()) / 1e3);
        }
        longest
    }

    /// Applies a change, registers the evicted entries again, and runs deferred work.
    pub(super) fn apply_and_restore(&mut self, change: &Change, workload: &UpdateWorkload) {
        self.apply_without_maintenance(change, workload);
        self.run_maintenance();
    }

    /// Applies a change and registers the evicted entries, without deferred work.
    pub(super) fn apply_without_maintenance(&mut self, change: &Change, workload: &UpdateWorkload) {
        let evicted = self.apply(change);
        let mut kept = 0;
        for id in &evicted {
            let slot = id.slot as usize;
            self.generations[slot] += 1;
            let traversal =
                workload.pipeline.translate(&workload.keys[slot], workload.pipeline.version());
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
    /// Returns the CPU nanoseconds of `run`.
    fn measure_ns(self, run: impl FnOnce()) -> f64 {
        match self {
            Self::Thread => cpu::measure_ns(run) as f64,
            #[cfg(feature = "dbsp")]
            Self::Circuit => {
                let workers = || cpu::threads_ns(std::process::id(), WORKERS);
                let before = workers();
                let own = cpu::measure_ns(run);
                (own + workers() - before) as f64
            }
        }
    }
}

pub(super) const fn entry(slot: u32, generation: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation }
}
