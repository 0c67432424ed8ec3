//! IGMP and MLD frames for tests, and the function of the fuzz target.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Membership, MembershipError, MembershipMessage, MembershipRecord};

/// Returns a frame with an IGMP message, with a correct checksum.
///
/// `destination` is the IPv4 destination; the Ethernet destination follows from it. A message of
/// fewer than four octets is not changed.
#[must_use]
pub fn igmp_frame(source: Ipv4Addr, destination: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let [_, b, c, d] = destination.octets();
    let mut frame = vec![1, 0, 0x5e, b & 0x7f, c, d, 2, 0, 0, 0, 0, 1, 8, 0];
    // The header has the router alert option.
    let total = u16::try_from(message.len().saturating_add(24)).unwrap_or(u16::MAX);
    frame.extend([0x46, 0xc0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 1, 2, 0, 0]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend([0x94, 4, 0, 0]);
    frame.extend(with_checksum(message, &[]));
    frame
}

/// Returns a frame with an MLD message, with a correct checksum.
///
/// The frame has a hop-by-hop header with the router alert option.
#[must_use]
pub fn mld_frame(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let [.., a, b, c, d] = destination.octets();
    let mut frame = vec![0x33, 0x33, a, b, c, d, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    let payload = u16::try_from(message.len().saturating_add(8)).unwrap_or(u16::MAX);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(payload.to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    let length = u32::try_from(message.len()).unwrap_or_default().to_be_bytes();
    let ends = [source.octets(), destination.octets()].concat();
    frame.extend(with_checksum(message, &[ends, length.to_vec(), vec![0, 0, 0, 58]].concat()));
    frame
}

/// Returns a message with its checksum, which also covers the octets in `before`.
fn with_checksum(message: &[u8], before: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    if let Some(field) = message.get_mut(2..4) {
        field.fill(0);
    }
    let mut sum = 0_u64;
    let all = [before, &message].concat();
    for (index, octet) in all.iter().enumerate() {
        let weight = if index % 2 == 0 { 256 } else { 1 };
        sum = sum.saturating_add(u64::from(*octet).saturating_mul(weight));
    }
    // The remainder modulo 65535 adds the carries.
    let folded = if sum == 0 { 0 } else { (sum.saturating_sub(1) % 0xffff).saturating_add(1) };
    let checksum = u16::try_from(folded).unwrap_or_default() ^ 0xffff;
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    message
}

/// Checks properties of [`MembershipMessage::parse`] for any octets.
///
/// The first octet selects a kind of packet, and the others are its message. All octets are also
/// parsed as a frame.
///
/// # Panics
///
/// If one of these properties does not hold:
///
/// - Each record names a multicast group, and takes at least eight octets of the frame.
/// - A message with a correct checksum has the content that a simple decoder finds.
/// - A message with a wrong checksum is refused.
pub fn fuzz_multicast(data: &[u8]) {
    if let Ok(MembershipMessage::Report(records)) = MembershipMessage::parse(data) {
        assert!(records.iter().all(|record| record.group.is_multicast()), "{records:?}");
        assert!(records.len() <= data.len() / 8, "{} of {}", records.len(), data.len());
    }
    let Some((choice, message)) = data.split_first() else { return };
    let has_source = choice & 1 == 0;
    let (mut frame, is_mld) = match choice & 2 == 0 {
        true => {
            let source = if has_source { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
            (igmp_frame(source, Ipv4Addr::new(224, 0, 0, 22), message), false)
        }
        false => {
            let source = if has_source { Ipv6Addr::LOCALHOST } else { Ipv6Addr::UNSPECIFIED };
            (mld_frame(source, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16), message), true)
        }
    };
    let read = MembershipMessage::parse(&frame).ok();
    assert_eq!(read, plainly(message, is_mld, has_source), "of {frame:02x?}");
    let Some(last) = frame.last_mut().filter(|_| message.len() > 4) else { return };
    *last ^= 1;
    let broken = MembershipMessage::parse(&frame);
    assert!(broken.is_err(), "{broken:?} of {frame:02x?}");
    if read.is_some() {
        assert_eq!(broken, Err(MembershipError::Checksum));
    }
}

/// Returns the content of a message with a correct checksum, by a simple decoder.
fn plainly(message: &[u8], is_mld: bool, has_source: bool) -> Option<MembershipMessage> {
    let octet = |at: usize| message.get(at).copied();
    let number =
        |at: usize| Some(usize::from(u16::from_be_bytes([octet(at)?, octet(at.checked_add(1)?)?])));
    let size = if is_mld { 16_usize } else { 4 };
    let group = |at: usize| -> Option<IpAddr> {
        let octets = message.get(at..at.checked_add(size)?)?;
        match octets {
            [a, b, c, d] => Some(Ipv4Addr::new(*a, *b, *c, *d).into()),
            _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into()),
        }
    };
    let known = |group: IpAddr, membership| {
        group.is_multicast().then_some(MembershipRecord { group, membership })
    };
    let single = |membership| {
        let group = group(if is_mld { 8 } else { 4 })?;
        Some(MembershipMessage::Report(known(group, membership).into_iter().collect()))
    };
    octet(7)?;
    match (is_mld, octet(0)?) {
        (false, 0x11) => has_source.then_some(MembershipMessage::Query),
        (true, 130) => {
            group(8)?;
            has_source.then_some(MembershipMessage::Query)
        }
        (false, 0x12 | 0x16) | (true, 131) => single(Membership::Join),
        (false, 0x17) | (true, 132) => single(Membership::Leave),
        (false, 0x22) | (true, 143) => {
            let (mut at, mut records) = (8_usize, Vec::new());
            for _ in 0..number(6)? {
                let (Some(kind), Some(auxiliary)) = (octet(at), octet(at.saturating_add(1))) else {
                    break;
                };
                let Some(sources) = number(at.saturating_add(2)) else { break };
                let Some(group) = group(at.saturating_add(4)) else { break };
                if sources == 0 && [1, 3].contains(&kind) {
                    records.extend(known(group, Membership::Leave));
                } else if (1..=6).contains(&kind) {
                    records.extend(known(group, Membership::Join));
                }
                let rest = sources.saturating_mul(size);
                let rest = rest.saturating_add(usize::from(auxiliary).saturating_mul(4));
                at = at.saturating_add(4).saturating_add(size).saturating_add(rest);
                if at > message.len() {
                    break;
                }
            }
            Some(MembershipMessage::Report(records))
        }
        _ => None,
    }
}
