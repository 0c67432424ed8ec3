//! Tests of bonds: outputs, drops, and the traversals that a failover makes stale.

use std::{array, collections::BTreeSet, sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use shunt_flow::{FlowKey, PortNo};
use shunt_pipeline::{
    Action, BondBalance, BondCounters, BondHash, BondMember, BridgeSettings, DatapathAction, Delta,
    DropCause, LacpAdmission, Learning, Mirror, MirrorOutput, MirroredPorts, Object, PortInfo,
    PuntReceiver, Time, Traversal,
    testing::{
        CheckedPipeline, bridge_with_rules,
        generate::{self, Op},
    },
};

use crate::switch::{BRIDGE, Switch, describe, key, ports};

/// A packet from the address 0a, on the bond, to the address 0b, on port 3.
const A_TO_B: &str = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";
/// The answer to that packet.
const B_TO_A: &str = "in_port=3,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a";

/// Returns ports 1 to 4 and LOCAL; ports 1 and 2 are a bond.
/// `active` is the number of the active member.
pub(crate) fn ports_with_bond(active: u32) -> Vec<PortInfo> {
    let mut all = ports();
    for port in all.iter_mut().take(2) {
        let is_active = port.number == PortNo::new(active);
        port.bond = Some(BondMember {
            bond: Arc::from("b"),
            is_active,
            balance: None,
            lacp: LacpAdmission::Off,
        });
    }
    all
}

/// A frame of LACP that arrives on a member.
pub(crate) const LACP_FRAME: &str = "in_port=1,dl_type=0x8809,dl_dst=01:80:c2:00:00:02";

/// Returns [`ports_with_bond`] with an LACP admission and port 1 active.
pub(crate) fn with_lacp(lacp: LacpAdmission) -> Vec<PortInfo> {
    let mut all = ports_with_bond(1);
    all.iter_mut().filter_map(|port| port.bond.as_mut()).for_each(|member| member.lacp = lacp);
    all
}

/// Returns a switch with a bond, which outputs every packet to `port`.
///
/// `active` is the number of the active member; 0: no member is active.
fn switch(port: PortNo, active: u32) -> Switch {
    let switch = Switch::of_actions(&[Action::Output { port, max_len: 0 }]);
    switch.set_ports(ports_with_bond(active));
    switch
}

/// Sends a packet, and applies its learn requests.
fn send(switch: &Switch, packet: &str) -> String {
    let traversal = switch.pipeline.translate_at_newest_version(&key(packet));
    switch.pipeline.learn(&traversal.learnings, Time::ZERO);
    describe(&traversal.actions)
}

fn drop_cause(switch: &Switch, packet: &str) -> DropCause {
    let traversal = switch.translate(packet);
    assert!(traversal.actions.is_empty(), "{packet}: {:?}", traversal.actions);
    traversal.drop_cause
}

#[test]
fn normal_sends_on_the_active_member_alone() {
    for (active, number) in [(1, "1"), (2, "2")] {
        let switch = switch(PortNo::NORMAL, active);
        assert_eq!(send(&switch, B_TO_A), format!("{number} 4 100"), "flooded");
        let arriving = A_TO_B.replace("in_port=1", &format!("in_port={number}"));
        assert_eq!(send(&switch, &arriving), "3", "never back into the bond");
        assert_eq!(send(&switch, B_TO_A), number, "learned");
    }
}

#[test]
fn an_address_is_known_on_all_members() {
    let switch = switch(PortNo::NORMAL, 1);
    send(&switch, A_TO_B);
    switch.set_ports(ports_with_bond(2));
    assert_eq!(send(&switch, B_TO_A), "2");
    let again = switch.translate(&A_TO_B.replace("in_port=1", "in_port=2"));
    assert!(again.learnings.is_empty() && again.refreshes.len() == 1, "{again:?}");
    let to_own = "in_port=2,dl_src=02:00:00:00:00:0c,dl_dst=02:00:00:00:00:0a";
    assert_eq!(drop_cause(&switch, to_own), DropCause::LearnedOnIngressPort);
    switch.set_ports(ports());
    assert!(switch.pipeline.macs(BRIDGE).iter().all(|entry| entry.port != PortNo::new(1)));
}

#[test]
fn packets_of_other_members_are_dropped() {
    let switch = switch(PortNo::NORMAL, 2);
    assert_eq!(drop_cause(&switch, A_TO_B), DropCause::BondMemberInactive);
    assert!(switch.translate(A_TO_B).learnings.is_empty());
    send(&switch, &A_TO_B.replace("in_port=1", "in_port=2"));
    switch.set_ports(ports_with_bond(0));
    assert_eq!(drop_cause(&switch, B_TO_A), DropCause::BondWithoutMember);
}

#[test]
fn flood_uses_one_member_of_a_bond() {
    let flood = switch(PortNo::FLOOD, 2);
    assert_eq!(flood.run("in_port=3"), "2 3 4 100");
    assert_eq!(flood.run("in_port=1"), "3 4 100");
    assert_eq!(flood.run("in_port=2"), "3 4 100");
    assert_eq!(switch(PortNo::ALL, 2).run("in_port=3"), "1 2 3 4 100");
    assert_eq!(switch(PortNo::new(1), 2).run("in_port=3"), "1", "rules choose members themselves");
}

#[test]
fn a_mirror_of_a_bond_uses_its_members() {
    let mirror = |received: &str, output: &str| Mirror {
        name: "m".to_owned(),
        ports: MirroredPorts::Named {
            received: BTreeSet::from([received.to_owned()]),
            sent: BTreeSet::new(),
        },
        vlans: BTreeSet::new(),
        output: MirrorOutput::Port(output.to_owned()),
        snaplen: None,
    };
    let switch = switch(PortNo::new(4), 2);
    let set = |mirror| {
        let settings = BridgeSettings { mirrors: vec![mirror], ..BridgeSettings::default() };
        switch.pipeline.set_settings(BRIDGE, settings).unwrap();
    };
    set(mirror("b", "p3"));
    assert_eq!([switch.run("in_port=1"), switch.run("in_port=2")], ["3! 4", "3! 4"]);
    set(mirror("p3", "b"));
    assert_eq!(switch.run("in_port=3"), "2! 4");
    assert_eq!(drop_cause(&switch, "in_port=1"), DropCause::MirrorOutputPort);
    switch.set_ports(ports_with_bond(0));
    assert_eq!(switch.run("in_port=3"), "4", "no member sends the copy");
    assert_eq!(drop_cause(&switch, "in_port=1"), DropCause::MirrorOutputPort);
}

/// Returns the ports of [`ports_with_bond`], with a bond that balances.
///
/// Port 1 is the active member. Port 1 sends the even buckets, and port 2 the odd buckets, unless
/// `has_all` lets port 2 send all buckets.
pub(crate) fn ports_with_balancing_bond(counters: &BondCounters, has_all: bool) -> Vec<PortInfo> {
    let member =
        |bucket: usize| Some(PortNo::new(if has_all || !bucket.is_multiple_of(2) { 2 } else { 1 }));
    let balance =
        Arc::new(BondBalance::new(BondHash::Source, 0, array::from_fn(member), counters.clone()));
    let mut all = ports_with_bond(1);
    for own in all.iter_mut().filter_map(|port| port.bond.as_mut()) {
        own.balance = Some(Arc::clone(&balance));
    }
    all
}

/// Buckets of Open vSwitch 3.1 (`bond/hash`), by address, VLAN and basis.
const BUCKETS: &[([u8; 6], u16, u32, u8)] = &[
    ([0, 0, 0, 0, 0, 1], 0, 0, 68),
    ([0, 0, 0, 0, 0, 1], 0, 1, 21),
    ([0, 0, 0, 0, 0, 1], 1, 0, 244),
    ([0, 0, 0, 0, 0, 1], 4095, u32::MAX, 43),
    ([2, 0, 0, 0, 0, 1], 0, 0, 38),
    ([2, 0, 0, 0, 0, 1], 10, 0, 218),
    ([2, 0, 0, 0, 0, 1], 10, 3, 19),
    ([2, 0, 0, 0, 0, 2], 0, 0, 235),
    ([0x52, 0x54, 0, 0x12, 0x34, 0x56], 0, 0, 11),
    ([0x52, 0x54, 0, 0x12, 0x34, 0x56], 4095, 3, 171),
    ([0xff; 6], 0, 0, 43),
    ([0xff; 6], 10, u32::MAX, 254),
];

#[test]
fn buckets_are_those_of_open_vswitch() {
    for (mac, vlan, basis, bucket) in BUCKETS {
        assert_eq!(BondBalance::bucket(*mac, *vlan, *basis), *bucket, "{mac:x?} {vlan} {basis}");
    }
}

#[test]
fn the_source_address_chooses_the_member() {
    let switch = switch(PortNo::NORMAL, 1);
    let counters = BondCounters::new("b");
    switch.set_ports(ports_with_balancing_bond(&counters, false));
    // The addresses have the buckets 38 and 235.
    let of =
        |host: u8| format!("in_port=3,dl_src=02:00:00:00:00:{host:02x},dl_dst=02:00:00:00:00:0a");
    assert_eq!([send(&switch, &of(1)), send(&switch, &of(2))], ["1 4 100", "2 4 100"]);
    send(&switch, "in_port=2,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:01");
    assert_eq!([switch.run(&of(1)), switch.run(&of(2))], ["1", "2"], "learned on the bond");
    let traversal = switch.translate(&of(2));
    switch.pipeline.credit(&traversal, 3, 300, Time::ZERO);
    let bytes: Vec<u64> = counters.bytes().collect();
    assert_eq!((bytes[235], bytes.iter().sum::<u64>()), (300, 300));
    let change =
        switch.pipeline.set_ports(BRIDGE, ports_with_balancing_bond(&counters, true)).unwrap();
    assert!(is_stale(&traversal, &change.deltas));
    assert_eq!([switch.run(&of(1)), switch.run(&of(2))], ["2", "2"]);
    let flood = self::switch(PortNo::FLOOD, 1);
    flood.set_ports(ports_with_balancing_bond(&counters, false));
    assert_eq!([flood.run(&of(1)), flood.run(&of(2))], ["1 3 4 100", "2 3 4 100"]);
}

#[test]
fn a_bond_member_drops_only_copies() {
    let switch = switch(PortNo::NORMAL, 1);
    switch.set_ports(ports_with_balancing_bond(&BondCounters::new("b"), false));
    let to_all = "in_port=2,dl_src=02:00:00:00:00:0c,dl_dst=ff:ff:ff:ff:ff:ff";
    assert_eq!(drop_cause(&switch, to_all), DropCause::BondMemberInactive);
    send(&switch, B_TO_A);
    for port in ["1", "2"] {
        let looped = B_TO_A.replace("in_port=3", &format!("in_port={port}"));
        assert_eq!(drop_cause(&switch, &looped), DropCause::BondLoop);
    }
    assert_eq!(send(&switch, &A_TO_B.replace("in_port=1", "in_port=2")), "3");
}

#[test]
fn an_announcement_moves_an_address_to_the_bond() {
    let switch = switch(PortNo::NORMAL, 1);
    switch.set_ports(ports_with_balancing_bond(&BondCounters::new("b"), false));
    let port_of_b = || {
        let macs = switch.pipeline.macs(BRIDGE);
        macs.iter().find(|entry| entry.mac[5] == 0xb).map(|entry| entry.port)
    };
    let announce = |port: u32, operation: u32, target: &str| {
        format!(
            "in_port={port},dl_src=02:00:00:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff,arp,\
             arp_op={operation},arp_spa=10.0.0.1,arp_tpa={target}"
        )
    };
    send(&switch, &announce(3, 1, "10.0.0.1"));
    assert_eq!(port_of_b(), Some(PortNo::new(3)));
    let copy = announce(1, 1, "10.0.0.1");
    assert_eq!(
        drop_cause(&switch, &copy),
        DropCause::BondLoop,
        "a copy that the network sent back"
    );
    switch.pipeline.expire(Time::ZERO.after(Duration::from_secs(4)));
    assert_eq!(drop_cause(&switch, &copy), DropCause::BondLoop);
    switch.pipeline.expire(Time::ZERO.after(Duration::from_secs(5)));
    assert_eq!(drop_cause(&switch, &announce(1, 1, "10.0.0.2")), DropCause::BondLoop, "a request");
    assert_eq!(drop_cause(&switch, &announce(2, 2, "10.0.0.2")), DropCause::BondMemberInactive);
    send(&switch, &announce(1, 2, "10.0.0.2"));
    assert_eq!(port_of_b(), Some(PortNo::new(1)), "the host has moved");
}

/// Returns a gratuitous ARP packet of the host 0b that arrives on a port.
fn announcement(port: u32) -> String {
    format!(
        "in_port={port},dl_src=02:00:00:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,\
         arp_spa=10.0.0.1,arp_tpa=10.0.0.1"
    )
}

/// Translates all packets, then learns their addresses.
///
/// Returns the port of the address 0b.
fn learned_together(switch: &Switch, packets: &[&str]) -> Option<PortNo> {
    let translated = packets.iter().flat_map(|packet| switch.translate(packet).learnings);
    let learnings: Vec<_> = translated.collect();
    assert_eq!(learnings.len(), packets.len(), "no address is known");
    switch.pipeline.learn(&learnings, Time::ZERO);
    let macs = switch.pipeline.macs(BRIDGE);
    macs.iter().find(|entry| entry.mac[5] == 0xb).map(|entry| entry.port)
}

#[test]
fn copy_moves_no_freshly_learned_address() {
    let broadcast = |port: u32| {
        format!("in_port={port},dl_src=02:00:00:00:00:0b,dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x88b5")
    };
    let kinds: [fn(u32) -> String; 2] = [broadcast, announcement];
    for kind in kinds {
        for order in [[3, 1], [1, 3]] {
            let switch = switch(PortNo::NORMAL, 1);
            switch.set_ports(ports_with_balancing_bond(&BondCounters::new("b"), false));
            let packets = order.map(kind);
            let port = learned_together(&switch, &packets.each_ref().map(String::as_str));
            assert_eq!(port, Some(PortNo::new(3)), "{packets:?}");
        }
    }
}

#[test]
fn newest_observation_wins_without_returning_copies() {
    let on_bond = B_TO_A.replace("in_port=3", "in_port=1");
    let of_partner = || {
        let mut all = ports_with_balancing_bond(&BondCounters::new("b"), false);
        let members = all.iter_mut().filter_map(|port| port.bond.as_mut());
        members.for_each(|member| member.lacp = LacpAdmission::All);
        all
    };
    for ports in [of_partner(), ports_with_bond(1)] {
        let switch = switch(PortNo::NORMAL, 1);
        switch.set_ports(ports);
        assert!(!Learning::precede_packet(&switch.translate(B_TO_A).learnings));
        assert_eq!(learned_together(&switch, &[B_TO_A, &on_bond]), Some(PortNo::new(1)));
    }
}

#[test]
fn a_bond_learns_an_address_before_it_sends() {
    let switch = switch(PortNo::NORMAL, 1);
    switch.set_ports(ports_with_balancing_bond(&BondCounters::new("b"), false));
    for packet in [B_TO_A, A_TO_B] {
        assert!(Learning::precede_packet(&switch.translate(packet).learnings));
        send(&switch, packet);
        assert!(!Learning::precede_packet(&switch.translate(packet).learnings), "known");
    }
}

/// Returns whether a change names an object that a traversal read.
fn is_stale(traversal: &Traversal, deltas: &[Delta]) -> bool {
    deltas.iter().any(|delta| matches!(delta, Delta::Changed(own) if traversal.reads.contains(own)))
}

#[test]
fn failover_makes_entries_of_bond_stale() {
    let switch = switch(PortNo::NORMAL, 1);
    send(&switch, A_TO_B);
    send(&switch, B_TO_A);
    let c_to_b = "in_port=4,dl_src=02:00:00:00:00:0c,dl_dst=02:00:00:00:00:0b";
    send(&switch, c_to_b);
    let [to_bond, from_bond, other] = [B_TO_A, A_TO_B, c_to_b].map(|own| switch.translate(own));
    let backup = switch.translate(&A_TO_B.replace("in_port=1", "in_port=2"));
    let change = switch.pipeline.set_ports(BRIDGE, ports_with_bond(2)).unwrap();
    for traversal in [&to_bond, &from_bond, &backup] {
        assert!(is_stale(traversal, &change.deltas), "{traversal:?}");
    }
    assert!(!is_stale(&other, &change.deltas), "an entry of other ports stays");
    assert!(!other.reads.contains(&Object::Ports(BRIDGE)));
    let again = switch.translate(B_TO_A);
    let change = switch.pipeline.set_ports(BRIDGE, ports_with_bond(0)).unwrap();
    assert!(is_stale(&again, &change.deltas), "the last member");
    let without = switch.translate(B_TO_A);
    assert_eq!(without.drop_cause, DropCause::BondWithoutMember);
    let change = switch.pipeline.set_ports(BRIDGE, ports_with_bond(1)).unwrap();
    assert!(is_stale(&without, &change.deltas));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Packets leave on the ports that the oracle expects, after random failovers.
    #[test]
    fn a_bonded_bridge_equals_the_oracle(
        all in vec(generate::bonded_ports(generate::BRIDGES[0]), 1..4),
        packets in vec(generate::packet(), 8),
        is_flood in any::<bool>(),
    ) {
        let id = generate::BRIDGES[0];
        let rule = if is_flood { "in_port=1,actions=FLOOD" } else { "actions=NORMAL" };
        let rules = bridge_with_rules(id, &["priority=0,actions=NORMAL", rule]);
        let mut checked = CheckedPipeline::taking(&rules);
        for ports in all {
            checked.apply(&Op::SetPorts(id, ports));
            for mut packet in packets.clone() {
                packet.set_bridge(id.number().into());
                checked.apply(&Op::LearnFrom(Box::new(packet)));
            }
        }
    }

    /// Addresses of several packets of one version are learned as the oracle expects.
    #[test]
    fn observations_of_one_version_equal_the_oracle(
        ports in generate::bonded_ports(generate::BRIDGES[0]),
        rounds in vec(vec(generate::packet(), 6), 1..4),
    ) {
        let id = generate::BRIDGES[0];
        let mut checked = CheckedPipeline::taking(&bridge_with_rules(id, &["actions=NORMAL"]));
        checked.apply(&Op::SetPorts(id, ports));
        for mut packets in rounds {
            packets.iter_mut().for_each(|packet| packet.set_bridge(id.number().into()));
            let traversals = packets.iter().flat_map(|packet| checked.traversals(packet));
            let learnings: Vec<_> = traversals.flat_map(|own| own.learnings).collect();
            checked.learn(&learnings, Time::ZERO);
            let macs = checked.pipeline.macs(id);
            let known = macs.iter().map(|entry| ((entry.vlan, entry.mac), entry.port));
            let expected = checked.model.bridges[&id].macs.iter();
            let expected = expected.map(|(place, (port, _))| (*place, *port));
            prop_assert!(known.eq(expected), "{macs:?}, {:?}", checked.model.bridges[&id].macs);
        }
    }

    /// The deltas of a failover name every traversal that the failover changes.
    #[test]
    fn a_failover_evicts_what_it_changes(
        all in vec(generate::bonded_ports(BRIDGE), 2..5),
        packets in vec(generate::packet(), 8),
        is_flood in any::<bool>(),
    ) {
        let port = if is_flood { PortNo::FLOOD } else { PortNo::NORMAL };
        let switch = Switch::of_actions(&[Action::Output { port, max_len: 0 }]);
        let translate = |packet: &FlowKey| switch.pipeline.translate_at_newest_version(packet);
        let in_bridge = |mut packet: FlowKey| {
            packet.set_bridge(BRIDGE.number().into());
            packet
        };
        let packets: Vec<FlowKey> = packets.into_iter().map(in_bridge).collect();
        for ports in all {
            let old: Vec<Traversal> = packets.iter().map(translate).collect();
            let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
            let new: Vec<Traversal> = packets.iter().map(translate).collect();
            for (old, new) in old.iter().zip(&new) {
                if !is_stale(old, &change.deltas) {
                    prop_assert_eq!(&old.actions, &new.actions);
                    prop_assert_eq!(old.drop_cause, new.drop_cause);
                    prop_assert_eq!(&old.output_hits, &new.output_hits);
                }
            }
            for traversal in &new {
                switch.pipeline.learn(&traversal.learnings, Time::ZERO);
            }
        }
    }
}

/// Returns the receiver of the only action of a traversal.
fn receiver(traversal: &Traversal) -> Option<PuntReceiver> {
    match &*traversal.actions {
        [DatapathAction::Punt(punt)] => Some(punt.receiver),
        _ => None,
    }
}

#[test]
fn slow_protocol_frames_bypass_the_tables() {
    for lacp in [LacpAdmission::All, LacpAdmission::None, LacpAdmission::Fallback] {
        let switch = switch(PortNo::new(3), 1);
        assert_eq!(switch.run(LACP_FRAME), "3", "without LACP");
        switch.set_ports(with_lacp(lacp));
        let frame = switch.translate(LACP_FRAME);
        assert_eq!(receiver(&frame), Some(PuntReceiver::Lacp(PortNo::new(1))));
        assert!(frame.visits.is_empty() && frame.learnings.is_empty(), "{frame:?}");
        let other = LACP_FRAME.replace("in_port=1", "in_port=4");
        assert_eq!(switch.run(&other), "3", "port 4 is no member");
        assert_eq!(switch.run(&LACP_FRAME.replace("02", "03")), "3", "another address");
        assert_eq!(switch.run(&LACP_FRAME.replace("8809", "8808")), "3", "another type");
    }
}

#[test]
fn lacp_decides_what_members_admit() {
    let from_backup = A_TO_B.replace("in_port=1", "in_port=2");
    for (lacp, active, backup) in [
        (LacpAdmission::Off, true, false),
        (LacpAdmission::Fallback, true, false),
        (LacpAdmission::All, true, true),
        (LacpAdmission::None, false, false),
    ] {
        let switch = switch(PortNo::NORMAL, 1);
        switch.set_ports(with_lacp(lacp));
        let takes = |packet: &str| !switch.translate(packet).actions.is_empty();
        assert_eq!((takes(A_TO_B), takes(&from_backup)), (active, backup), "{lacp:?}");
        if !active {
            assert_eq!(drop_cause(&switch, A_TO_B), DropCause::BondMemberInactive);
        }
    }
}

#[test]
fn the_first_lacp_bond_evicts_all_entries() {
    let switch = switch(PortNo::new(3), 1);
    let changed = |ports| {
        let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
        let is = |object: Object| {
            let is_own = |delta: &Delta| matches!(delta, Delta::Changed(own) if *own == object);
            change.deltas.iter().any(is_own)
        };
        (is(Object::Bridge(BRIDGE)), is(Object::Port(BRIDGE, PortNo::new(1))))
    };
    assert_eq!(changed(with_lacp(LacpAdmission::None)), (true, true));
    assert_eq!(changed(with_lacp(LacpAdmission::All)), (false, true), "only members change");
    assert_eq!(changed(ports_with_bond(1)), (true, true));
}

/// The bond is in the mode `balance-tcp`, and the destination address is unknown.
#[test]
fn connections_of_one_host_use_all_members() {
    let switch = switch(PortNo::NORMAL, 1);
    let member = |bucket: usize| Some(PortNo::new(1 + u32::from(bucket % 2 == 1)));
    let (hash, counters) = (BondHash::Connection, BondCounters::new("b"));
    let balance = Arc::new(BondBalance::new(hash, 7, array::from_fn(member), counters));
    let mut all = with_lacp(LacpAdmission::All);
    for own in all.iter_mut().filter_map(|port| port.bond.as_mut()) {
        own.balance = Some(Arc::clone(&balance));
    }
    switch.set_ports(all);
    let mut of_member = [0; 2];
    for port in 1000..1200 {
        let packet =
            format!("{B_TO_A},tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src={port},tp_dst=80");
        let sent = switch.run(&packet);
        let sender = sent.split(' ').find(|own| ["1", "2"].contains(own)).unwrap().to_owned();
        of_member[usize::from(sender == "2")] += 1;
        let back = format!("{B_TO_A},tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_src=80,tp_dst={port}");
        assert!(switch.run(&back).split(' ').any(|own| own == sender), "both directions agree");
    }
    assert!(of_member.iter().all(|count| *count > 60), "{of_member:?}");
}
