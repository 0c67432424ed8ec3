//! MPLS label stack entries: pushed, popped, and their TTLs copied (RFC 3032, 2.1; OpenFlow 1.3.5,
//! 5.12).
//!
//! A label goes behind the Ethernet type and thereby behind all VLAN tags, and the type says what
//! is behind it: so both are written at once. What a pop uncovers nobody has looked at: the packet
//! is to be parsed anew before anything depends on it.

use super::writer::{WrittenBits, replace, update};
use crate::checksum::ChecksumDifference;

/// What a push writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MplsHeader {
    /// The Ethernet type of the frame from then on: 0x8847 or 0x8848.
    pub ether_type: u16,
    /// The label stack entry: label, traffic class, bottom of stack, TTL.
    pub entry: u32,
}

/// Which way a TTL is copied between the outermost header that has one and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TtlCopy {
    /// From the outermost to the next.
    In,
    /// From the next to the outermost.
    Out,
}

/// Bytes of a label stack entry.
const ENTRY: usize = 4;

/// Bytes of an Ethernet type.
const TYPE: usize = 2;

/// Makes a label stack entry the outermost one of a frame.
///
/// `buffer` is the frame with four free bytes in front of it, and the whole of it is the frame
/// afterwards; `payload` is where its Ethernet type ended, and ends again. A buffer that does not
/// reach so far stays as it is.
pub fn push_mpls(buffer: &mut [u8], payload: usize, header: MplsHeader) {
    let Some(link) = link_and_entry(buffer, payload) else { return };
    link.copy_within(ENTRY.., 0);
    let [high, low] = header.ether_type.to_be_bytes();
    let [first, second, third, fourth] = header.entry.to_be_bytes();
    if let Some(end) = link.last_chunk_mut::<{ TYPE + ENTRY }>() {
        *end = [high, low, first, second, third, fourth];
    }
}

/// Removes the outermost label stack entry of a frame: afterwards the frame is `frame[4..]`, and its
/// Ethernet type is `ether_type`.
///
/// `payload` is where the Ethernet type ends, before and afterwards. A frame that does not reach
/// to the end of an entry there stays as it is.
pub fn pop_mpls(frame: &mut [u8], payload: usize, ether_type: u16) {
    let Some(link) = link_and_entry(frame, payload) else { return };
    link.copy_within(..payload, ENTRY);
    if let Some(end) = link.last_chunk_mut::<TYPE>() {
        *end = ether_type.to_be_bytes();
    }
}

/// Copies a TTL between the label at `payload`, which is the bottom of its stack, and the IP packet
/// behind it; its version field tells which one it is. The checksum of an IPv4 header follows. What
/// is no IP packet has no TTL, and stays as it is.
pub fn copy_ttl(frame: &mut [u8], payload: usize, copy: TtlCopy) {
    const LABEL_TTL: usize = 3;
    let network = payload.saturating_add(ENTRY);
    let ttl = match frame.get(network).map(|first| first >> 4) {
        Some(4) => 8,
        Some(6) => 7,
        _ => return,
    };
    let places = [(payload, LABEL_TTL), (network, ttl)];
    let read = |(header, offset): (usize, usize)| frame.get(header..)?.get(offset).copied();
    let [Some(outer), Some(inner)] = places.map(read) else { return };
    let [label, ip] = places;
    let (place, value) = match copy {
        TtlCopy::In => (ip, outer),
        TtlCopy::Out => (label, inner),
    };
    replace::<1>(frame, place.0, place.1, WrittenBits { mask: 0xff, value: u64::from(value) });
    if copy == TtlCopy::In && ttl == 8 {
        let mut change = ChecksumDifference::default();
        change.add(u64::from(inner) << 8, u64::from(outer) << 8);
        update(frame, network, 10, |checksum| change.update(checksum));
    }
}

/// The frame up to the end of the entry at `payload`.
fn link_and_entry(frame: &mut [u8], payload: usize) -> Option<&mut [u8]> {
    if payload < TYPE {
        return None;
    }
    frame.get_mut(..payload.checked_add(ENTRY)?)
}
