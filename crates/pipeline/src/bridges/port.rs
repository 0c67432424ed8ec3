//! Ports as tables see them: numbers, names, settings; not how packets get in and out.

use shunt_flow::PortNo;

use super::port_vlans::PortVlans;
use crate::id::{BridgeId, DatapathPort};

/// What tables know of a port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Its number in its bridge.
    pub number: PortNo,
    /// Its name: at most 15 bytes.
    pub name: String,
    /// What lies behind it.
    pub kind: PortKind,
    /// Settings that OpenFlow controllers can change.
    pub config: PortConfig,
    /// Whether its link is up.
    pub link_up: bool,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Its VLANs, as NORMAL sees them.
    pub vlans: PortVlans,
}

impl PortInfo {
    /// A port by the name of `p` and its number, whose link is up, with default settings and a
    /// locally administered address that ends in its number.
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
        }
    }

    /// The same port of a bridge and of the datapath, by one number; else as [`Self::new`].
    #[must_use]
    pub fn datapath(number: u32) -> Self {
        Self::new(PortNo::new(number), PortKind::Datapath(DatapathPort::new(number)))
    }
}

/// What lies behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A port of the datapath: packets go in and out of it.
    Datapath(DatapathPort),
    /// One end of a patch: what goes out here comes in at the peer at once.
    Patch {
        /// The bridge of the other end.
        bridge: BridgeId,
        /// The other end.
        port: PortNo,
    },
    /// A port that packets go nowhere from: a patch without a peer, a local port without a device.
    Unbound,
}

/// Settings that OpenFlow controllers can change (`ofp_port_config`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Taken down by the administrator (`OFPPC_PORT_DOWN`).
    pub port_down: bool,
    /// Drop what it receives (`OFPPC_NO_RECV`).
    pub no_recv: bool,
    /// Drop what goes out of it (`OFPPC_NO_FWD`).
    pub no_fwd: bool,
    /// Send no packet-ins for what it receives (`OFPPC_NO_PACKET_IN`).
    pub no_packet_in: bool,
    /// Leave it out when flooding (`OFPPC10_NO_FLOOD`).
    pub no_flood: bool,
}
