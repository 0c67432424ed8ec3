//! Compares the published engine with other engines: the cases that it handles, and its three known
//! errors.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, SparseMask, text::NoPortNames};
use shunt_kairo::{Direct, PublishedKairo, PublishedSettings, Visits};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, GroupCommand, OwnerId,
    Pipeline, PortInfo, Time, Traversal,
    testing::{CheckedPipeline, generate},
    text::{parse_group_mod, parse_rule},
};

use crate::side_by_side::{CHANGES, EventCounts, run_sequences};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Settings with which packets enter the circuit at once.
const AT_ONCE: PublishedSettings = PublishedSettings {
    has_gates: true,
    propagation: Some(Duration::from_secs(2)),
    batch: 1,
    layers: 4,
    seed: 1,
};

const fn entry(slot: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation: 0 }
}

fn flow_mod(command: FlowModCommand, rule: &str) -> shunt_pipeline::FlowMod {
    parse_rule(command, rule, &NoPortNames).unwrap()
}

/// Returns the key of an IPv4 packet to a destination.
fn packet(destination: u32) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::NwTtl, 64);
    key.set_field(FieldId::Ipv4Dst, destination.into());
    key
}

/// A pipeline with the published engine, and two engines without its errors.
struct PublishedFixture {
    pipeline: Pipeline,
    published: PublishedKairo,
    direct: Direct,
    visits: Visits,
    seconds: Arc<AtomicU64>,
}

impl PublishedFixture {
    fn new(settings: PublishedSettings, rules: &[&str]) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, (1..=4).map(PortInfo::datapath).collect()).unwrap();
        let rules: Vec<_> = rules.iter().map(|rule| flow_mod(FlowModCommand::Add, rule)).collect();
        pipeline.apply(BRIDGE, &rules, Time::ZERO).unwrap();
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&seconds);
        let now = move || Time::ZERO.after(Duration::from_secs(clock.load(Ordering::Relaxed)));
        let published = PublishedKairo::new(&pipeline, &[BRIDGE], settings, now);
        let version = pipeline.version();
        let (direct, visits) = (Direct::new(version, 1), Visits::new(version, 1));
        Self { pipeline, published, direct, visits, seconds }
    }

    fn translate(&self, key: &FlowKey) -> Arc<Traversal> {
        Arc::new(self.pipeline.translate(key, self.pipeline.version()))
    }

    fn install(&mut self, slot: u32, destination: u32) -> Arc<Traversal> {
        let traversal = self.translate(&packet(destination));
        for engine in self.engines() {
            engine.installed(entry(slot), &traversal);
        }
        traversal
    }

    fn engines(&mut self) -> [&mut dyn Evictor; 3] {
        [&mut self.published, &mut self.direct, &mut self.visits]
    }

    fn change(&mut self, command: FlowModCommand, rule: &str) -> [Vec<u32>; 3] {
        let change = self.pipeline.apply(BRIDGE, &[flow_mod(command, rule)], Time::ZERO).unwrap();
        self.apply(&change)
    }

    fn add(&mut self, rule: &str) -> [Vec<u32>; 3] {
        self.change(FlowModCommand::Add, rule)
    }

    /// Returns the evictions of the published engine, and of each other engine.
    fn apply(&mut self, change: &Change) -> [Vec<u32>; 3] {
        self.engines().map(|engine| {
            let mut ended = engine.apply(&change.deltas, change.version);
            ended.sort_unstable();
            ended.iter().map(|id| id.slot).collect()
        })
    }

    /// Lets time pass, so that all packets enter the circuit.
    fn wait(&mut self) {
        self.seconds.fetch_add(60, Ordering::Relaxed);
        while self.published.run_maintenance() {}
        assert_eq!(self.published.stats().waiting, 0);
    }

    /// Returns whether the current tables forward a packet differently from its entry.
    fn is_stale(&self, entry: &Traversal, destination: u32) -> bool {
        let key = packet(destination);
        let is_within = key.agrees_with(&(&entry.key).into(), &(&entry.mask).into());
        is_within && self.translate(&key).actions != entry.actions
    }
}

