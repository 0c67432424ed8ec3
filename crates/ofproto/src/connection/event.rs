//! Asynchronous messages, and which connections receive them (OpenFlow 1.3.5, 6.1.2, 7.3.10).

use std::sync::Arc;

use shunt_pipeline::{PacketInReason, Punt, PuntedPacket, TableMiss};

use super::ConnectionKind;
use crate::{
    PauseToken,
    message::{
        self, AsyncConfig, AsyncMasks, FlowRemoved, Message, PacketInFormat, PortStatus, RoleName,
    },
    wire::Codec,
};

/// An event to which connections may subscribe.
#[derive(Clone, Debug)]
pub enum ControllerEvent {
    /// A packet-in, with the token that resumes the packet if it is paused.
    PacketIn(Arc<PuntedPacket>, Option<PauseToken>),
    /// A port was added, removed or changed.
    PortStatus(Arc<PortStatus>),
    /// A rule with `OFPFF_SEND_FLOW_REM` was removed; the rule has its final counters.
    FlowRemoved(Arc<FlowRemoved>),
}

/// The events that a connection has subscribed to.
#[derive(Debug)]
pub(super) struct Subscription {
    /// The kind of the peer: controller or management client.
    pub(super) kind: ConnectionKind,
    /// Maximum number of bytes of a packet-in for a table miss.
    pub(super) miss_send_len: u16,
    /// The id by which actions select this controller.
    pub(super) controller_id: u16,
    /// The format of packet-ins to the peer.
    pub(super) format: PacketInFormat,
    /// The events for each role.
    pub(super) config: AsyncConfig,
}

impl Subscription {
    /// Returns the subscription that a new connection of this kind starts with.
    pub(super) fn new(kind: ConnectionKind) -> Self {
        Self {
            kind,
            miss_send_len: kind.miss_send_len(),
            controller_id: 0,
            format: PacketInFormat::default(),
            config: AsyncConfig::default(),
        }
    }

    /// Returns whether a connection in `role` receives packet-ins of any reason.
    pub(super) fn wants_packet_ins(&self, role: RoleName) -> bool {
        self.masks(role).is_some_and(|masks| masks.packet_in != 0)
    }

    /// Returns whether a connection in `role` receives packets that no rule matches.
    pub(super) fn wants_misses(&self, role: RoleName, codec: Codec) -> bool {
        let reason = codec.packet_in_reason(PacketInReason::NoMatch);
        let is_wanted = |masks: AsyncMasks| masks.packet_in >> reason & 1 == 1;
        codec.sends_misses() && self.controller_id == 0 && self.masks(role).is_some_and(is_wanted)
    }

    /// Returns the event masks of a connection in `role`; `None` means no events.
    fn masks(&self, role: RoleName) -> Option<AsyncMasks> {
        if self.kind == ConnectionKind::Management && self.miss_send_len == 0 {
            return None;
        }
        Some(match role {
            RoleName::Slave => self.config.slave,
            RoleName::NoChange | RoleName::Equal | RoleName::Master => self.config.master,
        })
    }

    /// Returns whether a connection in `role` receives `event`.
    pub(super) fn wants(&self, event: &ControllerEvent, role: RoleName, codec: Codec) -> bool {
        let Some(masks) = self.masks(role) else { return false };
        let (mask, reason) = match event {
            ControllerEvent::PacketIn(packet, _) => {
                if packet.punt.controller_id != self.controller_id
                    || packet.punt.miss == Some(TableMiss::NoRule) && !codec.sends_misses()
                {
                    return false;
                }
                (masks.packet_in, codec.packet_in_reason(reason_for(&packet.punt, codec)))
            }
            ControllerEvent::PortStatus(status) => {
                (masks.port_status, codec.port_status_reason(status.reason))
            }
            ControllerEvent::FlowRemoved(removed) => {
                (masks.flow_removed, codec.flow_removed_reason(removed.reason))
            }
        };
        mask >> reason & 1 == 1
    }

    /// Returns `event` as a message to a client that speaks `codec`.
    pub(super) fn message(&self, event: &ControllerEvent, codec: Codec) -> Message {
        match event {
            ControllerEvent::PacketIn(packet, token) => {
                let packet = packet_in(packet, token.as_ref(), codec);
                match self.format {
                    PacketInFormat::Standard => Message::PacketIn(packet),
                    PacketInFormat::Nicira => Message::NiciraPacketIn(packet),
                    PacketInFormat::Nicira2 => Message::PacketIn2(packet),
                }
            }
            ControllerEvent::PortStatus(status) => Message::PortStatus(PortStatus::clone(status)),
            ControllerEvent::FlowRemoved(removed) => {
                Message::FlowRemoved(FlowRemoved::clone(removed))
            }
        }
    }
}

/// Returns the reason of a packet-in for a client that speaks `codec`.
///
/// OpenFlow 1.0 has no table-miss rule: a rule of any priority sends packets by an action.
fn reason_for(punt: &Punt, codec: Codec) -> PacketInReason {
    match punt.miss {
        Some(TableMiss::Rule) if codec.sends_misses() => PacketInReason::Action,
        _ => punt.reason,
    }
}

/// Builds a packet-in with the whole packet.
///
/// The `max_len` of the action only applies to switches that buffer packets, so it is ignored.
fn packet_in(packet: &PuntedPacket, token: Option<&PauseToken>, codec: Codec) -> message::PacketIn {
    let PuntedPacket { punt, frame } = packet;
    debug_assert!(u32::try_from(frame.len()).is_ok(), "a frame has at most 64 KiB");
    message::PacketIn {
        reason: reason_for(punt, codec),
        table: punt.table,
        cookie: punt.cookie,
        metadata: punt.metadata.clone(),
        userdata: punt.userdata.to_vec(),
        continuation: token.map_or_else(Vec::new, |token| token.bytes().to_vec()),
        length: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        data: frame.clone(),
    }
}
