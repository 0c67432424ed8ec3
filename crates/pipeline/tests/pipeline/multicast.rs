//! Tests of multicast snooping: outputs of packets and messages, and stale traversals.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use shunt_flow::{FieldId, FlowKey, PortNo};
use shunt_pipeline::{
    BridgeSettings, Change, DatapathAction, Delta, DropCause, LearnedTotals, Learning,
    MulticastEntry, MulticastEvent, MulticastFlooding, MulticastObservation, MulticastSnooping,
    PortVlans, Punt, PuntReceiver, Time, Traversal, VlanMode,
    testing::{
        CheckedPipeline, bridge_with_rules,
        generate::{self, BRIDGES, Op},
    },
};

use crate::{
    bonds::ports_with_bond,
    dependencies::NORMAL,
    switch::{BRIDGE, Switch, key, ports},
};

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
/// A group without members.
const OTHER: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 2);

/// Returns a learning switch that snoops.
pub(crate) fn switch(snooping: MulticastSnooping) -> Switch {
    let switch = Switch::of_actions(&[NORMAL]);
    set_snooping(&switch, Some(snooping));
    switch
}

fn set_snooping(switch: &Switch, multicast: Option<MulticastSnooping>) {
    let settings = BridgeSettings { multicast, ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
}

/// Returns a switch that snoops and does not flood unregistered groups.
fn strict() -> Switch {
    switch(MulticastSnooping { floods_unregistered: false, ..MulticastSnooping::default() })
}

fn at(second: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(second))
}

/// Applies an event at a port of a VLAN.
fn learn_at(switch: &Switch, port: u32, vlan: u16, event: MulticastEvent, second: u64) -> Change {
    let port = PortNo::new(port);
    let observation = MulticastObservation { bridge: BRIDGE, vlan, port, event };
    switch.pipeline.learn(&[Learning::Multicast(observation)], at(second))
}

pub(crate) fn learn(switch: &Switch, port: u32, event: MulticastEvent) -> usize {
    learn_at(switch, port, 0, event, 0).deltas.len()
}

pub(crate) fn join(group: Ipv4Addr) -> MulticastEvent {
    MulticastEvent::Join(group.into())
}

/// Returns a UDP packet to a group.
pub(crate) fn packet(port: u32, group: Ipv4Addr) -> FlowKey {
    let [_, a, b, c] = group.octets();
    let a = a & 0x7f;
    key(&format!(
        "udp,in_port={port},dl_src=02:00:00:00:00:0{port},dl_dst=01:00:5e:{a:02x}:{b:02x}:{c:02x},\
         nw_dst={group}"
    ))
}

/// Returns a message of IGMP with this type.
pub(crate) fn message(port: u32, group: Ipv4Addr, kind: u8) -> FlowKey {
    let mut key = packet(port, group);
    key.set_field(FieldId::IpProto, 2);
    key.set_field(FieldId::IcmpType, kind.into());
    key
}

/// Returns a packet of IPv6 to a group, with a message of ICMPv6 if it has a type.
pub(crate) fn packet_v6(port: u32, group: Ipv6Addr, kind: Option<u8>) -> FlowKey {
    let protocol = if kind.is_some() { "icmp6" } else { "udp6" };
    let mut key = key(&format!(
        "{protocol},in_port={port},dl_src=02:00:00:00:00:0{port},dl_dst=33:33:00:00:00:01,\
         ipv6_dst={group}"
    ));
    if let Some(kind) = kind {
        key.set_field(FieldId::Icmpv6Type, kind.into());
    }
    key
}

fn translate(switch: &Switch, key: &FlowKey) -> Traversal {
    switch.pipeline.translate(key, switch.pipeline.version())
}

/// Returns the ports on which a packet leaves.
fn outputs(switch: &Switch, key: &FlowKey) -> Vec<u32> {
    let traversal = translate(switch, key);
    let port = |action: &DatapathAction| match action {
        DatapathAction::Output { port, .. } => Some(port.number()),
        _ => None,
    };
    traversal.actions.iter().filter_map(port).collect()
}