/// The published engine tracks one packet of an entry, not its whole region.
#[test]
fn sample_packet_does_not_stand_for_region() {
    let rule = "priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2";
    let mut fixture = PublishedFixture::new(AT_ONCE, &[rule]);
    let made = fixture.install(0, 0x0a01_0203);
    let within = "priority=20,ip,nw_dst=10.1.99.0/24,actions=output:3";
    assert_eq!(fixture.add(within), [vec![], vec![0], vec![0]]);
    assert!(fixture.is_stale(&made, 0x0a01_6307), "what stays in the mirror is wrong");
}

/// The published engine keeps the stale entry of a packet that waits for its batch.
#[test]
fn rule_may_overtake_packet_in_batch() {
    let rule = "priority=10,ip,nw_dst=10.0.0.0/8,actions=output:2";
    let of_the_packet = "priority=20,ip,nw_dst=10.1.99.0/24,actions=output:3";
    let mut fixture = PublishedFixture::new(PublishedSettings::default(), &[rule]);
    fixture.install(1, 0x0a01_0203);
    fixture.wait();
    let made = fixture.install(0, 0x0a01_6307);
    assert_eq!(fixture.published.stats().waiting, 1);
    assert_eq!(fixture.add(of_the_packet), [vec![], vec![0, 1], vec![0, 1]]);
    // The packet enters the circuit after the new rule and matches it at once. So its match never
    // changes, and its entry is not evicted.
    fixture.wait();
    assert!(fixture.published.apply(&[], fixture.pipeline.version()).is_empty());
    assert_eq!(fixture.published.len(), 2);
    assert!(fixture.is_stale(&made, 0x0a01_6307), "what stays in the mirror is wrong");
    // If the packet entered the circuit before the new rule, its entry is evicted.
    let mut fixture = PublishedFixture::new(PublishedSettings::default(), &[rule]);
    fixture.install(0, 0x0a01_6307);
    fixture.wait();
    assert_eq!(fixture.add(of_the_packet), [vec![0], vec![0], vec![0]]);
}

#[test]
fn an_ltm_entry_without_its_packet_is_orphaned() {
    let mut fixture = PublishedFixture::new(
        AT_ONCE,
        &[
            "ip,actions=goto_table:1",
            "table=1,ip,nw_dst=10.0.0.1,actions=output:2",
            "table=1,ip,nw_dst=10.0.0.2,actions=output:3",
        ],
    );
    let sub_traversals_of = |fixture: &PublishedFixture, destination| {
        let version = fixture.pipeline.version();
        let cut =
            fixture.pipeline.translate_sub_traversals(&packet(destination), None, version, &[1]);
        cut.into_iter().map(|part| Arc::new(part.traversal)).collect::<Vec<_>>()
    };
    // Both flows start with the same sub-traversal, and the first packet made its entry.
    for (destination, slots) in [(0x0a00_0001, [0, 1]), (0x0a00_0002, [0, 2])] {
        let sub_traversals_of = sub_traversals_of(&fixture, destination);
        let list: Vec<_> = slots.map(entry).into_iter().zip(sub_traversals_of).collect();
        fixture.published.installed_sub_traversals(&list);
        for (id, traversal) in &list {
            fixture.direct.installed(*id, traversal);
            fixture.visits.installed(*id, traversal);
        }
    }
    assert_eq!(fixture.published.stats().untracked, 0, "the published engine has these entries");
    assert_eq!(fixture.published.len(), 3);
    // The first flow is idle, and its last entry expires. The second flow still uses the first
    // entry.
    fixture.engines().into_iter().for_each(|engine| engine.removed(entry(1)));
    let stale = fixture.change(FlowModCommand::DeleteStrict, "ip");
    assert_eq!(stale, [vec![2], vec![0], vec![0]], "entry 0 stays, and 2 goes for nothing");
}

