//! Bonds: where packets leave, which are dropped, and what a failover makes stale.

use std::{collections::BTreeSet, sync::Arc};

use proptest::{collection::vec, prelude::*};
use shunt_flow::PortNo;
use shunt_pipeline::{
    Action, BondMember, BridgeSettings, Delta, DropCause, Mirror, MirrorOutput, MirroredPorts,
    Object, PortInfo, Time, Traversal,
    testing::{
        Twin, bridge_with_rules,
        generate::{self, Op},
    },
};

use crate::switch::{BRIDGE, Switch, describe, key, ports};

/// The bond has the address a, and port 3 the address b.
const A_TO_B: &str = "in_port=1,dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b";
const B_TO_A: &str = "in_port=3,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a";

/// Returns the ports 1 to 4 and LOCAL, 1 and 2 as a bond with this active member.
pub(crate) fn bonded(active: u32) -> Vec<PortInfo> {
    let mut all = ports();
    for port in all.iter_mut().take(2) {
        let is_active = port.number == PortNo::new(active);
        port.bond = Some(BondMember { bond: Arc::from("b"), is_active });
    }
    all
}

/// Returns a switch of one action for all packets.
///
/// No member is active with the number 0.
fn switch(port: PortNo, active: u32) -> Switch {
    let switch = Switch::of_actions(&[Action::Output { port, max_len: 0 }]);
    switch.set_ports(bonded(active));
    switch
}

/// Sends a packet, and applies its learn requests.
fn send(switch: &Switch, packet: &str) -> String {
    let traversal = switch.pipeline.translate_at_newest_version(&key(packet));
    switch.pipeline.learn(&traversal.learnings, Time::ZERO);
    describe(&traversal.actions)
}

fn cause(switch: &Switch, packet: &str) -> DropCause {
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
    switch.set_ports(bonded(2));
    assert_eq!(send(&switch, B_TO_A), "2");
    let again = switch.translate(&A_TO_B.replace("in_port=1", "in_port=2"));
    assert!(again.learnings.is_empty() && again.refreshes.len() == 1, "{again:?}");
    let to_own = "in_port=2,dl_src=02:00:00:00:00:0c,dl_dst=02:00:00:00:00:0a";
    assert_eq!(cause(&switch, to_own), DropCause::LearnedOnIngressPort);
    switch.set_ports(ports());
    assert!(switch.pipeline.macs(BRIDGE).iter().all(|entry| entry.port != PortNo::new(1)));
}

#[test]
fn packets_of_other_members_are_dropped() {
    let switch = switch(PortNo::NORMAL, 2);
    assert_eq!(cause(&switch, A_TO_B), DropCause::BondMemberInactive);
    assert!(switch.translate(A_TO_B).learnings.is_empty());
    send(&switch, &A_TO_B.replace("in_port=1", "in_port=2"));
    switch.set_ports(bonded(0));
    assert_eq!(cause(&switch, B_TO_A), DropCause::BondWithoutMember);
}

#[test]
fn flood_uses_one_member_and_all_uses_every_port() {
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
    assert_eq!(cause(&switch, "in_port=1"), DropCause::MirrorOutputPort);
    switch.set_ports(bonded(0));
    assert_eq!(switch.run("in_port=3"), "4", "no member sends the copy");
    assert_eq!(cause(&switch, "in_port=1"), DropCause::MirrorOutputPort);
}

/// Returns whether a change names an object that a traversal read.
fn is_stale(traversal: &Traversal, deltas: &[Delta]) -> bool {
    deltas.iter().any(|delta| matches!(delta, Delta::Changed(own) if traversal.reads.contains(own)))
}

#[test]
fn a_failover_makes_the_entries_of_the_bond_stale() {
    let switch = switch(PortNo::NORMAL, 1);
    send(&switch, A_TO_B);
    send(&switch, B_TO_A);
    let c_to_b = "in_port=4,dl_src=02:00:00:00:00:0c,dl_dst=02:00:00:00:00:0b";
    send(&switch, c_to_b);
    let [to_bond, from_bond, other] = [B_TO_A, A_TO_B, c_to_b].map(|own| switch.translate(own));
    let backup = switch.translate(&A_TO_B.replace("in_port=1", "in_port=2"));
    let change = switch.pipeline.set_ports(BRIDGE, bonded(2)).unwrap();
    for traversal in [&to_bond, &from_bond, &backup] {
        assert!(is_stale(traversal, &change.deltas), "{traversal:?}");
    }
    assert!(!is_stale(&other, &change.deltas), "an entry of other ports stays");
    assert!(!other.reads.contains(&Object::Ports(BRIDGE)));
    let again = switch.translate(B_TO_A);
    let change = switch.pipeline.set_ports(BRIDGE, bonded(0)).unwrap();
    assert!(is_stale(&again, &change.deltas), "the last member");
    let without = switch.translate(B_TO_A);
    assert_eq!(without.drop_cause, DropCause::BondWithoutMember);
    let change = switch.pipeline.set_ports(BRIDGE, bonded(1)).unwrap();
    assert!(is_stale(&without, &change.deltas));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Packets leave where the oracle expects, after any failovers.
    #[test]
    fn a_bonded_bridge_equals_the_oracle(
        all in vec(generate::bonded_ports(generate::BRIDGES[0]), 1..4),
        packets in vec(generate::packet(), 8),
        is_flood in any::<bool>(),
    ) {
        let id = generate::BRIDGES[0];
        let rule = if is_flood { "in_port=1,actions=FLOOD" } else { "actions=NORMAL" };
        let rules = bridge_with_rules(id, &["priority=0,actions=NORMAL", rule]);
        let mut twin = Twin::taking(&rules);
        for ports in all {
            twin.apply(&Op::SetPorts(id, ports));
            for mut packet in packets.clone() {
                packet.set_bridge(id.number().into());
                twin.apply(&Op::LearnFrom(Box::new(packet)));
            }
        }
    }
}
