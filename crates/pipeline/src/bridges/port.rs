//! Ports as the tables see them: numbers, names and settings.
//!
//! The devices that receive and send packets are in the crate `shunt_datapath`.

use shunt_flow::PortNo;

use super::{bond::BondMember, multicast::MulticastFlooding, port_vlans::PortVlans};
use crate::id::{BridgeId, DatapathPort};

/// The properties of a port that the tables use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The number of the port in its bridge.
    pub number: PortNo,
    /// The name: at most 15 bytes.
    pub name: String,
    /// The kind of the port.
    pub kind: PortKind,
    /// Settings that OpenFlow controllers can change.
    pub config: PortConfig,
    /// True if the link is up.
    pub link_up: bool,
    /// MAC address of the port.
    pub mac: [u8; 6],
    /// The VLANs of the port, for NORMAL.
    pub vlans: PortVlans,
    /// The bond of which the port is a member.
    pub bond: Option<BondMember>,
    /// True if NORMAL sends nothing from this port to other protected ports.
    pub is_protected: bool,
    /// Multicast packets that leave on the port unconditionally, if the bridge snoops.
    pub multicast: MulticastFlooding,
    /// The BFD session of the port.
    pub bfd: Option<PortBfd>,
}

/// The BFD session of a port, as the tables see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortBfd {
    /// Destination address of the packets that the session takes; `None`: any.
    pub destination: Option<[u8; 6]>,
    /// True if the session lets the port be used.
    /// A port that must not be used is not live.
    pub is_forwarding: bool,
}

impl PortInfo {
    /// Makes a port with default settings and its link up.
    ///
    /// The name of the port is `p` and the number. The locally administered MAC address of the port
    /// ends in the number.
    #[must_use]
    pub fn new(number: PortNo, kind: PortKind) -> Self {
        let [a, b, c, d] = number.number().to_be_bytes();
        Self {
            number,
            name: format!("p{number}"),
            kind,
            config: PortConfig::default(),
            link_up: true,
            mac: [2, 0, a, b, c, d],
            vlans: PortVlans::default(),
            bond: None,
            is_protected: false,
            multicast: MulticastFlooding::default(),
            bfd: None,
        }
    }

    /// Creates a port with one number in the bridge and in the datapath.
    #[must_use]
    pub fn datapath(number: u32) -> Self {
        Self::new(PortNo::new(number), PortKind::Datapath(DatapathPort::new(number)))
    }
}

/// The other end of a port of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A port of the datapath, which receives and sends packets.
    Datapath(DatapathPort),
    /// A patch port: its peer receives a packet at once that is sent to the port.
    Patch {
        /// The bridge of the peer.
        bridge: BridgeId,
        /// The number of the peer in its bridge.
        port: PortNo,
    },
    /// A port without a device: a patch without a peer, or a local port without a
    /// device.
    Unbound,
}

impl PortKind {
    /// Returns the datapath port, for a port that receives and sends packets itself.
    #[must_use]
    pub const fn datapath(self) -> Option<DatapathPort> {
        match self {
            Self::Datapath(port) => Some(port),
            Self::Patch { .. } | Self::Unbound => None,
        }
    }
}

/// Settings that OpenFlow controllers can change (`ofp_port_config`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// The administrator has set the port down (`OFPPC_PORT_DOWN`).
    pub port_down: bool,
    /// Drop received packets (`OFPPC_NO_RECV`).
    pub no_recv: bool,
    /// Drop packets that are sent to the port (`OFPPC_NO_FWD`).
    pub no_fwd: bool,
    /// Send no packet-ins for received packets (`OFPPC_NO_PACKET_IN`).
    pub no_packet_in: bool,
    /// Leave the port out of floods (`OFPPC10_NO_FLOOD`).
    pub no_flood: bool,
}
