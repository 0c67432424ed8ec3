//! Frames for the LACP actor of a bond, which the tables never see.
//!
//! A member of a bond with LACP receives frames of slow protocols from its partner. They go to the control
//! plane, and nowhere else: no rule, mirror or address table knows them, as in Open vSwitch. On a bridge
//! with such a bond, each traversal depends on the Ethernet type. Other bridges pay one branch.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

use crate::{
    action::PacketInReason,
    id::{Cookie, TableId},
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

/// Returns whether a packet is a frame of slow protocols, such as LACP.
pub(in crate::translate) fn is_slow_protocol(key: &FlowKey) -> bool {
    key.eth_type() == SLOW_PROTOCOLS_TYPE && key.field(FieldId::EthDst) == SLOW_PROTOCOLS_ADDRESS
}

/// Sends a frame of slow protocols to the LACP actor of its ingress port.
///
/// Returns false if the port has none, or the frame is another one.
#[cold]
pub(in crate::translate) fn goes_to_lacp(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
) -> Result<bool, TraversalError> {
    packet.recorder.consult(FieldId::EthType, u128::MAX);
    if packet.key().eth_type() != SLOW_PROTOCOLS_TYPE {
        return Ok(false);
    }
    packet.recorder.consult(FieldId::EthDst, u128::MAX);
    if !is_slow_protocol(packet.key()) {
        return Ok(false);
    }
    let ingress = packet.in_port();
    let port = bridge.find_port(ingress, &mut packet.recorder);
    if !port.is_some_and(|port| port.has_lacp()) {
        return Ok(false);
    }
    packet.recorder.note(bridge.id(), NotedDecision::LacpFrame(ingress));
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::InPort);
    let punt = Punt {
        receiver: PuntReceiver::Lacp(ingress),
        bridge: bridge.id(),
        reason: PacketInReason::Action,
        table: TableId::FIRST,
        cookie: Cookie::new(u64::MAX),
        controller_id: 0,
        max_len: u16::MAX,
        userdata: Box::default(),
        metadata: Match::new(packet.key(), &mask),
        continuation: None,
    };
    packet.emit(DatapathAction::Punt(Arc::new(punt)))?;
    Ok(true)
}
