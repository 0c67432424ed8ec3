//! MPLS label stack entries: push, pop, and copy of the TTL (RFC 3032, 2.1; OpenFlow 1.3.5, 5.12).
//!
//! A label follows the Ethernet type, which follows all VLAN tags. The Ethernet type names the next
//! header, so a push or a pop writes label and type together. The payload after a pop is not parsed
//! yet: the packet must be parsed again before a lookup or an action depends on the payload.

use super::writer::{WrittenBits, replace, update};
use crate::checksum::ChecksumDifference;

/// The fields of a pushed label stack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MplsHeader {
    /// The new Ethernet type of the frame: 0x8847 or 0x8848.
    pub ether_type: u16,
    /// The label stack entry: label, traffic class, bottom of stack, TTL.
    pub entry: u32,
}

/// The direction of a TTL copy.
/// The copy is between the outermost header that has a TTL and the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TtlCopy {
    /// Copy from the outermost header to the next one.
    In,
    /// Copy from the next header to the outermost one.
    Out,
}

/// Bytes of a label stack entry.
const ENTRY: usize = 4;

/// Bytes of an Ethernet type.
const TYPE: usize = 2;

/// Inserts a label stack entry as the outermost one of a frame.
///
/// `buffer` is the frame with four free bytes before it; afterwards the frame fills `buffer`.
/// `payload` is the offset after the Ethernet type, before and afterwards. A buffer that is too
/// short is not changed.
pub fn push_mpls(buffer: &mut [u8], payload: usize, header: MplsHeader) {
    let Some(link) = link_and_entry(buffer, payload) else { return };
    link.copy_within(ENTRY.., 0);
    let [high, low] = header.ether_type.to_be_bytes();
    let [first, second, third, fourth] = header.entry.to_be_bytes();
    if let Some(end) = link.last_chunk_mut::<{ TYPE + ENTRY }>() {
        *end = [high, low, first, second, third, fourth];
    }
}

/// Removes the outermost label stack entry.
/// Sets the Ethernet type to `ether_type`.
///
/// Afterwards the frame is `frame[4..]`. `payload` is the offset after the Ethernet type, before
/// and afterwards. A frame that is too short is not changed.
pub fn pop_mpls(frame: &mut [u8], payload: usize, ether_type: u16) {
    let Some(link) = link_and_entry(frame, payload) else { return };
    link.copy_within(..payload, ENTRY);
    if let Some(end) = link.last_chunk_mut::<TYPE>() {
        *end = ether_type.to_be_bytes();
    }
}

/// Copies a TTL between the label at `payload` and the IP packet after it.
///
/// The label is the bottom of its stack; the version field of the packet selects IPv4 or IPv6. The
/// checksum of an IPv4 header is updated. A payload that is not IP has no TTL, and is not changed.
pub fn copy_ttl(frame: &mut [u8], payload: usize, copy: TtlCopy) {
    /// Offset of the TTL in a label stack entry.
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

/// Returns the frame up to the end of the label stack entry at `payload`.
fn link_and_entry(frame: &mut [u8], payload: usize) -> Option<&mut [u8]> {
    if payload < TYPE {
        return None;
    }
    frame.get_mut(..payload.checked_add(ENTRY)?)
}
