//! Compares engines with the definition and with the translation, over generated pipelines.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use shunt_flow::FlowKey;
use shunt_pipeline::{
    EntryId, Evictor, Installed, OwnerId, Traversal,
    testing::{
        CheckedPipeline,
        generate::{self, Op},
        visible,
    },
};

use crate::side_by_side::{All, CHANGES, EventCounts, cases, run_sequences};

const fn entry(slot: u32, generation: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation }
}

/// An event of a test sequence.
#[derive(Clone, Debug)]
enum Event {
    /// Installs the entry of a packet.
    Install(Box<FlowKey>),
    /// Installs the entries of the sub-traversals of a packet.
    /// Each bit of the number selects a partition point of the traversal.
    InstallSubTraversals(Box<FlowKey>, u64),
    /// Installs the entry of a packet after a change that its traversal lacks.
    InstallLate(Box<FlowKey>, Box<Op>),
    /// Removes an entry, by its index among the present entries.
    Remove(prop::sample::Index),
    /// Applies these changes in one call.
    Change(Vec<Op>),
    /// Removes the owner of all entries, with its entries.
    Forget,
    /// Runs this number of calls of `run_maintenance`, or all.
    Tidy(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let packet = || generate::packet().prop_map(Box::new);
    prop_oneof![
        8 => packet().prop_map(Event::Install),
        3 => (packet(), any::<u64>())
            .prop_map(|(key, choice)| Event::InstallSubTraversals(key, choice)),
        1 => (packet(), generate::change().prop_map(Box::new))
            .prop_map(|(key, op)| Event::InstallLate(key, op)),
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
        6 => prop::collection::vec(generate::change(), 1..3).prop_map(Event::Change),
        1 => prop::bool::weighted(0.2)
            .prop_map(|is_over| if is_over { Event::Forget } else { Event::Tidy(usize::MAX) }),
        1 => Just(Event::Tidy(usize::MAX)),
        2 => (1usize..4).prop_map(Event::Tidy),
    ]
}

/// A pipeline with all engines.
struct EngineFixture {
    checked: CheckedPipeline,
    engines: All,
    live: BTreeSet<EntryId>,
    installed: u32,
    met: EventCounts,
}

impl EngineFixture {
    fn new(network: &[Op]) -> Self {
        let checked = CheckedPipeline::new(network);
        let engines = All::new(checked.pipeline.version());
        Self { checked, engines, live: BTreeSet::new(), installed: 0, met: EventCounts::default() }
    }

    fn install(&mut self, traversals: Vec<Traversal>) {
        for traversal in traversals {
            // Slots are used again, with a new generation and sometimes with the same generation.
            let id = entry(self.installed % 7, self.installed / 14);
            self.installed += 1;
            let is_replaced = self.live.contains(&id);
            let is_mirrored = !traversal.output_hits.is_empty();
            match self.engines.installed(id, &Arc::new(traversal)) {
                Installed::Recorded => {
                    self.live.insert(id);
                    self.met.add("installed", 1);
                    self.met.add("replaced", is_replaced.into());
                    self.met.add("mirrored", is_mirrored.into());
                }
                Installed::Late => self.met.add("late", 1),
            }
        }
    }

    /// Returns the sub-traversals of a packet.
    /// The bits of `choice` select the partition points.
    fn sub_traversals_of(&self, key: &FlowKey, choice: u64) -> Vec<Traversal> {
        let (pipeline, key) = (&self.checked.pipeline, visible(key));
        let version = pipeline.version();
        let points = pipeline.translate_noted(&key, None, version).points;
        let chosen = points.iter().enumerate().filter(|(at, _)| choice >> (at % 64) & 1 != 0);
        let cuts: Vec<usize> = chosen.map(|(_, point)| point.visit).collect();
        let sub_traversals_of = pipeline.translate_sub_traversals(&key, None, version, &cuts);
        sub_traversals_of.into_iter().map(|part| part.traversal).collect()
    }

