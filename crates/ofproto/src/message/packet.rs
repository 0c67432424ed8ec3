//! Packets to and from controllers.

use shunt_flow::{Match, PortNo};
use shunt_pipeline::{Action, Cookie, PacketInReason, TableId};

/// A packet for controllers (`ofp_packet_in`, `NXT_PACKET_IN2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Why.
    pub reason: PacketInReason,
    /// The table of the rule that sent it.
    pub table: TableId,
    /// The cookie of that rule; all ones for none.
    pub cookie: Cookie,
    /// Pipeline fields: `in_port`, metadata, registers, tunnel.
    pub metadata: Match,
    /// Bytes from the rule (`NXT_PACKET_IN2` only).
    pub userdata: Vec<u8>,
    /// What lets the packet go on when it is sent back (`NXT_PACKET_IN2` only); empty: nothing does.
    pub continuation: Vec<u8>,
    /// Length of the packet before it was cut to fit the message.
    pub length: u32,
    /// The packet.
    pub data: Vec<u8>,
}

/// How a connection wants its packet-ins (`NXT_SET_PACKET_IN_FORMAT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketInFormat {
    /// `OFPT_PACKET_IN` of the version in use.
    #[default]
    Standard,
    /// `NXT_PACKET_IN2`.
    Nicira2,
}

/// A packet from a controller (`ofp_packet_out`); packets are never buffered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The port that it counts as coming from: a port, LOCAL, CONTROLLER or none.
    pub in_port: PortNo,
    /// What to do with it.
    pub actions: Vec<Action>,
    /// The packet.
    pub data: Vec<u8>,
}
