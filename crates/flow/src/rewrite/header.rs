//! Setting header fields: each word of the key is written into the bytes that it came from.

use super::{
    transport::{ChecksumState, TransportHeader},
    writer::{WrittenBits, replace, update},
};
use crate::{
    FieldId, FlowKey, Layers, Match,
    checksum::ChecksumDifference,
    extract::{SOURCE_OPTION, TARGET_OPTION},
    layers::Route,
    layout::word,
};

/// Writes the header bits of `set` into `frame`.
/// Updates the checksums and `key`.
///
/// `layers` and `key` are the result of extraction, updated by every rewrite since. `set` has
/// writable fields. Other bits of `set`, such as `ip_proto`, change only the key.
///
/// The key takes the bits of `set` even if the frame has no room for them, as the translation
/// assumed. For a whole packet, the key afterwards equals the result of extraction. Two headers are
/// exceptions: a header that is cut short, and the fields that exist only under the old or the new
/// ICMPv6 type.
///
/// The present bit of a VLAN tag is not on the wire: [`push_vlan`] and [`pop_vlan`] add and remove
/// tags.
///
/// [`push_vlan`]: super::push_vlan
/// [`pop_vlan`]: super::pop_vlan
pub fn set_header(
    frame: &mut [u8],
    layers: &Layers,
    key: &mut FlowKey,
    set: &Match,
    checksum: ChecksumState,
) {
    let mut headers = FrameHeaders::new(frame, layers, key);
    for ((index, mask), value) in set.mask().iter().zip(set.value()) {
        let bits = WrittenBits { mask, value: *value };
        headers.set_word(index, bits);
        if let Some(word) = key.words_mut().get_mut(index) {
            *word = bits.write(*word);
        }
    }
    headers.update_checksums(checksum);
}

/// The headers of one frame while they are written.
struct FrameHeaders<'a> {
    /// The bytes of the frame.
    frame: &'a mut [u8],
    /// The state of the outermost VLAN tag.
    tag: TagPresence,
    /// Offset of the outermost MPLS label, if there is one.
    mpls: Option<usize>,
    /// The network header with its offset.
    network: NetworkHeader,
    /// The transport header, if the frame has a complete one.
    transport: Option<TransportHeader>,
    /// The destination: final, or a hop of a routing header.
    route: Route,
    /// The change of the IPv4 header.
    ip_header: ChecksumDifference,
    /// The change of the pseudo-header of the transport checksum.
    pseudo_header: ChecksumDifference,
}

/// Returns whether the `EtherType` of a packet is MPLS.
fn is_mpls(key: &FlowKey) -> bool {
    matches!(key.field(FieldId::EthType), 0x8847 | 0x8848)
}

/// The outermost tag of a frame: VLAN or none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagPresence {
    Absent,
    Present,
}

/// The network header, and its offset.
#[derive(Clone, Copy)]
pub(super) enum NetworkHeader {
    Absent,
    Ipv4(usize),
    Ipv6(usize),
    Arp(usize),
    Service(usize),
}

impl NetworkHeader {
    /// Returns the network header of a parsed frame.
    fn new(layers: &Layers, key: &FlowKey) -> Self {
        match (layers.network(), key.field(FieldId::EthType)) {
            (Some(offset), 0x0800) => Self::Ipv4(offset),
            (Some(offset), 0x86dd) => Self::Ipv6(offset),
            (Some(offset), 0x0806 | 0x8035) => Self::Arp(offset),
            (Some(offset), 0x894f) => Self::Service(offset),
            _ => Self::Absent,
        }
    }
}

