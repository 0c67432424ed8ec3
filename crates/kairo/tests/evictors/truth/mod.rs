//! Compares engines with the effect of each change on every packet of every entry.
//!
//! A packet has ten bits, so all packets can be enumerated. Half of the packets are first
//! fragments: actions see their ports, and lookups do not.

mod model;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use shunt_flow::{FlowKey, FlowMask};
use shunt_kairo::BruteForce;
use shunt_pipeline::{
    BridgeSettings, Change, EntryId, Evictor, Installed, Modification, OwnerId, Pipeline, Traversal,
};

use self::model::{
    AGEING, BRIDGE, Model, Op, PACKETS, Packet, Path, ReadObject, Request, key, modification, op,
    rule,
};
use crate::side_by_side::{All, CHANGES, EventCounts, run_sequences};

#[derive(Clone, Debug)]
enum Event {
    Install(Packet),
    /// An entry is installed after changes that its translation does not include.
    InstallLate(Packet, Vec<Op>),
    /// An entry is removed, by its index among the present entries.
    Remove(prop::sample::Index),
    /// Changes are applied together, each as its own version.
    Change(Vec<Op>),
    /// Changes are applied as one version.
    Bundle(Vec<Op>),
    Tidy,
}

/// A sequence of events, and whether the engine `BruteForce` processes them too.
/// `BruteForce` translates every packet again after each change.
type EventSequence = (Vec<Event>, bool);

/// An entry, with the packets that it covers and the path of each packet.
struct Entry {
    paths: BTreeMap<Packet, Path>,
}

struct EngineFixture {
    pipeline: Arc<Pipeline>,
    engines: All,
    brute_force: Option<BruteForce>,
    model: Model,
    entries: BTreeMap<EntryId, Entry>,
    installed: u32,
    has_writes: bool,
    met: EventCounts,
}

fn event_sequence(can_write: bool) -> impl Strategy<Value = EventSequence> {
    let ops = || prop::collection::vec(op(can_write), 1..4);
    let event = prop_oneof![
        12 => PACKETS.prop_map(Event::Install),
        2 => (PACKETS, ops()).prop_map(|(packet, ops)| Event::InstallLate(packet, ops)),
        2 => any::<prop::sample::Index>().prop_map(Event::Remove),
        7 => ops().prop_map(Event::Change),
        1 => prop::collection::vec(modification(can_write), 2..6).prop_map(Event::Bundle),
        2 => Just(Event::Tidy),
    ];
    let rules = prop::collection::vec(rule(can_write).prop_map(Op::Add), 0..12);
    let events = (rules, prop::collection::vec(event, 1..40)).prop_map(|(rules, mut events)| {
        events.insert(0, Event::Bundle(rules));
        events
    });
    (events, prop::bool::weighted(BRUTE_FORCE_SHARE))
}

/// The fraction of sequences that the engine `BruteForce` also processes.
const BRUTE_FORCE_SHARE: f64 = 0.1;

impl EngineFixture {
    fn new(by_force: bool) -> Self {
        let pipeline = Arc::new(Pipeline::new(1));
        let mac_ageing = Duration::from_secs(AGEING);
        pipeline.add_bridge(BRIDGE, BridgeSettings { mac_ageing, ..BridgeSettings::default() });
        let (model, requests) = Model::new();
        for request in requests {
            make(&pipeline, &model, request);
        }
        let engines = All::new(pipeline.version());
        let all = || BruteForce::new(Arc::clone(&pipeline), PACKETS.map(key).collect());
        Self {
            brute_force: by_force.then(all),
            pipeline,
            engines,
            model,
            entries: BTreeMap::new(),
            installed: 0,
            has_writes: false,
            met: EventCounts::default(),
        }
    }

    fn translate(&self, packet: Packet) -> Arc<Traversal> {
        Arc::new(self.pipeline.translate(&key(packet), self.pipeline.version()))
    }

    /// Installs the entry of a traversal, which covers this packet.
    ///
    /// No entry is installed if the traversal is older than the tables, or if it has a learn
    /// request.
    fn install(&mut self, packet: Packet, traversal: &Arc<Traversal>) {
        if !traversal.learnings.is_empty() {
            self.met.add("learns", 1);
            return;
        }
        // Slots are used again, with a new generation and sometimes with the same generation.
        let (slot, generation) = (self.installed % SLOTS, self.installed / (2 * SLOTS));
        let id = EntryId { owner: OwnerId(0), slot, generation };
        self.installed += 1;
        let answer = self.engines.installed(id, traversal);
        if let Some(engine) = &mut self.brute_force {
            assert_eq!(engine.installed(id, traversal), answer);
        }
        let is_late = traversal.version < self.pipeline.version();
        assert_eq!(answer == Installed::Late, is_late, "{id}");
        self.met.add(if is_late { "late" } else { "installed" }, 1);
        if is_late {
            return;
        }
        let paths = region(traversal).map(|packet| (packet, self.model.path(packet)));
        let entry = Entry { paths: paths.collect() };
        assert!(
            entry.paths.values().all(|path| *path == entry.paths[&packet]),
            "all packets of an entry have one path"
        );
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, index: prop::sample::Index) {
        let all: Vec<_> = self.entries.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        let id = *index.get(&all);
        self.entries.remove(&id);
        self.engines.removed(id);
        if let Some(engine) = &mut self.brute_force {
            engine.removed(id);
        }
        self.met.add("removed", 1);
    }

    /// Applies changes, each as its own version, with one call of the engines.
    fn change(&mut self, ops: &[Op]) {
        let (mut changes, mut is_seen) = (Vec::new(), true);
        for op in ops {
            let Some(request) = self.model.change(op) else { continue };
            self.met.add(CHANGES, 1);
            self.met.add(kind(op), 1);
            is_seen &= matches!(request, Request::Modify(_) | Request::Expire);
            changes.push(make(&self.pipeline, &self.model, request));
        }
        self.evict(&changes, is_seen);
    }

