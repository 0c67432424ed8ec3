//! NORMAL: forwards the packet as a learning switch with VLANs (IEEE 802.1Q).
//!
//! Where the standard leaves a choice, NORMAL does as Open vSwitch does.
//!
//! * The ingress port decides the VLAN of the packet, or drops it.
//! * Frames to the reserved addresses of bridges are dropped, except those of a controller. Frames
//!   with a tag that was not parsed are dropped, too: the tag is truncated, or lies below other
//!   tags.
//! * Frames that arrive on the output port of a mirror are dropped, and floods leave out this
//!   port.
//! * The source address is learned. If the address is known on this port, hits refresh it. A static
//!   address is neither learned nor refreshed.
//! * The packet goes to the port of its destination address, or is flooded to every port of its
//!   VLAN; never to its ingress port. Packets to group addresses are always flooded.
//! * With multicast snooping, multicast packets go to the ports that want them (`multicast.rs`).
//! * In some VLANs of the bridge no address is learned, and every packet is flooded.
//! * A packet that arrives on a protected port leaves on no other protected port.
//! * The members of a bond are one port. One member sends, and some packets that arrive on other
//!   members are dropped (`bond.rs`). If the network may send copies back, an address is learned
//!   before its packet is sent.
//! * On each port the packet has the tag of its VLAN or no tag, as the port requires
//!   (`port_tags.rs`). A priority stays, in a priority tag if necessary. The priority is lost if the
//!   port removes the tag of its own VLAN and sends no priority tags.
//! * The VLAN of a packet from a dot1q-tunnel port is the service VLAN of the port. An access port
//!   gets no packet with another VLAN below its own, and a dot1q-tunnel port only packets of the
//!   customer VLANs that it carries.

use std::{slice, sync::Arc};

use shunt_flow::{FieldId, PortNo};

use super::{
    multicast::{forward, multicast_packet},
    output::Egress,
    port_tags::{OUTER_PRESENT, PacketVlan, put_tags, vlan_id},
};
use crate::{
    bridges::{
        mac_table::MacObservation,
        port::{PortInfo, PortKind},
    },
    learn::learning::Learning,
    translate::{
        agenda::AgendaStep,
        working_packet::{WorkingPacket, vlan::VLAN},
    },
    traversals::{
        drop_cause::NotedDecision,
        traversal::{Refresh, TraversalError},
    },
};

/// The remaining ports of a flood by NORMAL.
pub(in crate::translate) struct NormalFlood<'a> {
    /// The ports that have not got the packet yet.
    rest: slice::Iter<'a, Arc<PortInfo>>,
    /// The port on which the packet arrived, which gets no copy.
    ingress: PortNo,
    /// True if the ingress port is protected.
    is_protected: bool,
    /// The VLAN of the packet.
    vlan: PacketVlan,
}

/// The Ethernet types of a tag.
const TAG_TYPES: [u16; 2] = [0x8100, 0x88a8];
/// The bit of the first byte of a MAC address that marks group addresses.
pub(super) const GROUP_ADDRESS: u64 = 1 << 40;
/// The broadcast MAC address.
pub(super) const BROADCAST: u64 = 0xffff_ffff_ffff;

/// Forwards a packet of a bridge that fails open, which consults no table.
#[cold]
pub(in crate::translate) fn fail_open(egress: &mut Egress<'_, '_>) -> Result<(), TraversalError> {
    egress.note(NotedDecision::FailOpen);
    normal(egress)
}

/// Runs `output:NORMAL`: learns the source address and forwards the packet.
pub(super) fn normal(egress: &mut Egress<'_, '_>) -> Result<(), TraversalError> {
    let ingress = egress.packet.in_port();
    let (source, target) =
        (address(egress.packet, FieldId::EthSrc), address(egress.packet, FieldId::EthDst));
    egress.packet.recorder.consult_word(VLAN, u64::MAX);
    if hides_tag(egress.packet) {
        egress.note(NotedDecision::UnparsedVlanTag);
        return Ok(());
    }
    let Some((vlan, arrived)) = admit(egress, ingress) else { return Ok(()) };
    if arrived.is_some() && is_reserved(target) {
        egress.note(NotedDecision::ReservedDestination(bytes(target)));
        return Ok(());
    }
    if let Some(port) = arrived.filter(|port| port.bond.is_some())
        && !egress.is_admitted(port, vlan.id, [source, target])
    {
        return Ok(());
    }
    let is_flooded = egress.bridge.floods_vlan(vlan.id);
    if let Some(port) = arrived
        && source & GROUP_ADDRESS == 0
    {
        if !is_flooded {
            learn_source(egress, vlan.id, [source, target], port)?;
        }
        // The address is both source and destination, so its port is the ingress port.
        if source == target {
            egress.note(NotedDecision::SourceIsDestination(bytes(source)));
            return Ok(());
        }
    }
    if target & GROUP_ADDRESS != 0
        && target != BROADCAST
        && let Some(snooping) = egress.bridge.snooping()
        && let Some(packet) = multicast_packet(egress.packet)
    {
        return forward(egress, snooping, packet, vlan, arrived);
    }
    // As in Open vSwitch, a table entry of a group address does not restrict a flood.
    let known = if is_flooded || target & GROUP_ADDRESS != 0 {
        None
    } else {
        egress.bridge.find_mac(vlan.id, bytes(target), &mut egress.packet.recorder)
    };
    match known.map(|known| known.port) {
        Some(port) if port == ingress => {
            egress.note(NotedDecision::LearnedOnIngressPort { port, vlan: vlan.id });
            Ok(())
        }
        Some(port) => send_learned(egress, port, vlan, arrived),
        None => {
            let is_group = target & GROUP_ADDRESS != 0;
            egress.note(NotedDecision::Flood { vlan: vlan.id, is_group });
            flood(egress, vlan, arrived);
            Ok(())
        }
    }
}