impl<'a> FrameHeaders<'a> {
    /// Creates the headers of a parsed frame.
    fn new(frame: &'a mut [u8], layers: &Layers, key: &FlowKey) -> Self {
        let tagged = key.field(FieldId::VlanTci) & 0x1000 != 0;
        let network = NetworkHeader::new(layers, key);
        Self {
            frame,
            tag: if tagged { TagPresence::Present } else { TagPresence::Absent },
            mpls: layers.payload().filter(|_| is_mpls(key)),
            network,
            transport: TransportHeader::new(network, layers, key),
            route: layers.route(),
            ip_header: ChecksumDifference::default(),
            pseudo_header: ChecksumDifference::default(),
        }
    }

    /// Writes the bits of one word of the key that are in the frame.
    fn set_word(&mut self, index: usize, bits: WrittenBits) {
        /// The word with the lower half of the IPv6 source address.
        const IPV6_SRC_LOW: u8 = word::IPV6_SRC + 1;
        /// The word with the lower half of the IPv6 destination address.
        const IPV6_DST_LOW: u8 = word::IPV6_DST + 1;
        /// The word with the lower half of the neighbour discovery target.
        const ND_TARGET_LOW: u8 = word::ND_TARGET + 1;
        let Ok(index) = u8::try_from(index) else { return };
        if let NetworkHeader::Service(header) = self.network
            && index > word::MPLS_PBB
        {
            return self.service(header, index, bits);
        }
        match index {
            word::ETH_DST => self.link::<6>(0, bits.part(16, 48)),
            word::ETH_SRC => self.link::<6>(6, bits.part(16, 48)),
            word::VLAN => self.tag(bits.part(32, 16)),
            word::MPLS => self.label(bits.part(32, 32)),
            word::IPV4 => self.ipv4_addresses(bits),
            word::IPV6_SRC => self.ipv6_address(8, bits),
            IPV6_SRC_LOW => self.ipv6_address(16, bits),
            word::IPV6_DST => self.ipv6_address(24, bits),
            IPV6_DST_LOW => self.ipv6_address(32, bits),
            word::IP_MISC => self.misc(bits),
            word::ND_TARGET => self.target(8, bits),
            ND_TARGET_LOW => self.target(16, bits),
            word::ARP_SHA => self.hardware(8, SOURCE_OPTION, bits.part(16, 48)),
            word::ARP_THA => self.hardware(18, TARGET_OPTION, bits.part(16, 48)),
            word::TRANSPORT => self.first(bits),
            _ => {}
        }
    }

    /// Rewrites a field of the Ethernet header, which no checksum covers.
    fn link<const N: usize>(&mut self, offset: usize, bits: WrittenBits) {
        replace::<N>(self.frame, 0, offset, bits);
    }

    /// Writes priority and id of the outermost tag; its drop-eligible bit stays.
    fn tag(&mut self, bits: WrittenBits) {
        /// The bit of the key that is set if there is a tag.
        const TAG_PRESENT: u64 = 0x1000;
        if self.tag == TagPresence::Present {
            self.link::<2>(14, WrittenBits { mask: bits.mask & !TAG_PRESENT, ..bits });
        }
    }

    /// Writes label, traffic class and TTL of the outermost entry.
    /// The bottom-of-stack bit stays.
    fn label(&mut self, bits: WrittenBits) {
        /// The bottom-of-stack bit of a label stack entry.
        const BOTTOM: u64 = 0x100;
        if let Some(offset) = self.mpls {
            replace::<4>(self.frame, offset, 0, WrittenBits { mask: bits.mask & !BOTTOM, ..bits });
        }
    }

    /// Rewrites the IPv4 addresses, or the addresses in an ARP packet.
    fn ipv4_addresses(&mut self, bits: WrittenBits) {
        match self.network {
            NetworkHeader::Ipv4(header) => {
                let change = replace::<8>(self.frame, header, 12, bits);
                self.ip_header.combine(change.into());
                self.pseudo_header.combine(change.into());
            }
            NetworkHeader::Arp(header) => {
                replace::<4>(self.frame, header, 14, bits.part(32, 32));
                replace::<4>(self.frame, header, 24, bits.part(0, 32));
            }
            NetworkHeader::Ipv6(_) | NetworkHeader::Service(_) | NetworkHeader::Absent => {}
        }
    }

