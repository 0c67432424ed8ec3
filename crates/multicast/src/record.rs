//! Group records of the reports of IGMPv3 and MLDv2 (RFC 3376, 4.2.4; RFC 3810, 5.2.5).
//!
//! Both have one layout, with addresses of another size.

use std::net::IpAddr;

use crate::{
    error::MembershipError,
    message::{Membership, MembershipRecord},
    octets::MessageOctets,
};

/// The group has these sources, in an answer to a query.
const MODE_IS_INCLUDE: u8 = 1;
/// The group has these sources from now on.
const CHANGE_TO_INCLUDE_MODE: u8 = 3;
/// The last known type.
const BLOCK_OLD_SOURCES: u8 = 6;

/// The auxiliary data of a record is counted in words of this size.
const AUXILIARY_BYTES: usize = 4;

/// Reads the `count` records of a report, with addresses of `SIZE` octets.
///
/// A record of another type says nothing, and neither does one that is cut short, with all that follow.
pub(crate) fn records<const SIZE: usize>(
    octets: MessageOctets<'_>,
    count: u16,
) -> Vec<MembershipRecord>
where
    IpAddr: From<[u8; SIZE]>,
{
    let mut octets = octets;
    let mut records = Vec::new();
    // A record takes at least eight octets, so the frame bounds the list as well.
    for _ in 0..count {
        let Ok((record, length)) = head::<SIZE>(&mut octets) else { break };
        records.extend(record);
        if octets.skip(length).is_err() {
            break;
        }
    }
    records
}

/// Reads a record up to its sources, and returns the length of the rest.
///
/// A record of an unknown type, or of no multicast group, is `None`.
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
