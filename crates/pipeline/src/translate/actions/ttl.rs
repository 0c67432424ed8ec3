//! `dec_ttl` and `dec_mpls_ttl`: an expired TTL ends the list of actions.

use std::ops::ControlFlow;

use shunt_flow::FieldId;

use super::packet_in::{PacketInRequest, punt};
use crate::{
    translate::{action_state::ActionState, working_packet::WorkingPacket},
    traversals::{drop_cause::NotedDecision, traversal::TraversalError},
};

/// `dec_ttl`: decrements the TTL, or notifies controllers if it has expired.
///
/// On `Break`, the following actions of the list are dropped.
pub(in crate::translate) fn dec_ttl(
    packet: &mut WorkingPacket,
    state: &ActionState<'_>,
    controllers: &[u16],
) -> Result<ControlFlow<()>, TraversalError> {
    let flow = packet.dec_ttl();
    if flow.is_break() {
        expire(packet, state, controllers)?;
    }
    Ok(flow)
}

/// `dec_mpls_ttl`: decrements the TTL of the outermost label.
///
/// As in Open vSwitch, an expired TTL or a packet without labels drops the following actions.
pub(in crate::translate) fn dec_mpls_ttl(
    packet: &mut WorkingPacket,
    state: &ActionState<'_>,
) -> Result<ControlFlow<()>, TraversalError> {
    if packet.has_field(FieldId::MplsTtl) {
        if packet.dec_mpls_ttl().is_continue() {
            return Ok(ControlFlow::Continue(()));
        }
        expire(packet, state, &[0])?;
    }
    Ok(ControlFlow::Break(()))
}

/// Records that the TTL has expired, and sends the packet to these controllers.
fn expire(
    packet: &mut WorkingPacket,
    state: &ActionState<'_>,
    controllers: &[u16],
) -> Result<(), TraversalError> {
    packet.recorder.note(state.bridge.id(), NotedDecision::TtlExpired);
    for controller in controllers {
        let request = PacketInRequest::invalid_ttl(*controller);
        punt(packet, state.bridge, state.rule.context, request, None)?;
    }
    Ok(())
}
