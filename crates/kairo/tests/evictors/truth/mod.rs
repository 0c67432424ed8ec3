//! Engines against the truth, by enumeration: headers of nine bits, every packet of every entry,
//! before and after each change. Half of the packets are first fragments, whose ports actions see and
//! tables do not.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, text::NoPortNames};
use shunt_kairo::BruteForce;
use shunt_pipeline::{
    BridgeId, BridgeSettings, EntryId, Evictor, FlowModCommand, GroupCommand, Installed,
    Modification, OwnerId, Pipeline, PortInfo, Time, Traversal,
    text::{parse_group_mod, parse_rule},
};

use crate::all::{All, CHANGES, Met, live_through};

const BRIDGE: BridgeId = BridgeId::new(1);
const TABLES: u8 = 3;
/// Groups are numbered from 1.
const GROUPS: u8 = 2;

/// A packet: the lowest four bits of its destination, above them two of its source and two of the port
/// that it goes to, and whether it is a first fragment.
type Packet = u32;
const PACKETS: std::ops::Range<Packet> = 0..512;
const DESTINATION: Packet = 0x0f;
const SOURCE: Packet = 0x30;
const PORT: Packet = 0xc0;
const FRAGMENT: Packet = 0x100;
const SOURCE_UNIT: Packet = 0x10;
const PORT_UNIT: Packet = 0x40;

/// What a rule does with a packet.
#[derive(Clone, Debug)]
enum Action {
    Output(u8),
    Group(u8),
    Goto(u8),
    /// Writes bits of the destination, and goes on.
    Write(Packet, Packet, u8),
    /// Copies the source over the lowest bits of the destination, and goes on.
    Copy(u8),
    /// The same with the port.
    CopyPort(u8),
    /// Writes the port, and goes on.
    WritePort(Packet, u8),
}

#[derive(Clone, Debug)]
struct Rule {
    table: u8,
    priority: u8,
    value: Packet,
    mask: Packet,
    action: Action,
    /// No two rules have the same, and a rule that is modified gets another.
    name: u32,
}

/// A change of the rules, or of a group.
#[derive(Clone, Debug)]
enum Op {
    Add(Rule),
    /// By its place among the rules that there are.
    Delete(prop::sample::Index),
    Modify(prop::sample::Index, Action),
    /// A group leads to another port.
    Lead(u8, u8),
}

#[derive(Clone, Debug)]
enum Event {
    Install(Packet),
    /// An entry is installed after changes that its translation has not seen.
    InstallLate(Packet, Vec<Op>),
    /// An entry is lost, by its place among those that there are.
    Remove(prop::sample::Index),
    /// These come at once.
    Change(Vec<Op>),
    Tidy,
}

/// The lookups of a packet: tables, and the rules that they found; and the group that it ends in.
type Path = Vec<(Place, Option<u32>)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Table(u8),
    Group(u8),
}

/// Rules, the oldest first, and groups.
#[derive(Default)]
struct Rules {
    all: Vec<Rule>,
    /// The port that each group leads to, and what it is called since it does.
    groups: BTreeMap<u8, (u8, u32)>,
    names: u32,
}

/// An entry: its packets, and the path of each.
struct Entry {
    paths: BTreeMap<Packet, Path>,
}

struct Scene {
    pipeline: Arc<Pipeline>,
    engines: All,
    brute_force: BruteForce,
    rules: Rules,
    entries: BTreeMap<EntryId, Entry>,
    installed: u32,
    has_writes: bool,
    met: Met,
}

fn action(can_write: bool) -> impl Strategy<Value = Action> {
    let next = 1..TABLES;
    let writes = u32::from(can_write);
    prop_oneof![
        3 => (1u8..4).prop_map(Action::Output),
        1 => (1..=GROUPS).prop_map(Action::Group),
        4 => next.clone().prop_map(Action::Goto),
        2 * writes => (0..=DESTINATION, 1..=DESTINATION, next.clone())
            .prop_map(|(value, mask, next)| Action::Write(value & mask, mask, next)),
        writes => next.clone().prop_map(Action::Copy),
        writes => next.clone().prop_map(Action::CopyPort),
        writes => (0..4 * PORT_UNIT, next)
            .prop_map(|(port, next)| Action::WritePort(port & PORT, next)),
    ]
}