/// Floods the packet in its VLAN, except to its ingress port.
pub(super) fn flood(egress: &mut Egress<'_, '_>, vlan: PacketVlan, arrived: Option<&PortInfo>) {
    let ingress = egress.packet.in_port();
    let rest = egress.bridge.all_ports(&mut egress.packet.recorder).iter();
    let is_protected = arrived.is_some_and(|port| port.is_protected);
    let flood = NormalFlood { rest, ingress, is_protected, vlan };
    egress.agenda.push(AgendaStep::NormalFlood(flood));
}

/// Sends to the port of a learned address, or to a member of its bond.
fn send_learned(
    egress: &mut Egress<'_, '_>,
    number: PortNo,
    vlan: PacketVlan,
    arrived: Option<&PortInfo>,
) -> Result<(), TraversalError> {
    let Some(port) = egress.bridge.find_port(number, &mut egress.packet.recorder) else {
        egress.note(NotedDecision::OutputPortMissing(number));
        return Ok(());
    };
    if arrived.is_some_and(|own| own.is_one_with(port)) {
        egress.note(NotedDecision::LearnedOnIngressPort { port: number, vlan: vlan.id });
        return Ok(());
    }
    egress.note(NotedDecision::Learned { port: number, vlan: vlan.id });
    let is_protected = arrived.is_some_and(|own| own.is_protected);
    send_on(egress, is_protected, port, vlan)
}

/// Sends on a port, or on a member of its bond, unless both ports are protected.
pub(super) fn send_on(
    egress: &mut Egress<'_, '_>,
    is_protected: bool,
    port: &PortInfo,
    vlan: PacketVlan,
) -> Result<(), TraversalError> {
    let Some(bond) = &port.bond else {
        return send_unless_protected(egress, is_protected, port, vlan);
    };
    let id = vlan.id_on_wire(egress.packet, port);
    let Some((member, hit)) = egress.bond_sender(bond, id) else {
        egress.note(NotedDecision::BondWithoutMember(port.number));
        return Ok(());
    };
    egress.note(NotedDecision::BondMemberChosen(member.number));
    if !(is_protected && member.is_protected) {
        egress.packet.output_hits.extend(hit);
    }
    send_unless_protected(egress, is_protected, member, vlan)
}

/// Sends on a port, unless both ports are protected.
fn send_unless_protected(
    egress: &mut Egress<'_, '_>,
    is_protected: bool,
    port: &PortInfo,
    vlan: PacketVlan,
) -> Result<(), TraversalError> {
    if is_protected && port.is_protected {
        egress.note(NotedDecision::BothPortsProtected(port.number));
        return Ok(());
    }
    send_tagged(egress, port, vlan)
}

/// Sends to the next port of a flood, and puts the other ports back on the agenda.
pub(in crate::translate) fn normal_flood<'a>(
    egress: &mut Egress<'_, 'a>,
    mut flood: NormalFlood<'a>,
) -> Result<(), TraversalError> {
    let Some(port) = flood.rest.next() else { return Ok(()) };
    let (ingress, is_protected, vlan) = (flood.ingress, flood.is_protected, flood.vlan);
    egress.agenda.push(AgendaStep::NormalFlood(flood));
    let is_reached = port.number != ingress
        && !port.config.no_flood
        && port.kind != PortKind::Unbound
        && port.vlans.carries(vlan.id)
        && !(is_protected && port.is_protected)
        && !egress.bridge.is_mirror_output(port.number)
        && port.vlans.carries_inside(vlan.id_below(egress.packet));
    if !is_reached {
        return Ok(());
    }
    if let Some(member) = &port.bond {
        let id = vlan.id_on_wire(egress.packet, port);
        if !egress.floods_on_member(port, member, id) {
            return Ok(());
        }
        egress.note(NotedDecision::BondMemberChosen(port.number));
    }
    send_tagged(egress, port, vlan)
}

/// Returns whether port `number` is `port`, or a member of the same bond.
fn shares_bond(egress: &mut Egress<'_, '_>, number: PortNo, port: &PortInfo) -> bool {
    let other = egress.bridge.find_port(number, &mut egress.packet.recorder);
    other.is_some_and(|own| own.is_one_with(port))
}

