//! Tests of the reads of multicast groups and of router ports, by a bridge that snoops.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use shunt_flow::{FieldId, FlowKey, PortNo};
use shunt_pipeline::{
    BridgeSettings, Change, Learning, MulticastEvent, MulticastObservation, MulticastSnooping,
    Time, Traversal,
};

use crate::{BRIDGE, Kind, Switch, any_packet};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

/// Time after which a port leaves a group.
const AGEING: Duration = Duration::from_secs(20);

/// Returns a switch that has one group at most, and floods no other group.
fn snooping() -> Switch {
    let switch = Switch::new();
    let snooping = MulticastSnooping { ageing: AGEING, groups_max: 1, floods_unregistered: false };
    let settings = BridgeSettings { multicast: Some(snooping), ..BridgeSettings::default() };
    switch.0.set_settings(BRIDGE, settings).unwrap();
    switch.add("actions=normal");
    switch
}

/// Returns a packet of the group.
fn to_group() -> FlowKey {
    let mut key = any_packet();
    key.set_field(FieldId::EthDst, 0x0100_5e01_0101);
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::IpProto, 17);
    key.set_field(FieldId::Ipv4Dst, u32::from(GROUP).into());
    key
}

/// Returns the traversal of a packet with a known source.
fn translate_known(switch: &Switch) -> Traversal {
    switch.learn(&to_group());
    switch.translate(&to_group())
}

/// Learns an event at a port.
fn learn(switch: &Switch, port: u32, event: MulticastEvent) -> Change {
    let port = PortNo::new(port);
    let observation = MulticastObservation { bridge: BRIDGE, vlan: 0, port, event };
    switch.0.learn(&[Learning::Multicast(observation)], Time::ZERO)
}

const JOIN: MulticastEvent = MulticastEvent::Join(IpAddr::V4(GROUP));
const LEAVE: MulticastEvent = MulticastEvent::Leave(IpAddr::V4(GROUP));

#[test]
fn a_first_member_evicts_entries() {
    let switch = snooping();
    let entry = translate_known(&switch);
    switch.assert_needed(entry, Kind::MulticastGroup, |switch| vec![learn(switch, 2, JOIN)]);
}

#[test]
fn a_further_member_evicts_entries() {
    let switch = snooping();
    learn(&switch, 2, JOIN);
    let entry = translate_known(&switch);
    switch.assert_needed(entry, Kind::MulticastGroup, |switch| vec![learn(switch, 3, JOIN)]);
}

#[test]
fn a_member_that_leaves_evicts_entries() {
    let switch = snooping();
    learn(&switch, 2, JOIN);
    let entry = translate_known(&switch);
    switch.assert_needed(entry, Kind::MulticastGroup, |switch| vec![learn(switch, 2, LEAVE)]);
}

#[test]
fn an_aged_out_member_evicts_entries() {
    let switch = snooping();
    learn(&switch, 2, JOIN);
    let entry = translate_known(&switch);
    let then = Time::ZERO.after(AGEING);
    switch.assert_needed(entry, Kind::MulticastGroup, |switch| vec![switch.0.expire(then)]);
}

#[test]
fn group_evicted_by_full_table_evicts_entries() {
    let switch = snooping();
    learn(&switch, 2, JOIN);
    let entry = translate_known(&switch);
    let other = MulticastEvent::Join(Ipv4Addr::new(239, 1, 1, 2).into());
    switch.assert_needed(entry, Kind::MulticastGroup, |switch| vec![learn(switch, 3, other)]);
}

#[test]
fn an_aged_out_router_port_evicts_entries() {
    let switch = snooping();
    learn(&switch, 4, MulticastEvent::Query);
    let entry = translate_known(&switch);
    let then = Time::ZERO.after(MulticastSnooping::ROUTER_AGEING);
    assert!(then < Time::ZERO.after(Duration::from_secs(300)), "addresses stay");
    switch.assert_needed(entry, Kind::MulticastRouters, |switch| vec![switch.0.expire(then)]);
}

#[test]
fn a_new_router_port_evicts_entries() {
    let switch = snooping();
    let entry = translate_known(&switch);
    switch.assert_needed(entry, Kind::MulticastRouters, |switch| {
        vec![learn(switch, 4, MulticastEvent::Query)]
    });
}
