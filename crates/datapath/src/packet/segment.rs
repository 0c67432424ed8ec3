//! Software segmentation of a packet, as requested by its virtio header.
//!
//! Each segment repeats the headers of the packet and carries the next `gso_size` bytes of payload.
//! Segments differ in these fields: the lengths, the IPv4 identification (one more each time), the
//! sequence number, the flags and the checksums. Only the last segment has FIN and PSH. Only the
//! first has CWR, as in the kernel (RFC 3168, 6.1.2).
//!
//! Source: Linux, `Documentation/networking/segmentation-offloads.rst`; RFC 9293, 3.1; RFC 768.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use crate::packet::{
    buffer::{Packet, Pool},
    virtio::{VirtioHeader, complete_checksum, folded, sum},
};

/// Maximum number of segments of one packet: 64 KiB in segments of 128 bytes.
///
/// The sender chooses the size of the segments, down to one byte. The limit bounds the work that a
/// sender can cause.
pub const SEGMENTS_MAX: usize = 512;

/// The reason why a packet was not segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The protocol of the packet is not the one that its virtio header names.
    #[error(
        "the virtio header is wrong: the frame does not carry the protocol that its gso_type \
         names"
    )]
    Protocol,
    /// The packet would become too many segments.
    #[error("the packet needs {count} segments, but a packet has at most {SEGMENTS_MAX}")]
    TooMany {
        /// Number of segments that the packet would become.
        count: usize,
    },
    /// The pool has no buffers left.
    #[error("the packet cannot be segmented: the pool has no buffers left for the segments")]
    PoolEmpty,
}

/// Appends the segments of a packet to `out`, with complete checksums.
/// Returns the number of segments.
///
/// # Errors
///
/// If the packet cannot be segmented; `out` then stays unchanged.
pub fn segment(
    packet: &Packet,
    pool: &mut Pool,
    out: &mut Vec<Packet>,
) -> Result<usize, SegmentError> {
    let frame = packet.frame();
    let headers = Headers::parse(frame, packet.virtio.gso_type).ok_or(SegmentError::Protocol)?;
    let size = usize::from(packet.virtio.gso_size);
    if size == 0 {
        return Err(SegmentError::Protocol);
    }
    let payload = frame.get(headers.payload..headers.end).ok_or(SegmentError::Protocol)?;
    let repeated = frame.get(..headers.payload).ok_or(SegmentError::Protocol)?;
    let count = payload.len().div_ceil(size);
    if count > SEGMENTS_MAX {
        return Err(SegmentError::TooMany { count });
    }
    let first = out.len();
    for (index, chunk) in payload.chunks(size).enumerate() {
        let Some(mut made) = pool.take(repeated.len().saturating_add(chunk.len()), packet.ingress)
        else {
            out.drain(first..).for_each(|made| pool.put_back(made));
            return Err(SegmentError::PoolEmpty);
        };
        let segment = made.frame_mut();
        let (head, body) = segment.split_at_mut(repeated.len());
        head.copy_from_slice(repeated);
        body.copy_from_slice(chunk);
        headers.adapt(segment, SegmentPosition { index, count, size });
        made.virtio =
            VirtioHeader { data_valid: packet.virtio.data_valid, ..VirtioHeader::default() };
        out.push(made);
    }
    Ok(count)
}

/// Position of a segment in its packet.
struct SegmentPosition {
    /// Number of the segment, from zero.
    index: usize,
    /// Number of segments of the packet.
    count: usize,
    /// Number of payload bytes of each segment but the last.
    size: usize,
}

/// Offsets of the headers of a packet that will be segmented.
pub(crate) struct Headers {
    /// Offset of the IP header.
    network: usize,
    /// The version of IP: 4 or 6.
    network_kind: NetworkKind,
    /// Offset of the TCP or UDP header.
    transport: usize,
    /// The transport protocol: TCP or UDP.
    transport_kind: SegmentedProtocol,
    /// Offset of the payload.
    payload: usize,
    /// End of the payload; padding follows.
    end: usize,
}

/// The network protocol of a packet that will be segmented.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NetworkKind {
    Ipv4,
    Ipv6,
}

/// The transport protocol of a packet that will be segmented.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentedProtocol {
    Tcp,
    Udp,
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const ETHERTYPES_MPLS: [u16; 2] = [0x8847, 0x8848];
/// Maximum number of VLAN tags before the network header.
const TAGS_MAX: usize = 2;
/// Maximum number of MPLS labels before the network header.
const LABELS_MAX: usize = 8;
/// Maximum number of IPv6 extension headers before the transport header.
const EXTENSIONS_MAX: usize = 8;
/// The IPv6 extension headers of hop-by-hop and destination options.
/// See RFC 8200, 4.3 and 4.6.
const EXTENSIONS_OPTIONS: [u8; 2] = [0, 60];
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Offset of the flags in a TCP header.
const TCP_FLAGS: usize = 13;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

