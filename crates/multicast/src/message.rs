//! The meaning of a frame of IGMP or MLD for its port.

use std::net::IpAddr;

use crate::{
    error::MembershipError,
    frame::{IpPayload, ip_payload},
    membership::{igmp, mld},
};

/// The part of a frame of IGMP or MLD that a switch uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipMessage {
    /// A query: a multicast router is behind the port.
    Query,
    /// Hosts behind the port join or leave groups, in this order.
    Report(Vec<MembershipRecord>),
}

/// A multicast group, and whether a host wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MembershipRecord {
    /// The group: always a multicast address.
    pub group: IpAddr,
    /// The request of the host.
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
    /// Reads an Ethernet frame, with any number of VLAN tags.
    ///
    /// Linear in the length of the frame, and so is the number of records.
    ///
    /// # Errors
    ///
    /// If the frame is no query, report or leave of IGMP or MLD, is broken, or is a query without a
    /// source address.
    pub fn parse(frame: &[u8]) -> Result<Self, MembershipError> {
        match ip_payload(frame)? {
            IpPayload::Igmp { source, message } => igmp(source, message),
            IpPayload::Icmpv6 { ends, message } => mld(ends, message),
        }
    }
}

impl MembershipRecord {
    /// Returns a record, unless the group is not a multicast address.
    pub(crate) fn of(group: impl Into<IpAddr>, membership: Membership) -> Option<Self> {
        let group = group.into();
        group.is_multicast().then_some(Self { group, membership })
    }
}
