//! Tests of the objects that a translation reads: each test fails if one is not recorded.
//!
//! If the reads lack an object, stale cache entries stay after a change of the object.

use shunt_flow::{FieldId, PortNo, layout::word};
use shunt_pipeline::{
    Action, BundleAction, BundleAlgorithm, FlowModCommand, GroupId, GroupKind, HashFields,
    MeterCommand, MeterId, MulticastSnooping, Object, PortConfig, Time,
};

use crate::{
    bonds::ports_with_bond,
    build::{add_group, bucket, drop_band, group, meter_mod, output, rule, watching},
    dependencies::{NORMAL, assert_reads, assert_whole, run},
    learn::learn,
    multicast,
    patches::{PEER, pair},
    switch::{BRIDGE, Switch, key},
};

#[test]
fn the_bridge_and_the_recirculation_id_are_consulted() {
    let traversal = run(&[output(2)], "in_port=1");
    assert_eq!(traversal.mask.word(usize::from(word::BRIDGE)), u64::MAX);
    assert_eq!(traversal.visits[0].mask.word(usize::from(word::BRIDGE)), u64::MAX);
    assert_whole(&traversal, &[FieldId::RecircId]);
    assert_reads(&traversal, Object::Bridge(BRIDGE));
    // A translation in a bridge without rules also consults the bridge.
    let switch = Switch::new(&[]);
    switch.configure(1, PortConfig { no_recv: true, ..PortConfig::default() });
    let traversal = switch.translate("in_port=1");
    assert!(traversal.visits.is_empty());
    assert_eq!(traversal.mask.word(usize::from(word::BRIDGE)), u64::MAX);
    assert_whole(&traversal, &[FieldId::RecircId]);
}

#[test]
fn a_traversal_records_the_ports_of_its_outputs() {
    for (port, read) in [
        (PortNo::FLOOD, Object::Ports(BRIDGE)),
        (PortNo::ALL, Object::Ports(BRIDGE)),
        (PortNo::new(2), Object::Port(BRIDGE, PortNo::new(2))),
        (PortNo::new(99), Object::Port(BRIDGE, PortNo::new(99))),
        (PortNo::IN_PORT, Object::PortFilters(BRIDGE)),
    ] {
        let traversal = run(&[Action::Output { port, max_len: 0 }], "in_port=1");
        assert_reads(&traversal, read);
    }
}

#[test]
fn output_to_bond_reads_its_active_member() {
    let switch = Switch::of_actions(&[NORMAL]);
    switch.set_ports(ports_with_bond(2));
    let from_bond = switch.translate("in_port=2,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b");
    switch.pipeline.learn(&from_bond.learnings, Time::ZERO);
    let to_bond = "in_port=3,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a";
    // A packet that learns its source address reads all ports.
    switch.pipeline.learn(&switch.translate(to_bond).learnings, Time::ZERO);
    for (active, read) in [(1, Object::Port(BRIDGE, PortNo::new(1))), (0, Object::Ports(BRIDGE))] {
        switch.set_ports(ports_with_bond(active));
        let traversal = switch.translate(to_bond);
        assert_reads(&traversal, Object::Port(BRIDGE, PortNo::new(2)));
        assert_reads(&traversal, read);
    }
}

#[test]
fn with_many_ports_the_port_set_is_read() {
    let outputs: Vec<Action> = (2..2000).map(output).collect();
    let reads = run(&outputs, "in_port=1").reads;
    assert!(reads.contains(&Object::Ports(BRIDGE)), "{reads:?}");
    assert!(reads.len() < 10, "{reads:?}");
}

#[test]
fn a_patch_output_reads_both_ports() {
    let traversal = pair(&["actions=output:5"], &["actions=drop"]).translate("in_port=1");
    assert_reads(&traversal, Object::Port(BRIDGE, PortNo::new(5)));
    assert_reads(&traversal, Object::Port(PEER, PortNo::new(1)));
}

#[test]
fn an_ingress_output_after_partition_reads_port_filters() {
    let switch = Switch::new(&["actions=goto_table:1", "table=1,actions=in_port"]);
    let version = switch.pipeline.version();
    let sub_traversals =
        switch.pipeline.translate_sub_traversals(&key("in_port=1"), None, version, &[1]);
    assert_eq!(sub_traversals.len(), 2);
    for sub_traversal in &sub_traversals {
        assert_reads(&sub_traversal.traversal, Object::PortFilters(BRIDGE));
    }
}

#[test]
fn an_output_to_one_port_reads_no_other() {
    let traversal = run(&[output(2)], "in_port=1");
    let is_of_others = |object: &Object| match object {
        Object::Port(_, number) => *number != PortNo::new(2),
        object => matches!(object, Object::Ports(_)),
    };
    assert!(!traversal.reads.iter().any(is_of_others), "{:?}", traversal.reads);
}

#[test]
fn a_group_reads_the_groups_it_watches() {
    let switch = Switch::new(&[]);
    let mut watcher = bucket(vec![output(3)]);
    watcher.watch_group = Some(GroupId::new(2));
    switch.make([
        add_group(2, GroupKind::FastFailover, vec![watching(2, vec![])]),
        add_group(1, GroupKind::FastFailover, vec![watcher]),
        rule("", vec![group(1)]).into(),
    ]);
    let traversal = switch.translate("in_port=1");
    assert_reads(&traversal, Object::Group(BRIDGE, GroupId::new(1)));
    assert_reads(&traversal, Object::Group(BRIDGE, GroupId::new(2)));
    assert_reads(&traversal, Object::Port(BRIDGE, PortNo::new(2)));
}