fn rule(can_write: bool) -> impl Strategy<Value = Rule> {
    let bits = 0..FRAGMENT;
    let mask = (bits.clone(), bits).prop_map(|(one, other)| one & other);
    let places = (0..TABLES, 1u8..8);
    (places, PACKETS, mask, action(can_write)).prop_map(
        |((table, priority), value, mask, action)| Rule {
            table,
            priority,
            value: value & mask,
            mask,
            action,
            name: 0,
        },
    )
}

fn op(can_write: bool) -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => rule(can_write).prop_map(Op::Add),
        3 => any::<prop::sample::Index>().prop_map(Op::Delete),
        2 => (any::<prop::sample::Index>(), action(can_write))
            .prop_map(|(index, action)| Op::Modify(index, action)),
        1 => (1..=GROUPS, 1u8..4).prop_map(|(group, port)| Op::Lead(group, port)),
    ]
}

fn events(can_write: bool) -> impl Strategy<Value = Vec<Event>> {
    let ops = || prop::collection::vec(op(can_write), 1..4);
    let event = prop_oneof![
        6 => PACKETS.prop_map(Event::Install),
        1 => (PACKETS, ops()).prop_map(|(packet, ops)| Event::InstallLate(packet, ops)),
        1 => any::<prop::sample::Index>().prop_map(Event::Remove),
        4 => ops().prop_map(Event::Change),
        1 => Just(Event::Tidy),
    ];
    let rules = prop::collection::vec(rule(can_write).prop_map(Op::Add), 0..12);
    (rules, prop::collection::vec(event, 1..40)).prop_map(|(rules, mut events)| {
        events.insert(0, Event::Change(rules));
        events
    })
}

impl Rule {
    /// As `ovs-ofctl` writes it.
    fn text(&self, has_actions: bool) -> String {
        let Self { table, priority, value, mask, .. } = self;
        let bits = |bits: Packet, of: Packet| (bits & of) >> of.trailing_zeros();
        let side = |name, of| match bits(*mask, of) {
            0 => String::new(),
            mask => format!(",{name}=0.0.0.{}/0.0.0.{mask}", bits(*value, of)),
        };
        let (destination, source) = (side("nw_dst", DESTINATION), side("nw_src", SOURCE));
        let port = match bits(*mask, PORT) {
            0 => String::new(),
            mask => format!(",tp_dst={}/{mask:#x}", bits(*value, PORT)),
        };
        let matching = format!("table={table},priority={priority},tcp{destination}{source}{port}");
        let actions = match self.action {
            Action::Output(port) => format!("output:{port}"),
            Action::Group(group) => format!("group:{group}"),
            Action::Goto(next) => goto(*table, next),
            Action::Write(value, mask, next) => {
                let set = format!("set_field:0.0.0.{value}/0.0.0.{mask}->ip_dst");
                format!("{set},{}", goto(*table, next))
            }
            Action::Copy(next) => {
                let copy = "move:NXM_OF_IP_SRC[0..1]->NXM_OF_IP_DST[0..1]";
                format!("{copy},{}", goto(*table, next))
            }
            Action::CopyPort(next) => {
                let copy = "move:NXM_OF_TCP_DST[0..1]->NXM_OF_IP_DST[0..1]";
                format!("{copy},{}", goto(*table, next))
            }
            Action::WritePort(port, next) => {
                let set = format!("set_field:{}->tcp_dst", bits(port, PORT));
                format!("{set},{}", goto(*table, next))
            }
        };
        if has_actions { format!("{matching},actions={actions}") } else { matching }
    }
}

/// On to a later table, or out.
fn goto(table: u8, next: u8) -> String {
    if next > table { format!("goto_table:{next}") } else { "output:1".to_owned() }
}