impl Headers {
    /// Returns the headers of a frame that can be segmented as `gso_type` says.
    ///
    /// Returns `None` for another protocol, a fragment, a routing header, no payload, or lengths
    /// that disagree.
    pub(crate) fn parse(frame: &[u8], gso_type: u8) -> Option<Self> {
        let (network, ethertype) = network(frame)?;
        let (network_kind, protocol, transport, end) = match ethertype {
            ETHERTYPE_IPV4 => ipv4(frame, network)?,
            ETHERTYPE_IPV6 => ipv6(frame, network)?,
            _ => return None,
        };
        let (transport_kind, length) =
            match (gso_type & !VirtioHeader::GSO_ECN, network_kind, protocol) {
                (VirtioHeader::GSO_TCPV4, NetworkKind::Ipv4, PROTOCOL_TCP)
                | (VirtioHeader::GSO_TCPV6, NetworkKind::Ipv6, PROTOCOL_TCP) => {
                    let words = *frame.get(transport.checked_add(12)?)? >> 4;
                    let length = usize::from(words).checked_mul(4)?;
                    (SegmentedProtocol::Tcp, if length >= 20 { length } else { return None })
                }
                (VirtioHeader::GSO_UDP_L4, _, PROTOCOL_UDP) => (SegmentedProtocol::Udp, 8),
                _ => return None,
            };
        let payload = transport.checked_add(length)?;
        let headers = Self { network, network_kind, transport, transport_kind, payload, end };
        (payload < end).then_some(headers)
    }

    /// Returns the length of the headers that each segment repeats.
    pub(crate) const fn length(&self) -> usize {
        self.payload
    }

    /// Returns the offsets of the checksummed bytes, and of the checksum in them.
    pub(crate) const fn checksum(&self) -> (usize, usize) {
        let offset = match self.transport_kind {
            SegmentedProtocol::Tcp => 16,
            SegmentedProtocol::Udp => 6,
        };
        (self.transport, offset)
    }

    /// Changes headers that were copied from the packet into those of one segment.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn adapt(&self, segment: &mut [u8], position: SegmentPosition) {
        match self.network_kind {
            NetworkKind::Ipv4 => self.adapt_ipv4(segment, position.index),
            NetworkKind::Ipv6 => {
                let length = segment.len() - self.network - 40;
                put16(segment, self.network + 4, length);
            }
        }
        match self.transport_kind {
            SegmentedProtocol::Tcp => self.adapt_tcp(segment, position),
            SegmentedProtocol::Udp => {
                let length = segment.len() - self.transport;
                put16(segment, self.transport + 4, length);
            }
        }
        let (start, offset) = self.checksum();
        let pseudo = self.pseudo_header(segment);
        put16(segment, start + offset, pseudo.into());
        complete_checksum(segment, start, offset);
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn adapt_ipv4(&self, segment: &mut [u8], index: usize) {
        let (network, transport) = (self.network, self.transport);
        let length = segment.len() - network;
        put16(segment, network + 2, length);
        let identification = be16(segment, network + 4).unwrap_or(0);
        put16(segment, network + 4, usize::from(identification).wrapping_add(index));
        put16(segment, network + 10, 0);
        let checksum = !folded(sum(&segment[network..transport]));
        put16(segment, network + 10, checksum.into());
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn adapt_tcp(
        &self,
        segment: &mut [u8],
        SegmentPosition { index, count, size }: SegmentPosition,
    ) {
        let at = self.transport + 4;
        if let Some(sequence) = segment.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            // Sequence numbers wrap around (RFC 9293, 3.4).
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the value is at most the length of a frame"
            )]
            let done = (index * size) as u32;
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(done).to_be_bytes();
        }
        let flags = &mut segment[self.transport + TCP_FLAGS];
        if index > 0 {
            *flags &= !TCP_CWR;
        }
        if index + 1 < count {
            *flags &= !(TCP_FIN | TCP_PSH);
        }
    }

    /// Returns the sum of the pseudo-header: addresses, protocol and length.
    /// See RFC 9293, 3.1, and RFC 8200, 8.1.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn pseudo_header(&self, segment: &[u8]) -> u16 {
        let addresses = match self.network_kind {
            NetworkKind::Ipv4 => self.network + 12..self.network + 20,
            NetworkKind::Ipv6 => self.network + 8..self.network + 40,
        };
        let protocol = match self.transport_kind {
            SegmentedProtocol::Tcp => PROTOCOL_TCP,
            SegmentedProtocol::Udp => PROTOCOL_UDP,
        };
        let length = (segment.len() - self.transport) as u64;
        folded(sum(&segment[addresses]) + u64::from(protocol) + length)
    }
}

