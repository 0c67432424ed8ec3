//! The frames of a NIC: the parser, and the rewrite of headers.

use std::hash::{BuildHasher, Hasher};

use shunt_datapath::Packet;
use shunt_flow::{
    FieldId, FlowKey, FlowMask, Layers, Match,
    extract::{VlanLimit, extract},
    layout::word,
    rewrite::{pop_vlan, push_vlan, set_header},
};

/// The bit of the field `vlan_tci` that is set if the packet has a tag.
///
/// On the wire this bit is the drop-eligible bit.
const TCI_PRESENT: u16 = 0x1000;
/// The Ethernet type of a tagged frame.
const TPID: u16 = 0x8100;
/// Length of a tag.
const TAG_BYTES: usize = 4;
/// The offset of the TCI in a tagged frame, after the TPID.
const TCI_AT: usize = 14;

/// Parses the headers of a frame; `None` if the P4 program cannot parse it.
pub(crate) fn parse_frame(frame: &[u8], key: &mut FlowKey) -> Option<Layers> {
    let layers = extract(frame, VlanLimit::Two, key);
    let field = |id| key.field(id);
    let tag = field(FieldId::VlanTpid);
    let is_known_tag = (tag == 0 || tag == u128::from(TPID)) && field(FieldId::VlanTpid1) == 0;
    let ether_type = field(FieldId::EthType);
    let is_known = match ether_type {
        0x0800 => is_known_ipv4(frame, key, &layers),
        0x86dd => is_known_ipv6(frame, key, &layers),
        0x0806 | 0x8035 => {
            layers.network().and_then(|start| frame.get(start..)?.get(..ARP_BYTES)).is_some()
        }
        0x8100 | 0x88a8 | 0x894f => false,
        _ => true,
    };
    // An EtherType below 0x0600 is a length, and the type is in a SNAP header.
    let outer = outer_type(frame, tag != 0).filter(|number| *number >= 0x0600);
    let is_plain = outer.is_some_and(|number| u128::from(number) == ether_type);
    (is_known_tag && is_plain && is_known).then_some(layers)
}

/// Number of bytes of an ARP or RARP header for Ethernet and IPv4.
const ARP_BYTES: usize = 28;

/// Returns whether the P4 program parses an IPv4 packet to the same key.
fn is_known_ipv4(frame: &[u8], key: &FlowKey, layers: &Layers) -> bool {
    let network = layers.network().and_then(|start| frame.get(start));
    let is_later = key.field(FieldId::NwFrag) & LATER != 0;
    let protocol = key.field(FieldId::IpProto);
    network == Some(&0x45)
        && (is_later || !UNKNOWN_V4.contains(&protocol) && has_transport(frame, key, layers))
}

/// Returns whether the P4 program parses an IPv6 packet to the same key.
fn is_known_ipv6(frame: &[u8], key: &FlowKey, layers: &Layers) -> bool {
    let start = layers.network();
    let version = start.and_then(|start| frame.get(start)).map(|byte| byte >> 4);
    let protocol = start.and_then(|start| frame.get(start.checked_add(6)?));
    let is_plain = protocol.is_some_and(|number| !UNKNOWN_V6.contains(number));
    let is_discovery =
        protocol == Some(&58) && [135, 136].contains(&key.field(FieldId::Icmpv6Type));
    version == Some(6) && is_plain && !is_discovery && has_transport(frame, key, layers)
}

/// The bit of `nw_frag` that later fragments have, which have no transport header.
const LATER: u128 = 2;

/// IPv4 protocols that only the flow key has fields for: IGMP, SCTP and ICMPv6.
const UNKNOWN_V4: [u128; 3] = [2, 58, 132];

/// IPv6 extension headers, and protocols that only the flow key has fields for.
const UNKNOWN_V6: [u8; 9] = [0, 1, 2, 43, 44, 51, 60, 132, 135];

