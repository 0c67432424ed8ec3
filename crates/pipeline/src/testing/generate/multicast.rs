//! Multicast snooping of few groups, and packets for each of its cases.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use proptest::{collection::vec, option, prelude::*, sample::select};
use shunt_flow::{FieldId, FlowKey, PortNo, layout::word};

use super::{BRIDGES, Op};
use crate::{
    bridges::multicast::{
        MulticastEvent, MulticastFlooding, MulticastObservation, MulticastSnooping,
    },
    id::BridgeId,
    testing::set_test_word,
    time::Time,
};

/// Destination addresses of generated packets, mostly multicast groups.
///
/// Two groups, a group of the local network, and a unicast address.
const GROUPS: &[[u8; 4]] = &[[239, 1, 1, 1], [239, 1, 1, 2], [224, 0, 0, 5], [10, 0, 0, 1]];

/// No tag (0), a VLAN of generated packets, and a VLAN that no packet has.
const VLANS: &[u16] = &[0, 0, 5, 7];

/// Types of messages of IGMP, and 0x13, which snooping does not read.
const TYPES: &[u64] = &[0x11, 0x12, 0x16, 0x17, 0x22, 0x13];

/// Types of messages of ICMPv6: those of MLD, and an echo request.
const TYPES_V6: &[u64] = &[130, 131, 132, 143, 128];

/// Operations for a new bridge: none, or those that set up snooping.
///
/// If snooping is set up, up to seven IGMP or MLD messages follow.
pub(super) fn initial_ops(id: BridgeId) -> impl Strategy<Value = Vec<Op>> {
    let messages = vec(message(id), 0..8);
    let snooping = option::weighted(0.4, (snooping(), messages));
    snooping.prop_map(move |snooping| {
        let Some((snooping, messages)) = snooping else { return Vec::new() };
        std::iter::once(Op::SetSnooping(id, Some(snooping))).chain(messages).collect()
    })
}

/// A change of the snooping of a bridge, or a message for it.
pub(super) fn op() -> impl Strategy<Value = Op> {
    select(&BRIDGES[..]).prop_flat_map(|id| {
        let set = option::weighted(0.8, snooping());
        prop_oneof![
            1 => set.prop_map(move |snooping| Op::SetSnooping(id, snooping)),
            4 => message(id),
        ]
    })
}

/// The choice of a port to get all multicast packets or reports; usually neither.
pub(super) fn flooding() -> impl Strategy<Value = MulticastFlooding> {
    (prop::bool::weighted(0.1), prop::bool::weighted(0.1))
        .prop_map(|(packets, reports)| MulticastFlooding { packets, reports })
}

/// Packets, of which few are multicast packets of IPv4.
pub(super) fn few_for_groups(
    packets: impl Strategy<Value = FlowKey>,
) -> impl Strategy<Value = FlowKey> {
    let chosen = option::weighted(0.15, (select(GROUPS), option::of(select(TYPES))));
    (packets, chosen).prop_map(|(mut key, chosen)| {
        if let Some((group, kind)) = chosen {
            set_group(&mut key, group);
            if let Some(kind) = kind {
                set_message(&mut key, 2, kind);
            }
        }
        key
    })
}

/// A multicast packet of IPv4 or IPv6, mostly with a message of IGMP or MLD.
pub fn multicast_packet() -> impl Strategy<Value = FlowKey> {
    let message = option::weighted(0.6, (select(TYPES), select(TYPES_V6)));
    let place = (select(&BRIDGES[..]), 1..4_u32, select(VLANS));
    (place, select(GROUPS), any::<bool>(), message).prop_map(|(place, group, is_v6, message)| {
        let (bridge, port, vlan) = place;
        let mut key = FlowKey::ZERO;
        key.set_bridge(bridge.number().into());
        key.set_in_port(PortNo::new(port));
        key.set_field(FieldId::EthSrc, 0x0200_0000_0001);
        if vlan != 0 {
            key.words_mut()[usize::from(word::VLAN)] = (0x8100_1000 | u64::from(vlan)) << 32;
        }
        set_group(&mut key, group);
        let (protocol, kind) = match message {
            None => (17, 0),
            Some((_, kind)) if is_v6 => (58, kind),
            Some((kind, _)) => (2, kind),
        };
        set_message(&mut key, protocol, kind);
        if is_v6 {
            key.set_field(FieldId::Ipv4Dst, 0);
            key.set_field(FieldId::EthType, 0x86dd);
            key.set_field(FieldId::Ipv6Dst, address(group).to_bits());
        }
        let hidden_type = key.eth_type();
        set_test_word(&mut key, hidden_type, 100);
        key
    })
}