/// Returns whether MPLS labels precede the network header.
/// The kernel does not segment such packets.
pub(crate) fn is_labelled(frame: &[u8]) -> bool {
    payload(frame).is_some_and(|(_, ethertype)| ETHERTYPES_MPLS.contains(&ethertype))
}

/// Returns offset and Ethernet type of the bytes after the VLAN tags.
pub(crate) fn payload(frame: &[u8]) -> Option<(usize, u16)> {
    let mut offset = 14_usize;
    let mut ethertype = be16(frame, 12)?;
    for _ in 0..TAGS_MAX {
        if ETHERTYPES_VLAN.contains(&ethertype) {
            ethertype = be16(frame, offset.checked_add(2)?)?;
            offset = offset.checked_add(4)?;
        }
    }
    Some((offset, ethertype))
}

/// Returns offset and Ethernet type of the network header.
/// After labels, the IP version of the header decides the type.
fn network(frame: &[u8]) -> Option<(usize, u16)> {
    let (mut offset, ethertype) = payload(frame)?;
    if !ETHERTYPES_MPLS.contains(&ethertype) {
        return Some((offset, ethertype));
    }
    for _ in 0..LABELS_MAX {
        let is_bottom = frame.get(offset.checked_add(2)?)? & 1 != 0;
        offset = offset.checked_add(4)?;
        if is_bottom {
            return match frame.get(offset)? >> 4 {
                4 => Some((offset, ETHERTYPE_IPV4)),
                6 => Some((offset, ETHERTYPE_IPV6)),
                _ => None,
            };
        }
    }
    None
}

/// Returns protocol, transport header offset and end of payload of IPv4.
fn ipv4(frame: &[u8], network: usize) -> Option<(NetworkKind, u8, usize, usize)> {
    let [first, _, t0, t1, _, _, f0, f1, _, protocol, ..] =
        *frame.get(network..)?.first_chunk::<20>()?;
    let length = usize::from(first & 0x0f).checked_mul(4)?;
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff;
    if first >> 4 != 4 || length < 20 || fragment != 0 {
        return None;
    }
    let end = end(frame, network, usize::from(u16::from_be_bytes([t0, t1])))?;
    Some((NetworkKind::Ipv4, protocol, network.checked_add(length)?, end))
}

/// Returns protocol, transport header offset and end of payload of IPv6.
fn ipv6(frame: &[u8], network: usize) -> Option<(NetworkKind, u8, usize, usize)> {
    let [first, _, _, _, l0, l1, next, ..] = *frame.get(network..)?.first_chunk::<40>()?;
    if first >> 4 != 6 {
        return None;
    }
    let (mut protocol, mut transport) = (next, network.checked_add(40)?);
    for _ in 0..EXTENSIONS_MAX {
        if !EXTENSIONS_OPTIONS.contains(&protocol) {
            break;
        }
        protocol = *frame.get(transport)?;
        let more = usize::from(*frame.get(transport.checked_add(1)?)?);
        transport = more.checked_add(1)?.checked_mul(8)?.checked_add(transport)?;
    }
    let total = match u16::from_be_bytes([l0, l1]) {
        0 => 0,
        length => usize::from(length).checked_add(40)?,
    };
    let end = end(frame, network, total)?;
    Some((NetworkKind::Ipv6, protocol, transport, end))
}

/// Returns the end of a network packet of `total` bytes.
///
/// A `total` of 0 means the end of the frame: senders use it where the length does not fit the
/// field.
fn end(frame: &[u8], network: usize, total: usize) -> Option<usize> {
    let end = if total == 0 { frame.len() } else { network.checked_add(total)? };
    (end <= frame.len()).then_some(end)
}

/// Reads a big-endian number of 16 bits.
fn be16(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Writes the low 16 bits of `value`.
fn put16(frame: &mut [u8], at: usize, value: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "the field has 16 bits")]
    let bytes = (value as u16).to_be_bytes();
    if let Some(position) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *position = bytes;
    }
}

#[cfg(test)]
mod tests;