#[test]
fn stale_table_evicts_its_and_later_entries() {
    let rules = [
        "ip,actions=goto_table:1",
        "table=1,ip,actions=set_field:7->reg1,goto_table:2",
        "table=2,reg1=7,actions=output:2",
    ];
    let mut fixture = PublishedFixture::new(AT_ONCE, &rules);
    let version = fixture.pipeline.version();
    let cut = fixture.pipeline.translate_sub_traversals(&packet(1), None, version, &[1, 2]);
    let sub_traversals_of: Vec<_> =
        (0..).map(entry).zip(cut.into_iter().map(|part| Arc::new(part.traversal))).collect();
    assert_eq!(sub_traversals_of.len(), 3);
    fixture.published.installed_sub_traversals(&sub_traversals_of);
    assert_eq!(fixture.published.stats().untracked, 0);
    let [ended, ..] = fixture.add("table=1,priority=40000,ip,nw_dst=0.0.0.1,actions=drop");
    assert_eq!(ended, [1, 2]);
    let [ended, ..] = fixture.add("priority=40000,ip,nw_dst=0.0.0.1,actions=drop");
    assert_eq!(ended, [0]);
}

#[test]
fn the_published_engine_evicts_unmodelled_entries_by_table() {
    let rules = [
        // The second resubmit is a lookup after the first resubmit has returned.
        "ip,nw_dst=10.0.0.1,actions=resubmit(,1),resubmit(,2)",
        "ip,nw_dst=10.0.0.2,actions=goto_table:1",
        "table=1,actions=set_field:1->reg0",
        "table=2,actions=output:2",
    ];
    let mut fixture = PublishedFixture::new(AT_ONCE, &rules);
    fixture.install(0, 0x0a00_0001);
    fixture.install(1, 0x0a00_0002);
    assert_eq!(fixture.published.stats().untracked, 1);
    let [ended, others, _] = fixture.add("table=2,ip,nw_dst=10.9.9.9,actions=output:3");
    assert_eq!((ended, others), (vec![0], vec![]));
}

#[test]
fn a_clause_evicts_the_entries_of_its_table() {
    let mut fixture = PublishedFixture::new(AT_ONCE, &["ip,actions=output:2"]);
    fixture.install(0, 0x0a00_0001);
    let clause = "priority=40000,ip,nw_dst=10.0.0.1,actions=conjunction(1,1/2)";
    let [ended, ..] = fixture.add(clause);
    assert_eq!(ended, [0]);
    fixture.install(1, 0x0a00_0001);
    fixture.add("priority=40000,ip,in_port=1,actions=conjunction(1,2/2)");
    fixture.install(2, 0x0a00_0001);
    let [ended, ..] = fixture.add("priority=40000,ip,conj_id=1,actions=output:3");
    assert_eq!(ended, [2]);
}

#[test]
fn a_changed_object_evicts_its_readers() {
    let mut fixture = PublishedFixture::new(AT_ONCE, &[]);
    let group = |command, text| parse_group_mod(command, text, &NoPortNames).unwrap().into();
    let modify = |fixture: &PublishedFixture, request| {
        fixture.pipeline.modify(BRIDGE, [request], Time::ZERO).unwrap()
    };
    modify(&fixture, group(GroupCommand::Add, "group_id=1,type=all,bucket=output:2"));
    fixture.add("ip,nw_dst=10.0.0.1,actions=group:1");
    fixture.install(0, 0x0a00_0001);
    fixture.install(1, 0x0a00_0002);
    let change =
        modify(&fixture, group(GroupCommand::Modify, "group_id=1,type=all,bucket=output:3"));
    assert_eq!(fixture.apply(&change), [[0], [0], [0]]);
}

/// Returns the traversal with a mask of all bits: its entry covers one packet.
fn with_full_mask(traversal: Traversal) -> Arc<Traversal> {
    let mut all = FlowMask::EMPTY;
    all.words_mut().fill(u64::MAX);
    Arc::new(Traversal { mask: SparseMask::from(&all), ..traversal })
}