/// Returns the port and VLAN of a message that goes to the control plane.
fn read(switch: &Switch, key: &FlowKey) -> Option<(u32, u16)> {
    let traversal = translate(switch, key);
    let punts = traversal.actions.iter().filter_map(|action| match action {
        DatapathAction::Punt(punt) => Some(&**punt),
        _ => None,
    });
    match punts.collect::<Vec<_>>()[..] {
        [] => None,
        [Punt { receiver: PuntReceiver::Multicast { port, vlan }, .. }] => {
            Some((port.number(), *vlan))
        }
        ref other => panic!("{other:?}"),
    }
}

/// Returns the groups by their last octet, each with its port.
///
/// Router ports have the group 0.
fn table(switch: &Switch) -> Vec<(u8, u32)> {
    let entries = switch.pipeline.multicast(BRIDGE).into_iter();
    let last = |entry: &MulticastEntry| match entry.group {
        Some(IpAddr::V4(group)) => group.octets()[3],
        Some(IpAddr::V6(group)) => group.octets()[15],
        None => 0,
    };
    entries.map(|entry| (last(&entry), entry.port.number())).collect()
}

/// Sets the multicast packets that leave on a port unconditionally.
fn flood_on(switch: &Switch, number: u32, multicast: MulticastFlooding) {
    let mut all = ports();
    let port = all.iter_mut().find(|port| port.number == PortNo::new(number));
    port.expect("the port exists").multicast = multicast;
    switch.set_ports(all);
}

/// The ports to which the bridge floods.
const ALL: [u32; 4] = [2, 3, 4, 100];

#[test]
fn a_group_goes_to_its_members() {
    let switch = switch(MulticastSnooping::default());
    assert_eq!(outputs(&switch, &packet(1, GROUP)), ALL, "unregistered");
    assert_eq!(learn(&switch, 3, join(GROUP)), 1);
    assert_eq!(learn(&switch, 3, join(GROUP)), 0, "known already");
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [3]);
    assert_eq!(outputs(&switch, &packet(1, OTHER)), ALL);
    learn(&switch, 2, join(GROUP));
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [2, 3]);
    assert_eq!(outputs(&switch, &packet(2, GROUP)), [3], "never back");
    learn(&switch, 3, MulticastEvent::Leave(GROUP.into()));
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [2]);
    learn(&switch, 2, MulticastEvent::Leave(GROUP.into()));
    assert_eq!(outputs(&switch, &packet(1, GROUP)), ALL);
}

#[test]
fn a_bridge_without_snooping_floods_and_learns_nothing() {
    let switch = Switch::of_actions(&[NORMAL]);
    assert_eq!(learn(&switch, 3, join(GROUP)), 0);
    assert_eq!(outputs(&switch, &packet(1, GROUP)), ALL);
    assert_eq!(read(&switch, &message(1, GROUP, 0x16)), None);
}

#[test]
fn switching_snooping_off_empties_the_table() {
    let switch = strict();
    learn(&switch, 3, join(GROUP));
    learn(&switch, 4, MulticastEvent::Query);
    assert_eq!(table(&switch), [(1, 3), (0, 4)]);
    set_snooping(&switch, None);
    set_snooping(&switch, Some(MulticastSnooping::default()));
    assert_eq!(table(&switch), []);
}

#[test]
fn reports_go_to_routers_and_are_read() {
    let switch = switch(MulticastSnooping::default());
    for kind in [0x12, 0x16, 0x17, 0x22] {
        let report = message(1, GROUP, kind);
        assert_eq!((outputs(&switch, &report), read(&switch, &report)), (vec![], Some((1, 0))));
    }
    learn(&switch, 4, MulticastEvent::Query);
    learn(&switch, 3, join(GROUP));
    assert_eq!(outputs(&switch, &message(1, GROUP, 0x16)), [4], "not to hosts");
    let report = packet_v6(1, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16), Some(143));
    assert_eq!((outputs(&switch, &report), read(&switch, &report)), (vec![4], Some((1, 0))));
}

