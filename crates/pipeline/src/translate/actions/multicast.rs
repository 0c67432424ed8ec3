//! Multicast snooping of NORMAL: multicast packets go to the ports that want them (RFC 4541).
//!
//! Shunt does as Open vSwitch does, except that each port gets one copy, and only in a VLAN that it
//! carries:
//!
//! * Messages of IGMP and MLD also go to the control plane, which fills the multicast table.
//! * Reports and leaves of hosts go to router ports, and to ports with `mcast-snooping-flood-reports`.
//!   Queries, and other messages of IGMP, are flooded.
//! * Packets to 224.0.0.0/24 and to ff02::1 are flooded.
//! * Packets of a group go to the ports of hosts that have reported the group, to router ports,
//!   and to ports with `mcast-snooping-flood`.
//! * Packets of a group without a report are flooded, or go to router ports and to ports with
//!   `mcast-snooping-flood`.
//!
//! On a bridge without snooping, a packet costs one branch more.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    vec,
};

use shunt_flow::{FieldId, Match, PortNo};

use super::{
    normal::{flood, send_on},
    output::Egress,
    port_tags::PacketVlan,
};
use crate::{
    action::PacketInReason,
    bridges::{multicast::MulticastSnooping, port::PortInfo},
    id::{Cookie, TableId},
    translate::{agenda::AgendaStep, working_packet::WorkingPacket},
    traversals::{
        datapath_action::{DatapathAction, Punt, PuntReceiver},
        drop_cause::{
            MulticastDecision, MulticastFloodReason, MulticastOutputReason, NotedDecision,
        },
        traversal::TraversalError,
    },
};

/// The remaining ports of a multicast packet.
pub(in crate::translate) struct MulticastOutputs<'a> {
    /// The ports that have not got the packet yet.
    rest: vec::IntoIter<&'a PortInfo>,
    /// True if the ingress port is protected.
    is_protected: bool,
    /// The VLAN of the packet.
    vlan: PacketVlan,
}

/// The kind of a multicast packet, by which snooping chooses its ports.
#[derive(Clone, Copy)]
pub(super) enum MulticastPacket {
    /// A report or a leave of a host.
    Report,
    /// A query of a router.
    Query,
    /// Another message of IGMP.
    OtherIgmp,
    /// A packet to 224.0.0.0/24 or ff02::1.
    LinkLocal,
    /// A packet of a group.
    Group(IpAddr),
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const IGMP: u128 = 2;
const ICMPV6: u128 = 58;

/// The link-local group of all nodes.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Returns the kind of an IP packet; `None` for a packet other than IP.
pub(super) fn multicast_packet(packet: &mut WorkingPacket) -> Option<MulticastPacket> {
    read(packet, FieldId::EthType);
    match packet.key().eth_type() {
        IPV4 => Some(ipv4_packet(packet)),
        IPV6 => Some(ipv6_packet(packet)),
        _ => None,
    }
}

/// Returns the kind of an IPv4 packet to a group.
fn ipv4_packet(packet: &mut WorkingPacket) -> MulticastPacket {
    if read(packet, FieldId::IpProto) == IGMP {
        // The key has the type of an IGMP message in the field of the ICMP type.
        return match read(packet, FieldId::IcmpType) {
            0x11 => MulticastPacket::Query,
            0x12 | 0x16 | 0x17 | 0x22 => MulticastPacket::Report,
            _ => MulticastPacket::OtherIgmp,
        };
    }
    let group = u32::try_from(read(packet, FieldId::Ipv4Dst)).unwrap_or_default();
    match Ipv4Addr::from(group).octets() {
        [224, 0, 0, _] => MulticastPacket::LinkLocal,
        octets => MulticastPacket::Group(IpAddr::from(octets)),
    }
}

/// Returns the kind of an IPv6 packet to a group.
fn ipv6_packet(packet: &mut WorkingPacket) -> MulticastPacket {
    if read(packet, FieldId::IpProto) == ICMPV6 {
        match read(packet, FieldId::Icmpv6Type) {
            130 => return MulticastPacket::Query,
            131 | 132 | 143 => return MulticastPacket::Report,
            _ => {}
        }
    }
    let group = Ipv6Addr::from(read(packet, FieldId::Ipv6Dst));
    if group == ALL_NODES {
        MulticastPacket::LinkLocal
    } else {
        MulticastPacket::Group(IpAddr::V6(group))
    }
}

/// Forwards a multicast packet of a VLAN.
#[cold]
pub(super) fn forward<'a>(
    egress: &mut Egress<'_, 'a>,
    snooping: MulticastSnooping,
    packet: MulticastPacket,
    vlan: PacketVlan,
    arrived: Option<&'a PortInfo>,
) -> Result<(), TraversalError> {
    if let MulticastPacket::Report | MulticastPacket::Query = packet {
        punt_membership(egress, vlan.id, arrived)?;
    }
    let mut wanted = Vec::new();
    let reason = match packet {
        MulticastPacket::Query => Some(MulticastFloodReason::Query),
        MulticastPacket::OtherIgmp => Some(MulticastFloodReason::OtherIgmp),
        MulticastPacket::LinkLocal => Some(MulticastFloodReason::LinkLocal),
        MulticastPacket::Report => {
            note(egress, MulticastDecision::Report { vlan: vlan.id });
            let flooded = egress.bridge.flooded().reports.iter();
            wanted.extend(flooded.map(|port| (*port, MulticastOutputReason::FloodedReports)));
            None
        }
        MulticastPacket::Group(group) => {
            let members =
                egress.bridge.multicast_group(vlan.id, group, &mut egress.packet.recorder);
            let is_flooded = members.is_none() && snooping.floods_unregistered;
            if !is_flooded {
                let decision = match members {
                    Some(_) => MulticastDecision::Group { group, vlan: vlan.id },
                    None => MulticastDecision::Unregistered { group, vlan: vlan.id },
                };
                note(egress, decision);
                let members = members.into_iter().flat_map(|members| members.numbers());
                wanted.extend(members.map(|port| (port, MulticastOutputReason::Member)));
                let flooded = egress.bridge.flooded().packets.iter();
                wanted.extend(flooded.map(|port| (*port, MulticastOutputReason::Flooded)));
            }
            is_flooded.then_some(MulticastFloodReason::Unregistered)
        }
    };
    if let Some(reason) = reason {
        note(egress, MulticastDecision::Flood { vlan: vlan.id, reason });
        flood(egress, vlan, arrived);
        return Ok(());
    }
    let routers = egress.bridge.multicast_routers(vlan.id, &mut egress.packet.recorder);
    let routers = routers.into_iter().flat_map(|routers| routers.numbers());
    wanted.extend(routers.map(|port| (port, MulticastOutputReason::Router)));
    let ports = choose_ports(egress, wanted, vlan, arrived);
    if ports.is_empty() {
        note(egress, MulticastDecision::WithoutReceiver);
        return Ok(());
    }
    let is_protected = arrived.is_some_and(|port| port.is_protected);
    let outputs = MulticastOutputs { rest: ports.into_iter(), is_protected, vlan };
    egress.agenda.push(AgendaStep::Multicast(outputs));
    Ok(())
}

