//! IGMP and MLD for multicast snooping: which port wants which multicast group.
//!
//! Hosts report the groups that they receive, and routers query the hosts. A switch that reads
//! these messages sends a group only to the ports that want it (multicast snooping, RFC 4541).
//!
//! [`MembershipMessage::parse`] parses one frame. The parser has no state: the caller has the table
//! of groups.
//!
//! - IGMP of versions 1, 2 and 3, and MLD of versions 1 and 2 are supported.
//! - No field of a frame is trusted. A frame is refused with a [`MembershipError`], or all its
//!   records name multicast groups.
//! - Records have the meaning that they have in Open vSwitch 3.1. A record that includes no source
//!   leaves its group. Any other record joins its group, for all sources.
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//!
//! use shunt_multicast::{Membership, MembershipMessage, MembershipRecord};
//!
//! let group = [239, 1, 1, 1];
//! // An Ethernet header, an IPv4 header with source 10.0.0.1, and an IGMPv2 report.
//! let mut frame = vec![1, 0, 0x5e, 1, 1, 1, 2, 0, 0, 0, 0, 1, 8, 0];
//! frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1]);
//! frame.extend(group);
//! frame.extend([0x16, 0, 0xf9, 0xfc]);
//! frame.extend(group);
//!
//! let record = MembershipRecord {
//!     group: IpAddr::V4(Ipv4Addr::from(group)),
//!     membership: Membership::Join,
//! };
//! assert_eq!(MembershipMessage::parse(&frame), Ok(MembershipMessage::Report(vec![record])));
//! ```
//!
//! Sources: RFC 1112, appendix I; RFC 2236; RFC 3376; RFC 2710; RFC 3810.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

mod checksum;
mod error;
mod frame;
mod membership;
mod message;
mod octets;
mod record;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::MembershipError;
pub use message::{Membership, MembershipMessage, MembershipRecord};