/// Generates rules that write headers and registers, and lead to earlier tables.
fn rule() -> impl Strategy<Value = String> {
    let matching = (0u8..4, 1u8..6, 0u32..16, prop::sample::select(&[0u32, 8, 12, 14, 15, 3][..]));
    let asked = prop_oneof![
        4 => Just(String::new()),
        1 => (0u8..3).prop_map(|value| format!(",reg1={value}")),
        1 => (0u8..3).prop_map(|value| format!(",metadata={value}")),
    ];
    let writes = prop_oneof![
        3 => Just(String::new()),
        2 => (0u8..16).prop_map(|value| format!("set_field:0.0.0.{value}->nw_dst,")),
        1 => (0u8..3).prop_map(|value| format!("set_field:{value}->reg1,")),
        1 => Just("move:NXM_OF_IP_DST[0..1]->NXM_NX_REG1[0..1],".to_owned()),
        1 => Just("push:NXM_OF_IP_DST[],load:5->NXM_OF_IP_DST[0..3],pop:NXM_NX_REG1[],".to_owned()),
        1 => Just("dec_ttl,load:1->NXM_OF_IP_DST[0],".to_owned()),
        1 => (1u8..3).prop_map(|value| format!("write_metadata:{value},")),
    ];
    let ends = prop_oneof![
        1 => Just("output:2".to_owned()),
        2 => (1u8..4).prop_map(|table| format!("goto_table:{table}")),
        2 => (0u8..4).prop_map(|table| format!("resubmit(,{table})")),
    ];
    (matching, asked, writes, ends).prop_filter_map(
        "goto leads forward",
        |((table, priority, value, mask), asked, writes, end)| {
            let is_back =
                end.strip_prefix("goto_table:").is_some_and(|to| to <= &*table.to_string());
            // Only `goto_table` may follow `write_metadata`.
            let is_late = writes.starts_with("write_metadata") && !end.starts_with("goto");
            let value = value & mask;
            (!is_back && !is_late).then(|| {
                format!(
                    "table={table},priority={priority},ip,nw_dst=0.0.0.{value}/0.0.0.{mask}{asked},\
                     actions={writes}{end}"
                )
            })
        },
    )
}

#[derive(Clone, Debug)]
enum Event {
    Install(u32),
    Remove(prop::sample::Index),
    /// Adds these rules, and replaces rules with the same match.
    Add(Vec<String>),
    /// Deletes a rule, by its index among the added rules.
    Delete(prop::sample::Index),
    Wait,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u32..16).prop_map(Event::Install),
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
        3 => prop::collection::vec(rule(), 1..3).prop_map(Event::Add),
        2 => any::<prop::sample::Index>().prop_map(Event::Delete),
        1 => Just(Event::Wait),
    ]
}

/// The published and the direct engine, with entries that cover one packet each.
struct Exact {
    fixture: PublishedFixture,
    rules: Vec<String>,
    live: Vec<u32>,
    installed: u32,
    met: EventCounts,
}

