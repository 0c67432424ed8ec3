//! Software segmentation of a packet, as requested by its virtio header.
//!
//! Each segment repeats the headers of the packet and carries the next `gso_size` bytes of payload.
//! Segments differ in these fields: the lengths, the IPv4 identification (one more each time), the
//! sequence number, the flags and the checksums. Only the last segment has FIN and PSH. Only the
//! first has CWR, as in the kernel (RFC 3168, 6.1.2).
//!
//! A packet in a UDP tunnel, such as VXLAN or Geneve, has two sets of IP headers. Its checksum
//! begins behind the UDP header of the tunnel, so the frame itself shows the tunnel. Each segment
//! also repeats the headers of the tunnel, with lengths, identification and checksums of its own.
//! A UDP checksum of 0 stays 0, because such a tunnel uses no checksum.
//!
//! Source: Linux, `Documentation/networking/segmentation-offloads.rst`; RFC 9293, 3.1; RFC 768;
//! RFC 6935, 5.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use crate::packet::{
    buffer::{Packet, Pool},
    virtio::{UdpTunnel, VirtioHeader, complete_checksum, folded, sum},
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
    let headers = Headers::parse(frame, &packet.virtio).ok_or(SegmentError::Protocol)?;
    let size = usize::from(packet.virtio.gso_size);
    if size == 0 {
        return Err(SegmentError::Protocol);
    }
    let payload = frame.get(headers.payload..headers.ip.end).ok_or(SegmentError::Protocol)?;
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
    /// The headers of the UDP tunnel around the packet.
    tunnel: Option<TunnelHeaders>,
    /// The IP header before the transport header.
    ip: SegmentedIp,
    /// The transport protocol: TCP or UDP.
    transport_kind: SegmentedProtocol,
    /// Offset of the payload.
    payload: usize,
}

/// The headers of a UDP tunnel around a packet that will be segmented.
struct TunnelHeaders {
    /// The IP header before the UDP header of the tunnel.
    ip: SegmentedIp,
    /// The use of the UDP checksum.
    kind: UdpTunnel,
}

/// An IP header of a packet that will be segmented.
#[derive(Clone, Copy)]
struct SegmentedIp {
    /// The version of IP: 4 or 6.
    kind: NetworkKind,
    /// Offset of the header.
    start: usize,
    /// The number of the transport protocol.
    protocol: u8,
    /// Offset of the transport header.
    transport: usize,
    /// End of the IP packet; padding follows.
    end: usize,
}

/// The network protocol of a packet that will be segmented.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkKind {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The transport protocol of a packet that will be segmented.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentedProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Offsets of the headers of a tunnel, as a virtio header names them.
pub(crate) struct TunnelOffsets {
    /// The version of IP that carries the tunnel.
    pub(crate) outer_kind: NetworkKind,
    /// Offset of the UDP header of the tunnel.
    pub(crate) outer_transport: usize,
    /// Offset of the IP header in the tunnel.
    pub(crate) inner_network: usize,
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
/// Length of a UDP header.
const UDP_LENGTH: usize = 8;
/// Offset of the checksum in a UDP header.
pub(crate) const UDP_CHECKSUM: usize = 6;
/// Maximum length of IPv6 and extension headers in a tunnel.
const TUNNELLED_IPV6_MAX: usize = 40 + 256;

/// Offset of the flags in a TCP header.
const TCP_FLAGS: usize = 13;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

impl Headers {
    /// Parses the headers of a frame that its virtio header requests to segment.
    ///
    /// Returns `None` for another protocol, a fragment, a routing header, no payload, or lengths
    /// that disagree.
    pub(crate) fn parse(frame: &[u8], virtio: &VirtioHeader) -> Option<Self> {
        let (network, ethertype) = network(frame)?;
        let outermost = match ethertype {
            ETHERTYPE_IPV4 => ipv4(frame, network)?,
            ETHERTYPE_IPV6 => ipv6(frame, network)?,
            _ => return None,
        };
        let is_tunnelled = outermost.protocol == PROTOCOL_UDP
            && virtio.needs_checksum
            && usize::from(virtio.checksum_start) > outermost.transport;
        let (tunnel, ip) = if is_tunnelled {
            let checksum = be16(frame, outermost.transport.checked_add(UDP_CHECKSUM)?)?;
            let kind = if checksum == 0 { UdpTunnel::Unchecked } else { UdpTunnel::Checked };
            let ip = tunnelled(frame, &outermost, virtio)?;
            (Some(TunnelHeaders { ip: outermost, kind }), ip)
        } else {
            (None, outermost)
        };
        let transport_kind = ip.segmented_protocol(virtio)?;
        let length = match transport_kind {
            SegmentedProtocol::Tcp => {
                let words = *frame.get(ip.transport.checked_add(12)?)? >> 4;
                let length = usize::from(words).checked_mul(4)?;
                if length >= 20 { length } else { return None }
            }
            SegmentedProtocol::Udp => UDP_LENGTH,
        };
        let payload = ip.transport.checked_add(length)?;
        (payload < ip.end).then_some(Self { tunnel, ip, transport_kind, payload })
    }