/// Returns the VLAN of the packet, and its ingress port.
///
/// `None` if the ingress port drops the packet. A packet of a controller has no ingress port, and
/// may have any VLAN.
fn admit<'a>(
    egress: &mut Egress<'_, 'a>,
    ingress: PortNo,
) -> Option<(PacketVlan, Option<&'a PortInfo>)> {
    let id = vlan_id(egress.packet);
    if matches!(ingress, PortNo::CONTROLLER | PortNo::ANY) {
        return Some((PacketVlan { id, service_tag: None }, None));
    }
    let Some(port) = egress.bridge.find_port(ingress, &mut egress.packet.recorder) else {
        egress.note(NotedDecision::UnknownIngressPort(ingress));
        return None;
    };
    if egress.bridge.is_mirror_output(ingress) {
        egress.note(NotedDecision::MirrorOutputPort(ingress));
        return None;
    }
    let Some(vlan) = PacketVlan::on(port, id) else {
        let (port, mode) = (port.number, port.vlans.mode);
        egress.note(NotedDecision::VlanNotAllowed { port, vlan: id, mode });
        return None;
    };
    if vlan.service_tag.is_some() {
        let (port, service) = (port.number, vlan.id);
        egress.note(NotedDecision::ServiceVlan { port, vlan: id, service });
    }
    Some((vlan, Some(port)))
}

/// Learns the source address of a packet, or refreshes it, unless it is static.
fn learn_source(
    egress: &mut Egress<'_, '_>,
    vlan: u16,
    [source, target]: [u64; 2],
    port: &PortInfo,
) -> Result<(), TraversalError> {
    let mac = bytes(source);
    let known = egress.bridge.find_mac(vlan, mac, &mut egress.packet.recorder);
    if known.is_some_and(|known| known.is_static) {
        return Ok(());
    }
    let is_here = known.is_some_and(|known| is_at(egress, known.port, port));
    let is_announced = known.is_some_and(|known| known.is_announced());
    // On a bond, an announcement only matters if the address is not known on the bond.
    let may_matter = !is_announced && (port.bond.is_none() || !is_here);
    let is_announcement = target == BROADCAST && may_matter && egress.learns_announcement();
    match known {
        Some(known) if is_here && !is_announcement => {
            egress.requests.refresh(Refresh::Mac(known.clone()))
        }
        _ => {
            let precedes_packet = egress.bridge.receives_copies(&mut egress.packet.recorder);
            let (bridge, port) = (egress.bridge.id(), port.number);
            let observation =
                MacObservation { bridge, vlan, mac, port, is_announcement, precedes_packet };
            egress.requests.learn(Learning::Mac(observation))
        }
    }
}

/// Returns whether port `known` is `port`, or a member of the same bond.
pub(super) fn is_at(egress: &mut Egress<'_, '_>, known: PortNo, port: &PortInfo) -> bool {
    known == port.number || port.bond.is_some() && shares_bond(egress, known, port)
}

/// Sends the packet with the tags that frames of its VLAN have on the port.
fn send_tagged(
    egress: &mut Egress<'_, '_>,
    port: &PortInfo,
    vlan: PacketVlan,
) -> Result<(), TraversalError> {
    put_tags(egress, port, vlan);
    egress.output_to(port, None)
}

/// Returns whether the Ethernet type belongs to a tag that was not parsed.
fn hides_tag(packet: &mut WorkingPacket) -> bool {
    if packet.key().words()[VLAN] & OUTER_PRESENT != 0 {
        return false;
    }
    let ethertype = packet.key().eth_type();
    TAG_TYPES.into_iter().any(|tag_type| {
        // One bit proves that the Ethernet type differs from this type of a tag.
        let bit = (ethertype ^ tag_type).checked_ilog2().map_or(u128::MAX, |bit| 1 << bit);
        packet.recorder.consult(FieldId::EthType, bit);
        ethertype == tag_type
    })
}

/// Returns an address of the packet, in the low 48 bits.
pub(super) fn address(packet: &mut WorkingPacket, field: FieldId) -> u64 {
    packet.recorder.consult(field, u128::MAX);
    u64::try_from(packet.key().field(field)).unwrap_or_default()
}

/// Returns whether a bridge must not forward frames to this address.
///
/// See IEEE 802.1Q, 8.6.3; and the vendor addresses that `ovs-vswitchd.conf.db(5)` lists under
/// `forward-bpdu`.
pub(super) const fn is_reserved(address: u64) -> bool {
    /// The mask of a range of sixteen addresses.
    const SIXTEEN: u64 = !0xf;
    address & SIXTEEN == 0x0180_c200_0000
        || address & SIXTEEN == 0x0100_0ccc_ccc0
        || matches!(
            address,
            0x00e0_2b00_0000
                | 0x00e0_2b00_0004
                | 0x00e0_2b00_0006
                | 0x0100_0c00_0000
                | 0x0100_0ccd_cdcd
        )
}

/// Returns the octets of a MAC address.
pub(super) const fn bytes(address: u64) -> [u8; 6] {
    let [_, _, mac @ ..] = address.to_be_bytes();
    mac
}