    /// Writes half of an IPv6 address: the eight bytes at `offset` of the header.
    fn ipv6_address(&mut self, offset: usize, bits: WrittenBits) {
        let NetworkHeader::Ipv6(header) = self.network else { return };
        let change = replace::<8>(self.frame, header, offset, bits);
        let is_destination = offset >= 24;
        if !(is_destination && self.route == Route::Via) {
            self.pseudo_header.combine(change.into());
        }
    }

    /// Writes ToS, TTL and flow label, or the operation of ARP.
    fn misc(&mut self, bits: WrittenBits) {
        let (tos, ttl, label) = (bits.part(16, 8), bits.part(24, 8), bits.part(44, 20));
        match self.network {
            NetworkHeader::Ipv4(header) => {
                let tos = replace::<2>(self.frame, header, 0, tos);
                let ttl = replace::<2>(self.frame, header, 8, ttl.joined(8, WrittenBits::NONE));
                self.ip_header.combine(tos.into());
                self.ip_header.combine(ttl.into());
            }
            NetworkHeader::Ipv6(header) => {
                replace::<4>(self.frame, header, 0, tos.joined(20, label));
                replace::<1>(self.frame, header, 7, ttl);
            }
            NetworkHeader::Arp(header) => {
                replace::<2>(self.frame, header, 6, bits.part(0, 16));
            }
            NetworkHeader::Service(_) | NetworkHeader::Absent => {}
        }
    }

    /// Writes flags, TTL and path of a service header (NSH), or its fixed context.
    fn service(&mut self, header: usize, index: u8, bits: WrittenBits) {
        /// Metadata type of a header with a fixed-length context.
        const FIXED_CONTEXT: u8 = 1;
        let kind = header.checked_add(2).and_then(|at| self.frame.get(at)).copied();
        match (index, kind) {
            (word::NSH, _) => {
                let (flags, ttl) = (bits.part(56, 2), bits.part(48, 6));
                let flags_and_ttl = flags.joined(12, ttl.joined(6, WrittenBits::NONE));
                replace::<2>(self.frame, header, 0, flags_and_ttl);
                replace::<4>(self.frame, header, 4, bits.part(0, 32));
            }
            (word::NSH_CONTEXT_1, Some(FIXED_CONTEXT)) => {
                replace::<8>(self.frame, header, 8, bits);
            }
            (word::NSH_CONTEXT_3, Some(FIXED_CONTEXT)) => {
                replace::<8>(self.frame, header, 16, bits);
            }
            _ => {}
        }
    }

    /// Writes a hardware address of ARP or of neighbour discovery.
    /// The address is at `offset` of ARP, or in the neighbour discovery option `option`.
    fn hardware(&mut self, offset: usize, option: u8, bits: WrittenBits) {
        if let NetworkHeader::Arp(header) = self.network {
            replace::<6>(self.frame, header, offset, bits);
        } else if let Some(transport) = &mut self.transport {
            transport.set_option(self.frame, option, bits);
        }
    }

    /// Writes the eight bytes at `offset` of a neighbour discovery message.
    fn target(&mut self, offset: usize, bits: WrittenBits) {
        if let Some(transport) = &mut self.transport {
            transport.set_target(self.frame, offset, bits);
        }
    }

    /// Writes ports, or ICMP type and code.
    fn first(&mut self, bits: WrittenBits) {
        if let Some(transport) = &mut self.transport {
            transport.set_first(self.frame, bits);
        }
    }

    /// Updates the checksums for the words that were written.
    fn update_checksums(&mut self, state: ChecksumState) {
        if let NetworkHeader::Ipv4(header) = self.network {
            update(self.frame, header, 10, |checksum| self.ip_header.update(checksum));
        }
        if let Some(transport) = &self.transport {
            transport.update_checksum(self.frame, self.pseudo_header, state);
        }
    }
}
