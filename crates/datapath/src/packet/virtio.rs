//! The virtio header of a packet: checksums and segmentation that are still to be done.
//!
//! Kernels and guests send packets without a complete transport checksum, and packets of up to 64
//! KiB that are to be segmented later. A switch that ignored this would forward broken TCP. So
//! every packet carries its virtio header, and ports with virtio headers pass it on. For other
//! ports, [`finish`] computes checksums and segments in software.
//!
//! The sender may write anything into the header. [`VirtioHeader::receive`] checks the header
//! against the frame, so later steps can rely on it.
//!
//! A packet to segment may be in a UDP tunnel ([`UdpTunnel`]). The headers of the tunnel are found
//! in the frame each time they are needed, because actions may move them.
//!
//! Source: Virtual I/O Device 1.2, 5.1.6 (`struct virtio_net_hdr`); Linux takes the legacy layout,
//! in the byte order of the machine. Virtual I/O Device 1.4, 5.1.6, has the tunnels.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

use shunt_flow::{Layers, rewrite::ChecksumState};

use crate::{
    packet::{
        buffer::{Packet, Pool},
        segment,
    },
    port::Capabilities,
};

/// A decoded `struct virtio_net_hdr`.
/// The header names the steps that a packet still needs before it is sent.
///
/// Source: Virtual I/O Device 1.2, 5.1.6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// True while the transport checksum is only the sum of the pseudo-header.
    /// The sum of the bytes from `checksum_start` on must be added, and stored at `checksum_start +
    /// checksum_offset`.
    pub needs_checksum: bool,
    /// True if the sender has verified the checksums.
    pub data_valid: bool,
    /// `gso_type` as virtio encodes it; 0: the packet is one segment.
    pub gso_type: u8,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Length of the headers that each segment repeats.
    pub header_length: u16,
    /// Offset of the first checksummed byte.
    pub checksum_start: u16,
    /// Offset of the checksum from `checksum_start`.
    pub checksum_offset: u16,
    /// The UDP tunnel around a packet that is to be segmented.
    pub tunnel: Option<UdpTunnel>,
}

/// A UDP tunnel, such as VXLAN or Geneve, around a packet that is to be segmented.
///
/// `gso_type`, `checksum_start` and `checksum_offset` then belong to the packet in the tunnel, and
/// each segment gets headers of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpTunnel {
    /// The tunnel uses no UDP checksum: the field is 0.
    Unchecked,
    /// The field has the sum of the pseudo-header, and each segment gets a checksum.
    Checked,
}

/// Reason for refusing a virtio header that contradicts its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VirtioHeaderError {
    /// The checksum would lie after the end of the frame.
    #[error(
        "the virtio header is wrong: its checksum at byte {start} + {offset} is outside the frame \
         of {length} bytes"
    )]
    ChecksumOutside {
        /// The value of `checksum_start`.
        start: u16,
        /// The value of `checksum_offset`.
        offset: u16,
        /// Length of the frame.
        length: usize,
    },
    /// The switch does not know the segmentation type (`gso_type`).
    #[error("the virtio header is wrong: its gso_type {0:#04x} is unknown")]
    UnknownSegmentation(u8),
    /// The segments would have no payload, or be longer than the frame.
    #[error(
        "the virtio header is wrong: its gso_size {size} does not fit a frame of {length} bytes"
    )]
    SegmentSize {
        /// The value of `gso_size`.
        size: u16,
        /// Length of the frame.
        length: usize,
    },
    /// The protocol of `gso_type` is not in the frame, or not at `checksum_start`.
    #[error(
        "the virtio header is wrong: the frame does not carry the protocol that its gso_type \
         names"
    )]
    Protocol,
    /// The packet is to be segmented, but its checksum is neither partial nor verified.
    /// Segmentation would hide a wrong checksum of the packet.
    #[error(
        "the virtio header is wrong: the frame is to be segmented, but its checksum is neither \
         partial nor verified"
    )]
    Unverified,
}

