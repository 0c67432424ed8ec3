//! IGMP messages (RFC 1112, RFC 2236, RFC 3376) and MLD messages (RFC 2710, RFC 3810).
//!
//! MLD is the equivalent of IGMP for IPv6. MLD has other types, addresses and checksums than IGMP,
//! and the same structure. MLD messages are ICMPv6 messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    checksum,
    error::MembershipError,
    message::{Membership, MembershipMessage, MembershipRecord},
    octets::MessageOctets,
    record::records,
};

/// The content of a message, which depends on its type.
#[derive(Clone, Copy)]
enum MessageContent {
    Query,
    /// The message is a report or leave of one group.
    One(Membership),
    /// The message has group records (IGMPv3 or MLDv2).
    Records,
}

/// The protocol field in the pseudo-header of a checksum (RFC 8200, 8.1).
const ICMPV6: [u8; 4] = [0, 0, 0, 58];

/// Number of octets before the group in an IGMP message.
const IGMP_GROUP_AT: usize = 4;
/// Number of octets before the group in an MLD message.
const MLD_GROUP_AT: usize = 8;
/// Number of octets before the number of records, in both protocols.
const COUNT_AT: usize = 6;

/// Parses an IGMP message; `source` is the source address of its packet.
pub(crate) fn igmp(
    source: Ipv4Addr,
    message: MessageOctets<'_>,
) -> Result<MembershipMessage, MembershipError> {
    let content = match message_type(message)? {
        0x11 => MessageContent::Query,
        0x12 | 0x16 => MessageContent::One(Membership::Join),
        0x17 => MessageContent::One(Membership::Leave),
        0x22 => MessageContent::Records,
        other => return Err(MembershipError::MessageType(other)),
    };
    if !checksum::is_right(&[message.rest()]) {
        return Err(MembershipError::Checksum);
    }
    content.read::<4>(source.into(), IGMP_GROUP_AT, message)
}

/// Parses an MLD message, in a packet with the given source and destination.
pub(crate) fn mld(
    [source, destination]: [Ipv6Addr; 2],
    message: MessageOctets<'_>,
) -> Result<MembershipMessage, MembershipError> {
    let content = match message_type(message)? {
        130 => MessageContent::Query,
        131 => MessageContent::One(Membership::Join),
        132 => MessageContent::One(Membership::Leave),
        143 => MessageContent::Records,
        other => return Err(MembershipError::MessageType(other)),
    };
    let length = u32::try_from(message.rest().len()).unwrap_or_default().to_be_bytes();
    let [from, to] = [source.octets(), destination.octets()];
    if !checksum::is_right(&[&from, &to, &length, &ICMPV6, message.rest()]) {
        return Err(MembershipError::Checksum);
    }
    content.read::<16>(source.into(), MLD_GROUP_AT, message)
}

/// Reads the type of a message, its first byte.
fn message_type(mut message: MessageOctets<'_>) -> Result<u8, MembershipError> {
    let [number] = message.take()?;
    Ok(number)
}

impl MessageContent {
    /// Parses a message of either protocol, with addresses of `SIZE` octets.
    fn read<const SIZE: usize>(
        self,
        source: IpAddr,
        group_at: usize,
        mut octets: MessageOctets<'_>,
    ) -> Result<MembershipMessage, MembershipError>
    where
        IpAddr: From<[u8; SIZE]>,
    {
        let membership = match self {
            Self::Records => {
                octets.skip(COUNT_AT)?;
                let count = octets.take_u16()?;
                return Ok(MembershipMessage::Report(records::<SIZE>(octets, count)));
            }
            Self::One(membership) => Some(membership),
            Self::Query => None,
        };
        octets.skip(group_at)?;
        let group = octets.take::<SIZE>()?;
        match membership {
            Some(membership) => {
                let record = MembershipRecord::of(group, membership);
                Ok(MembershipMessage::Report(record.into_iter().collect()))
            }
            None if source.is_unspecified() => Err(MembershipError::QueryWithoutSource),
            None => Ok(MembershipMessage::Query),
        }
    }
}
