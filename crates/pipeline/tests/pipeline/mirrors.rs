//! Tests of mirrors: the copied packets, the outputs, the order, and the dependencies.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use shunt_flow::{FieldId, FlowMask, PortNo, layout::word};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, Delta, DropCause, FlowModCommand, Mirror, MirrorOutput,
    MirroredPorts, Object, PortConfig, PortInfo, PortKind, PortVlans, Time, TraversalError,
    VlanMode,
    testing::{
        CheckedPipeline,
        generate::{self, Op},
    },
};

use crate::switch::{BRIDGE, Switch, ports, request};

const A_TO_B: &str = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";

fn names(ports: &[&str]) -> BTreeSet<String> {
    ports.iter().map(|port| (*port).to_owned()).collect()
}

/// Returns a mirror of ports to port 4.
pub(crate) fn mirror(received: &[&str], sent: &[&str]) -> Mirror {
    Mirror {
        name: "m".to_owned(),
        ports: MirroredPorts::Named { received: names(received), sent: names(sent) },
        vlans: BTreeSet::new(),
        output: MirrorOutput::Port("p4".to_owned()),
        snaplen: None,
    }
}

fn mirror_of_all() -> Mirror {
    Mirror { ports: MirroredPorts::All, ..mirror(&[], &[]) }
}

