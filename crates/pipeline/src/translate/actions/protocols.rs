//! Frames for the protocols of a port, which the tables never see.
//!
//! A member of a bond with LACP receives frames of slow protocols from its partner, and a port with BFD
//! receives control packets. As in Open vSwitch, these frames go to the control plane alone, and
//! never to rules, mirrors or the MAC table. On a bridge with such a port, each traversal depends
//! on a few more bits. On other bridges, a packet costs one branch more.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use crate::{
    action::PacketInReason,
    id::{BridgeId, Cookie, TableId},
    translate::{bridge_view::BridgeView, working_packet::WorkingPacket},
    traversals::{
        datapath_action::{DatapathAction, Punt, PuntReceiver},
        drop_cause::NotedDecision,
        traversal::TraversalError,
    },
};

/// The Ethernet type of slow protocols (IEEE 802.3, annex 57A).
const SLOW_PROTOCOLS_TYPE: u16 = 0x8809;

/// The destination address of slow protocols.
const SLOW_PROTOCOLS_ADDRESS: u128 = 0x0180_c200_0002;

/// The Ethernet type of IPv4.
const IPV4: u16 = 0x0800;

/// The number of UDP.
const UDP: u128 = 17;

/// The UDP destination port of BFD (RFC 5881, 4).
const BFD_PORT: u128 = 3784;

/// The time to live of every packet of a neighbor (RFC 5881, 5).
const NEIGHBOR_TTL: u128 = 255;

/// Returns whether a packet may be a frame of slow protocols or of BFD.
pub(in crate::translate) fn may_be_of_protocol(key: &FlowKey) -> bool {
    is_slow_protocol(key)
        || key.eth_type() == IPV4
            && key.field(FieldId::IpProto) == UDP
            && key.field(FieldId::UdpDst) == BFD_PORT
            && key.field(FieldId::NwTtl) == NEIGHBOR_TTL
}

/// Returns whether a frame is of a slow protocol, such as LACP.
fn is_slow_protocol(key: &FlowKey) -> bool {
    key.eth_type() == SLOW_PROTOCOLS_TYPE && key.field(FieldId::EthDst) == SLOW_PROTOCOLS_ADDRESS
}

/// Sends a frame of a protocol of its ingress port to the control plane.
///
/// Returns false for any other frame.
#[cold]
pub(in crate::translate) fn goes_to_protocol(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
) -> Result<bool, TraversalError> {
    packet.recorder.consult(FieldId::EthType, u128::MAX);
    let protocols = bridge.protocols();
    let (receiver, decision) = match packet.key().eth_type() {
        SLOW_PROTOCOLS_TYPE if protocols.lacp => {
            let Some(port) = lacp_port(packet, bridge) else { return Ok(false) };
            (PuntReceiver::Lacp(port), NotedDecision::LacpFrame(port))
        }
        IPV4 if protocols.bfd => {
            let Some(port) = bfd_port(packet, bridge) else { return Ok(false) };
            (PuntReceiver::Bfd(port), NotedDecision::BfdPacket(port))
        }
        _ => return Ok(false),
    };
    packet.recorder.note(bridge.id(), decision);
    let punt = punt_to(receiver, bridge.id(), packet.key());
    packet.emit(DatapathAction::Punt(Arc::new(punt)))?;
    Ok(true)
}

/// Returns the ingress port of a frame of slow protocols, if the bond uses LACP.
fn lacp_port(packet: &mut WorkingPacket, bridge: BridgeView<'_>) -> Option<PortNo> {
    packet.recorder.consult(FieldId::EthDst, u128::MAX);
    if !is_slow_protocol(packet.key()) {
        return None;
    }
    let ingress = packet.in_port();
    let port = bridge.find_port(ingress, &mut packet.recorder);
    port.is_some_and(|port| port.has_lacp()).then_some(ingress)
}

/// Returns the ingress port of a BFD packet, if its session takes the packet.
///
/// A router has decreased the time to live of a packet that it forwarded. The tables forward such
/// a packet, so no remote host can use up the limit of packets for a session.
fn bfd_port(packet: &mut WorkingPacket, bridge: BridgeView<'_>) -> Option<PortNo> {
    packet.recorder.consult(FieldId::IpProto, u128::MAX);
    if packet.key().field(FieldId::IpProto) != UDP
        || !equals(packet, FieldId::UdpDst, BFD_PORT)
        || !equals(packet, FieldId::NwTtl, NEIGHBOR_TTL)
    {
        return None;
    }
    let ingress = packet.in_port();
    let port = bridge.find_port(ingress, &mut packet.recorder);
    let session = port.and_then(|port| port.bfd)?;
    let is_taken = session.destination.is_none_or(|address| {
        let [a, b, c, d, e, f] = address;
        let address = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        equals(packet, FieldId::EthDst, address.into())
    });
    is_taken.then_some(ingress)
}

/// Returns whether a field of the packet equals `value`.
///
/// If the field differs, consults one bit that proves it, so that packets to other UDP ports share
/// entries.
fn equals(packet: &mut WorkingPacket, field: FieldId, value: u128) -> bool {
    let difference = packet.key().field(field) ^ value;
    if let Some(bit) = difference.checked_ilog2() {
        packet.recorder.consult(field, 1 << bit);
        return false;
    }
    packet.recorder.consult(field, u128::MAX);
    true
}

/// Returns the punt of a packet to a protocol of the switch itself.
fn punt_to(receiver: PuntReceiver, bridge: BridgeId, key: &FlowKey) -> Punt {
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::InPort);
    Punt {
        receiver,
        bridge,
        reason: PacketInReason::Action,
        miss: None,
        table: TableId::FIRST,
        cookie: Cookie::new(u64::MAX),
        controller_id: 0,
        max_len: u16::MAX,
        userdata: Box::default(),
        metadata: Match::new(key, &mask),
        continuation: None,
    }
}