    /// Returns the length of the headers that each segment repeats.
    pub(crate) const fn length(&self) -> usize {
        self.payload
    }

    /// Returns the offsets of the checksummed bytes, and of the checksum in them.
    pub(crate) const fn checksum(&self) -> (usize, usize) {
        let offset = match self.transport_kind {
            SegmentedProtocol::Tcp => 16,
            SegmentedProtocol::Udp => UDP_CHECKSUM,
        };
        (self.ip.transport, offset)
    }

    /// Returns the UDP tunnel around the packet.
    pub(crate) fn tunnel(&self) -> Option<UdpTunnel> {
        self.tunnel.as_ref().map(|tunnel| tunnel.kind)
    }

    /// Returns the offsets of the headers of the tunnel around the packet.
    pub(crate) fn tunnel_offsets(&self) -> Option<TunnelOffsets> {
        self.tunnel.as_ref().map(|tunnel| TunnelOffsets {
            outer_kind: tunnel.ip.kind,
            outer_transport: tunnel.ip.transport,
            inner_network: self.ip.start,
        })
    }

    /// Changes headers that were copied from the packet into those of one segment.
    fn adapt(&self, segment: &mut [u8], position: SegmentPosition) {
        let index = position.index;
        self.ip.adapt(segment, index);
        match self.transport_kind {
            SegmentedProtocol::Tcp => self.adapt_tcp(segment, position),
            SegmentedProtocol::Udp => self.ip.adapt_udp(segment),
        }
        self.ip.put_checksum(segment, self.checksum().1);
        // The checksum of the tunnel covers the other headers, so it is last.
        if let Some(TunnelHeaders { ip, kind }) = &self.tunnel {
            ip.adapt(segment, index);
            ip.adapt_udp(segment);
            match kind {
                UdpTunnel::Unchecked => {}
                UdpTunnel::Checked => ip.put_checksum(segment, UDP_CHECKSUM),
            }
        }
    }

    /// Writes the sequence number and the flags of a segment.
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
        let at = self.ip.transport + 4;
        if let Some(sequence) = segment.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            // Sequence numbers wrap around (RFC 9293, 3.4).
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the value is at most the length of a frame"
            )]
            let done = (index * size) as u32;
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(done).to_be_bytes();
        }
        let flags = &mut segment[self.ip.transport + TCP_FLAGS];
        if index > 0 {
            *flags &= !TCP_CWR;
        }
        if index + 1 < count {
            *flags &= !(TCP_FIN | TCP_PSH);
        }
    }
}

impl SegmentedIp {
    /// Returns the transport protocol, if it is the one that a virtio header names.
    const fn segmented_protocol(&self, virtio: &VirtioHeader) -> Option<SegmentedProtocol> {
        match (virtio.inner_gso_type(), self.kind, self.protocol) {
            (VirtioHeader::GSO_TCPV4, NetworkKind::Ipv4, PROTOCOL_TCP)
            | (VirtioHeader::GSO_TCPV6, NetworkKind::Ipv6, PROTOCOL_TCP) => {
                Some(SegmentedProtocol::Tcp)
            }
            (VirtioHeader::GSO_UDP_L4, _, PROTOCOL_UDP) => Some(SegmentedProtocol::Udp),
            _ => None,
        }
    }