    fn bundle(&mut self, ops: &[Op]) {
        let mut all = Vec::new();
        for op in ops {
            if let Some(Request::Modify(request)) = self.model.change(op) {
                self.met.add(CHANGES, 1);
                all.push(request);
            }
        }
        self.met.add("bundles", 1);
        let change = modify(&self.pipeline, &self.model, all);
        self.evict(&[change], true);
    }

    /// Evicts the entries that have a packet with another path after the changes.
    ///
    /// If `is_seen` is false, packets do not depend on ports and hosts, and some evicted entries
    /// still forward as before.
    fn evict(&mut self, changes: &[Change], is_seen: bool) {
        let newest = self.pipeline.version();
        let deltas: Vec<_> = changes.iter().flat_map(|change| change.deltas.clone()).collect();
        self.has_writes |= self.model.writes();
        let evicted = self.engines.apply(&deltas, newest);
        let by_force = self.brute_force.as_mut().map(|engine| engine.apply(&deltas, newest));
        for (id, entry) in &self.entries {
            let met = |(packet, path): (&Packet, &Path)| {
                first_difference(path, &self.model.path(*packet))
            };
            let parted = entry.paths.iter().find_map(met);
            let is_stale = parted.is_some();
            if let Some(by_force) = &by_force {
                let ends = by_force.contains(id);
                assert!(ends == is_stale || is_stale && !is_seen, "{id} by brute force");
                self.met.add("stale by brute force", ends.into());
            }
            if let Some(place) = parted {
                assert!(evicted.contains(id), "{id} is stale by {place:?} and stays");
                self.met.add("evicted", 1);
                self.met.add(place.of_eviction(), 1);
            } else if evicted.contains(id) {
                assert!(self.has_writes, "{id} is right and goes");
                self.met.add("right and gone", 1);
            }
        }
        for id in evicted {
            self.entries.remove(&id);
            if let Some(engine) = &mut self.brute_force {
                engine.removed(id);
            }
        }
    }

    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Install(packet) => self.install(*packet, &self.translate(*packet)),
            Event::InstallLate(packet, ops) => {
                let late = self.translate(*packet);
                self.change(ops);
                self.install(*packet, &late);
            }
            Event::Remove(index) => self.remove(*index),
            Event::Change(ops) => self.change(ops),
            Event::Bundle(ops) => self.bundle(ops),
            Event::Tidy => while self.engines.run_maintenance() {},
        }
        assert_eq!(self.engines.len(), self.entries.len());
    }
}

/// Returns the first object at which two paths of a packet differ.
fn first_difference(before: &Path, now: &Path) -> Option<ReadObject> {
    let first = before.iter().zip(now).find(|(before, now)| before != now);
    let longer = || before.get(now.len()).or_else(|| now.get(before.len()));
    first.map(|(before, _)| before).or_else(longer).map(|(place, _)| *place)
}

/// Requests a change of the pipeline.
fn make(pipeline: &Pipeline, model: &Model, request: Request) -> Change {
    match request {
        Request::Modify(request) => modify(pipeline, model, vec![request]),
        Request::Ports(ports) => pipeline.set_ports(BRIDGE, ports).unwrap(),
        Request::Learn(learning) => pipeline.learn(&[learning], model.now()),
        Request::Expire => pipeline.expire(model.now()),
    }
}

fn modify(pipeline: &Pipeline, model: &Model, requests: Vec<Modification>) -> Change {
    pipeline.modify(BRIDGE, requests, model.now()).unwrap()
}

/// Returns the name under which a change is counted.
const fn kind(op: &Op) -> &'static str {
    match op {
        Op::Add(_) | Op::Delete(_) | Op::Modify(..) => "rules",
        Op::Lead(..) => "groups",
        Op::PortToggle(..) => "ports",
        Op::See(..) => "hosts",
        Op::Wait(_) => "waits",
    }
}

/// Number of slots of entries.
const SLOTS: u32 = 16;

/// Returns the packets that an entry covers.
fn region(traversal: &Traversal) -> impl Iterator<Item = Packet> {
    let (own, mask) = (FlowKey::from(&traversal.key), FlowMask::from(&traversal.mask));
    PACKETS.filter(move |packet| key(*packet).agrees_with(&own, &mask))
}

/// Runs the sequences of one of two tests, with half of the requested changes.
fn check(can_write: bool) {
    let met = run_sequences(
        2,
        || event_sequence(can_write),
        |(events, by_force), met| {
            let mut fixture = EngineFixture::new(by_force);
            events.iter().for_each(|event| fixture.apply_event(event));
            fixture.met.add("expired", fixture.model.expired);
            fixture.met.add("aged", fixture.model.aged);
            *met = fixture.met;
        },
    );
    met.assert_often(&[
        ("installed", 100),
        ("evicted", 50),
        ("by a table", 50),
        ("by a group", 1),
        ("by a port", 1),
        ("by all ports", 1),
        ("by filters", 2),
        ("by a host", 1),
        ("stale by brute force", 5),
        ("late", 10),
        ("learns", 1),
        ("removed", 10),
        ("groups", 10),
        ("ports", 20),
        ("hosts", 20),
        ("waits", 10),
        ("expired", 2),
        ("aged", 5),
        ("bundles", 10),
    ]);
    // An eviction of a valid entry is possible if a rule writes a value that a packet has already.
    met.assert_at_most("right and gone", 10, "evicted");
}

#[test]
fn exactly_the_stale_entries_are_evicted() {
    check(false);
}

#[test]
fn no_entry_stale_by_rewritten_headers_stays() {
    check(true);
}