impl VirtioHeader {
    /// Bytes of the header on a packet socket.
    pub const ENCODED: usize = 10;
    /// Bytes of the header with the number of buffers after it, as in a guest.
    pub const ENCODED_WITH_BUFFERS: usize = 12;
    /// Bytes of the header with tunnel offsets at its end, as on a TAP device.
    ///
    /// Before Linux 6.17, a TAP device ignores the bytes after the first ten.
    pub const ENCODED_WITH_TUNNEL: usize = 24;

    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    pub const GSO_TCPV6: u8 = 4;
    /// UDP, each segment a datagram (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    pub const GSO_UDP_L4: u8 = 5;
    /// Flag beside a TCP type: the first segment carries CWR.
    /// Virtio calls this flag `VIRTIO_NET_HDR_GSO_ECN`.
    pub const GSO_ECN: u8 = 0x80;
    /// Flag beside another type: the packet is in a UDP tunnel over IPv4.
    const GSO_UDP_TUNNEL_IPV4: u8 = 0x20;
    /// Flag beside another type: the packet is in a UDP tunnel over IPv6.
    const GSO_UDP_TUNNEL_IPV6: u8 = 0x40;
    /// The flags of UDP tunnels, which [`Self::tunnel`] replaces in a received header.
    const GSO_UDP_TUNNEL: u8 = Self::GSO_UDP_TUNNEL_IPV4 | Self::GSO_UDP_TUNNEL_IPV6;

    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is incomplete.
    const NEEDS_CSUM: u8 = 1;
    /// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum was found to be right.
    pub(crate) const DATA_VALID: u8 = 2;
    /// `VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM`: the tunnel uses a UDP checksum.
    const UDP_TUNNEL_CSUM: u8 = 8;

    /// Returns whether the packet must still be segmented.
    #[must_use]
    pub const fn is_segmented(&self) -> bool {
        self.gso_type != 0
    }

    /// Returns the kind of segments without flags; 0: the packet is one segment.
    pub(crate) const fn inner_gso_type(&self) -> u8 {
        self.gso_type & !(Self::GSO_ECN | Self::GSO_UDP_TUNNEL)
    }

    /// Returns the state of the outermost transport checksum, for a change of headers.
    ///
    /// In a tunnel, the partial checksum may be the inner one. The UDP checksum of the tunnel is
    /// complete then, except in a packet that is to be segmented.
    #[must_use]
    pub fn checksum_state(&self, layers: &Layers) -> ChecksumState {
        let is_partial = match self.tunnel {
            Some(UdpTunnel::Checked) => true,
            // As a complete checksum, 0 stays 0.
            Some(UdpTunnel::Unchecked) => false,
            None => {
                self.needs_checksum && layers.transport() == Some(usize::from(self.checksum_start))
            }
        };
        if is_partial { ChecksumState::Partial } else { ChecksumState::Complete }
    }

    /// Decodes a header; ignores unknown flags.
    #[must_use]
    pub const fn decode(bytes: [u8; Self::ENCODED]) -> Self {
        let [flags, gso_type, l0, l1, s0, s1, c0, c1, o0, o1] = bytes;
        Self {
            needs_checksum: flags & Self::NEEDS_CSUM != 0,
            data_valid: flags & Self::DATA_VALID != 0,
            gso_type,
            header_length: u16::from_ne_bytes([l0, l1]),
            gso_size: u16::from_ne_bytes([s0, s1]),
            checksum_start: u16::from_ne_bytes([c0, c1]),
            checksum_offset: u16::from_ne_bytes([o0, o1]),
            tunnel: None,
        }
    }