/// Returns the ports that get the packet, each bond once, by the lowest number.
fn choose_ports<'a>(
    egress: &mut Egress<'_, 'a>,
    mut wanted: Vec<(PortNo, MulticastOutputReason)>,
    vlan: PacketVlan,
    arrived: Option<&PortInfo>,
) -> Vec<&'a PortInfo> {
    // The sort is stable, so the first reason of each port stays first.
    wanted.sort_by_key(|(port, _)| *port);
    let mut ports: Vec<&PortInfo> = Vec::new();
    for (number, reason) in wanted {
        let found = egress.bridge.find_port(number, &mut egress.packet.recorder);
        let Some(port) = found else { continue };
        let is_left_out = arrived.is_some_and(|own| own.is_one_with(port))
            || ports.iter().any(|chosen| chosen.is_one_with(port))
            || !port.vlans.carries(vlan.id)
            || egress.bridge.is_mirror_output(number)
            || !port.vlans.carries_inside(vlan.id_below(egress.packet));
        if !is_left_out {
            note(egress, MulticastDecision::Output { port: number, reason });
            ports.push(port);
        }
    }
    ports
}

/// Sends to the next port, and puts the other ports back on the agenda.
pub(in crate::translate) fn multicast_outputs<'a>(
    egress: &mut Egress<'_, 'a>,
    mut outputs: MulticastOutputs<'a>,
) -> Result<(), TraversalError> {
    let Some(port) = outputs.rest.next() else { return Ok(()) };
    let (is_protected, vlan) = (outputs.is_protected, outputs.vlan);
    egress.agenda.push(AgendaStep::Multicast(outputs));
    send_on(egress, is_protected, port, vlan)
}

/// Sends a message of IGMP or MLD to the control plane, which learns from it.
///
/// Nothing is learned on a port that gets the packets of all groups, or from a controller.
fn punt_membership(
    egress: &mut Egress<'_, '_>,
    vlan: u16,
    arrived: Option<&PortInfo>,
) -> Result<(), TraversalError> {
    let Some(port) = arrived.filter(|port| !port.multicast.packets) else { return Ok(()) };
    let punt = Punt {
        receiver: PuntReceiver::Multicast { port: port.number, vlan },
        bridge: egress.bridge.id(),
        reason: PacketInReason::Action,
        miss: None,
        table: TableId::FIRST,
        cookie: Cookie::new(u64::MAX),
        controller_id: 0,
        max_len: u16::MAX,
        userdata: Box::default(),
        metadata: Match::any(),
        continuation: None,
    };
    egress.packet.emit(DatapathAction::Punt(Arc::new(punt)))
}

/// Records a decision of snooping for the explanation of the translation.
fn note(egress: &mut Egress<'_, '_>, decision: MulticastDecision) {
    egress.note(NotedDecision::Multicast(decision));
}

/// Reads a field of the packet.
fn read(packet: &mut WorkingPacket, field: FieldId) -> u128 {
    packet.recorder.consult(field, u128::MAX);
    packet.key().field(field)
}
