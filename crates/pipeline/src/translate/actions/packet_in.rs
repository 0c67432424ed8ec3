//! Packet-ins: the packet, or a copy of it, goes to controllers.

use std::sync::Arc;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

use crate::{
    action::{ControllerAction, PacketInReason},
    continuations::continuation::Continuation,
    id::{Cookie, MeterId},
    tables::rule::Rule,
    translate::{
        bridge_view::BridgeView,
        rule_context::{ActionOrigin, RuleContext},
        working_packet::WorkingPacket,
    },
    traversals::{
        datapath_action::{DatapathAction, Punt, PuntReceiver, TableMiss},
        drop_cause::NotedDecision,
        traversal::TraversalError,
    },
};

/// The properties of a requested packet-in.
#[derive(Clone, Copy)]
pub(in crate::translate) struct PacketInRequest<'a> {
    /// The reason that the controller gets.
    reason: PacketInReason,
    /// The kind of table miss, if the packet-in is not sent by an action.
    miss: Option<TableMiss>,
    /// The id of the controllers that get the packet.
    controller_id: u16,
    /// Maximum number of bytes of the frame to send.
    max_len: u16,
    /// The data of the action, which the controller gets back.
    userdata: &'a [u8],
    /// The meter that the packet-in passes first.
    meter: Option<MeterId>,
    /// True if the packet waits until it is sent back.
    pub(in crate::translate) pause: bool,
}

impl<'a> PacketInRequest<'a> {
    /// Returns the request of a `controller` action.
    pub(in crate::translate) fn by(action: &'a ControllerAction) -> Self {
        Self {
            reason: action.reason,
            miss: None,
            controller_id: action.controller_id,
            max_len: action.max_len,
            userdata: &action.userdata,
            meter: action.meter,
            pause: action.pause,
        }
    }

    /// Returns the request for a packet with an expired TTL.
    pub(in crate::translate) const fn invalid_ttl(controller_id: u16) -> Self {
        Self {
            reason: PacketInReason::InvalidTtl,
            miss: None,
            controller_id,
            max_len: u16::MAX,
            userdata: &[],
            meter: None,
            pause: false,
        }
    }

    /// Returns the request of an output to CONTROLLER, with at most `max_len` bytes.
    pub(in crate::translate) const fn output(reason: PacketInReason, max_len: u16) -> Self {
        Self {
            reason,
            miss: None,
            controller_id: 0,
            max_len,
            userdata: &[],
            meter: None,
            pause: false,
        }
    }
}

/// The pipeline fields that a packet-in carries.
pub(in crate::translate) const METADATA: &[FieldId] = &[
    FieldId::TunId,
    FieldId::TunSrc,
    FieldId::TunDst,
    FieldId::TunIpv6Src,
    FieldId::TunIpv6Dst,
    FieldId::TunFlags,
    FieldId::TunGbpId,
    FieldId::TunGbpFlags,
    FieldId::Metadata,
    FieldId::Reg0,
    FieldId::Reg1,
    FieldId::Reg2,
    FieldId::Reg3,
    FieldId::Reg4,
    FieldId::Reg5,
    FieldId::Reg6,
    FieldId::Reg7,
    FieldId::Reg8,
    FieldId::Reg9,
    FieldId::Reg10,
    FieldId::Reg11,
    FieldId::Reg12,
    FieldId::Reg13,
    FieldId::Reg14,
    FieldId::Reg15,
    FieldId::PktMark,
    FieldId::InPort,
];

/// Sends the packet to controllers, with a continuation if the packet pauses.
pub(in crate::translate) fn punt(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    context: RuleContext,
    request: PacketInRequest<'_>,
    continuation: Option<Arc<Continuation>>,
) -> Result<(), TraversalError> {
    METADATA.iter().for_each(|field| packet.recorder.consult(*field, u128::MAX));
    let (reason, miss) = match request.reason {
        PacketInReason::Action if context.origin == ActionOrigin::Miss => {
            (PacketInReason::NoMatch, Some(TableMiss::Rule))
        }
        reason => (reason, request.miss),
    };
    if reason == PacketInReason::NoMatch {
        let ingress = bridge.find_port(packet.key().in_port(), &mut packet.recorder);
        if let Some(port) = ingress.filter(|own| own.config.no_packet_in) {
            packet.recorder.note(bridge.id(), NotedDecision::PacketInDisabled(port.number));
            return Ok(());
        }
    }
    let punt = Punt {
        receiver: PuntReceiver::Controllers,
        bridge: bridge.id(),
        reason,
        miss,
        table: context.table,
        cookie: context.cookie,
        controller_id: request.controller_id,
        max_len: request.max_len,
        userdata: request.userdata.into(),
        metadata: metadata(packet.key()),
        continuation,
    };
    let punt = DatapathAction::Punt(Arc::new(punt));
    match request.meter.and_then(|id| bridge.find_meter(id, &mut packet.recorder)) {
        // Above the rate of the meter, only the packet-in is dropped.
        Some(meter) => {
            let metered = [DatapathAction::Meter(meter), punt];
            packet.emit(DatapathAction::Copy(metered.into()))
        }
        None => packet.emit(punt),
    }
}

/// Sends a packet that missed in the first table, if the bridge sends misses.
///
/// As in Open vSwitch, the packet-in has cookie 0.
pub(in crate::translate) fn punt_miss(
    packet: &mut WorkingPacket,
    bridge: BridgeView<'_>,
    context: RuleContext,
    rule: Option<&Arc<Rule>>,
) -> Result<(), TraversalError> {
    if rule.is_some() || !bridge.sends_misses() {
        return Ok(());
    }
    let request = PacketInRequest {
        miss: Some(TableMiss::NoRule),
        ..PacketInRequest::output(PacketInReason::NoMatch, u16::MAX)
    };
    let context = RuleContext { cookie: Cookie::new(0), ..context };
    punt(packet, bridge, context, request, None)
}

/// Returns the pipeline fields of a packet-in: `in_port` and all nonzero fields.
fn metadata(key: &FlowKey) -> Match {
    let mut mask = FlowMask::EMPTY;
    let is_shown = |field: &&FieldId| **field == FieldId::InPort || key.field(**field) != 0;
    METADATA.iter().filter(is_shown).for_each(|field| mask.add_field(*field));
    Match::new(key, &mask)
}
