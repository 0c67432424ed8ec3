//! Finds the payload of the IP packet in an Ethernet frame.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{error::MembershipError, octets::MessageOctets};

/// The payload of an IP packet.
pub(crate) enum IpPayload<'a> {
    /// The packet has an IGMP message.
    Igmp {
        /// Source address of the packet.
        source: Ipv4Addr,
        /// The bytes of the message.
        message: MessageOctets<'a>,
    },
    /// An ICMPv6 message, which may be an MLD message.
    Icmpv6 {
        /// Source and destination address of the packet, which the checksum covers.
        ends: [Ipv6Addr; 2],
        /// The bytes of the message.
        message: MessageOctets<'a>,
    },
}

/// Length of the source and the destination address of a frame.
const ADDRESSES_BYTES: usize = 12;
/// Length of the priority and VLAN id in a VLAN tag.
const TCI_BYTES: usize = 2;
/// Length of an IPv4 header without options.
const IPV4_BYTES: usize = 20;

const IGMP: u8 = 2;
const ICMPV6: u8 = 58;

/// Protocol numbers of IPv6 extension headers (RFC 8200, 4; RFC 4302).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

/// Returns the payload of the IP packet in a frame.
pub(crate) fn ip_payload(frame: &[u8]) -> Result<IpPayload<'_>, MembershipError> {
    let mut octets = MessageOctets::new(frame);
    octets.skip(ADDRESSES_BYTES)?;
    loop {
        match octets.take_u16()? {
            // Each tag consumes four octets, so the loop ends with the frame.
            0x8100 | 0x88a8 => octets.skip(TCI_BYTES)?,
            0x0800 => return ipv4(octets),
            0x86dd => return ipv6(octets),
            _ => return Err(MembershipError::NotIp),
        }
    }
}

/// Returns the payload of an IPv4 packet.
fn ipv4(mut octets: MessageOctets<'_>) -> Result<IpPayload<'_>, MembershipError> {
    let short = octets.short();
    let whole = octets.rest();
    let [first, _] = octets.take()?;
    let total = usize::from(octets.take_u16()?);
    let _identification = octets.take_u16()?;
    let fragment = octets.take_u16()?;
    let [_ttl, protocol, ..] = octets.take::<4>()?;
    let source = Ipv4Addr::from(octets.take::<4>()?);
    if first >> 4 != 4 {
        return Err(MembershipError::NotIp);
    }
    let header = usize::from(first & 0x0f).saturating_mul(4);
    if header < IPV4_BYTES || header > total {
        return Err(short);
    }
    // The packet is a fragment if more fragments follow, or if it has an offset.
    if fragment & 0x3fff != 0 {
        return Err(MembershipError::Fragment);
    }
    if protocol != IGMP {
        return Err(MembershipError::Protocol(protocol));
    }
    let mut message = octets.at(whole);
    message.keep(total)?;
    message.skip(header)?;
    Ok(IpPayload::Igmp { source, message })
}

/// Returns the payload of an IPv6 packet, after its extension headers.
fn ipv6(mut octets: MessageOctets<'_>) -> Result<IpPayload<'_>, MembershipError> {
    let [first, ..] = octets.take::<4>()?;
    let payload = usize::from(octets.take_u16()?);
    let [mut next, _hop_limit] = octets.take()?;
    let source = Ipv6Addr::from(octets.take::<16>()?);
    let destination = Ipv6Addr::from(octets.take::<16>()?);
    if first >> 4 != 6 {
        return Err(MembershipError::NotIp);
    }
    octets.keep(payload)?;
    // Each extension header consumes at least eight octets, so the loop ends with the packet.
    while next != ICMPV6 {
        let skipped = |length: u8, unit: usize, extra: usize| {
            usize::from(length).saturating_add(extra).saturating_mul(unit).saturating_sub(2)
        };
        let header = next;
        let is_known =
            matches!(header, HOP_BY_HOP | ROUTING | DESTINATION | AUTHENTICATION | FRAGMENT);
        if !is_known {
            return Err(MembershipError::Protocol(header));
        }
        if header == FRAGMENT {
            return Err(MembershipError::Fragment);
        }
        let [following, length] = octets.take()?;
        octets.skip(match header {
            AUTHENTICATION => skipped(length, 4, 2),
            _ => skipped(length, 8, 1),
        })?;
        next = following;
    }
    Ok(IpPayload::Icmpv6 { ends: [source, destination], message: octets })
}