    /// Encodes the header as the kernel reads it, without the tunnel.
    #[must_use]
    pub const fn encode(&self) -> [u8; Self::ENCODED] {
        let mut flags = 0;
        if self.needs_checksum {
            flags |= Self::NEEDS_CSUM;
        }
        if self.data_valid {
            flags |= Self::DATA_VALID;
        }
        let [l0, l1] = self.header_length.to_ne_bytes();
        let [s0, s1] = self.gso_size.to_ne_bytes();
        let [c0, c1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [flags, self.gso_type, l0, l1, s0, s1, c0, c1, o0, o1]
    }

    /// Encodes the header of `frame` with the offsets of its tunnel.
    ///
    /// The number of buffers and the hash are 0, because only receivers of guests read them.
    /// `None` if the headers of the tunnel are not in the frame.
    #[must_use]
    pub fn encode_with_tunnel(&self, frame: &[u8]) -> Option<[u8; Self::ENCODED_WITH_TUNNEL]> {
        let mut bytes = [0; Self::ENCODED_WITH_TUNNEL];
        if let Some(own) = bytes.first_chunk_mut() {
            *own = self.encode();
        }
        if let Some(tunnel) = self.tunnel {
            let headers = segment::Headers::parse(frame, self)?.tunnel_offsets()?;
            let [flags, gso_type, .., outer0, outer1, inner0, inner1] = &mut bytes;
            match tunnel {
                UdpTunnel::Unchecked => {}
                UdpTunnel::Checked => *flags |= Self::UDP_TUNNEL_CSUM,
            }
            *gso_type |= match headers.outer_kind {
                segment::NetworkKind::Ipv4 => Self::GSO_UDP_TUNNEL_IPV4,
                segment::NetworkKind::Ipv6 => Self::GSO_UDP_TUNNEL_IPV6,
            };
            [*outer0, *outer1] = u16::try_from(headers.outer_transport).ok()?.to_le_bytes();
            [*inner0, *inner1] = u16::try_from(headers.inner_network).ok()?.to_le_bytes();
        }
        Some(bytes)
    }

    /// Encodes the header and the number of buffers for a guest (little-endian).
    /// The number of buffers is always 0: the queue sets it.
    ///
    /// The fields are joined in a register. The queue copies the header at once, and fields in
    /// memory would delay the copy until all of them are written.
    #[inline]
    #[must_use]
    pub fn encode_for_guest(&self) -> [u8; Self::ENCODED_WITH_BUFFERS] {
        let mut flags = 0;
        if self.needs_checksum {
            flags |= Self::NEEDS_CSUM;
        }
        if self.data_valid {
            flags |= Self::DATA_VALID;
        }
        let word = u128::from(flags)
            | u128::from(self.gso_type) << 8
            | u128::from(self.header_length) << 16
            | u128::from(self.gso_size) << 32
            | u128::from(self.checksum_start) << 48
            | u128::from(self.checksum_offset) << 64;
        let mut bytes = [0; Self::ENCODED_WITH_BUFFERS];
        let word = word.to_le_bytes();
        bytes.copy_from_slice(word.split_at(Self::ENCODED_WITH_BUFFERS).0);
        bytes
    }

    /// Decodes and checks the header that was received with `frame`.
    ///
    /// A tunnel around the packet is found in the frame. Only a TAP reports tunnels, while packet
    /// sockets report the packet in the tunnel alone.
    ///
    /// Fields of a step that is not due are cleared. `header_length` is only a hint, and senders
    /// write arbitrary values into it, so it is replaced by the length of the parsed headers. These
    /// headers are parsed again for the flow key, but only packets of up to 64 KiB that must still
    /// be segmented need the first parse.
    ///
    /// # Errors
    ///
    /// If the header contradicts the frame.
    pub fn receive(bytes: [u8; Self::ENCODED], frame: &[u8]) -> Result<Self, VirtioHeaderError> {
        let mut virtio = Self::decode(bytes);
        if virtio.needs_checksum {
            let (start, offset) = (virtio.checksum_start, virtio.checksum_offset);
            if usize::from(start).saturating_add(offset.into()).saturating_add(2) > frame.len() {
                return Err(VirtioHeaderError::ChecksumOutside {
                    start,
                    offset,
                    length: frame.len(),
                });
            }
        } else {
            (virtio.checksum_start, virtio.checksum_offset) = (0, 0);
        }
        if virtio.is_segmented() {
            let headers = virtio.checked_headers(frame)?;
            virtio.header_length =
                u16::try_from(headers.length()).map_err(|_| VirtioHeaderError::Protocol)?;
            virtio.gso_type &= !Self::GSO_UDP_TUNNEL;
            virtio.tunnel = headers.tunnel();
        } else {
            (virtio.header_length, virtio.gso_size) = (0, 0);
        }
        Ok(virtio)
    }

    /// Returns the headers that each segment of `frame` will repeat.
    fn checked_headers(&self, frame: &[u8]) -> Result<segment::Headers, VirtioHeaderError> {
        match self.inner_gso_type() {
            Self::GSO_TCPV4 | Self::GSO_TCPV6 | Self::GSO_UDP_L4 => {}
            _ => return Err(VirtioHeaderError::UnknownSegmentation(self.gso_type)),
        }
        if self.gso_size == 0 || usize::from(self.gso_size) > frame.len() {
            return Err(VirtioHeaderError::SegmentSize {
                size: self.gso_size,
                length: frame.len(),
            });
        }
        if !self.needs_checksum && !self.data_valid {
            return Err(VirtioHeaderError::Unverified);
        }
        let headers = segment::Headers::parse(frame, self).ok_or(VirtioHeaderError::Protocol)?;
        let (start, offset) = headers.checksum();
        let due = (usize::from(self.checksum_start), usize::from(self.checksum_offset));
        let names_tunnel = self.gso_type & Self::GSO_UDP_TUNNEL != 0;
        if self.needs_checksum && due != (start, offset)
            || names_tunnel && headers.tunnel().is_none()
        {
            return Err(VirtioHeaderError::Protocol);
        }
        Ok(headers)
    }

    /// Completes the checksums of `frame` as one packet without segments.
    pub(crate) fn complete_checksums(&self, frame: &mut [u8]) {
        if !self.needs_checksum {
            return;
        }
        complete_checksum(frame, self.checksum_start.into(), self.checksum_offset.into());
        // The checksum of the tunnel covers the other checksum.
        if self.tunnel == Some(UdpTunnel::Checked)
            && let Some(headers) = segment::Headers::parse(frame, self)
            && let Some(offsets) = headers.tunnel_offsets()
        {
            complete_checksum(frame, offsets.outer_transport, segment::UDP_CHECKSUM);
        }
    }

    /// Adjusts the offsets to a frame that now begins `count` bytes earlier.
    pub(crate) const fn moved_back(&mut self, count: u16) {
        if self.needs_checksum {
            self.checksum_start = self.checksum_start.saturating_add(count);
        }
        if self.is_segmented() {
            self.header_length = self.header_length.saturating_add(count);
        }
    }

    /// Adjusts the offsets to a frame that now begins `count` bytes later.
    pub(crate) fn moved_forward(&mut self, count: usize) {
        let moved = |offset: u16| {
            usize::from(offset).checked_sub(count).and_then(|o| u16::try_from(o).ok())
        };
        if self.needs_checksum {
            match moved(self.checksum_start) {
                Some(start) => self.checksum_start = start,
                None => *self = Self { data_valid: self.data_valid, ..Self::default() },
            }
        }
        if self.is_segmented() {
            match moved(self.header_length) {
                Some(length) => self.header_length = length,
                None => *self = Self { data_valid: self.data_valid, ..Self::default() },
            }
        }
    }
}

/// Reason why a port cannot send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// The packet, or one segment of it, is longer than the port's limit.
    #[error("a frame of {length} bytes is too long for the port, which sends at most {max} bytes")]
    MtuExceeded {
        /// Length of the packet on the wire, in bytes.
        length: usize,
        /// The maximum frame length of the port (`frame_max`).
        max: usize,
    },
    /// The packet could not be segmented.
    #[error(transparent)]
    Segment(#[from] segment::SegmentError),
}

/// Appends to `out` the packets that a port of these capabilities can send.
///
/// The frames are the packet itself, with a complete checksum if the port cannot compute it, or the
/// segments of the packet.
///
/// # Errors
///
/// If the port cannot send the packet. Nothing is appended then, and the buffer is back in the
/// pool.
pub fn finish(
    mut packet: Packet,
    port: &Capabilities,
    pool: &mut Pool,
    out: &mut Vec<Packet>,
) -> Result<(), Unsendable> {
    let length = packet.wire_len();
    if length > port.frame_max {
        pool.put_back(packet);
        return Err(Unsendable::MtuExceeded { length, max: port.frame_max });
    }
    let is_made_here =
        |packet: &Packet| !port.segments(&packet.virtio) || segment::is_labelled(packet.frame());
    if packet.virtio.is_segmented() && is_made_here(&packet) {
        let made = segment::segment(&packet, pool, out);
        pool.put_back(packet);
        made?;
        return Ok(());
    }
    if packet.virtio.needs_checksum && !port.tx_checksum {
        let VirtioHeader { checksum_start, checksum_offset, .. } = packet.virtio;
        complete_checksum(packet.frame_mut(), checksum_start.into(), checksum_offset.into());
        packet.virtio.needs_checksum = false;
        (packet.virtio.checksum_start, packet.virtio.checksum_offset) = (0, 0);
    }
    out.push(packet);
    Ok(())
}

/// Completes a transport checksum of which only the pseudo-header is summed up.
///
/// Adds all bytes from `start` on and stores the complement at `start + offset`. A checksum of 0 is
/// stored as 0xffff, because 0 means no checksum in UDP (RFC 768).
///
/// Does nothing if the checksum would lie outside the frame.
pub fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let Some(part) = frame.get_mut(start..) else { return };
    let checksum = match !folded(sum(part)) {
        0 => u16::MAX,
        checksum => checksum,
    };
    if let Some(place) = offset.checked_add(2).and_then(|end| part.get_mut(offset..end)) {
        place.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns the one's complement sum of 16-bit words, not yet folded (RFC 1071).
///
/// The last word is padded with zero. The function may add words of 32 bits, because 2^16 equals 1
/// in one's complement arithmetic.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let total: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    for (byte, own) in last.iter_mut().zip(rest) {
        *byte = *own;
    }
    total.wrapping_add(u64::from(u32::from_be_bytes(last)))
}

