//! The reasons for which received frames are ignored.

use std::{error::Error, fmt};

/// The reason why a frame is not a valid message about multicast groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipError {
    /// The frame has neither an IPv4 nor an IPv6 packet.
    NotIp,
    /// The packet has neither IGMP nor ICMPv6.
    Protocol(u8),
    /// The message is neither a query, a report, nor a leave.
    MessageType(u8),
    /// The packet is a fragment.
    Fragment,
    /// The frame is shorter than its packet or message.
    Short {
        /// Length of the frame in bytes.
        length: usize,
    },
    /// The checksum of the message is wrong.
    Checksum,
    /// A query has the source address 0.0.0.0 or `::`, so no router has sent it.
    QueryWithoutSource,
}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotIp => f.write_str("neither IPv4 nor IPv6 follows the Ethernet header"),
            Self::Protocol(number) => {
                write!(f, "IP protocol {number} is neither IGMP (2) nor ICMPv6 (58)")
            }
            Self::MessageType(number) => {
                write!(f, "message type {number} is neither a query, a report, nor a leave")
            }
            Self::Fragment => {
                f.write_str("the packet is a fragment, and hosts do not fragment these messages")
            }
            Self::Short { length } => {
                write!(f, "frame of {length} bytes ends before its message does")
            }
            Self::Checksum => f.write_str("the checksum of the IGMP or MLD message is wrong"),
            Self::QueryWithoutSource => {
                f.write_str("the query of IGMP or MLD has no source address, so no router sent it")
            }
        }
    }
}

impl Error for MembershipError {}
