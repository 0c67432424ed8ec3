//! Engines against the definition and against what is true, over generated worlds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use shunt_flow::FlowKey;
use shunt_kairo::{Definition, Direct};
use shunt_pipeline::{
    EntryId, Evictor, Installed, OwnerId, Traversal,
    testing::{
        Twin,
        generate::{self, Op},
    },
};

const fn entry(slot: u32, generation: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation }
}

fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// What happens to an engine.
#[derive(Clone, Debug)]
enum Event {
    /// The entries of a packet are installed.
    Install(Box<FlowKey>),
    /// They are installed after a change that their translation has not seen.
    InstallLate(Box<FlowKey>, Box<Op>),
    /// An entry is lost, by its place among those that there are.
    Remove(prop::sample::Index),
    /// These changes come at once.
    Change(Vec<Op>),
    Tidy,
}

fn event() -> impl Strategy<Value = Event> {
    let packet = || generate::packet().prop_map(Box::new);
    prop_oneof![
        8 => packet().prop_map(Event::Install),
        1 => (packet(), generate::op().prop_map(Box::new))
            .prop_map(|(key, op)| Event::InstallLate(key, op)),
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
        6 => prop::collection::vec(generate::op(), 1..3).prop_map(Event::Change),
        2 => Just(Event::Tidy),
    ]
}

/// Two engines that go through the same.
struct Pair {
    twin: Twin,
    definition: Definition,
    engine: Direct,
    live: BTreeSet<EntryId>,
    installed: u32,
}

impl Pair {
    fn new(world: &[Op]) -> Self {
        let twin = Twin::new(world);
        let version = twin.pipeline.version();
        let (definition, engine) = (Definition::new(version), Direct::new(version));
        Self { twin, definition, engine, live: BTreeSet::new(), installed: 0 }
    }

    fn install(&mut self, traversals: Vec<Traversal>) {
        for traversal in traversals {
            // Slots are used again and again, under new generations.
            let id = entry(self.installed % 7, self.installed / 7);
            self.installed += 1;
            let traversal = Arc::new(traversal);
            let answer = self.engine.installed(id, &traversal);
            assert_eq!(answer, self.definition.installed(id, &traversal));
            if answer == Installed::Recorded {
                self.live.insert(id);
            }
        }
    }

    fn change(&mut self, ops: &[Op]) {
        let (mut deltas, mut newest) = (Vec::new(), self.twin.pipeline.version());
        for op in ops {
            let Some(change) = self.twin.apply(op) else { continue };
            newest = newest.max(change.version);
            deltas.extend(change.deltas);
        }
        let own = self.engine.apply(&deltas, newest);
        let set: BTreeSet<_> = own.iter().copied().collect();
        assert_eq!(set.len(), own.len(), "an entry is evicted once");
        assert_eq!(set, self.definition.apply(&deltas, newest).into_iter().collect());
        self.live.retain(|id| !set.contains(id));
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Install(key) => self.install(self.twin.traversals(key)),
            Event::InstallLate(key, op) => {
                let late = self.twin.traversals(key);
                self.change(std::slice::from_ref(op));
                self.install(late);
            }
            Event::Remove(index) => {
                let all: Vec<_> = self.live.iter().copied().collect();
                if all.is_empty() {
                    return;
                }
                let id = *index.get(&all);
                self.live.remove(&id);
                self.engine.removed(id);
                self.definition.removed(id);
            }
            Event::Change(ops) => self.change(ops),
            Event::Tidy => while self.engine.tidy() {},
        }
        assert_eq!(self.engine.len(), self.definition.len());
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn the_direct_engine_evicts_what_the_definition_does(
        world in generate::world(),
        events in prop::collection::vec(event(), 1..24),
    ) {
        let mut pair = Pair::new(&world);
        events.iter().for_each(|event| pair.happens(event));
    }

    #[test]
    fn what_survives_a_change_is_right_for_its_whole_region(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
        ops in prop::collection::vec(generate::op(), 1..6),
    ) {
        let mut twin = Twin::new(&world);
        let mut engine = Direct::new(twin.pipeline.version());
        let mut entries = BTreeMap::new();
        for (slot, key) in (0..).zip(&packets) {
            let traversal = Arc::new(twin.translate(key));
            if traversal.learnings.is_empty() {
                engine.installed(entry(slot, 0), &traversal);
                entries.insert(entry(slot, 0), (key, traversal));
            }
        }
        let mut runner = TestRunner::deterministic();
        for op in &ops {
            let Some(change) = twin.apply(op) else { continue };
            for evicted in engine.apply(&change.deltas, change.version) {
                prop_assert!(entries.remove(&evicted).is_some());
            }
            for (packet, traversal) in entries.values() {
                let sibling = generate::sibling(packet, &(&traversal.mask).into());
                let key = sibling.new_tree(&mut runner).unwrap().current();
                prop_assert_eq!(twin.fate(traversal, &key), twin.world.translate(&key));
            }
        }
    }
}
