//! What an entry says that it read, kind by kind: if one kind is forgotten, a change leaves an entry
//! that forwards wrongly.
//!
//! Each case installs an entry twice, once as it was translated and once without its reads of one
//! kind. Then something changes that makes the entry wrong: the first must go, and the second stays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Change, EntryId, Evictor, FlowModCommand, GroupCommand, MeterCommand,
    Modification, Object, OwnerId, Pipeline, PortConfig, PortInfo, PortKind, Time, Traversal,
    text::{parse_group_mod, parse_meter_mod, parse_rule},
};

const BRIDGE: BridgeId = BridgeId::new(1);
const PEER: BridgeId = BridgeId::new(2);
const WHOLE: EntryId = EntryId { owner: OwnerId(0), slot: 0, generation: 0 };
const FORGETFUL: EntryId = EntryId { owner: OwnerId(0), slot: 1, generation: 0 };

struct Switch(Pipeline);

impl Switch {
    fn new() -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, (1..=4).map(PortInfo::datapath).collect()).unwrap();
        Self(pipeline)
    }

    fn modify(&self, request: impl Into<Modification>) -> Change {
        self.0.modify(BRIDGE, [request.into()], Time::ZERO).unwrap()
    }

    fn rule(&self, command: FlowModCommand, rule: &str) -> Change {
        self.modify(parse_rule(command, rule, &NoPortNames).unwrap())
    }

    fn add(&self, rule: &str) -> Change {
        self.rule(FlowModCommand::Add, rule)
    }

    fn group(&self, command: GroupCommand, group: &str) -> Change {
        self.modify(parse_group_mod(command, group, &NoPortNames).unwrap())
    }

    fn meter(&self, command: MeterCommand, meter: &str) -> Change {
        self.modify(parse_meter_mod(command, meter).unwrap())
    }

    fn translate(&self, key: &FlowKey) -> Traversal {
        self.0.translate(key, self.0.version())
    }

    /// Makes these changes after an entry was installed, and demands what the head of this file says
    /// of its reads of a kind.
    #[track_caller]
    fn assert_needed(
        &self,
        entry: Traversal,
        is_kind: fn(&Object) -> bool,
        change: impl FnOnce(&Self) -> Vec<Change>,
    ) {
        let kept = entry.reads.iter().copied().filter(|object| !is_kind(object)).collect();
        let forgetful = Traversal { reads: kept, ..entry.clone() };
        assert!(forgetful.reads.len() < entry.reads.len(), "it reads one of the kind");
        let mut engine = Direct::new(self.0.version(), 1);
        let entry = Arc::new(entry);
        engine.installed(WHOLE, &entry);
        engine.installed(FORGETFUL, &Arc::new(forgetful));
        let changes = change(self);
        let ended = changes.iter().flat_map(|own| engine.apply(&own.deltas, own.version));
        assert_eq!(ended.collect::<Vec<_>>(), [WHOLE]);
        let now = self.0.translate_again(&entry, self.0.version());
        let is_right = now.actions == entry.actions
            && now.next == entry.next
            && now.learnings.len() == entry.learnings.len();
        assert!(!is_right, "what is left forwards wrongly: {entry:?}");
    }
}

/// A packet of a port between two hosts.
fn packet(port: u32, [source, target]: [u8; 2]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_bridge(u64::from(BRIDGE.number()));
    key.set_in_port(PortNo::new(port));
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::EthSrc, 0x0200_0000_0000 | u128::from(source));
    key.set_field(FieldId::EthDst, 0x0200_0000_0000 | u128::from(target));
    key
}

fn any_packet() -> FlowKey {
    packet(1, [1, 2])
}

#[test]
fn the_ports() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Port(..)),
        |switch| {
            let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
            ports[1].kind = PortKind::Unbound;
            vec![switch.0.set_ports(BRIDGE, ports).unwrap()]
        },
    );
}

#[test]
fn the_ports_of_a_flood() {
    let switch = Switch::new();
    switch.add("actions=flood");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Ports(_)),
        |switch| {
            vec![switch.0.set_ports(BRIDGE, (1..=5).map(PortInfo::datapath).collect()).unwrap()]
        },
    );
}

