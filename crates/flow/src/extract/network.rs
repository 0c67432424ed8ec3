//! IPv4, IPv6 and ARP (RFC 791, RFC 8200, RFC 826).

use super::{extension::ExtensionSet, frame::Parser, link::MAC};
use crate::{
    Layers,
    bytes::{be16, be32, be64},
    layers::Route,
    layout::word,
};

/// Maximum number of bytes that may follow an IP packet in its frame.
const PADDING_MAX: usize = 0xffff;

/// An IP packet with its addresses already in the key.
pub(super) struct IpHeader {
    /// Offset of the packet in the frame.
    pub(super) offset: usize,
    /// The destination: final, or a hop of a routing header.
    pub(super) route: Route,
    /// Other fields of the IP header; `None` if an extension header is cut short.
    pub(super) ip_fields: Option<IpFields>,
}

/// Fields of an IP header that share a word.
#[derive(Clone, Copy)]
pub(super) struct IpFields {
    /// The IPv6 flow label.
    pub(super) label: u32,
    /// The fragment state of the packet.
    pub(super) fragment: Fragment,
    /// The TTL or hop limit.
    pub(super) ttl: u8,
    /// The TOS byte or traffic class.
    pub(super) tos: u8,
    /// The protocol above IP.
    pub(super) protocol: u8,
}

/// The values of `nw_frag`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Fragment {
    /// The packet is not a fragment.
    No = 0,
    /// The fragment at offset zero.
    First = 1,
    /// A fragment at another offset.
    Later = 3,
}

impl IpFields {
    /// Returns the fields as a word of the key.
    pub(super) const fn word(self) -> u64 {
        (self.label as u64) << 44
            | (self.fragment as u64) << 32
            | (self.ttl as u64) << 24
            | (self.tos as u64) << 16
            | self.protocol as u64
    }
}

impl Parser<'_> {
    /// Parses an IPv4 header.
    pub(super) fn ipv4(&mut self) -> Option<IpHeader> {
        let header: &[u8; 20] = self.peek()?;
        let header_length = usize::from(header[0] & 0x0f) * 4;
        let total_length = usize::from(be16::<2, _>(header));
        if header_length < header.len() || header_length > total_length {
            return None;
        }
        let offset = self.offset();
        self.cut(total_length)?;
        self.skip(header_length)?;
        self.set::<{ word::IPV4 }>(be64::<12, _>(header));
        let fragment = match be16::<6, _>(header) & 0x3fff {
            0 => Fragment::No,
            0x2000 => Fragment::First,
            _ => Fragment::Later,
        };
        let (tos, ttl, protocol) = (header[1], header[8], header[9]);
        let ip_fields = IpFields { label: 0, fragment, ttl, tos, protocol };
        Some(IpHeader { offset, route: Route::Final, ip_fields: Some(ip_fields) })
    }

    /// Parses an IPv6 header with its extension headers.
    pub(super) fn ipv6(&mut self) -> Option<IpHeader> {
        let offset = self.offset();
        let header: &[u8; 40] = self.take()?;
        self.cut(usize::from(be16::<4, _>(header)))?;
        self.set::<{ word::IPV6_SRC }>(be64::<8, _>(header));
        self.set::<{ word::IPV6_SRC + 1 }>(be64::<16, _>(header));
        self.set::<{ word::IPV6_DST }>(be64::<24, _>(header));
        self.set::<{ word::IPV6_DST + 1 }>(be64::<32, _>(header));
        let [first, second, third, fourth, _, _, protocol, ttl, ..] = *header;
        let ip_fields = IpFields {
            label: u32::from_be_bytes([0, second & 0x0f, third, fourth]),
            fragment: Fragment::No,
            ttl,
            tos: first << 4 | second >> 4,
            protocol,
        };
        Some(if ExtensionSet::has_bit(protocol) {
            self.extensions(offset, ip_fields)
        } else {
            IpHeader { offset, route: Route::Final, ip_fields: Some(ip_fields) }
        })
    }

    /// Parses the extension headers; the last one names the protocol after them.
    #[inline(never)] // Most packets have no extension header.
    fn extensions(&mut self, offset: usize, mut ip_fields: IpFields) -> IpHeader {
        let mut seen = ExtensionSet::default();
        let mut route = Route::Final;
        while ip_fields.fragment != Fragment::Later && seen.add(ip_fields.protocol) {
            match self.extension(&mut ip_fields) {
                None => return IpHeader { offset, route, ip_fields: None },
                Some(Route::Via) => route = Route::Via,
                Some(Route::Final) => {}
            }
        }
        self.set::<{ word::ARP_SHA }>(seen.bits());
        IpHeader { offset, route, ip_fields: Some(ip_fields) }
    }

    /// Parses one extension header; each has at least eight bytes.
    fn extension(&mut self, ip_fields: &mut IpFields) -> Option<Route> {
        let [next, length, third, fourth, ..]: [u8; 8] = *self.peek()?;
        let mut route = Route::Final;
        match ip_fields.protocol {
            ExtensionSet::AUTHENTICATION => self.skip(octets(length, 2, 4))?,
            ExtensionSet::FRAGMENT => {
                self.skip(8)?;
                match u16::from_be_bytes([third, fourth]) {
                    0 => {}
                    1..8 => ip_fields.fragment = Fragment::First,
                    8.. => {
                        // A later fragment has no header after the fragment header. As in Open
                        // vSwitch, its protocol is the number of the fragment header.
                        ip_fields.fragment = Fragment::Later;
                        return Some(route);
                    }
                }
            }
            ExtensionSet::ROUTING => {
                self.skip(octets(length, 1, 8))?;
                route = if fourth > 0 { Route::Via } else { Route::Final };
            }
            _ => self.skip(octets(length, 1, 8))?,
        }
        ip_fields.protocol = next;
        Some(route)
    }

    /// Ends the packet after `length` more bytes; the bytes after the end are padding.
    fn cut(&mut self, length: usize) -> Option<()> {
        let padding = self.rest.len().checked_sub(length)?;
        if padding > PADDING_MAX {
            return None;
        }
        self.drop_last(padding)
    }

    /// Parses an ARP packet.
    pub(super) fn arp(&mut self) -> Option<Layers> {
        let offset = self.offset();
        let packet: &[u8; 28] = self.take()?;
        let [0, 1, 0x08, 0x00, 6, 4, operation_high, operation_low, ..] = *packet else {
            return None;
        };
        if operation_high == 0 {
            self.set::<{ word::IP_MISC }>(u64::from(operation_low));
        }
        self.set::<{ word::ARP_SHA }>(be64::<8, _>(packet) & MAC);
        self.set::<{ word::IPV4 }>(
            u64::from(be32::<14, _>(packet)) << 32 | u64::from(be32::<24, _>(packet)),
        );
        self.set::<{ word::ARP_THA }>(be64::<18, _>(packet) & MAC);
        Some(Layers::with_network(offset))
    }
}

/// Returns the length in bytes of a header, from its length field.
/// The field counts units of `unit` bytes, without the first `less` units.
#[expect(clippy::arithmetic_side_effects, reason = "the result of three bytes is small")]
fn octets(field: u8, less: u8, unit: u8) -> usize {
    (usize::from(field) + usize::from(less)) * usize::from(unit)
}
