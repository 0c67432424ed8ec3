//! What the switch says unasked, and who hears it (OpenFlow 1.3.5, 6.1.2, 7.3.10).

use std::sync::Arc;

use shunt_pipeline::PacketIn;

use super::ConnectionKind;
use crate::{
    PauseToken,
    message::{self, AsyncConfig, FlowRemoved, Message, PacketInFormat, PortStatus, RoleName},
    wire::Codec,
};

/// Something that connections may want to hear of.
#[derive(Clone, Debug)]
pub enum Event {
    /// A packet for controllers; with what lets it go on if it pauses there.
    PacketIn(Arc<PacketIn>, Option<PauseToken>),
    /// A port came, went or changed.
    PortStatus(Arc<PortStatus>),
    /// A rule went that asked for it. Its counters are complete.
    FlowRemoved(Arc<FlowRemoved>),
}

/// What a connection has asked to hear.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) kind: ConnectionKind,
    pub(super) miss_send_len: u16,
    pub(super) controller_id: u16,
    pub(super) format: PacketInFormat,
    pub(super) config: AsyncConfig,
}

impl Subscription {
    pub(super) fn new(kind: ConnectionKind) -> Self {
        Self {
            kind,
            miss_send_len: kind.miss_send_len(),
            controller_id: 0,
            format: PacketInFormat::default(),
            config: AsyncConfig::default(),
        }
    }

    /// Whether a connection in `role` hears of `event`.
    pub(super) fn wants(&self, event: &Event, role: RoleName, codec: Codec) -> bool {
        if self.kind == ConnectionKind::Management && self.miss_send_len == 0 {
            return false;
        }
        let masks = match role {
            RoleName::Slave => self.config.slave,
            RoleName::NoChange | RoleName::Equal | RoleName::Master => self.config.master,
        };
        let (mask, reason) = match event {
            Event::PacketIn(packet, _) => {
                if packet.punt.controller_id != self.controller_id {
                    return false;
                }
                (masks.packet_in, codec.packet_in_reason(packet.punt.reason))
            }
            Event::PortStatus(status) => {
                (masks.port_status, codec.port_status_reason(status.reason))
            }
            Event::FlowRemoved(removed) => {
                (masks.flow_removed, codec.flow_removed_reason(removed.reason))
            }
        };
        mask >> reason & 1 == 1
    }

    /// The message that tells of `event`.
    pub(super) fn message(&self, event: &Event) -> Message {
        match event {
            Event::PacketIn(packet, token) => {
                let packet = packet_in(packet, token.as_ref());
                match self.format {
                    PacketInFormat::Standard => Message::PacketIn(packet),
                    PacketInFormat::Nicira2 => Message::PacketIn2(packet),
                }
            }
            Event::PortStatus(status) => Message::PortStatus(PortStatus::clone(status)),
            Event::FlowRemoved(removed) => Message::FlowRemoved(FlowRemoved::clone(removed)),
        }
    }
}

/// The whole packet is sent: `max_len` is for switches that keep the rest in a buffer.
fn packet_in(packet: &PacketIn, token: Option<&PauseToken>) -> message::PacketIn {
    let PacketIn { punt, frame } = packet;
    message::PacketIn {
        reason: punt.reason,
        table: punt.table,
        cookie: punt.cookie,
        metadata: punt.metadata.clone(),
        userdata: punt.userdata.to_vec(),
        continuation: token.map_or_else(Vec::new, |token| token.bytes().to_vec()),
        length: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        data: frame.clone(),
    }
}
