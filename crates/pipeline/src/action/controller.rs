//! The packet-ins that actions request.

use crate::id::MeterId;

/// The arguments of a `controller` action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerAction {
    /// The most bytes of the packet that the packet-in carries.
    pub max_len: u16,
    /// Id of the controllers to send to (`NXT_SET_CONTROLLER_ID`); 0 by default.
    pub controller_id: u16,
    /// The reason in the packet-in.
    pub reason: PacketInReason,
    /// Bytes to copy to the packet-in.
    pub userdata: Box<[u8]>,
    /// The meter that packet-ins pass first.
    pub meter: Option<MeterId>,
    /// Stop the packet here until a controller resumes it (`NXT_RESUME`).
    pub pause: bool,
}

/// The reason why a packet is sent to a controller (OpenFlow 1.3.5, 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketInReason {
    /// The table-miss rule sent the packet.
    NoMatch,
    /// An action sent the packet.
    Action,
    /// The TTL of the packet was not valid.
    InvalidTtl,
    /// The action set sent the packet (OpenFlow 1.4).
    ActionSet,
    /// A group sent the packet (OpenFlow 1.4).
    Group,
    /// A packet-out sent the packet (OpenFlow 1.4).
    PacketOut,
}

impl PacketInReason {
    /// All reasons of a packet-in.
    pub const ALL: [Self; 6] = [
        Self::NoMatch,
        Self::Action,
        Self::InvalidTtl,
        Self::ActionSet,
        Self::Group,
        Self::PacketOut,
    ];

    /// Returns the name in the text of rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoMatch => "no_match",
            Self::Action => "action",
            Self::InvalidTtl => "invalid_ttl",
            Self::ActionSet => "action_set",
            Self::Group => "group",
            Self::PacketOut => "packet_out",
        }
    }
}