/// Returns the EtherType of a frame; for a tagged frame that after the VLAN tag.
fn outer_type(frame: &[u8], is_tagged: bool) -> Option<u16> {
    let start = if is_tagged { 16 } else { 12 };
    let bytes = frame.get(start..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Returns whether the packet has a complete transport header.
///
/// Without a transport header, the key of the packet has no ports, and the bytes at their offsets
/// are padding or missing.
fn has_transport(frame: &[u8], key: &FlowKey, layers: &Layers) -> bool {
    let bounds = layers.transport().zip(layers.end());
    let Some(header) = bounds.and_then(|(start, end)| frame.get(start..end)) else { return false };
    match key.field(FieldId::IpProto) {
        6 => header.get(TCP_DATA_OFFSET).is_some_and(|byte| {
            let length = usize::from(byte >> 4) * 4;
            length >= TCP_BYTES && length <= header.len()
        }),
        17 | 1 | 58 => header.len() >= UDP_BYTES,
        _ => true,
    }
}

/// Number of bytes of a TCP header without options.
const TCP_BYTES: usize = 20;
/// Position in the TCP header of the byte with the data offset field.
const TCP_DATA_OFFSET: usize = 12;

/// Number of bytes of a UDP or ICMP header.
const UDP_BYTES: usize = 8;

/// Returns a hash that is equal for all packets of a flow.
pub(crate) fn flow_hash(key: &FlowKey) -> u64 {
    // Only the first fragment has ports, so the hash of fragments has none.
    let ports = if key.field(FieldId::NwFrag) == 0 { PORTS } else { &[] };
    let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
    FLOW.iter().chain(ports).for_each(|field| hasher.write_u128(key.field(*field)));
    hasher.finish()
}

/// The fields that the hash of every flow covers.
const FLOW: &[FieldId] = &[
    FieldId::EthSrc,
    FieldId::EthDst,
    FieldId::Ipv4Src,
    FieldId::Ipv4Dst,
    FieldId::Ipv6Src,
    FieldId::Ipv6Dst,
    FieldId::IpProto,
];

/// The fields that the hash of a packet with ports covers too.
const PORTS: &[FieldId] = &[FieldId::TcpSrc, FieldId::TcpDst];

/// The header writes of a rule, prepared for frames.
///
/// A VLAN tag is pushed or popped after the other writes, because it moves the other headers.
#[derive(Clone, Debug)]
pub(crate) struct HeaderWrite {
    headers: Match,
    tag_bits: u16,
    tag: u16,
}

impl HeaderWrite {
    /// Prepares a rewrite for frames.
    pub(crate) fn of(rewrite: &Match) -> Self {
        if !rewrite.mask().map().contains(usize::from(word::VLAN)) {
            return Self { headers: rewrite.clone(), tag_bits: 0, tag: 0 };
        }
        let (key, mut mask) = (rewrite.key(), FlowMask::from(rewrite.mask()));
        let tag_bits = u16::try_from(mask.field(FieldId::VlanTci)).unwrap_or(0);
        if let Some(words) = mask.words_mut().get_mut(usize::from(word::VLAN)) {
            *words = 0;
        }
        Self { headers: Match::new(&key, &mask), tag_bits, tag: tci(&key) & tag_bits }
    }
}

/// Applies the header writes of the matched entries to a frame.
///
/// Returns false if the buffer has no room for a VLAN tag.
pub(crate) fn rewrite<'a>(
    packet: &mut Packet,
    layers: &Layers,
    key: &mut FlowKey,
    writes: impl Iterator<Item = &'a HeaderWrite>,
) -> bool {
    let checksum = packet.virtio.checksum_state(layers);
    let before = tci(key);
    let (mut tag, mut kept) = (before, TCI_PRESENT);
    for HeaderWrite { headers, tag_bits, tag: value } in writes {
        tag = tag & !tag_bits | value;
        kept &= tag;
        set_header(packet.frame_mut(), layers, key, headers, checksum);
    }
    match (before & TCI_PRESENT != 0, tag & TCI_PRESENT != 0) {
        (false, false) => true,
        (true, true) => {
            let rest = packet.frame_mut().get_mut(TCI_AT..);
            if let Some(bytes) = rest.and_then(|rest| rest.first_chunk_mut()) {
                // On the wire this bit is the drop-eligible bit, which no rule writes. A tag that
                // is popped and pushed again is a new tag, in which the bit is clear.
                let dropped_first = u16::from_be_bytes(*bytes) & kept;
                *bytes = (dropped_first | tag & !TCI_PRESENT).to_be_bytes();
            }
            true
        }
        (false, true) => {
            if !packet.push_front(TAG_BYTES) {
                return false;
            }
            push_vlan(packet.frame_mut(), TPID, tag & !TCI_PRESENT);
            true
        }
        (true, false) => {
            pop_vlan(packet.frame_mut());
            packet.pop_front(TAG_BYTES);
            true
        }
    }
}

/// Returns the TCI of the outer VLAN tag.
fn tci(key: &FlowKey) -> u16 {
    u16::try_from(key.field(FieldId::VlanTci)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shunt_datapath::Pool;
    use shunt_flow::testing::PacketBuilder;
    use shunt_pipeline::DatapathPort;

    use super::*;

    /// The headers of a packet that the program parses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct TestHeaders {
        macs: [[u8; 6]; 2],
        tag: Option<u16>,
        network: AddressPair,
        tos: u8,
        ttl: u8,
        protocol: TestProtocol,
        ports: [u16; 2],
    }

    /// The source and destination address of a test packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum AddressPair {
        V4([[u8; 4]; 2]),
        V6([[u8; 16]; 2]),
    }

    /// The transport protocol of a test packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum TestProtocol {
        Tcp,
        Udp,
        Other,
    }

    impl TestHeaders {
        /// Builds a frame with these headers.
        fn frame(&self) -> Vec<u8> {
            let [source, destination] = self.ports;
            let packet = match self.network {
                AddressPair::V4([source, destination]) => PacketBuilder::ipv4(source, destination),
                AddressPair::V6([source, destination]) => PacketBuilder::ipv6(source, destination),
            };
            let packet = packet.macs(self.macs[0], self.macs[1]).tos(self.tos).ttl(self.ttl);
            let packet = match self.tag {
                Some(tci) => packet.tag(TPID, tci),
                None => packet,
            };
            let packet = match self.protocol {
                TestProtocol::Tcp => packet.tcp(source, destination),
                TestProtocol::Udp => packet.udp(source, destination),
                TestProtocol::Other => packet,
            };
            let mut frame = packet.payload(*b"twelve bytes").build();
            if let Some(tci) = self.tag {
                // The packet builder does not write the drop-eligible bit.
                frame[TCI_AT..TCI_AT + 2].copy_from_slice(&tci.to_be_bytes());
            }
            frame
        }
    }

    /// Generates the headers of a packet.
    fn headers() -> impl Strategy<Value = TestHeaders> {
        let network = prop_oneof![
            any::<[[u8; 4]; 2]>().prop_map(AddressPair::V4),
            any::<[[u8; 16]; 2]>().prop_map(AddressPair::V6),
        ];
        let protocol =
            prop::sample::select(&[TestProtocol::Tcp, TestProtocol::Udp, TestProtocol::Other][..]);
        let tag = prop::option::of(any::<u16>());
        (any::<[[u8; 6]; 2]>(), tag, network, any::<[u8; 2]>(), protocol, any::<[u16; 2]>())
            .prop_map(|(macs, tag, network, [tos, ttl], protocol, ports)| TestHeaders {
                macs,
                tag,
                network,
                tos,
                ttl,
                protocol,
                ports,
            })
    }

    /// Returns the part of the rewrite to these headers that a single rule can express.
    fn rewrite_to(wanted: &TestHeaders) -> Match {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        let mut write = |field, value| {
            key.set_field(field, value);
            mask.add_field(field);
        };
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        write(FieldId::EthSrc, number(&wanted.macs[0]));
        write(FieldId::EthDst, number(&wanted.macs[1]));
        write(FieldId::VlanTci, wanted.tag.map_or(0, |tci| tci | TCI_PRESENT).into());
        match wanted.network {
            AddressPair::V4([source, destination]) => {
                write(FieldId::Ipv4Src, number(&source));
                write(FieldId::Ipv4Dst, number(&destination));
            }
            AddressPair::V6([source, destination]) => {
                write(FieldId::Ipv6Src, number(&source));
                write(FieldId::Ipv6Dst, number(&destination));
            }
        }
        write(FieldId::IpDscp, (wanted.tos >> 2).into());
        write(FieldId::IpEcn, (wanted.tos & 3).into());
        write(FieldId::NwTtl, wanted.ttl.into());
        if wanted.protocol != TestProtocol::Other {
            write(FieldId::TcpSrc, wanted.ports[0].into());
            write(FieldId::TcpDst, wanted.ports[1].into());
        }
        Match::new(&key, &mask)
    }

    /// Returns the frame after these rewrites.
    fn rewrite_all(frame: &[u8], rewrites: &[Match]) -> Vec<u8> {
        let mut packet = Pool::new().take(frame.len(), DatapathPort::new(0)).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        let mut key = FlowKey::ZERO;
        let layers = parse_frame(packet.frame(), &mut key).unwrap();
        let writes: Vec<HeaderWrite> = rewrites.iter().map(HeaderWrite::of).collect();
        assert!(rewrite(&mut packet, &layers, &mut key, writes.iter()));
        packet.frame().to_vec()
    }

    proptest! {
        #[test]
        fn a_rewritten_frame_equals_a_newly_built_one(
            from in headers(), middle in headers(), to in headers(),
        ) {
            // A rewrite does not change the protocols of a packet.
            let like = |other: TestHeaders| TestHeaders {
                protocol: from.protocol,
                network: match (from.network, other.network) {
                    (AddressPair::V4(_), AddressPair::V4(_)) | (AddressPair::V6(_), AddressPair::V6(_)) => {
                        other.network
                    }
                    (AddressPair::V4(_) | AddressPair::V6(_), _) => from.network,
                },
                ports: if from.protocol == TestProtocol::Other { from.ports } else { other.ports },
                ..other
            };
            let (middle, to) = (like(middle), like(to));
            let frame = from.frame();
            let one = rewrite_to(&to);
            // The drop-eligible bit comes from the tag of the received frame, not from a rule.
            let came_in = |kept: Option<u16>| TestHeaders {
                tag: to.tag.map(|tci| tci & !TCI_PRESENT | kept.unwrap_or(0) & TCI_PRESENT),
                ..to.clone()
            };
            let expected = came_in(from.tag).frame();
            prop_assert_eq!(rewrite_all(&frame, std::slice::from_ref(&one)), expected);
            // If the tag is popped in between and pushed again, the new tag has a clear
            // drop-eligible bit.
            let expected = came_in(from.tag.filter(|_| middle.tag.is_some())).frame();
            prop_assert_eq!(rewrite_all(&frame, &[rewrite_to(&middle), one]), expected);
        }

        #[test]
        fn untruncated_known_headers_are_parsed(
            headers in headers(), cut in any::<prop::sample::Index>(),
        ) {
            let frame = headers.frame();
            prop_assert!(parse_frame(&frame, &mut FlowKey::ZERO.clone()).is_some());
            let length = cut.index(frame.len());
            let cut = parse_frame(&frame[..length], &mut FlowKey::ZERO.clone());
            prop_assert_eq!(cut, None, "{} of {}", length, frame.len());
        }

        #[test]
        fn packets_of_a_flow_have_one_hash(
            headers in headers(), tos in any::<u8>(), ttl in any::<u8>(), payload in any::<u8>(),
        ) {
            let hash = |frame: &[u8]| {
                let mut key = FlowKey::ZERO;
                parse_frame(frame, &mut key).unwrap();
                flow_hash(&key)
            };
            let mut other = TestHeaders { tos, ttl, ..headers }.frame();
            *other.last_mut().unwrap() ^= payload;
            prop_assert_eq!(hash(&headers.frame()), hash(&other));
        }
    }

    #[test]
    fn unknown_frames_are_not_parsed() {
        let unknown = [
            ipv4_packet().tag(TPID, 1).tag(TPID, 2).build(),
            ipv4_packet().tag(0x88a8, 1).build(),
            ipv4_packet().snap().build(),
            ipv4_packet().ipv4_options(&[1, 1, 1, 1]).build(),
            ipv4_packet().sctp(1, 2).build(),
            ipv4_packet().protocol(58).payload([135; 8]).build(),
            ipv6_packet().protocol(1).payload([8; 8]).build(),
            ipv6_packet().extension(0, &[0; 6]).udp(1, 2).build(),
            vec![0; 13],
            Vec::new(),
        ];
        for frame in unknown {
            assert!(!is_parsed(&frame), "{frame:02x?}");
        }
    }

    #[test]
    fn a_later_fragment_of_any_protocol_is_parsed() {
        for packet in [
            ipv4_packet().sctp(1, 2),
            ipv4_packet().protocol(58),
            ipv4_packet().tcp(1, 2).payload([]),
        ] {
            assert!(is_parsed(&packet.clone().fragment(5).build()));
            assert!(!is_parsed(&packet.fragment(0x2000).protocol(132).build()));
        }
    }

    #[test]
    fn packet_longer_than_frame_is_not_parsed() {
        let frames = [
            ipv4_packet().udp(1, 2),
            ipv4_packet().protocol(50),
            ipv6_packet().udp(1, 2),
            ipv6_packet().protocol(50),
        ];
        for packet in frames {
            let mut frame = packet.clone().payload([7; 4]).build();
            assert!(is_parsed(&frame));
            // The offset of the low byte of the IPv4 or IPv6 length.
            let length = if frame[12] == 0x08 { 17 } else { 19 };
            frame[length] += 1;
            assert!(!is_parsed(&frame), "{frame:02x?}");
        }
        let mut no_header = ipv4_packet().protocol(50).payload([7; 40]).build();
        no_header[17] = 19;
        assert!(!is_parsed(&no_header));
    }

    #[test]
    fn padding_is_not_taken_for_a_transport_header() {
        let (v4s, v6s) = (
            [ipv4_packet().tcp(1, 2), ipv4_packet().udp(1, 2), ipv4_packet().icmp(8, 0)],
            [ipv6_packet().tcp(1, 2), ipv6_packet().udp(1, 2), ipv6_packet().icmp(128, 0)],
        );
        for (packets, at, header) in [(v4s, 17, 20), (v6s, 19, 0)] {
            for packet in packets {
                let whole = packet.build();
                let length = whole[at];
                let mut short = packet.padded(100).build();
                assert!(is_parsed(&short));
                for length in header..length {
                    short[at] = length;
                    assert!(!is_parsed(&short), "{length} of {short:02x?}");
                }
            }
        }
    }

    #[test]
    fn invalid_tcp_header_is_not_parsed() {
        for (packet, at) in [(ipv4_packet(), 46), (ipv6_packet(), 66)] {
            let mut frame = packet.tcp(1, 2).payload([7; 8]).padded(200).build();
            for words in 0..16_u8 {
                frame[at] = words << 4;
                assert_eq!(is_parsed(&frame), (5..=7).contains(&words), "{words}");
            }
        }
    }

    #[test]
    fn arp_of_other_address_types_is_not_parsed() {
        let arp = PacketBuilder::arp(1, ([1; 6], [2; 4]), ([0; 6], [3; 4])).padded(60).build();
        assert!(is_parsed(&arp));
        for place in 14..20 {
            let mut other = arp.clone();
            other[place] ^= 1;
            assert!(!is_parsed(&other), "{place}");
        }
        assert!(!is_parsed(&arp[..41]));
    }

    fn ipv4_packet() -> PacketBuilder {
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2])
    }

    fn ipv6_packet() -> PacketBuilder {
        PacketBuilder::ipv6([1; 16], [2; 16])
    }

    fn is_parsed(frame: &[u8]) -> bool {
        parse_frame(frame, &mut FlowKey::ZERO.clone()).is_some()
    }
}