#[test]
fn whether_any_port_drops_what_it_receives() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::PortFilters(_)),
        |switch| {
            let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
            ports[0].config = PortConfig { no_recv: true, ..PortConfig::default() };
            vec![switch.0.set_ports(BRIDGE, ports).unwrap()]
        },
    );
}

#[test]
fn a_port_that_comes_goes_or_loses_its_link_ends_no_entry_that_has_nothing_to_do_with_it() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let mut engine = Direct::new(switch.0.version(), 1);
    engine.installed(WHOLE, &Arc::new(switch.translate(&any_packet())));
    let mut ports: Vec<_> = (1..=5).map(PortInfo::datapath).collect();
    let mut set = |ports: &Vec<_>| {
        let change = switch.0.set_ports(BRIDGE, ports.clone()).unwrap();
        engine.apply(&change.deltas, change.version)
    };
    assert!(set(&ports).is_empty());
    ports[3].link_up = false;
    assert!(set(&ports).is_empty());
    ports.pop();
    assert!(set(&ports).is_empty());
    ports[1].config = PortConfig { no_flood: true, ..PortConfig::default() };
    assert_eq!(set(&ports), [WHOLE]);
}

#[test]
fn a_bridge_that_is_not_there_yet() {
    let switch = Switch::new();
    let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
    ports[1].kind = PortKind::Patch { bridge: PEER, port: PortNo::new(1) };
    switch.0.set_ports(BRIDGE, ports).unwrap();
    switch.add("actions=output:2,output:3");
    let entry = switch.translate(&any_packet());
    let is_kind = |object: &Object| *object == Object::Bridge(PEER);
    switch.assert_needed(entry, is_kind, |switch| {
        let added = switch.0.add_bridge(PEER, BridgeSettings::default());
        let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
        ports[0].kind = PortKind::Patch { bridge: BRIDGE, port: PortNo::new(2) };
        let ports = switch.0.set_ports(PEER, ports).unwrap();
        let rule = parse_rule(FlowModCommand::Add, "actions=output:4", &NoPortNames).unwrap();
        vec![added, ports, switch.0.apply(PEER, &[rule], Time::ZERO).unwrap()]
    });
}

#[test]
fn a_group() {
    let switch = Switch::new();
    switch.group(GroupCommand::Add, "group_id=1,type=all,bucket=output:2");
    switch.add("actions=group:1");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Group(..)),
        |switch| vec![switch.group(GroupCommand::Modify, "group_id=1,type=all,bucket=output:3")],
    );
}

#[test]
fn a_meter() {
    let switch = Switch::new();
    switch.meter(MeterCommand::Add, "meter=1,pktps,band=type=drop,rate=5");
    switch.add("actions=meter:1,output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Meter(..)),
        |switch| vec![switch.meter(MeterCommand::Modify, "meter=1,pktps,band=type=drop,rate=9")],
    );
}

#[test]
fn where_an_address_is() {
    let switch = Switch::new();
    switch.add("actions=normal");
    let learn = |switch: &Switch, key: &FlowKey| {
        let learnings = switch.translate(key).learnings;
        switch.0.learn(&learnings, Time::ZERO)
    };
    learn(&switch, &any_packet());
    let entry = switch.translate(&any_packet());
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Mac(..)),
        |switch| vec![learn(switch, &packet(3, [2, 1]))],
    );
}

#[test]
fn a_rule_that_a_packet_has_taught() {
    let switch = Switch::new();
    switch.add(
        "actions=learn(table=1,cookie=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    );
    let learnings = switch.translate(&any_packet()).learnings;
    switch.0.learn(&learnings, Time::ZERO);
    let entry = switch.translate(&any_packet());
    assert!(entry.learnings.is_empty(), "it is known");
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Learned(..)),
        |switch| vec![switch.rule(FlowModCommand::Delete, "cookie=5/-1")],
    );
}

#[test]
fn what_hidden_state_can_be_read_behind_a_cut() {
    let switch = Switch::new();
    switch.add("actions=load:5->NXM_NX_REG5[],goto_table:1");
    switch.add("table=1,actions=output:2");
    let version = switch.0.version();
    let mut pieces = switch.0.translate_pieces(&any_packet(), None, version, &[1]);
    let entry = pieces.remove(0).traversal;
    switch.assert_needed(
        entry,
        |object| matches!(object, Object::Live(_)),
        |switch| vec![switch.add("table=1,priority=9,reg5=5,actions=output:3")],
    );
}
