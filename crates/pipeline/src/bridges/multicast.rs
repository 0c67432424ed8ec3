//! Multicast snooping: its settings, and the content of messages.
//!
//! Hosts report the multicast groups that they receive (IGMP, MLD), and routers query them. With
//! snooping, NORMAL sends the packets of a group to the ports that want them, instead of to all
//! (RFC 4541). The crate does not read messages of IGMP or MLD: see [`MulticastObservation`].

use std::{fmt, net::IpAddr, time::Duration};

use shunt_flow::PortNo;

use crate::id::BridgeId;

/// The settings of a bridge that snoops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastSnooping {
    /// Time after the last report for which a port stays in a group.
    pub ageing: Duration,
    /// The most groups, at least 1.
    pub groups_max: usize,
    /// True if packets of a group that no port wants are flooded.
    ///
    /// If false, such packets go only to the ports of multicast routers.
    pub floods_unregistered: bool,
}

impl MulticastSnooping {
    /// Time after the last query for which a port is a router port.
    pub const ROUTER_AGEING: Duration = Duration::from_secs(180);
    /// Maximum number of ports that leave shared groups for one new group.
    ///
    /// If the table is still full then, the last of these groups ends with all of its ports.
    pub(crate) const DEPARTURES_MAX: usize = 16;
}

impl Default for MulticastSnooping {
    fn default() -> Self {
        Self { ageing: Duration::from_secs(300), groups_max: 2048, floods_unregistered: true }
    }
}

/// Multicast packets that leave on a port unconditionally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MulticastFlooding {
    /// True if the port gets the packets of all groups; no reports are learned on it.
    pub packets: bool,
    /// True if the port gets the reports of hosts; a leave then has no effect on it.
    pub reports: bool,
}

/// The content of a message of IGMP or MLD, with the port on which it arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MulticastObservation {
    /// The bridge that received the packet.
    pub bridge: BridgeId,
    /// The VLAN; 0: frames without a tag.
    pub vlan: u16,
    /// The port on which the message arrived.
    pub port: PortNo,
    /// The event at the port.
    pub event: MulticastEvent,
}

/// An event at a port of a bridge that snoops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastEvent {
    /// A host wants a group, or still wants it.
    Join(IpAddr),
    /// A host does not want a group any more.
    Leave(IpAddr),
    /// A multicast router has sent a query.
    Query,
}

impl fmt::Debug for MulticastObservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bridge, vlan, port, event } = self;
        write!(f, "{event:?} in VLAN {vlan} at port {port} of bridge {bridge}")
    }
}