#[test]
fn queries_and_packets_of_the_link_are_flooded() {
    let switch = strict();
    let all_systems = Ipv4Addr::new(224, 0, 0, 1);
    let query = message(1, all_systems, 0x11);
    assert_eq!((outputs(&switch, &query), read(&switch, &query)), (ALL.to_vec(), Some((1, 0))));
    let query = packet_v6(1, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Some(130));
    assert_eq!((outputs(&switch, &query), read(&switch, &query)), (ALL.to_vec(), Some((1, 0))));
    let other = message(1, GROUP, 0x13);
    assert_eq!((outputs(&switch, &other), read(&switch, &other)), (ALL.to_vec(), None));
    for group in [all_systems, Ipv4Addr::new(224, 0, 0, 251)] {
        assert_eq!(outputs(&switch, &packet(1, group)), ALL);
    }
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    assert_eq!(outputs(&switch, &packet_v6(1, all_nodes, None)), ALL);
    let other = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    assert!(outputs(&switch, &packet_v6(1, other, None)).is_empty());
}

#[test]
fn routers_get_every_group_and_one_copy() {
    let switch = strict();
    learn(&switch, 3, join(GROUP));
    learn(&switch, 3, MulticastEvent::Query);
    learn(&switch, 4, MulticastEvent::Query);
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [3, 4]);
    assert_eq!(outputs(&switch, &packet(1, OTHER)), [3, 4]);
    assert_eq!(learn(&switch, 4, join(OTHER)), 0, "a router has all groups already");
}

#[test]
fn an_unregistered_group_without_routers_is_dropped() {
    let switch = strict();
    let traversal = translate(&switch, &packet(1, GROUP));
    assert!(traversal.actions.is_empty());
    assert_eq!(traversal.drop_cause, DropCause::MulticastWithoutReceiver);
    learn(&switch, 1, join(GROUP));
    let traversal = translate(&switch, &packet(1, GROUP));
    assert!(traversal.actions.is_empty(), "the only member of the group is the ingress port");
    assert_eq!(traversal.drop_cause, DropCause::MulticastWithoutReceiver);
}

#[test]
fn flood_port_gets_groups_without_learning() {
    let switch = strict();
    flood_on(&switch, 2, MulticastFlooding { packets: true, reports: false });
    learn(&switch, 3, join(GROUP));
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [2, 3]);
    assert_eq!(outputs(&switch, &packet(1, OTHER)), [2]);
    assert!(outputs(&switch, &message(1, GROUP, 0x16)).is_empty(), "but no reports");
    assert_eq!(learn(&switch, 2, join(OTHER)) + learn(&switch, 2, MulticastEvent::Query), 0);
    assert_eq!(read(&switch, &message(2, GROUP, 0x16)), None);
}

#[test]
fn a_report_flood_port_keeps_its_groups() {
    let switch = strict();
    flood_on(&switch, 2, MulticastFlooding { packets: false, reports: true });
    learn(&switch, 2, join(GROUP));
    assert_eq!(learn(&switch, 2, MulticastEvent::Leave(GROUP.into())), 0);
    assert_eq!(outputs(&switch, &message(1, OTHER, 0x16)), [2]);
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [2]);
    assert!(outputs(&switch, &packet(1, OTHER)).is_empty());
}

#[test]
fn a_group_belongs_to_its_vlan() {
    let switch = strict();
    let mut all = ports();
    all[1].vlans = PortVlans { mode: VlanMode::Access(5), ..PortVlans::default() };
    all[3].multicast = MulticastFlooding { packets: true, reports: false };
    all[3].vlans = PortVlans { mode: VlanMode::Access(7), ..PortVlans::default() };
    switch.set_ports(all);
    assert_eq!(learn_at(&switch, 2, 0, join(GROUP), 0).deltas.len(), 0, "not its VLAN");
    learn_at(&switch, 2, 5, join(GROUP), 0);
    learn_at(&switch, 3, 0, MulticastEvent::Query, 0);
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [3], "port 4 does not carry the VLAN");
    let mut tagged = packet(1, GROUP);
    tagged.set_field(FieldId::VlanTpid, 0x8100);
    tagged.set_field(FieldId::VlanTci, 0x1005);
    assert_eq!(outputs(&switch, &tagged), [2], "the router is in another VLAN");
}