/// Sends a packet to a group, by IPv4.
fn set_group(key: &mut FlowKey, group: [u8; 4]) {
    let [_, a, b, c] = group.map(u128::from);
    key.set_field(FieldId::EthDst, 0x0100_5e00_0000 | a << 16 | b << 8 | c);
    key.set_field(FieldId::EthType, 0x0800);
    key.set_field(FieldId::Ipv4Dst, u32::from_be_bytes(group).into());
}

/// Gives a packet a protocol and the type of a message.
fn set_message(key: &mut FlowKey, protocol: u128, kind: u64) {
    key.set_field(FieldId::NwFrag, 0);
    key.set_field(FieldId::IpProto, protocol);
    key.words_mut()[usize::from(word::TRANSPORT)] = kind << 48;
}

/// Returns the IPv6 address that corresponds to one of [`GROUPS`].
///
/// The group of the local network becomes the address of all nodes.
fn address([first, _, _, last]: [u8; 4]) -> Ipv6Addr {
    match first {
        224 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        _ => Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, last.into()),
    }
}

/// Settings of snooping; most have few groups and a short ageing time.
pub fn snooping() -> impl Strategy<Value = MulticastSnooping> {
    let defaults = MulticastSnooping::default();
    let groups_max = select(vec![1, 1, 2, 2, 3, defaults.groups_max]);
    let soon = [1, 2, 3, 5].map(Duration::from_secs);
    let ageing = select([&soon[..], &[defaults.ageing]].concat());
    (ageing, groups_max, any::<bool>()).prop_map(|(ageing, groups_max, floods_unregistered)| {
        MulticastSnooping { ageing, groups_max, floods_unregistered }
    })
}

/// The content of a message that arrives on a port of a bridge, and a random time.
pub fn message(id: BridgeId) -> impl Strategy<Value = Op> {
    (observation(id), moment()).prop_map(|(observation, now)| Op::Snoop(observation, now))
}

/// The time of a message.
fn moment() -> impl Strategy<Value = Time> {
    (0..6_u64).prop_map(|second| Time::ZERO.after(Duration::from_secs(second)))
}

/// The content of a message that arrives on a port of a bridge.
fn observation(id: BridgeId) -> impl Strategy<Value = MulticastObservation> {
    let group =
        (select(GROUPS), prop::bool::weighted(0.8)).prop_map(|(group, is_v4)| match is_v4 {
            true => IpAddr::V4(Ipv4Addr::from(group)),
            false => IpAddr::V6(address(group)),
        });
    (select(VLANS), port(), group.prop_flat_map(event))
        .prop_map(move |(vlan, port, event)| MulticastObservation { bridge: id, vlan, port, event })
}

/// Generates an event of a multicast group.
fn event(group: IpAddr) -> impl Strategy<Value = MulticastEvent> {
    prop_oneof![
        5 => Just(MulticastEvent::Join(group)),
        1 => Just(MulticastEvent::Leave(group)),
        1 => Just(MulticastEvent::Query),
    ]
}

/// Generates the number of a port.
fn port() -> impl Strategy<Value = PortNo> {
    (1..6_u32).prop_map(PortNo::new)
}

/// A change of the ports of a group.
pub(super) fn change_of_group(bridge: BridgeId, vlan: u16, group: IpAddr) -> BoxedStrategy<Op> {
    let event = prop_oneof![Just(MulticastEvent::Join(group)), Just(MulticastEvent::Leave(group))];
    (port(), event, moment())
        .prop_map(move |(port, event, now)| {
            Op::Snoop(MulticastObservation { bridge, vlan, port, event }, now)
        })
        .boxed()
}

/// A change of the router ports of a VLAN.
pub(super) fn change_of_routers(bridge: BridgeId, vlan: u16) -> BoxedStrategy<Op> {
    let event = MulticastEvent::Query;
    (port(), moment())
        .prop_map(move |(port, now)| {
            Op::Snoop(MulticastObservation { bridge, vlan, port, event }, now)
        })
        .boxed()
}
