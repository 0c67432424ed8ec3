//! Tests of versions: the rules that a version sees, and reclamation.

use std::sync::atomic::{AtomicBool, Ordering};

use shunt_flow::PortNo;
use shunt_pipeline::{
    Action, BridgeSettings, DatapathAction, Delta, FlowModCommand, GroupCommand, GroupKind,
    Learning, MacObservation, MeterCommand, MeterId, Object, RuleFilter, Time, Version, VlanMode,
};

use crate::{
    build::{bucket, drop_band, group, group_mod, meter_mod, output, rule},
    switch::{BRIDGE, Switch, describe, key, ports},
};

fn run_at(switch: &Switch, version: Version) -> String {
    describe(&switch.pipeline.translate(&key("in_port=1"), version).actions)
}

#[test]
fn a_version_sees_the_rules_of_its_time() {
    let switch = Switch::new(&["actions=output:2"]);
    let old = switch.pipeline.version();
    let new = switch.send(FlowModCommand::Modify, "actions=output:3").expect("legal").version;
    let gone = switch.send(FlowModCommand::Delete, "").expect("legal").version;
    let seen = [old, new, gone].map(|version| run_at(&switch, version));
    assert_eq!(seen, ["2", "3", ""]);
}

#[test]
fn a_version_sees_the_ports_of_its_time() {
    let switch = Switch::new(&["actions=output:2"]);
    let old = switch.pipeline.version();
    switch.set_ports(Vec::new());
    assert_eq!((&*run_at(&switch, old), &*switch.run("in_port=1")), ("2", ""));
    switch.pipeline.reclaim(switch.pipeline.version());
    assert_eq!(switch.run("in_port=1"), "");
}

#[test]
fn a_version_sees_all_objects_of_its_time() {
    let switch = Switch::new(&["ipv6,actions=normal"]);
    let groups_and_meters = |(to_group, to_meter), port, rate| {
        let buckets = vec![bucket(vec![output(port)])];
        let group = group_mod(to_group, 1, GroupKind::All, buckets);
        switch.make([group.into(), meter_mod(to_meter, 1, vec![drop_band(rate, 0)])]).version
    };
    groups_and_meters((GroupCommand::Add, MeterCommand::Add), 2, 20);
    let metered = vec![Action::Meter(MeterId::new(1)), output(2)];
    switch.make([rule("ip", vec![group(1)]).into(), rule("arp", metered).into()]);
    let old = switch.pipeline.version();
    let changed = groups_and_meters((GroupCommand::Modify, MeterCommand::Modify), 3, 30);
    let mut all = ports();
    all[2].vlans.mode = VlanMode::Access(5);
    switch.set_ports(all);
    let in_vlan = switch.pipeline.version();
    let (mac, port) = ([2, 0, 0, 0, 0, 0x0b], PortNo::new(4));
    let observation = MacObservation {
        bridge: BRIDGE,
        vlan: 0,
        mac,
        port,
        is_announcement: false,
        precedes_packet: false,
    };
    let learned = switch.pipeline.learn(&[Learning::Mac(observation)], Time::ZERO).version;

    let actions = |packet, version| switch.pipeline.translate(&key(packet), version).actions;
    let result = |packet, version| describe(&actions(packet, version));
    assert_eq!([old, changed].map(|version| result("ip", version)), ["2", "3"]);
    let rate = |version| match &actions("arp", version)[0] {
        DatapathAction::Meter(meter) => meter.config.bands[0].rate,
        other => panic!("{other:?}"),
    };
    assert_eq!([old, changed].map(rate), [20, 30]);
    let flow = "ipv6,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";
    let seen = [changed, in_vlan, learned].map(|version| result(flow, version));
    assert_eq!(seen, ["2 3 4 100", "2 4 100", "4"]);
}

