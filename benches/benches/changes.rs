//! Cost of changing one rule with the direct eviction engine, and of adding an entry to the engine.
//!
//! The pipeline is OF-DPA's with ten tables, and the entries fill the memory caches. Each iteration
//! adds a rule and removes the rule again, including the evictions of both steps. Rules that evict
//! more than [`FEW`] entries are left out, because evictions dominate their cost.

#![expect(clippy::expect_used, reason = "a bench that cannot start panics with the reason")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use shunt_flow::{FlowKey, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipebench::{Progress, workload::Workload};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowMod, FlowModCommand, OwnerId, Pipeline,
    PortInfo, Time, Traversal, text::parse_rule,
};

const BRIDGE: BridgeId = BridgeId::new(1);
const WORKLOAD: &str = "ofd:low:20k:updates=flap@1s";
/// Maximum number of entries that a measured rule evicts.
const FEW: usize = 200;
/// Rules that are added and removed.
const RULES: usize = 256;

/// A pipeline with keys to translate, and rules to add and remove.
struct ChangeFixture {
    pipeline: Pipeline,
    keys: Vec<FlowKey>,
    rules: Vec<String>,
}

/// An engine that watches one entry per key.
struct Watched {
    engine: Direct,
    generations: Vec<u32>,
}

impl ChangeFixture {
    fn of(name: &str) -> Self {
        let name = name.parse().expect("the name of a workload");
        let workload = Workload::of(&name, &Progress::hidden()).expect("a valid workload");
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        let ports = (1..=256).map(PortInfo::datapath).collect();
        pipeline.set_ports(BRIDGE, ports).expect("a valid bridge");
        let rules: Vec<_> = workload.base_rules().map(|rule| rule.text.clone()).collect();
        let mods: Vec<_> = rules.iter().map(|rule| flow_mod(FlowModCommand::Add, rule)).collect();
        pipeline.apply(BRIDGE, &mods, Time::ZERO).expect("valid rules");
        let keys = workload.flows().iter().map(|flow| {
            let mut key = flow.key();
            key.set_bridge(BRIDGE.number().into());
            key
        });
        let apart = rules.len().div_ceil(RULES);
        let rules = rules.into_iter().step_by(apart).collect();
        Self { pipeline, keys: keys.collect(), rules }
    }

    fn traversal(&self, key: &FlowKey) -> Arc<Traversal> {
        Arc::new(self.pipeline.translate(key, self.pipeline.version()))
    }

    fn change(&self, command: FlowModCommand, rule: &str) -> Change {
        let text = match command {
            FlowModCommand::Add => rule,
            _ => rule.split(",actions=").next().unwrap_or_default(),
        };
        let change = self.pipeline.apply(BRIDGE, &[flow_mod(command, text)], Time::ZERO);
        let change = change.expect("a valid change");
        self.pipeline.reclaim(change.version);
        change
    }
}

fn flow_mod(command: FlowModCommand, text: &str) -> FlowMod {
    parse_rule(command, text, &NoPortNames).expect("a rule")
}

impl Watched {
    fn of(fixture: &ChangeFixture) -> Self {
        let engine = Direct::new(fixture.pipeline.version(), 1);
        let mut watched = Self { engine, generations: vec![0; fixture.keys.len()] };
        (0..fixture.keys.len()).for_each(|slot| watched.install(fixture, slot));
        watched
    }

    fn install(&mut self, fixture: &ChangeFixture, slot: usize) {
        let traversal = fixture.traversal(&fixture.keys[slot]);
        self.engine.installed(entry(slot, self.generations[slot]), &traversal);
    }

    /// Adds and removes a rule.
    ///
    /// Returns the time of both steps and the number of evicted entries, which are installed again.
    fn flap(&mut self, fixture: &ChangeFixture, rule: &str) -> (Duration, usize) {
        let (mut spent, mut gone) = (Duration::ZERO, 0);
        for command in [FlowModCommand::DeleteStrict, FlowModCommand::Add] {
            let change = fixture.change(command, rule);
            let start = Instant::now();
            let evicted = black_box(self.engine.apply(&change.deltas, change.version));
            spent += start.elapsed();
            gone += evicted.len();
            for id in evicted {
                let slot = id.slot as usize;
                self.generations[slot] += 1;
                self.install(fixture, slot);
            }
            while self.engine.run_maintenance() {}
        }
        (spent, gone)
    }
}

fn entry(slot: usize, generation: u32) -> EntryId {
    let slot = u32::try_from(slot).expect("fewer entries");
    EntryId { owner: OwnerId(0), slot, generation }
}

fn one_rule(criterion: &mut Criterion) {
    let mut fixture = ChangeFixture::of(WORKLOAD);
    let mut watched = Watched::of(&fixture);
    let rules = std::mem::take(&mut fixture.rules);
    let is_small = |rule: &String| watched.flap(&fixture, rule).1 <= FEW;
    let small: Vec<_> = rules.into_iter().filter(is_small).collect();
    let mut all = small.iter().cycle();
    criterion.bench_function("add and remove a rule", |bencher| {
        bencher.iter_custom(|rounds| {
            let rules = all.by_ref().take(usize::try_from(rounds).unwrap_or(usize::MAX));
            rules.map(|rule| watched.flap(&fixture, rule).0).sum()
        });
    });
}

fn one_entry(criterion: &mut Criterion) {
    let fixture = ChangeFixture::of(WORKLOAD);
    let traversals: Vec<_> = fixture.keys.iter().map(|key| fixture.traversal(key)).collect();
    let mut engine = Direct::new(fixture.pipeline.version(), 1);
    let mut all = (0..).zip(traversals.iter().cycle());
    criterion.bench_function("add and remove an entry", |bencher| {
        bencher.iter(|| {
            if let Some((number, traversal)) = all.next() {
                engine.installed(entry(number % traversals.len(), 0), traversal);
                engine.run_maintenance();
            }
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(2));
    targets = one_rule, one_entry
}
criterion_main!(benches);