#[test]
fn protected_members_do_not_reach_each_other() {
    let switch = strict();
    let mut all = ports();
    for port in all.iter_mut().take(2) {
        port.is_protected = true;
    }
    switch.set_ports(all);
    learn(&switch, 2, join(GROUP));
    learn(&switch, 3, join(GROUP));
    assert_eq!(outputs(&switch, &packet(1, GROUP)), [3]);
    assert_eq!(outputs(&switch, &packet(4, GROUP)), [2, 3]);
}

#[test]
fn a_bond_acts_as_one_port() {
    let switch = strict();
    switch.set_ports(ports_with_bond(2));
    learn(&switch, 2, join(GROUP));
    assert_eq!(learn(&switch, 1, join(GROUP)), 0, "another member");
    assert_eq!(outputs(&switch, &packet(3, GROUP)), [2], "the active member");
    switch.set_ports(ports_with_bond(1));
    assert_eq!(outputs(&switch, &packet(3, GROUP)), [1]);
    assert!(outputs(&switch, &packet(1, GROUP)).is_empty(), "never back into the bond");
    assert_eq!(learn(&switch, 1, MulticastEvent::Leave(GROUP.into())), 1);
    assert_eq!(table(&switch), []);
}

#[test]
fn a_bond_keeps_its_groups_without_a_member() {
    let switch = strict();
    switch.set_ports(ports_with_bond(2));
    learn(&switch, 2, join(GROUP));
    learn(&switch, 2, MulticastEvent::Query);
    let entry = translate(&switch, &packet(3, GROUP));
    let mut all = ports_with_bond(1);
    all.retain(|port| port.number != PortNo::new(2));
    let change = switch.pipeline.set_ports(BRIDGE, all).expect("the bridge exists");
    assert!(is_named(&change, &entry), "{:?}", change.deltas);
    assert_eq!(table(&switch), [(1, 1), (0, 1)]);
    assert_eq!(outputs(&switch, &packet(3, GROUP)), [1]);
    let mut all = ports();
    all.retain(|port| port.number != PortNo::new(2));
    switch.set_ports(all);
    assert_eq!(table(&switch), [], "the bond ends");
}

#[test]
fn entries_expire_exactly_at_their_time() {
    let switch = strict();
    learn_at(&switch, 2, 0, join(GROUP), 0);
    learn_at(&switch, 3, 0, join(GROUP), 10);
    learn_at(&switch, 4, 0, MulticastEvent::Query, 0);
    assert!(switch.pipeline.expire(at(179)).deltas.is_empty());
    assert_eq!(switch.pipeline.expire(at(180)).deltas.len(), 1);
    assert_eq!(table(&switch), [(1, 2), (1, 3)]);
    learn_at(&switch, 2, 0, join(GROUP), 200);
    assert!(switch.pipeline.expire(at(309)).deltas.is_empty());
    assert_eq!(switch.pipeline.expire(at(310)).deltas.len(), 1);
    assert_eq!(table(&switch), [(1, 2)]);
    assert_eq!(switch.pipeline.expire(at(500)).deltas.len(), 1);
    assert_eq!(table(&switch), []);
}

#[test]
fn a_port_that_changes_loses_its_groups() {
    let switch = strict();
    learn(&switch, 2, join(GROUP));
    learn(&switch, 3, join(GROUP));
    let mut all = ports();
    all[1].vlans = PortVlans { trunks: Some([0, 5].into()), ..PortVlans::default() };
    all.remove(2);
    let entry = translate(&switch, &packet(1, GROUP));
    let change = switch.pipeline.set_ports(BRIDGE, all).expect("the bridge exists");
    assert_eq!(table(&switch), []);
    assert!(is_named(&change, &entry), "{:?}", change.deltas);
}