#[test]
fn a_reclaim_does_not_overtake_a_newest_translation() {
    let switch = Switch::new(&["actions=output:2"]);
    let (packet, done) = (key("in_port=1"), AtomicBool::new(false));
    let table = [Action::Output { port: PortNo::TABLE, max_len: 0 }];
    let look = || {
        while !done.load(Ordering::Relaxed) {
            assert_eq!(switch.pipeline.translate_at_newest_version(&packet).actions.len(), 1);
            assert_eq!(
                switch.pipeline.translate_actions_at_newest_version(&packet, &table).actions.len(),
                1
            );
            assert_eq!(switch.pipeline.rules(BRIDGE, &RuleFilter::all()).len(), 1);
        }
    };
    std::thread::scope(|scope| {
        // There are more threads than processors, so some thread is always stopped between two
        // steps.
        (0..8).for_each(|_| drop(scope.spawn(look)));
        for port in [3, 2].repeat(5000) {
            let rule = format!("actions=output:{port}");
            switch.send(FlowModCommand::Modify, &rule).expect("legal");
            switch.pipeline.reclaim(switch.pipeline.version());
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_version_stays_until_its_objects_are_reclaimed() {
    let switch = Switch::new(&["actions=output:2"]);
    let old = switch.pipeline.version();
    let new = switch.send(FlowModCommand::Modify, "actions=output:3").expect("legal").version;
    switch.pipeline.reclaim(old);
    assert_eq!([old, new].map(|version| switch.pipeline.is_retained(version)), [true, true]);
    switch.pipeline.reclaim(new);
    assert_eq!([old, new].map(|version| switch.pipeline.is_retained(version)), [false, true]);
    switch.pipeline.reclaim(old);
    assert!(!switch.pipeline.is_retained(old), "a reclaimed version stays reclaimed");
}

#[test]
fn reclaimed_rules_are_invisible_to_newer_versions() {
    let switch = Switch::new(&["actions=output:2"]);
    for port in [3, 4, 2] {
        let rule = format!("actions=output:{port}");
        switch.send(FlowModCommand::Modify, &rule).expect("legal");
        switch.pipeline.reclaim(switch.pipeline.version());
        assert_eq!(switch.run("in_port=1"), port.to_string());
    }
}

#[test]
fn versions_count_up_one_by_one() {
    let switch = Switch::new(&["actions=output:2"]);
    let before = switch.pipeline.version();
    let changes = [
        switch.send(FlowModCommand::Modify, "actions=output:3").expect("legal"),
        switch.pipeline.set_settings(BRIDGE, BridgeSettings::default()).expect("the rule exists"),
        switch.pipeline.remove_bridge(BRIDGE),
        switch.pipeline.add_bridge(BRIDGE, BridgeSettings::default()),
    ];
    let mut expected = before;
    for change in changes {
        expected = expected.next();
        assert_eq!(change.version, expected);
    }
    assert_eq!(switch.pipeline.version(), expected);
}

#[test]
fn removing_a_bridge_removes_rules_and_ports() {
    let switch = Switch::new(&["actions=output:2", "table=3,actions=output:2"]);
    let old = switch.pipeline.version();
    let change = switch.pipeline.remove_bridge(BRIDGE);
    let objects = change.deltas.iter().filter_map(|delta| match delta {
        Delta::Changed(object) => Some(*object),
        Delta::Rule(_) => None,
    });
    assert_eq!(objects.collect::<Vec<_>>(), [Object::Ports(BRIDGE), Object::Bridge(BRIDGE)]);
    assert_eq!(change.deltas.len(), 4);
    assert!(switch.pipeline.settings(BRIDGE).is_none() && switch.pipeline.ports(BRIDGE).is_none());
    assert_eq!(run_at(&switch, old), "2");
    switch.pipeline.reclaim(change.version);
    switch.pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    assert!(switch.cookies().is_empty());
    assert!(switch.pipeline.remove_bridge(BRIDGE).deltas.len() == 2);
}
