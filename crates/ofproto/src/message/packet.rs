//! Packet-in and packet-out messages.

use shunt_flow::{Match, PortNo};
use shunt_pipeline::{Action, Cookie, PacketInReason, TableId};

/// A packet for controllers (`ofp_packet_in`, `NXT_PACKET_IN`, `NXT_PACKET_IN2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The reason for sending the packet to controllers.
    pub reason: PacketInReason,
    /// The table of the rule that sent the packet.
    pub table: TableId,
    /// The cookie of the rule that sent the packet; all ones if no rule sent it.
    pub cookie: Cookie,
    /// Pipeline fields: `in_port`, metadata, registers, tunnel.
    pub metadata: Match,
    /// The userdata of the controller action (`NXT_PACKET_IN2` only).
    pub userdata: Vec<u8>,
    /// Token that resumes the packet (`NXT_PACKET_IN2` only); empty if not paused.
    pub continuation: Vec<u8>,
    /// Length of the packet before truncation to the message length.
    pub length: u32,
    /// The bytes of the packet.
    pub data: Vec<u8>,
}

/// The packet-in format of a connection (`NXT_SET_PACKET_IN_FORMAT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketInFormat {
    /// `OFPT_PACKET_IN` of the agreed version.
    #[default]
    Standard,
    /// The format `NXT_PACKET_IN`.
    Nicira,
    /// The format `NXT_PACKET_IN2`.
    Nicira2,
}

/// A packet from a controller (`ofp_packet_out`); packets are never buffered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The ingress port for the actions: a port, LOCAL, CONTROLLER or ANY.
    pub in_port: PortNo,
    /// The actions to execute.
    pub actions: Vec<Action>,
    /// The bytes of the packet.
    pub data: Vec<u8>,
}