pub(crate) fn set_mirrors(switch: &Switch, mirrors: &[Mirror]) -> Vec<Delta> {
    let mirrors = mirrors.iter().enumerate().map(|(index, own)| {
        let name = if index == 0 { own.name.clone() } else { format!("{}{index}", own.name) };
        Mirror { name, ..own.clone() }
    });
    let settings = BridgeSettings { mirrors: mirrors.collect(), ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists").deltas
}

fn switch(rules: &[&str], mirrors: &[Mirror]) -> Switch {
    let switch = Switch::new(rules);
    set_mirrors(&switch, mirrors);
    switch
}

pub(crate) fn with_vlans(switch: &Switch, vlans: [VlanMode; 4]) {
    let mut all = ports();
    for (port, mode) in all.iter_mut().zip(vlans) {
        port.vlans = PortVlans { mode, ..PortVlans::default() };
    }
    switch.set_ports(all);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Outputs, and the counters of mirrors, equal the oracle's.
    ///
    /// The networks have rules, groups, patch ports and mirrors.
    #[test]
    fn every_copy_is_that_of_the_oracle(
        network in generate::network(),
        ops in vec(generate::op(), 0..4),
        mirrors in vec(generate::mirrors(), 2),
        packets in vec(generate::packet(), 4),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        for (id, mirrors) in generate::BRIDGES.into_iter().zip(mirrors) {
            checked.apply(&Op::SetMirrors(id, mirrors));
        }
        for op in [None].into_iter().chain(ops.iter().map(Some)) {
            op.into_iter().for_each(|op| drop(checked.apply(op)));
            for key in &packets {
                let Some(expected) = checked.model.translate_within(key, 20_000) else { continue };
                let effects = checked.effects(&checked.translate(key), key);
                let is_deep = |error: &TraversalError| matches!(error, TraversalError::TooDeep(_));
                if !effects.error.iter().chain(&effects.later_errors).any(is_deep) {
                    prop_assert_eq!(effects, expected);
                }
            }
        }
    }
}

/// A patch port leads back into its bridge, where mirrors copy the packet again.
#[test]
fn patch_within_bridge_begins_with_all_mirrors() {
    let switch =
        switch(&["priority=65000,in_port=3,actions=output:2", "actions=output:4,output:2"], &[]);
    let patch = |port| PortKind::Patch { bridge: BRIDGE, port: PortNo::new(port) };
    let mut own = ports();
    (own[2].kind, own[3].kind) = (patch(4), patch(3));
    switch.set_ports(own);
    let to_local = Mirror { output: MirrorOutput::Port(local_name()), ..mirror(&[], &["p2"]) };
    set_mirrors(&switch, &[to_local]);
    assert_eq!(switch.run("in_port=1"), "2! 100! 2! 100!");
}

fn local_name() -> String {
    ports().last().map(|port| port.name.clone()).unwrap_or_default()
}

#[test]
fn received_packet_is_mirrored_before_forwarding() {
    let switch =
        switch(&["actions=mod_dl_src:02:00:00:00:00:99,output:2"], &[mirror(&["p1"], &[])]);
    assert_eq!(switch.run("in_port=1"), "4! set(eth_src=20000000099) 2");
    assert_eq!(switch.run("in_port=3"), "set(eth_src=20000000099) 2");
    let dropped = Switch::new(&[]);
    set_mirrors(&dropped, &[mirror(&["p1"], &[])]);
    assert_eq!(dropped.run("in_port=1"), "4!", "also without a matching rule");
}

#[test]
fn sent_packet_is_mirrored_as_sent() {
    let rule = "actions=output:3,mod_dl_src:02:00:00:00:00:99,output:2";
    let switch = switch(&[rule], &[mirror(&[], &["p2"])]);
    assert_eq!(switch.run("in_port=1"), "3 set(eth_src=20000000099) 2! 4!");
}

#[test]
fn unsent_packet_is_not_mirrored() {
    let switch = switch(&["actions=output:2"], &[mirror(&[], &["p2"])]);
    assert_eq!(switch.run("in_port=2"), "");
    assert_eq!(switch.run("in_port=1"), "2! 4!");
    switch.configure(2, PortConfig { no_fwd: true, ..PortConfig::default() });
    assert_eq!(switch.run("in_port=1"), "");
}

#[test]
fn a_packet_is_copied_once() {
    let same = switch(&["actions=output:2,output:3"], &[mirror_of_all()]);
    assert_eq!(same.run("in_port=1"), "4! 2! 3!");
    let rule = "actions=output:2,mod_dl_src:02:00:00:00:00:99,output:3";
    let changed = switch(&[rule], &[mirror(&[], &["p2", "p3"])]);
    assert_eq!(changed.run("in_port=1"), "2! 4! set(eth_src=20000000099) 3!");
    let cloned = switch(&["actions=clone(output:2),output:3"], &[mirror(&[], &["p2", "p3"])]);
    assert_eq!(cloned.run("in_port=1"), "2! 4! 3!");
}

#[test]
fn a_packet_out_is_copied() {
    let switch = switch(&[], &[mirror(&["p1"], &[])]);
    assert_eq!(switch.packet_out("in_port=1", "output:2"), "4! 2!");
    assert_eq!(switch.packet_out("in_port=CONTROLLER", "output:2"), "2!");
    assert_eq!(switch.packet_out("in_port=4", "output:2"), "");
}

/// Connects port 3 of the bridge with port 1 of a second bridge.
///
/// The second bridge has this rule and mirrors. Each of its ports N is datapath port N + 10.
fn with_peer(switch: &Switch, rule: &str, mirrors: &[Mirror]) {
    let peer = BridgeId::new(2);
    let patch = |bridge, port| PortKind::Patch { bridge, port: PortNo::new(port) };
    let mut own = ports();
    own[2].kind = patch(peer, 1);
    switch.set_ports(own);
    let settings = BridgeSettings { mirrors: mirrors.to_vec(), ..BridgeSettings::default() };
    switch.pipeline.add_bridge(peer, settings);
    let mut others: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
    for port in &mut others {
        let number = DatapathPort::new(port.number.number() + 10);
        port.kind = PortKind::Datapath(number);
    }
    others[0].kind = patch(BRIDGE, 3);
    switch.pipeline.set_ports(peer, others).expect("the bridge exists");
    let rule = request(FlowModCommand::Add, rule);
    switch.pipeline.apply(peer, &[rule], Time::ZERO).expect("the rule is legal");
}

/// The mirrors of both bridges copy a packet that passes the patch port.
#[test]
fn a_patch_port_is_mirrored_like_any_other() {
    let switch = Switch::new(&["actions=output:3,output:2"]);
    with_peer(&switch, "actions=output:2", &[mirror(&["p1"], &["p2"])]);
    assert_eq!(switch.run("in_port=1"), "14! 12! 2");
    set_mirrors(&switch, &[mirror(&[], &["p3"])]);
    assert_eq!(switch.run("in_port=1"), "14! 12! 4! 2");
    set_mirrors(&switch, &[mirror_of_all()]);
    assert_eq!(switch.run("in_port=1"), "4! 14! 12! 2!");
}

#[test]
fn a_reserved_port_receives_nothing_from_its_peer() {
    let to_1 = Mirror { output: MirrorOutput::Port("p1".to_owned()), ..mirror(&["p2"], &[]) };
    let switch = Switch::new(&["actions=output:3"]);
    with_peer(&switch, "actions=output:2", &[to_1]);
    assert_eq!(switch.run("in_port=1"), "");
    assert_eq!(switch.translate("in_port=1").drop_cause, DropCause::MirrorOutputPort);
}

const DISABLED: PortConfig = PortConfig {
    port_down: false,
    no_recv: false,
    no_fwd: true,
    no_packet_in: false,
    no_flood: false,
};

/// The peer bridge gives the drop cause, even if the copy cannot be sent.
#[test]
fn copy_does_not_change_cause_of_drop() {
    let switch = Switch::new(&["actions=output:3"]);
    with_peer(&switch, "in_port=4,actions=drop", &[]);
    let causes = |mirror: Mirror| {
        set_mirrors(&switch, &[mirror]);
        assert_eq!(switch.run("in_port=1"), "");
        switch.translate("in_port=1").drop_cause
    };
    switch.configure(4, DISABLED);
    assert_eq!(causes(mirror(&[], &["p3"])), DropCause::NoMatchingRule);
    let to_vlan = Mirror { output: MirrorOutput::Vlan(9), ..mirror(&[], &["p3"]) };
    (1..=3).for_each(|port| switch.configure(port, PortConfig { no_fwd: port != 3, ..DISABLED }));
    switch.configure(PortNo::LOCAL.number(), DISABLED);
    assert_eq!(causes(to_vlan), DropCause::NoMatchingRule);
    let reserved = Switch::new(&[]);
    reserved.configure(4, DISABLED);
    set_mirrors(&reserved, &[mirror(&["p1"], &[])]);
    let out = reserved.translate_out("in_port=1", "drop");
    assert_eq!(out.drop_cause, DropCause::RuleWithoutOutput);
}

/// The peer bridge drops the copy, and the bridge drops the packet.
#[test]
fn a_dropped_copy_changes_no_drop_cause() {
    let to_3 = Mirror { output: MirrorOutput::Port("p3".to_owned()), ..mirror(&["p1"], &[]) };
    let switch = Switch::new(&[]);
    with_peer(&switch, "actions=drop", &[mirror(&[], &[])]);
    set_mirrors(&switch, &[to_3]);
    let out = switch.translate_out("in_port=1", "output:9");
    assert_eq!(out.drop_cause, DropCause::OutputPortMissing);
    let out = switch.translate_out("in_port=1", "drop");
    assert_eq!(out.drop_cause, DropCause::RuleWithoutOutput);
}

/// Two mirrors select a packet and have the same output port, which gets one copy.
#[test]
fn mirrors_with_one_output_copy_once() {
    let switch = switch(&["actions=output:2"], &[mirror(&["p1"], &[]), mirror(&["p1"], &["p2"])]);
    assert_eq!(switch.run("in_port=1"), "4! 2!");
    let totals = |packet: &str| {
        let traversal = switch.translate(packet);
        switch.pipeline.credit(&traversal, 3, 300, Time::ZERO);
        let counters = switch.pipeline.mirror_counters(BRIDGE);
        counters.iter().map(|own| (own.totals().packets, own.totals().bytes)).collect::<Vec<_>>()
    };
    assert_eq!(totals("in_port=1"), [(3, 300), (0, 0)]);
    assert_eq!(totals("in_port=3"), [(3, 300), (3, 300)]);
}

/// Returns the number of packets that each mirror has counted.
fn counts(switch: &Switch, packet: &str) -> Vec<u64> {
    switch.pipeline.credit(&switch.translate(packet), 1, 100, Time::ZERO);
    let counters = switch.pipeline.mirror_counters(BRIDGE);
    counters.iter().map(|own| own.totals().packets).collect()
}

#[test]
fn a_packet_without_a_copy_is_not_counted() {
    let switch = switch(&[], &[mirror(&["p1"], &[])]);
    switch.configure(4, DISABLED);
    assert_eq!(counts(&switch, "in_port=1"), [0]);
    switch.configure(4, PortConfig::default());
    assert_eq!(counts(&switch, "in_port=1"), [1]);
    let to_99 =
        Mirror { name: "vlan".to_owned(), output: MirrorOutput::Vlan(99), ..mirror(&["p1"], &[]) };
    set_mirrors(&switch, &[to_99]);
    let access = [7, 7, 7, 7].map(VlanMode::Access);
    with_vlans(&switch, access);
    switch.configure(PortNo::LOCAL.number(), DISABLED);
    assert_eq!(counts(&switch, "in_port=1"), [0], "no port has this VLAN");
    with_vlans(&switch, [VlanMode::Trunk, VlanMode::Access(99), VlanMode::Trunk, VlanMode::Trunk]);
    assert_eq!(
        counts(&switch, "in_port=1,vlan_tci=0x1063"),
        [0],
        "the packet is in this VLAN already"
    );
    assert_eq!(counts(&switch, "in_port=1,dl_dst=01:80:c2:00:00:00"), [0], "a reserved address");
    assert_eq!(counts(&switch, "in_port=1"), [1], "several copies of one packet");
}

/// Mirrors of an older version have copied the packet before it paused.
#[test]
fn a_paused_packet_is_not_copied_again() {
    let first = mirror(&["p1"], &["p2"]);
    let second = Mirror {
        name: "second".to_owned(),
        output: MirrorOutput::Port("p3".to_owned()),
        ..mirror(&[], &["p2"])
    };
    let switch = switch(&["actions=controller(pause),output:2"], &[]);
    let set_named = |mirrors: &[&Mirror]| {
        let mirrors = mirrors.iter().copied().cloned().collect();
        let settings = BridgeSettings { mirrors, ..BridgeSettings::default() };
        switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
    };
    set_named(&[&first, &second]);
    let punt = switch.pause("in_port=1");
    assert_eq!(switch.resume("in_port=1", &punt), "2! 3!");
    set_named(&[&second, &first]);
    assert_eq!(switch.resume("in_port=1", &punt), "2! 3!");
    set_named(&[&first]);
    assert_eq!(switch.resume("in_port=1", &punt), "2!");
    set_named(&[&second]);
    assert_eq!(switch.resume("in_port=1", &punt), "2! 3!");
    set_named(&[&first]);
    assert_eq!(switch.resume("in_port=1", &punt), "2! 4!", "another mirror with this name");

    let punt = switch.pause("in_port=1");
    let third = Mirror { name: "third".to_owned(), ..mirror(&[], &["p2"]) };
    set_named(&[&first, &third]);
    assert_eq!(switch.resume("in_port=1", &punt), "2!", "the output has a copy");
}

/// A mirror of an output port also copies the copies of other mirrors.
#[test]
fn a_copy_can_be_copied() {
    let to_3 = Mirror { output: MirrorOutput::Port("p3".to_owned()), ..mirror(&["p1"], &[]) };
    let switch = switch(&["actions=output:2"], &[to_3, mirror(&[], &["p3"])]);
    assert_eq!(switch.run("in_port=1"), "3! 4! 2");
}

#[test]
fn a_reserved_port_receives_nothing() {
    let switch = switch(&["actions=NORMAL"], &[mirror(&["p1"], &[])]);
    assert_eq!(switch.run("in_port=4"), "");
    assert_eq!(switch.translate("in_port=4").drop_cause, DropCause::MirrorOutputPort);
    assert_eq!(switch.run(A_TO_B), "4! 2 3 100", "NORMAL does not flood to it");
    set_mirrors(&switch, &[]);
    assert_eq!(switch.run(A_TO_B), "2 3 4 100");
}

#[test]
fn vlans_select_packets_and_tag_copies() {
    let vlan_10 = Mirror { vlans: [10].into(), ..mirror(&["p1", "p2"], &[]) };
    let switch = switch(&[], &[vlan_10]);
    with_vlans(&switch, [VlanMode::Access(10), VlanMode::Trunk, VlanMode::Trunk, VlanMode::Trunk]);
    assert_eq!(switch.run("in_port=1"), "push(8100,100a) 4!");
    assert_eq!(switch.run("in_port=1,vlan_tci=0x100a"), "", "an access port has no tagged frames");
    assert_eq!(switch.run("in_port=2"), "");
    assert_eq!(switch.run("in_port=2,vlan_tci=0x100a"), "4!");
    with_vlans(&switch, [VlanMode::Trunk, VlanMode::Trunk, VlanMode::Trunk, VlanMode::Access(3)]);
    assert_eq!(switch.run("in_port=2,vlan_tci=0x100a"), "pop 4!");
}

#[test]
fn tunnel_port_is_mirrored_in_service_vlan() {
    let vlan_100 = Mirror { vlans: [100].into(), ..mirror(&["p1"], &["p2"]) };
    let switch = switch(&["actions=output:2"], &[vlan_100]);
    let tunnel = VlanMode::Dot1qTunnel;
    with_vlans(&switch, [tunnel(100), tunnel(100), VlanMode::Trunk, VlanMode::Trunk]);
    let customer = "vlan_tci=0x1005";
    let received = switch.run(&format!("in_port=1,{customer}"));
    assert_eq!(received, "push(88a8,1064) 4! pop 2!");
    let sent = switch.run(&format!("in_port=3,{customer}"));
    assert_eq!(sent, "2! push(88a8,1064) 4!");
    with_vlans(&switch, [tunnel(7), tunnel(7), VlanMode::Trunk, VlanMode::Trunk]);
    assert_eq!(switch.run(&format!("in_port=1,{customer}")), "2!");
    let to_99 = Mirror { output: MirrorOutput::Vlan(99), ..mirror(&["p1"], &[]) };
    set_mirrors(&switch, &[to_99]);
    with_vlans(&switch, [tunnel(100), VlanMode::Access(99), VlanMode::Trunk, tunnel(99)]);
    let copied = switch.run(&format!("in_port=1,{customer}"));
    assert_eq!(copied, "push(88a8,1063) 3! pop 4! push(88a8,1063) 100! pop 2");
}

/// The copy of a mirror with an output VLAN goes to all other ports of that VLAN.
#[test]
fn copy_for_vlan_is_flooded_in_it() {
    let to_99 = Mirror { output: MirrorOutput::Vlan(99), ..mirror(&["p1"], &[]) };
    let switch = switch(&["actions=output:2"], &[to_99]);
    let modes = [VlanMode::Access(7), VlanMode::Access(99), VlanMode::Trunk, VlanMode::Access(8)];
    with_vlans(&switch, modes);
    assert_eq!(switch.run("in_port=1"), "2! push(8100,1063) 3! pop push(8100,1063) 100! pop 2");
    let switch = self::switch(
        &["actions=output:2"],
        &[Mirror { output: MirrorOutput::Vlan(99), ..mirror(&["p1"], &[]) }],
    );
    assert_eq!(switch.run("in_port=1,vlan_tci=0x1063"), "2", "the packet is in this VLAN already");
    assert_eq!(switch.run("in_port=1,dl_dst=01:80:c2:00:00:00"), "2", "a reserved address");
}

#[test]
fn snaplen_truncates_the_copy_alone() {
    let short = Mirror { snaplen: Some(64), ..mirror(&["p1"], &[]) };
    assert_eq!(switch(&["actions=output:2"], &[short]).run("in_port=1"), "4!/64 2");
}

/// A mirror uses a port that is added later, without a change of the mirror.
#[test]
fn a_missing_port_is_used_when_it_appears() {
    let named = |name: &str| {
        let renamed = |port: PortInfo| {
            let is_4 = port.number == PortNo::new(4);
            PortInfo { name: if is_4 { name.to_owned() } else { port.name.clone() }, ..port }
        };
        ports().into_iter().map(renamed).collect()
    };
    let switch = switch(&["actions=output:2"], &[mirror(&["p1"], &[])]);
    switch.set_ports(named("other"));
    assert_eq!(switch.run("in_port=1"), "2");
    let change = switch.pipeline.set_ports(BRIDGE, named("p4")).expect("the bridge exists");
    assert!(change.deltas.iter().any(is_bridge), "the new port evicts the entries");
    assert_eq!(switch.run("in_port=1"), "4! 2");
}

fn is_bridge(delta: &Delta) -> bool {
    matches!(delta, Delta::Changed(Object::Bridge(BRIDGE)))
}

#[test]
fn ports_without_mirrors_change_no_mirror() {
    let switch = switch(&["actions=output:2"], &[mirror(&["p1"], &[])]);
    let mut changed = ports();
    changed[2].link_up = false;
    let change = switch.pipeline.set_ports(BRIDGE, changed).expect("the bridge exists");
    assert!(!change.deltas.iter().any(is_bridge));
}

#[test]
fn masks_have_the_bits_that_select_copies() {
    let mask = |switch: &Switch, packet: &str| FlowMask::from(&switch.translate(packet).mask);
    let consulted = |switch: &Switch, packet: &str| {
        let mask = mask(switch, packet);
        [FieldId::InPort, FieldId::VlanTci].map(|field| mask.field(field) != 0)
    };
    let none = switch(&["actions=output:2"], &[]);
    assert_eq!(consulted(&none, "in_port=1"), [false, false]);
    let received = switch(&["actions=output:2"], &[mirror(&["p1"], &[])]);
    assert_eq!(consulted(&received, "in_port=1"), [true, true]);
    assert_eq!(consulted(&received, "in_port=3"), [true, false]);
    let tags =
        |switch: &Switch, packet: &str| mask(switch, packet).words()[usize::from(word::VLAN)];
    assert_eq!(tags(&received, "in_port=1"), 0xffff << 32, "the outer tag without its type");
    let others = Mirror { vlans: [9].into(), ..mirror(&["p1"], &[]) };
    set_mirrors(&received, &[others]);
    assert_eq!(tags(&received, "in_port=1"), 0x1fff << 32, "no copy needs the priority");
}

#[test]
fn an_address_at_a_reserved_port_is_forgotten() {
    let switch = switch(&["actions=NORMAL"], &[]);
    let learn = |packet: &str| {
        let traversal = switch.translate(packet);
        switch.pipeline.learn(&traversal.learnings, Time::ZERO);
    };
    learn("in_port=4,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0c");
    learn(A_TO_B);
    assert_eq!(switch.run(A_TO_B), "4");
    set_mirrors(&switch, &[mirror(&["p3"], &[])]);
    assert_eq!(switch.pipeline.macs(BRIDGE).len(), 1);
    assert_eq!(switch.run(A_TO_B), "2 3 100");
}

#[test]
fn a_mirror_keeps_its_counter_while_it_changes() {
    let switch = switch(&[], &[mirror(&["p1"], &[])]);
    switch.pipeline.credit(&switch.translate("in_port=1"), 2, 20, Time::ZERO);
    set_mirrors(&switch, &[mirror_of_all()]);
    let packets = || {
        let counters = switch.pipeline.mirror_counters(BRIDGE);
        counters.iter().map(|own| own.totals().packets).collect::<Vec<_>>()
    };
    assert_eq!(packets(), [2]);
    set_mirrors(&switch, &[]);
    assert_eq!(packets(), [0; 0]);
    set_mirrors(&switch, &[mirror_of_all()]);
    assert_eq!(packets(), [0]);
}