/// Folds a sum into 16 bits, with the carries added back in.
pub(crate) const fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the loop ends at 16 bits")]
    {
        sum as u16
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates the metadata of a packet.
    fn offloads() -> impl Strategy<Value = VirtioHeader> {
        any::<(bool, bool, u8, u16, u16, u16, u16)>().prop_map(
            |(needs_checksum, data_valid, gso_type, gso_size, header_length, start, offset)| {
                VirtioHeader {
                    needs_checksum,
                    data_valid,
                    gso_type,
                    gso_size,
                    header_length,
                    checksum_start: start,
                    checksum_offset: offset,
                    tunnel: None,
                }
            },
        )
    }

    /// Computes RFC 1071 word by word.
    fn slow_sum(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0));
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
        u16::try_from(sum).unwrap()
    }

    proptest! {
        #[test]
        fn a_descriptor_round_trips_through_its_encoding(virtio in offloads()) {
            prop_assert_eq!(VirtioHeader::decode(virtio.encode()), virtio);
            let for_tap = virtio.encode_with_tunnel(&[]).unwrap();
            prop_assert_eq!(&for_tap[..10], &virtio.encode()[..]);
            prop_assert_eq!(&for_tap[10..], &[0; 14][..]);
            #[cfg(target_endian = "little")]
            prop_assert_eq!(&virtio.encode_for_guest()[..], &for_tap[..12]);
        }

        #[test]
        fn a_completed_checksum_sums_to_ones(
            mut bytes in prop::collection::vec(any::<u8>(), 2..200), at in any::<prop::sample::Index>(),
        ) {
            let offset = at.index(bytes.len() / 2) * 2;
            let before = slow_sum(&bytes);
            complete_checksum(&mut bytes, 0, offset);
            let stored = u16::from_be_bytes([bytes[offset], bytes[offset + 1]]);
            prop_assert_ne!(stored, 0);
            // `before` is the sum of the pseudo-header: its sum with the result has only one bits.
            let all = u32::from(before) + u32::from(stored);
            prop_assert!(all == 0xffff || all == 2 * 0xffff, "{before:#x} {stored:#x}");
        }

        #[test]
        fn an_accepted_checksum_is_inside_the_frame(
            virtio in offloads(), frame in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(taken) = VirtioHeader::receive(virtio.encode(), &frame) {
                let end = usize::from(taken.checksum_start) + usize::from(taken.checksum_offset) + 2;
                prop_assert!(!taken.needs_checksum || end <= frame.len());
                prop_assert!(!taken.is_segmented() || usize::from(taken.header_length) < frame.len());
            }
        }
    }

    #[test]
    fn a_descriptor_that_contradicts_its_frame_is_refused() {
        let plain = VirtioHeader::default();
        let partial =
            VirtioHeader { needs_checksum: true, checksum_start: 50, checksum_offset: 8, ..plain };
        let gso = VirtioHeader {
            data_valid: true,
            gso_type: VirtioHeader::GSO_TCPV4,
            gso_size: 1,
            ..plain
        };
        let cases = [
            (plain, Ok(plain)),
            (partial, Ok(partial)),
            (
                VirtioHeader { checksum_offset: 9, ..partial },
                Err(VirtioHeaderError::ChecksumOutside { start: 50, offset: 9, length: 60 }),
            ),
            (VirtioHeader { gso_type: 3, ..gso }, Err(VirtioHeaderError::UnknownSegmentation(3))),
            (
                VirtioHeader { gso_size: 0, ..gso },
                Err(VirtioHeaderError::SegmentSize { size: 0, length: 60 }),
            ),
            (
                VirtioHeader { gso_size: 61, ..gso },
                Err(VirtioHeaderError::SegmentSize { size: 61, length: 60 }),
            ),
            (VirtioHeader { data_valid: false, ..gso }, Err(VirtioHeaderError::Unverified)),
            (gso, Err(VirtioHeaderError::Protocol)),
        ];
        for (virtio, expected) in cases {
            assert_eq!(VirtioHeader::receive(virtio.encode(), &[0; 60]), expected, "{virtio:?}");
        }
    }
}
