//! Transport headers: ports, ICMP types, neighbour discovery, and the checksum over them.

use super::{
    header::NetworkHeader,
    writer::{WordChange, WrittenBits, replace, update},
};
use crate::{
    FieldId, FlowKey, Layers,
    checksum::{ChecksumDifference, crc32c_difference},
    extract::Options,
};

/// The content of the checksum field of a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// The checksum, as on a wire.
    Complete,
    /// The sum of the pseudo-header alone, not complemented (virtio's `NEEDS_CSUM`).
    ///
    /// The sum of header and payload is added when the packet is sent. Only a change of the
    /// pseudo-header changes the partial sum.
    Partial,
}

/// The transport header of a packet, and its changes.
pub(super) struct TransportHeader {
    /// The protocol: TCP, UDP, SCTP or ICMP.
    kind: TransportKind,
    /// Offset of the header in the frame.
    header: usize,
    /// Bytes from the header to the end of the packet.
    length: usize,
    /// The change of the checksum that is not written yet.
    change: ChecksumDifference,
    /// The change of the SCTP checksum that is not written yet.
    crc_change: u32,
}

/// Offset of the options of a neighbour discovery message.
const OPTIONS: usize = 24;

/// The transport header to rewrite.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TransportKind {
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
    /// ICMPv6 with a target address and options.
    Neighbour,
}

impl TransportHeader {
    /// Returns the transport header of the packet, if it is complete and has fields.
    pub(super) fn new(network: NetworkHeader, layers: &Layers, key: &FlowKey) -> Option<Self> {
        /// The bit of `nw_frag` that fragments after the first have.
        const LATER_FRAGMENT: u128 = 2;
        let header = layers.transport()?;
        let length = layers.end()?.checked_sub(header)?;
        if key.field(FieldId::NwFrag) & LATER_FRAGMENT != 0 {
            return None;
        }
        let (kind, length_min) = match (network, key.field(FieldId::IpProto)) {
            (NetworkHeader::Ipv4(_) | NetworkHeader::Ipv6(_), 6) => (TransportKind::Tcp, 20),
            (NetworkHeader::Ipv4(_) | NetworkHeader::Ipv6(_), 17) => (TransportKind::Udp, 8),
            (NetworkHeader::Ipv4(_) | NetworkHeader::Ipv6(_), 132) => (TransportKind::Sctp, 12),
            (NetworkHeader::Ipv4(_), 1) => (TransportKind::Icmp, 8),
            (NetworkHeader::Ipv6(_), 58) => (Self::icmpv6_kind(key), 8),
            _ => return None,
        };
        (length >= length_min).then_some(Self {
            kind,
            header,
            length,
            change: ChecksumDifference::default(),
            crc_change: 0,
        })
    }

    /// Returns the kind of an ICMPv6 packet.
    fn icmpv6_kind(key: &FlowKey) -> TransportKind {
        match (key.field(FieldId::Icmpv6Type), key.field(FieldId::Icmpv6Code)) {
            (135 | 136, 0) => TransportKind::Neighbour,
            _ => TransportKind::Icmpv6,
        }
    }

    /// Writes the first word of the transport header.
    /// The word holds the ports, or ICMP type and code, and the reserved word of neighbour
    /// discovery.
    pub(super) fn set_first(&mut self, frame: &mut [u8], bits: WrittenBits) {
        let ports = bits.part(32, 32);
        match self.kind {
            TransportKind::Tcp if !self.is_whole_tcp(frame) => {}
            TransportKind::Tcp | TransportKind::Udp => {
                let change = replace::<4>(frame, self.header, 0, ports);
                self.change.combine(change.into());
            }
            TransportKind::Sctp => {
                let change = replace::<4>(frame, self.header, 0, ports);
                self.crc_change ^= crc_change(change, self.length);
            }
            TransportKind::Icmp | TransportKind::Icmpv6 | TransportKind::Neighbour => {
                let type_and_code = bits.part(48, 8).joined(8, bits.part(32, 8));
                let change = replace::<2>(frame, self.header, 0, type_and_code);
                self.change.combine(change.into());
                if self.kind == TransportKind::Neighbour {
                    let change = replace::<4>(frame, self.header, 4, bits.part(0, 32));
                    self.change.combine(change.into());
                }
            }
        }
    }