impl Exact {
    fn new(has_gates: bool) -> Self {
        let fixture = PublishedFixture::new(PublishedSettings { has_gates, ..AT_ONCE }, &[]);
        let (rules, live, met) = (Vec::new(), Vec::new(), EventCounts::default());
        Self { fixture, rules, live, installed: 0, met }
    }

    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Install(destination) => {
                let version = self.fixture.pipeline.version();
                let traversal =
                    with_full_mask(self.fixture.pipeline.translate(&packet(*destination), version));
                self.fixture.published.installed(entry(self.installed), &traversal);
                self.fixture.direct.installed(entry(self.installed), &traversal);
                self.live.push(self.installed);
                self.installed += 1;
            }
            Event::Remove(index) if !self.live.is_empty() => {
                let slot = self.live.remove(index.index(self.live.len()));
                self.fixture.published.removed(entry(slot));
                self.fixture.direct.removed(entry(slot));
            }
            Event::Add(rules) => {
                self.rules.extend(rules.iter().cloned());
                self.change(FlowModCommand::Add, rules);
            }
            Event::Delete(index) if !self.rules.is_empty() => {
                let rule = self.rules.remove(index.index(self.rules.len()));
                let rule = rule.split(",actions=").next().unwrap_or_default().to_owned();
                self.change(FlowModCommand::DeleteStrict, &[rule]);
            }
            Event::Wait => self.fixture.wait(),
            Event::Remove(_) | Event::Delete(_) => {}
        }
        assert_eq!(self.fixture.published.len(), self.live.len());
    }

    fn change(&mut self, command: FlowModCommand, rules: &[String]) {
        let mods: Vec<_> = rules.iter().map(|rule| flow_mod(command, rule)).collect();
        let change = self.fixture.pipeline.apply(BRIDGE, &mods, Time::ZERO).unwrap();
        let before = self.fixture.published.stats().untracked;
        let [published, direct, _] = self.fixture.apply(&change);
        self.met.add(CHANGES, 1);
        self.met.add("evicted", published.len());
        if before == 0 {
            assert_eq!(published, direct);
            self.met.add("compared", 1);
            self.met.add("evicted and compared", published.len());
        } else {
            assert!(
                direct.iter().all(|slot| published.contains(slot)),
                "{direct:?} in {published:?}"
            );
        }
        let surplus = published.iter().filter(|slot| !direct.contains(slot));
        surplus.for_each(|slot| self.fixture.direct.removed(entry(*slot)));
        self.live.retain(|slot| !published.contains(slot));
    }
}

/// Runs a hundredth of the usual changes, because the circuit is built often.
#[test]
fn one_packet_entries_are_evicted_exactly_when_stale() {
    let sequences = || {
        let rules = prop::collection::vec(rule(), 4..20);
        (rules, prop::collection::vec(event(), 1..24), any::<bool>())
    };
    let met = run_sequences(100, sequences, |(rules, events, has_gates), met| {
        let mut exact = Exact::new(has_gates);
        exact.apply_event(&Event::Add(rules));
        events.iter().for_each(|event| exact.apply_event(event));
        *met = exact.met;
    });
    // Evictions of untracked entries are not compared, because the published engine may evict more
    // of them.
    met.assert_often(&[("evicted", 200), ("compared", 300), ("evicted and compared", 50)]);
}

#[test]
fn no_stale_one_packet_entry_stays() {
    let sequences = || {
        let packets = prop::collection::vec(generate::packet(), 8);
        (generate::network(), packets, prop::collection::vec(generate::change(), 1..6))
    };
    let met = run_sequences(500, sequences, |(network, packets, ops), met| {
        let mut checked = CheckedPipeline::new(&network);
        let mut published =
            PublishedKairo::new(&checked.pipeline, &generate::BRIDGES, AT_ONCE, || Time::ZERO);
        let mut direct = Direct::new(checked.pipeline.version(), 1);
        let all = packets.iter().flat_map(|key| checked.traversals(key));
        for (slot, traversal) in (0..).zip(all.filter(|own| own.learnings.is_empty())) {
            let traversal = with_full_mask(traversal);
            published.installed(entry(slot), &traversal);
            direct.installed(entry(slot), &traversal);
        }
        for op in &ops {
            let Some(change) = checked.apply(op) else { continue };
            met.add(CHANGES, 1);
            let evicted = published.apply(&change.deltas, change.version);
            let stale = direct.apply(&change.deltas, change.version);
            met.add("stale", stale.len());
            for stale in stale {
                assert!(evicted.contains(&stale), "{stale} stays");
            }
            evicted.into_iter().for_each(|id| direct.removed(id));
            assert_eq!(published.len(), direct.len());
            met.add("stayed", direct.len());
        }
    });
    met.assert_often(&[("stale", 200), ("stayed", 1000)]);
}
