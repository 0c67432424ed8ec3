//! Group records in the reports of IGMPv3 and MLDv2 (RFC 3376, 4.2.4; RFC 3810, 5.2.5).
//!
//! The records of both protocols have the same layout, with addresses of different size.

use std::net::IpAddr;

use crate::{
    error::MembershipError,
    message::{Membership, MembershipRecord},
    octets::MessageOctets,
};

/// Record type: current sources of the group, in an answer to a query.
const MODE_IS_INCLUDE: u8 = 1;
/// Record type: the group has exactly these sources from now on.
const CHANGE_TO_INCLUDE_MODE: u8 = 3;
/// Record type: the highest known number.
const BLOCK_OLD_SOURCES: u8 = 6;

/// Length in octets of the words in which auxiliary data is counted.
const AUXILIARY_BYTES: usize = 4;

/// Parses the `count` records of a report, with addresses of `SIZE` octets.
///
/// A record of an unknown type is ignored. If a record is cut short, it and all further records are
/// ignored.
pub(crate) fn records<const SIZE: usize>(
    octets: MessageOctets<'_>,
    count: u16,
) -> Vec<MembershipRecord>
where
    IpAddr: From<[u8; SIZE]>,
{
    let mut octets = octets;
    let mut records = Vec::new();
    // Each record consumes at least eight octets, so the frame also bounds the list.
    for _ in 0..count {
        let Ok((record, length)) = head::<SIZE>(&mut octets) else { break };
        records.extend(record);
        if octets.skip(length).is_err() {
            break;
        }
    }
    records
}

/// Parses a record up to its sources; returns the length of the rest too.
///
/// The result has no record if its type is unknown, or its group is not a multicast group.
fn head<const SIZE: usize>(
    octets: &mut MessageOctets<'_>,
) -> Result<(Option<MembershipRecord>, usize), MembershipError>
where
    IpAddr: From<[u8; SIZE]>,
{
    let [kind, auxiliary] = octets.take()?;
    let sources = usize::from(octets.take_u16()?);
    let group = octets.take::<SIZE>()?;
    let membership = match kind {
        MODE_IS_INCLUDE | CHANGE_TO_INCLUDE_MODE if sources == 0 => Some(Membership::Leave),
        MODE_IS_INCLUDE..=BLOCK_OLD_SOURCES => Some(Membership::Join),
        _ => None,
    };
    let record = membership.and_then(|membership| MembershipRecord::of(group, membership));
    let auxiliary = usize::from(auxiliary).saturating_mul(AUXILIARY_BYTES);
    Ok((record, sources.saturating_mul(SIZE).saturating_add(auxiliary)))
}