    /// Writes eight bytes of the target address, at `offset` of the header.
    pub(super) fn set_target(&mut self, frame: &mut [u8], offset: usize, bits: WrittenBits) {
        if self.kind == TransportKind::Neighbour && self.length >= OPTIONS {
            let change = replace::<8>(frame, self.header, offset, bits);
            self.change.combine(change.into());
        }
    }

    /// Writes the link-layer address in the first option of type `kind`.
    pub(super) fn set_option(&mut self, frame: &mut [u8], kind: u8, bits: WrittenBits) {
        if self.kind != TransportKind::Neighbour {
            return;
        }
        let packet = frame.get(self.header..).and_then(|packet| packet.get(..self.length));
        let Some(options) = packet.and_then(|packet| packet.get(OPTIONS..)) else { return };
        let is_sought = |option: &(usize, &[u8; 8])| option.1.starts_with(&[kind, 1]);
        let Some((offset, _)) = Options::new(options).find(is_sought) else { return };
        let address = OPTIONS.saturating_add(offset).saturating_add(2);
        let change = replace::<6>(frame, self.header, address, bits);
        self.change.combine(change.into());
    }

    /// Updates the checksum for the changes.
    pub(super) fn update_checksum(
        &self,
        frame: &mut [u8],
        pseudo_header: ChecksumDifference,
        state: ChecksumState,
    ) {
        let offset = match self.kind {
            TransportKind::Tcp => 16,
            TransportKind::Udp => 6,
            TransportKind::Icmp | TransportKind::Icmpv6 | TransportKind::Neighbour => 2,
            TransportKind::Sctp => return self.update_crc(frame, state),
        };
        let mut change = if self.kind == TransportKind::Icmp {
            ChecksumDifference::default()
        } else {
            pseudo_header
        };
        match state {
            ChecksumState::Partial => {
                update(frame, self.header, offset, |sum| change.update_partial(sum));
            }
            ChecksumState::Complete => {
                change.combine(self.change);
                update(frame, self.header, offset, |checksum| match self.kind {
                    TransportKind::Udp => update_udp(checksum, change),
                    _ => change.update(checksum),
                });
            }
        }
    }

    /// Updates the CRC of an SCTP header.
    fn update_crc(&self, frame: &mut [u8], state: ChecksumState) {
        /// Offset of the checksum in an SCTP header.
        const CRC: usize = 8;
        let header = frame.get_mut(self.header..).and_then(|header| header.get_mut(CRC..));
        if state == ChecksumState::Complete
            && let Some(crc) = header.and_then(|crc| crc.first_chunk_mut())
        {
            *crc = (u32::from_le_bytes(*crc) ^ self.crc_change).to_le_bytes();
        }
    }

    /// Returns whether the TCP header with its options fits the packet.
    /// If the header does not fit, the key has no ports.
    fn is_whole_tcp(&self, frame: &[u8]) -> bool {
        /// Offset of the byte with the length of the TCP header.
        const DATA_OFFSET: usize = 12;
        let data_offset = frame.get(self.header..).and_then(|header| header.get(DATA_OFFSET));
        data_offset.is_some_and(|byte| (20..=self.length).contains(&(usize::from(byte >> 4) << 2)))
    }
}

/// Updates a UDP checksum.
///
/// Zero means that there is no checksum. A checksum that computes to zero is sent as 0xffff (RFC
/// 768).
const fn update_udp(checksum: u16, change: ChecksumDifference) -> u16 {
    match (checksum, change.update(checksum)) {
        (0, _) => 0,
        (_, 0) => 0xffff,
        (_, updated) => updated,
    }
}

/// Returns how a change of the first four bytes changes the CRC of a packet.
/// The packet has `length` bytes.
#[expect(clippy::cast_possible_truncation, reason = "four bytes were written")]
const fn crc_change(change: WordChange, length: usize) -> u32 {
    let (old, new) = ((change.old as u32).to_be_bytes(), (change.new as u32).to_be_bytes());
    crc32c_difference(old, new, length.saturating_sub(4))
}
