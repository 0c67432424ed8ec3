//! Messages of IGMP (RFC 1112, RFC 2236, RFC 3376).

use std::net::Ipv4Addr;

use crate::{
    checksum,
    error::MembershipError,
    message::{Membership, MembershipMessage, MembershipRecord},
    octets::MessageOctets,
    record::records,
};

const QUERY: u8 = 0x11;
const V1_REPORT: u8 = 0x12;
const V2_REPORT: u8 = 0x16;
const V2_LEAVE: u8 = 0x17;
const V3_REPORT: u8 = 0x22;

/// Number of octets before the number of records of a report of version 3.
const RESERVED_BYTES: usize = 2;

/// Reads a message from `source`.
pub(crate) fn parse(
    source: Ipv4Addr,
    message: MessageOctets<'_>,
) -> Result<MembershipMessage, MembershipError> {
    let is_right = checksum::is_right(&[message.rest()]);
    let mut octets = message;
    let [kind, _] = octets.take()?;
    let _checksum = octets.take_u16()?;
    let mut head = octets;
    let group = Ipv4Addr::from(head.take::<4>()?);
    if !is_right {
        return Err(MembershipError::Checksum);
    }
    let one = |membership| MembershipRecord::of(group, membership).into_iter().collect();
    Ok(MembershipMessage::Report(match kind {
        QUERY if source.is_unspecified() => return Err(MembershipError::QueryWithoutSource),
        QUERY => return Ok(MembershipMessage::Query),
        V1_REPORT | V2_REPORT => one(Membership::Join),
        V2_LEAVE => one(Membership::Leave),
        V3_REPORT => {
            octets.skip(RESERVED_BYTES)?;
            let count = octets.take_u16()?;
            records::<4>(octets, count)
        }
        _ => return Err(MembershipError::MessageType(kind)),
    }))
}