#[test]
fn a_bundle_reads_its_fields_and_members() {
    let bundle = Action::Bundle(Box::new(BundleAction {
        fields: HashFields::EthSrc,
        basis: 0,
        algorithm: BundleAlgorithm::HighestRandomWeight,
        members: [PortNo::new(2), PortNo::new(3)].into(),
        target: None,
    }));
    let traversal = run(&[bundle], "in_port=1");
    assert_whole(&traversal, &[FieldId::EthSrc]);
    for member in [2, 3].map(PortNo::new) {
        assert_reads(&traversal, Object::Port(BRIDGE, member));
    }
}

#[test]
fn a_meter_action_reads_its_meter() {
    let switch = Switch::new(&[]);
    switch.make([
        meter_mod(MeterCommand::Add, 1, vec![drop_band(5, 0)]),
        rule("", vec![Action::Meter(MeterId::new(1)), output(2)]).into(),
    ]);
    assert_reads(&switch.translate("in_port=1"), Object::Meter(BRIDGE, MeterId::new(1)));
}

#[test]
fn locations_of_addresses_are_read() {
    let packet = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";
    let back = "in_port=2,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a";
    let switch = Switch::of_actions(&[NORMAL]);
    let mac = |last| Object::Mac(BRIDGE, 0, [2, 0, 0, 0, 0, last]);
    for _ in 0..2 {
        let traversal = switch.translate(packet);
        assert_reads(&traversal, mac(0x0a));
        assert_reads(&traversal, mac(0x0b));
        switch.pipeline.learn(&traversal.learnings, Time::ZERO);
        switch.pipeline.learn(&switch.translate(back).learnings, Time::ZERO);
    }
    assert_eq!(switch.pipeline.macs(BRIDGE).len(), 2, "known in the second round");
}

#[test]
fn a_learn_action_reads_its_rule() {
    let packet = "in_port=3,dl_dst=02:00:00:00:00:02";
    let switch = Switch::of_actions(&[learn(|_| {})]);
    for command in [FlowModCommand::Add, FlowModCommand::Delete] {
        let traversal = switch.translate(packet);
        let text = "table=1,priority=7,dl_src=02:00:00:00:00:02";
        let text = if command == FlowModCommand::Add {
            format!("{text},cookie=5,actions=output:3")
        } else {
            text.replace("priority=7,", "")
        };
        let change = switch.send(command, &text).expect("the rule is legal");
        let named = change.deltas.iter().any(|delta| match delta {
            shunt_pipeline::Delta::Changed(object) => traversal.reads.contains(object),
            shunt_pipeline::Delta::Rule(_) => false,
        });
        assert!(named, "{command:?} is not reported by {:?}", change.deltas);
    }
}

#[test]
fn a_partition_point_reads_the_live_bits() {
    let switch = Switch::new(&[
        "table=0,actions=load:5->NXM_NX_REG5[],goto_table:1",
        "table=1,actions=output:2",
    ]);
    let key = key("in_port=1");
    let parts = || {
        let version = switch.pipeline.version();
        switch.pipeline.translate_sub_traversals(&key, None, version, &[1])
    };
    let before = parts();
    assert_eq!(before.len(), 2);
    for sub_traversal in &before {
        assert_reads(&sub_traversal.traversal, Object::Live(BRIDGE));
    }
    let change = switch.add(&["table=1,priority=9,reg5=5,actions=output:3"]);
    let is_reported = |delta: &shunt_pipeline::Delta| {
        matches!(delta, shunt_pipeline::Delta::Changed(Object::Live(BRIDGE)))
    };
    assert!(change.deltas.iter().any(is_reported), "{:?}", change.deltas);
    assert_ne!(parts()[0].traversal.next, before[0].traversal.next, "a name without the register");
}

#[test]
fn a_learn_limit_reads_the_number_of_rules() {
    let switch = Switch::of_actions(&[learn(|action| action.limit = 1)]);
    let traversal = switch.translate("in_port=3,dl_dst=02:00:00:00:00:02");
    let change = switch.add(&["table=1,priority=9,cookie=5,in_port=4,actions=drop"]);
    let named = change.deltas.iter().any(|delta| match delta {
        shunt_pipeline::Delta::Changed(object) => traversal.reads.contains(object),
        shunt_pipeline::Delta::Rule(_) => false,
    });
    assert!(named, "{:?} reports {:?}", traversal.reads, change.deltas);
}

#[test]
fn multicast_packet_reads_its_group_and_routers() {
    let snooping = MulticastSnooping { floods_unregistered: false, ..MulticastSnooping::default() };
    let switch = multicast::switch(snooping);
    let packet = multicast::packet(1, multicast::GROUP);
    let group = Object::MulticastGroup(BRIDGE, 0, multicast::GROUP.into());
    for _ in 0..2 {
        let traversal = switch.pipeline.translate(&packet, switch.pipeline.version());
        assert_reads(&traversal, group);
        assert_reads(&traversal, Object::MulticastRouters(BRIDGE, 0));
        multicast::learn(&switch, 2, multicast::join(multicast::GROUP));
        // A packet that learns its source address reads all ports.
        switch.pipeline.learn(&traversal.learnings, Time::ZERO);
    }
    let traversal = switch.pipeline.translate(&packet, switch.pipeline.version());
    assert_reads(&traversal, Object::Port(BRIDGE, PortNo::new(2)));
}