impl Rules {
    fn path(&self, mut packet: Packet) -> Path {
        let (mut path, mut table) = (Path::new(), 0);
        loop {
            let seen = if packet & FRAGMENT == 0 { packet } else { packet & !PORT };
            let own = self
                .all
                .iter()
                .filter(|rule| rule.table == table && seen & rule.mask == rule.value);
            // The first of the highest is the oldest.
            let best =
                own.reduce(|best, rule| if rule.priority > best.priority { rule } else { best });
            path.push((Place::Table(table), best.map(|rule| rule.name)));
            let next = match best.map(|rule| &rule.action) {
                None | Some(Action::Output(_)) => return path,
                Some(Action::Group(group)) => {
                    let name = self.groups.get(group).map(|(_, name)| *name);
                    path.push((Place::Group(*group), name));
                    return path;
                }
                Some(Action::Goto(next)) => *next,
                Some(Action::Write(value, mask, next)) => {
                    packet = packet & !mask | value;
                    *next
                }
                Some(Action::Copy(next)) => {
                    packet = packet & !3 | ((packet & SOURCE) / SOURCE_UNIT);
                    *next
                }
                Some(Action::CopyPort(next)) => {
                    packet = packet & !3 | ((packet & PORT) / PORT_UNIT);
                    *next
                }
                Some(Action::WritePort(port, next)) => {
                    packet = packet & !PORT | port;
                    *next
                }
            };
            if next <= table {
                return path;
            }
            table = next;
        }
    }

    /// Makes a change, and writes it as a request; `None`: it is none.
    fn change(&mut self, op: &Op) -> Option<Modification> {
        let (command, text) = match op {
            Op::Lead(group, port) => return self.lead(*group, *port),
            op => self.change_rule(op)?,
        };
        Some(parse_rule(command, &text, &NoPortNames).unwrap().into())
    }

    /// Makes a group lead to a port.
    fn lead(&mut self, group: u8, port: u8) -> Option<Modification> {
        self.names += 1;
        let before = self.groups.get(&group).map(|(port, _)| *port);
        if before == Some(port) {
            return None;
        }
        self.groups.insert(group, (port, self.names));
        let command = if before.is_some() { GroupCommand::Modify } else { GroupCommand::Add };
        let text = format!("group_id={group},type=indirect,bucket=output:{port}");
        Some(parse_group_mod(command, &text, &NoPortNames).unwrap().into())
    }

    fn change_rule(&mut self, op: &Op) -> Option<(FlowModCommand, String)> {
        self.names += 1;
        match op {
            Op::Add(rule) => {
                let identity = |rule: &Rule| (rule.table, rule.priority, rule.value, rule.mask);
                if self.all.iter().any(|own| identity(own) == identity(rule)) {
                    return None;
                }
                self.all.push(Rule { name: self.names, ..rule.clone() });
                Some((FlowModCommand::Add, rule.text(true)))
            }
            Op::Lead(..) => None,
            Op::Delete(_) | Op::Modify(..) if self.all.is_empty() => None,
            Op::Delete(index) => {
                let rule = self.all.remove(index.index(self.all.len()));
                Some((FlowModCommand::DeleteStrict, rule.text(false)))
            }
            Op::Modify(index, action) => {
                let index = index.index(self.all.len());
                let rule = &mut self.all[index];
                let before = rule.text(true);
                rule.action = action.clone();
                if rule.text(true) == before {
                    return None;
                }
                rule.name = self.names;
                Some((FlowModCommand::ModifyStrict, rule.text(true)))
            }
        }
    }
}

fn key(packet: Packet) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGE.number().into());
    key.set_in_port(PortNo::new(1));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::Ipv4Dst, (packet & DESTINATION).into());
    key.set_field(FieldId::Ipv4Src, ((packet & SOURCE) / SOURCE_UNIT).into());
    key.set_field(FieldId::IpProto, 6);
    key.set_field(FieldId::TcpDst, ((packet & PORT) / PORT_UNIT).into());
    key.set_field(FieldId::NwFrag, (packet / FRAGMENT).into());
    key
}

