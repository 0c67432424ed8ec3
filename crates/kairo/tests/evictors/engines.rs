//! Engines against the definition and against what is true, over generated worlds.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngSeed, TestRunner},
};
use shunt_flow::FlowKey;
use shunt_pipeline::{
    EntryId, Evictor, Installed, OwnerId, Traversal,
    testing::{
        Twin,
        generate::{self, Op},
        visible,
    },
};

use crate::all::{All, cases, said};

const fn entry(slot: u32, generation: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation }
}

/// What happens to an engine.
#[derive(Clone, Debug)]
enum Event {
    /// The entries of a packet are installed.
    Install(Box<FlowKey>),
    /// The entries of its pieces are: it is cut at those of all points that the number has a bit for.
    InstallPieces(Box<FlowKey>, u64),
    /// They are installed after a change that their translation has not seen.
    InstallLate(Box<FlowKey>, Box<Op>),
    /// An entry is lost, by its place among those that there are.
    Remove(prop::sample::Index),
    /// These changes come at once.
    Change(Vec<Op>),
    /// The owner of all entries is gone.
    Forget,
    Tidy,
}

fn event() -> impl Strategy<Value = Event> {
    let packet = || generate::packet().prop_map(Box::new);
    prop_oneof![
        8 => packet().prop_map(Event::Install),
        3 => (packet(), any::<u64>())
            .prop_map(|(key, choice)| Event::InstallPieces(key, choice)),
        1 => (packet(), generate::op().prop_map(Box::new))
            .prop_map(|(key, op)| Event::InstallLate(key, op)),
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
        6 => prop::collection::vec(generate::op(), 1..3).prop_map(Event::Change),
        1 => prop::bool::weighted(0.2)
            .prop_map(|is_over| if is_over { Event::Forget } else { Event::Tidy }),
        2 => Just(Event::Tidy),
    ]
}

/// All engines beside a pipeline.
struct Scene {
    twin: Twin,
    engines: All,
    live: BTreeSet<EntryId>,
    installed: u32,
    /// How often rules, groups, ports and addresses have changed.
    changes: u64,
}

impl Scene {
    fn new(world: &[Op]) -> Self {
        let twin = Twin::new(world);
        let engines = All::new(twin.pipeline.version());
        Self { twin, engines, live: BTreeSet::new(), installed: 0, changes: 0 }
    }

    fn install(&mut self, traversals: Vec<Traversal>) {
        for traversal in traversals {
            // Slots are used again and again, under new generations, and sometimes under the same.
            let id = entry(self.installed % 7, self.installed / 14);
            self.installed += 1;
            let answer = self.engines.installed(id, &Arc::new(traversal));
            if answer == Installed::Recorded {
                self.live.insert(id);
            }
        }
    }

    /// The pieces of a packet.
    fn pieces(&self, key: &FlowKey, choice: u64) -> Vec<Traversal> {
        let (pipeline, key) = (&self.twin.pipeline, visible(key));
        let version = pipeline.version();
        let points = pipeline.translate_noting(&key, None, version).points;
        let chosen = points.iter().enumerate().filter(|(at, _)| choice >> (at % 64) & 1 != 0);
        let cuts: Vec<usize> = chosen.map(|(_, point)| point.visit).collect();
        let pieces = pipeline.translate_pieces(&key, None, version, &cuts);
        pieces.into_iter().map(|piece| piece.traversal).collect()
    }

    fn change(&mut self, ops: &[Op]) {
        let (mut deltas, mut newest) = (Vec::new(), self.twin.pipeline.version());
        for op in ops {
            let Some(change) = self.twin.apply(op) else { continue };
            newest = newest.max(change.version);
            deltas.extend(change.deltas);
            self.changes += 1;
        }
        for evicted in self.engines.apply(&deltas, newest) {
            self.live.remove(&evicted);
        }
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Install(key) => self.install(self.twin.traversals(key)),
            Event::InstallPieces(key, choice) => self.install(self.pieces(key, *choice)),
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
                self.engines.removed(id);
                // As one that an eviction has crossed, and one that nobody knows.
                self.engines.removed(id);
                self.engines.removed(entry(99, 0));
            }
            Event::Change(ops) => self.change(ops),
            Event::Forget => {
                self.engines.forget(OwnerId(0));
                self.live.clear();
            }
            Event::Tidy => while self.engines.tidy() {},
        }
        assert_eq!(self.engines.len(), self.live.len());
    }
}

/// Long lives of few worlds, so that what is kept from change to change grows old; `SHUNT_CHANGES` says
/// how many changes in all.
#[test]
fn every_engine_evicts_what_the_definition_does_through_a_hundred_thousand_changes() {
    let wanted = said("SHUNT_CHANGES").unwrap_or(100_000);
    let done = Cell::new(0);
    for round in 0.. {
        if done.get() >= wanted {
            return;
        }
        let rng_seed = RngSeed::Fixed(said("SHUNT_SEED").unwrap_or_default() ^ round << 32);
        let config = Config { cases: LIVES_PER_ROUND, rng_seed, ..cases(1) };
        let lives = (generate::world(), prop::collection::vec(event(), 100..400));
        let lived = TestRunner::new(config).run(&lives, |(world, events)| {
            let mut scene = Scene::new(&world);
            events.iter().for_each(|event| scene.happens(event));
            done.set(done.get() + scene.changes);
            Ok(())
        });
        lived.unwrap();
    }
}

/// Worlds after which it is looked whether there were changes enough.
const LIVES_PER_ROUND: u32 = 16;

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn every_engine_evicts_what_the_definition_does(
        world in generate::world(),
        events in prop::collection::vec(event(), 1..24),
    ) {
        let mut scene = Scene::new(&world);
        events.iter().for_each(|event| scene.happens(event));
    }

    #[test]
    fn what_survives_a_change_is_right_for_its_whole_region(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
        ops in prop::collection::vec(generate::op(), 1..6),
    ) {
        let mut twin = Twin::new(&world);
        let mut engine = All::new(twin.pipeline.version());
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
