//! Messages of MLD, which are messages of ICMPv6 (RFC 2710, RFC 3810).

use std::net::Ipv6Addr;

use crate::{
    checksum,
    error::MembershipError,
    message::{Membership, MembershipMessage, MembershipRecord},
    octets::MessageOctets,
    record::records,
};

const QUERY: u8 = 130;
const V1_REPORT: u8 = 131;
const V1_DONE: u8 = 132;
const V2_REPORT: u8 = 143;

/// The protocol in the pseudo-header of a checksum (RFC 8200, 8.1).
const ICMPV6: [u8; 4] = [0, 0, 0, 58];

/// Number of octets before the number of records of a report of version 2.
const RESERVED_BYTES: usize = 2;
/// Number of octets before the group of a message of version 1.
const DELAY_BYTES: usize = 4;

/// Reads a message of a packet with this source and destination.
pub(crate) fn parse(
    [source, destination]: [Ipv6Addr; 2],
    message: MessageOctets<'_>,
) -> Result<MembershipMessage, MembershipError> {
    let mut octets = message;
    let [kind, _] = octets.take()?;
    let _checksum = octets.take_u16()?;
    if !matches!(kind, QUERY | V1_REPORT | V1_DONE | V2_REPORT) {
        return Err(MembershipError::MessageType(kind));
    }
    let length = u32::try_from(message.rest().len()).unwrap_or_default().to_be_bytes();
    let (source_octets, destination_octets) = (source.octets(), destination.octets());
    let covered: [&[u8]; 5] =
        [&source_octets, &destination_octets, &length, &ICMPV6, message.rest()];
    if !checksum::is_right(&covered) {
        return Err(MembershipError::Checksum);
    }
    if kind == V2_REPORT {
        octets.skip(RESERVED_BYTES)?;
        let count = octets.take_u16()?;
        return Ok(MembershipMessage::Report(records::<16>(octets, count)));
    }
    octets.skip(DELAY_BYTES)?;
    let group = Ipv6Addr::from(octets.take::<16>()?);
    let one = |membership| {
        let record = MembershipRecord::of(group, membership);
        Ok(MembershipMessage::Report(record.into_iter().collect()))
    };
    match kind {
        QUERY if source.is_unspecified() => Err(MembershipError::QueryWithoutSource),
        QUERY => Ok(MembershipMessage::Query),
        V1_REPORT => one(Membership::Join),
        _ => one(Membership::Leave),
    }
}