#[test]
fn a_flush_names_every_group() {
    let switch = strict();
    learn(&switch, 2, join(GROUP));
    learn(&switch, 2, join(OTHER));
    learn(&switch, 4, MulticastEvent::Query);
    assert_eq!(switch.pipeline.flush_multicast(BRIDGE).deltas.len(), 3);
    assert_eq!(table(&switch), []);
}

/// A change of one group evicts the entries of that group alone.
#[test]
fn a_change_names_its_group_alone() {
    let switch = strict();
    let (group, other) =
        (translate(&switch, &packet(1, GROUP)), translate(&switch, &packet(1, OTHER)));
    let change = learn_at(&switch, 2, 0, join(GROUP), 0);
    assert!(is_named(&change, &group) && !is_named(&change, &other));
    let change = learn_at(&switch, 4, 0, MulticastEvent::Query, 0);
    assert!(is_named(&change, &group) && is_named(&change, &other));
}

/// Returns whether a delta names an object that a traversal read.
fn is_named(change: &Change, traversal: &Traversal) -> bool {
    change.deltas.iter().any(|delta| match delta {
        Delta::Changed(object) => traversal.reads.contains(object),
        Delta::Rule(_) => false,
    })
}

/// Generates two bridges with random ports that snoop, and messages for them.
fn network() -> impl Strategy<Value = Vec<Op>> {
    let built = BRIDGES.map(|id| {
        let messages = vec(generate::message(id), 0..10);
        (generate::bonded_ports(id), generate::snooping(), messages).prop_map(
            move |(ports, snooping, messages)| {
                let mut ops = bridge_with_rules(id, &["actions=normal"]);
                ops.extend([Op::SetPorts(id, ports), Op::SetSnooping(id, Some(snooping))]);
                ops.extend(messages);
                ops
            },
        )
    });
    built.prop_map(|built| built.concat())
}

/// Draws a change: a message, new settings, new ports, or the expiry of groups.
fn change() -> impl Strategy<Value = Op> {
    let [one, two] = BRIDGES;
    let settings = generate::snooping().prop_map(move |own| Op::SetSnooping(one, Some(own)));
    let ports = generate::bonded_ports(one).prop_map(move |ports| Op::SetPorts(one, ports));
    prop_oneof![
        6 => generate::message(one),
        6 => generate::message(two),
        1 => settings,
        1 => ports,
        1 => (1..12_u64).prop_map(|second| Op::Expire(at(second))),
    ]
}

/// Tests that random networks have full tables, and groups that expire.
#[test]
fn random_snooping_tables_evict_and_expire() {
    let mut runner = TestRunner::deterministic();
    let mut totals = LearnedTotals::default();
    for _world in 0..100 {
        let drawn = (network(), vec(change(), 1..12)).new_tree(&mut runner).expect("a network");
        let (network, changes) = drawn.current();
        let mut checked = CheckedPipeline::new(&network);
        changes.iter().for_each(|op| drop(checked.apply(op)));
        for id in BRIDGES {
            totals = totals.plus(checked.pipeline.multicast_totals(id));
        }
    }
    assert!(totals.evicted > 20 && totals.expired > 5, "{totals:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snooping_bridge_equals_the_oracle(
        network in network(),
        packets in vec(generate::multicast_packet(), 1..12),
    ) {
        let checked = CheckedPipeline::new(&network);
        for key in &packets {
            prop_assert_eq!(checked.effects(&checked.translate(key), key), checked.model.translate(key));
        }
    }

    /// A change leaves every traversal unchanged that its deltas do not name.
    #[test]
    fn a_stale_traversal_is_named(
        network in network(),
        packets in vec(generate::multicast_packet(), 1..8),
        changes in vec(change(), 1..12),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        for op in changes {
            let before: Vec<Traversal> = packets.iter().map(|key| checked.translate(key)).collect();
            let change = checked.apply(&op);
            for (key, before) in packets.iter().zip(before) {
                let after = checked.translate(key);
                let is_same = after.actions == before.actions && after.reads == before.reads;
                let is_evicted = change.as_ref().is_some_and(|change| is_named(change, &before));
                prop_assert!(is_same || is_evicted, "{:?} becomes {:?}", before, after);
            }
        }
    }
}