    fn change(&mut self, ops: &[Op]) {
        let (mut deltas, mut newest) = (Vec::new(), self.checked.pipeline.version());
        for op in ops {
            let Some(change) = self.checked.apply(op) else { continue };
            newest = newest.max(change.version);
            deltas.extend(change.deltas);
            self.met.add(CHANGES, 1);
            self.met.add(name_of(op), 1);
        }
        let (by_masks, is_lacking) = self.engines.by_masks();
        self.met.add("visits by masks", by_masks);
        self.met.add("masks that lack visits", is_lacking.into());
        let evicted = self.engines.apply(&deltas, newest);
        self.met.add("evicted", evicted.len());
        for evicted in evicted {
            self.live.remove(&evicted);
        }
    }

    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Install(key) => self.install(self.checked.traversals(key)),
            Event::InstallSubTraversals(key, choice) => {
                self.install(self.sub_traversals_of(key, *choice));
            }
            Event::InstallLate(key, op) => {
                let late = self.checked.traversals(key);
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
                self.met.add("removed", 1);
                self.engines.removed(id);
                // Removes an entry that was already evicted, and an entry that does not exist.
                self.engines.removed(id);
                self.engines.removed(entry(99, 0));
            }
            Event::Change(ops) => self.change(ops),
            Event::Forget => {
                self.engines.forget(OwnerId(0));
                self.met.add("forgotten", self.live.len());
                self.live.clear();
            }
            Event::Tidy(steps) => {
                let _ = (0..*steps).any(|_| !self.engines.run_maintenance());
            }
        }
        assert_eq!(self.engines.len(), self.live.len());
    }
}

/// Returns the name under which a change is counted.
const fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Apply(..) => "rules",
        Op::Modify(..) => "groups and meters",
        Op::Commit(..) => "bundles",
        Op::SetPorts(..) => "ports",
        Op::SetMirrors(..) => "mirrors",
        Op::SetFloodVlans(..) => "flood VLANs",
        Op::SetSendsMisses(..) => "misses",
        Op::SetFailsOpen(..) => "fail-open",
        Op::SetSnooping(..) => "snooping",
        Op::Snoop(..) => "snooped",
        Op::AddStaticMac(..) | Op::RemoveStaticMac(..) => "static addresses",
        Op::Expire(_) => "expired",
        Op::LearnFrom(_) => "learned from",
        Op::Reclaim => "reclaimed",
    }
}

/// Runs long sequences over few pipelines, so that entries live for a long time.
/// `SHUNT_CHANGES` sets the number of changes.
#[test]
fn every_engine_equals_the_definition_over_long_sequences() {
    let sequences = || (generate::network(), prop::collection::vec(event(), 100..400));
    let met = run_sequences(1, sequences, |(network, events), met| {
        let mut fixture = EngineFixture::new(&network);
        events.iter().for_each(|event| fixture.apply_event(event));
        *met = fixture.met;
    });
    met.assert_often(&[
        ("installed", 500),
        ("replaced", 5),
        ("mirrored", 5),
        ("mirrors", 5),
        ("evicted", 200),
        ("late", 20),
        ("removed", 20),
        ("forgotten", 5),
        ("rules", 200),
        ("groups and meters", 100),
        ("bundles", 50),
        ("ports", 20),
        ("expired", 2),
        ("learned from", 5),
        ("visits by masks", 1000),
        ("masks that lack visits", 20),
    ]);
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn every_engine_evicts_what_the_definition_does(
        network in generate::network(),
        events in prop::collection::vec(event(), 1..24),
    ) {
        let mut fixture = EngineFixture::new(&network);
        events.iter().for_each(|event| fixture.apply_event(event));
    }
}

#[test]
fn entries_that_remain_are_right_for_their_region() {
    let sequences = || {
        let packets = prop::collection::vec(generate::packet(), 8);
        (generate::network(), packets, prop::collection::vec(generate::change(), 1..6))
    };
    let met = run_sequences(200, sequences, |(network, packets, ops), met| {
        let mut runner = TestRunner::deterministic();
        let mut checked = CheckedPipeline::new(&network);
        let mut engine = All::new(checked.pipeline.version());
        let mut entries = BTreeMap::new();
        for (slot, key) in (0..).zip(&packets) {
            let traversal = Arc::new(checked.translate(key));
            if traversal.learnings.is_empty() {
                engine.installed(entry(slot, 0), &traversal);
                entries.insert(entry(slot, 0), (key, traversal));
            }
        }
        for op in &ops {
            let Some(change) = checked.apply(op) else { continue };
            met.add(CHANGES, 1);
            for evicted in engine.apply(&change.deltas, change.version) {
                assert!(entries.remove(&evicted).is_some());
                met.add("evicted", 1);
            }
            for (packet, traversal) in entries.values() {
                let sibling = generate::sibling(packet, &(&traversal.mask).into());
                let key = sibling.new_tree(&mut runner).unwrap().current();
                let effects = checked.effects(traversal, &key);
                assert_eq!(effects, checked.model.translate(&key));
                met.add("survived", 1);
                met.add("siblings", (key != **packet).into());
                met.add("left", effects.outcomes.len());
            }
        }
    });
    met.assert_often(&[("evicted", 200), ("survived", 1000), ("siblings", 500), ("left", 500)]);
}
