//! The content of an IGMP or MLD frame that is relevant for the port that received it.

use std::net::IpAddr;

use crate::{
    error::MembershipError,
    frame::{IpPayload, ip_payload},
    membership::{igmp, mld},
};

/// The parts of an IGMP or MLD message that a switch uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipMessage {
    /// A query: a multicast router is reached by the port.
    Query,
    /// Hosts reached by the port join or leave groups, in this order.
    Report(Vec<MembershipRecord>),
}

/// A multicast group, and whether a host joins or leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MembershipRecord {
    /// The multicast group; the address is always a multicast address.
    pub group: IpAddr,
    /// The request of the host: to join or to leave the group.
    pub membership: Membership,
}

/// The request of a host for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// The host receives the group from now on, or still.
    Join,
    /// The host does not receive the group any more.
    Leave,
}

impl MembershipMessage {
    /// Parses an Ethernet frame with any number of VLAN tags.
    ///
    /// The time, and the number of records, are linear in the length of the frame.
    ///
    /// # Errors
    ///
    /// If the frame is not a query, report or leave of IGMP or MLD. The frame is also refused if it
    /// is malformed, or a query without a source address.
    pub fn parse(frame: &[u8]) -> Result<Self, MembershipError> {
        match ip_payload(frame)? {
            IpPayload::Igmp { source, message } => igmp(source, message),
            IpPayload::Icmpv6 { ends, message } => mld(ends, message),
        }
    }
}

impl MembershipRecord {
    /// Returns a record; `None` if the group is not a multicast address.
    pub(crate) fn of(group: impl Into<IpAddr>, membership: Membership) -> Option<Self> {
        let group = group.into();
        group.is_multicast().then_some(Self { group, membership })
    }
}
