//! TCP, UDP, SCTP, ICMP and IGMP: the first bytes of the IP payload.

use super::{
    frame::Parser,
    network::{Fragment, IpHeader},
};
use crate::{
    Layers,
    bytes::{be16, be32},
    layout::word,
};

impl Parser<'_> {
    /// Parses the transport header, if the packet has all of it.
    pub(super) fn transport(&mut self, packet: &IpHeader) -> Layers {
        let layers = Layers::with_network(packet.offset);
        let Some(ip_fields) = packet.ip_fields else { return layers };
        let layers = layers.and_transport(self.offset(), self.end(), packet.route);
        self.set::<{ word::IP_MISC }>(ip_fields.word());
        if ip_fields.fragment == Fragment::Later {
            return layers;
        }
        let header = match ip_fields.protocol {
            6 => self.tcp(),
            17 => self.peek::<8>().map(|udp| u64::from(be32::<0, _>(udp)) << 32),
            132 => self.peek::<12>().map(|sctp| u64::from(be32::<0, _>(sctp)) << 32),
            1 | 2 => self.peek::<8>().map(|icmp| type_and_code(icmp[0], icmp[1])),
            58 => self.icmpv6(),
            _ => None,
        };
        self.set::<{ word::TRANSPORT }>(header.unwrap_or(0));
        layers
    }

    /// Returns the TCP ports and flags as a word of the key.
    fn tcp(&self) -> Option<u64> {
        let header: &[u8; 20] = self.peek()?;
        let data_offset = usize::from(header[12] >> 4) * 4;
        let is_whole = data_offset >= header.len() && data_offset <= self.rest.len();
        let flags = u64::from(be16::<12, _>(header)) & 0x0fff;
        is_whole.then_some(u64::from(be32::<0, _>(header)) << 32 | flags << 16)
    }

    /// Parses an ICMPv6 header, and the fields of neighbour discovery.
    fn icmpv6(&mut self) -> Option<u64> {
        let header: &[u8; 8] = self.take()?;
        let first = type_and_code(header[0], header[1]);
        if !matches!(header, [135 | 136, 0, ..]) {
            return Some(first);
        }
        let reserved = u64::from(be32::<4, _>(header));
        Some(first | u64::from(self.neighbour()) << 40 | reserved)
    }
}

/// Returns ICMP type and code, each in the low byte of a 16-bit port field.
fn type_and_code(kind: u8, code: u8) -> u64 {
    u64::from(kind) << 48 | u64::from(code) << 32
}