impl Scene {
    fn new() -> Self {
        let pipeline = Arc::new(Pipeline::new(1));
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, (1..=3).map(PortInfo::datapath).collect()).unwrap();
        let mut rules = Rules::default();
        let groups: Vec<_> = (1..=GROUPS).filter_map(|group| rules.lead(group, 1)).collect();
        pipeline.modify(BRIDGE, groups, Time::ZERO).unwrap();
        let engines = All::new(pipeline.version());
        let brute_force = BruteForce::new(Arc::clone(&pipeline), PACKETS.map(key).collect());
        Self {
            pipeline,
            engines,
            brute_force,
            rules,
            entries: BTreeMap::new(),
            installed: 0,
            has_writes: false,
            met: Met::default(),
        }
    }

    fn translate(&self, packet: Packet) -> Arc<Traversal> {
        Arc::new(self.pipeline.translate(&key(packet), self.pipeline.version()))
    }

    /// Makes an entry of a packet, with the region that it is said to have; but none if its
    /// translation has missed a version.
    fn install(&mut self, packet: Packet, traversal: &Arc<Traversal>) {
        // Slots are used again and again, under new generations, and sometimes under the same.
        let (slot, generation) = (self.installed % SLOTS, self.installed / (2 * SLOTS));
        let id = EntryId { owner: OwnerId(0), slot, generation };
        self.installed += 1;
        let answer = self.engines.installed(id, traversal);
        assert_eq!(self.brute_force.installed(id, traversal), answer);
        let is_late = traversal.version < self.pipeline.version();
        assert_eq!(answer == Installed::Late, is_late, "{id}");
        self.met.add(if is_late { "late" } else { "installed" }, 1);
        if is_late {
            return;
        }
        let paths = region(traversal).map(|packet| (packet, self.rules.path(packet)));
        let entry = Entry { paths: paths.collect() };
        assert!(entry.paths.values().all(|path| *path == entry.paths[&packet]), "they fare alike");
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
        self.brute_force.removed(id);
        self.met.add("removed", 1);
    }

    fn change(&mut self, ops: &[Op]) {
        let (mut deltas, mut newest) = (Vec::new(), self.pipeline.version());
        for op in ops {
            let Some(request) = self.rules.change(op) else { continue };
            let change = self.pipeline.modify(BRIDGE, [request], Time::ZERO).unwrap();
            newest = newest.max(change.version);
            deltas.extend(change.deltas);
            self.met.add(CHANGES, 1);
            self.met.add("groups", matches!(op, Op::Lead(..)).into());
        }
        let written = |rule: &Rule| {
            !matches!(rule.action, Action::Output(_) | Action::Group(_) | Action::Goto(_))
        };
        self.has_writes |= self.rules.all.iter().any(written);
        let evicted = self.engines.apply(&deltas, newest);
        let by_force = self.brute_force.apply(&deltas, newest);
        for (id, entry) in &self.entries {
            let is_stale =
                entry.paths.iter().any(|(packet, path)| self.rules.path(*packet) != *path);
            assert_eq!(by_force.contains(id), is_stale, "{id} by brute force");
            if is_stale {
                assert!(evicted.contains(id), "{id} is stale and stays");
                self.met.add("evicted", 1);
            } else if evicted.contains(id) {
                assert!(self.has_writes, "{id} is right and goes");
                self.met.add("right and gone", 1);
            }
        }
        for id in evicted {
            self.entries.remove(&id);
            self.brute_force.removed(id);
        }
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::Install(packet) => self.install(*packet, &self.translate(*packet)),
            Event::InstallLate(packet, ops) => {
                let late = self.translate(*packet);
                self.change(ops);
                self.install(*packet, &late);
            }
            Event::Remove(index) => self.remove(*index),
            Event::Change(ops) => self.change(ops),
            Event::Tidy => while self.engines.tidy() {},
        }
        assert_eq!(self.engines.len(), self.entries.len());
    }
}

/// Slots of entries.
const SLOTS: u32 = 16;

/// The packets that an entry stands for.
fn region(traversal: &Traversal) -> impl Iterator<Item = Packet> {
    let (own, mask) = (FlowKey::from(&traversal.key), FlowMask::from(&traversal.mask));
    PACKETS.filter(move |packet| key(*packet).agrees_with(&own, &mask))
}

/// A tenth of the changes that engines are compared with each other under.
fn check(can_write: bool) {
    let met = live_through(
        10,
        || events(can_write),
        |events, met| {
            let mut scene = Scene::new();
            events.iter().for_each(|event| scene.happens(event));
            *met = scene.met;
        },
    );
    met.assert_often(&[
        ("installed", 100),
        ("evicted", 50),
        ("late", 10),
        ("removed", 10),
        ("groups", 10),
    ]);
    // What had already what was written is not told from what gets it.
    met.assert_at_most("right and gone", 10, "evicted");
}

#[test]
fn exactly_the_entries_go_whose_packets_take_another_path() {
    check(false);
}

#[test]
fn no_entry_stays_whose_packets_take_another_path_through_rewritten_headers() {
    check(true);
}