    /// Writes the length, and for IPv4 the identification and the checksum.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn adapt(&self, segment: &mut [u8], index: usize) {
        let start = self.start;
        let length = segment.len() - start;
        match self.kind {
            NetworkKind::Ipv4 => {
                put16(segment, start + 2, length);
                let identification = be16(segment, start + 4).unwrap_or(0);
                put16(segment, start + 4, usize::from(identification).wrapping_add(index));
                put16(segment, start + 10, 0);
                let checksum = !folded(sum(&segment[start..self.transport]));
                put16(segment, start + 10, checksum.into());
            }
            NetworkKind::Ipv6 => put16(segment, start + 4, length - 40),
        }
    }

    /// Writes the length of the UDP header behind the IP header.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn adapt_udp(&self, segment: &mut [u8]) {
        let length = segment.len() - self.transport;
        put16(segment, self.transport + 4, length);
    }

    /// Writes the complete transport checksum at `offset` of its header.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn put_checksum(&self, segment: &mut [u8], offset: usize) {
        let pseudo = self.pseudo_header(segment);
        put16(segment, self.transport + offset, pseudo.into());
        complete_checksum(segment, self.transport, offset);
    }

    /// Returns the sum of the pseudo-header: addresses, protocol and length.
    /// See RFC 9293, 3.1, and RFC 8200, 8.1.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the segment begins with the headers that `parse` has found in its frame"
    )]
    fn pseudo_header(&self, segment: &[u8]) -> u16 {
        let addresses = match self.kind {
            NetworkKind::Ipv4 => self.start + 12..self.start + 20,
            NetworkKind::Ipv6 => self.start + 8..self.start + 40,
        };
        let length = (segment.len() - self.transport) as u64;
        folded(sum(&segment[addresses]) + u64::from(self.protocol) + length)
    }
}

/// Finds the IP header in a UDP tunnel that ends at `checksum_start`.
///
/// The search does not depend on the protocol of the tunnel. The header must end at the transport
/// header, and both IP packets must end at the same byte. A packet socket does not report the
/// offset of the header. A TAP reports an offset that ignores a VLAN tag (Linux 6.17,
/// `virtio_net_hdr_tnl_from_skb`).
fn tunnelled(frame: &[u8], outer: &SegmentedIp, virtio: &VirtioHeader) -> Option<SegmentedIp> {
    let transport = usize::from(virtio.checksum_start);
    let first = outer.transport.checked_add(UDP_LENGTH)?;
    let start = |length: usize| transport.checked_sub(length).filter(|start| *start >= first);
    let ipv4s = (20..=60).step_by(4).filter_map(start).filter_map(|start| ipv4(frame, start));
    let lengths = (40..=TUNNELLED_IPV6_MAX).step_by(8);
    let ipv6s = lengths.filter_map(start).filter_map(|start| ipv6(frame, start));
    ipv4s.chain(ipv6s).find(|ip| {
        ip.transport == transport && ip.end == outer.end && ip.segmented_protocol(virtio).is_some()
    })
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

/// Returns the IPv4 header at an offset; `None` for a fragment.
fn ipv4(frame: &[u8], start: usize) -> Option<SegmentedIp> {
    let [first, _, t0, t1, _, _, f0, f1, _, protocol, ..] =
        *frame.get(start..)?.first_chunk::<20>()?;
    let length = usize::from(first & 0x0f).checked_mul(4)?;
    let fragment = u16::from_be_bytes([f0, f1]) & 0x3fff;
    if first >> 4 != 4 || length < 20 || fragment != 0 {
        return None;
    }
    let end = end(frame, start, usize::from(u16::from_be_bytes([t0, t1])))?;
    let transport = start.checked_add(length)?;
    Some(SegmentedIp { kind: NetworkKind::Ipv4, start, protocol, transport, end })
}

/// Returns the IPv6 header at an offset, with its extension headers.
fn ipv6(frame: &[u8], start: usize) -> Option<SegmentedIp> {
    let [first, _, _, _, l0, l1, next, ..] = *frame.get(start..)?.first_chunk::<40>()?;
    if first >> 4 != 6 {
        return None;
    }
    let (mut protocol, mut transport) = (next, start.checked_add(40)?);
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
    let end = end(frame, start, total)?;
    Some(SegmentedIp { kind: NetworkKind::Ipv6, start, protocol, transport, end })
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
#[cfg(test)]
mod tunnel_tests;
