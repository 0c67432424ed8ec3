//! Strategies: legal packets of every kind, sets of their fields, and malformed frames.

use proptest::{collection::vec, option, prelude::*, sample};

use super::builder::{Checksums, Neighbour, PacketBuilder};
use crate::{FieldId, FlowKey, FlowMask, Match, extract::VlanLimit};

/// Generates legal packets: up to three VLAN tags, SNAP, up to four MPLS labels.
///
/// The packets are ARP, IPv4 with options and IPv6 with extension headers, whole or in fragments,
/// with TCP, UDP, SCTP, ICMP, neighbour discovery and other protocols, padded or not.
pub fn packets() -> impl Strategy<Value = PacketBuilder> {
    let macs = any::<([u8; 6], [u8; 6])>();
    let tags = vec((sample::select(&[0x8100_u16, 0x88a8]), any::<u16>()), 0..4);
    let labels = prop_oneof![
        3 => Just(Vec::new()),
        1 => vec((0..1_u32 << 20, 0..8_u8, any::<u8>()), 1..5),
    ];
    let length_min = prop_oneof![Just(0_usize), 60..150_usize];
    (bodies(), macs, mostly_none(tags), labels, any::<bool>(), length_min).prop_map(
        |(mut packet, (source, destination), tags, labels, is_snap, length_min)| {
            packet = packet.macs(source, destination).padded(length_min);
            packet = if is_snap { packet.snap() } else { packet };
            for (tpid, tci) in tags {
                packet = packet.tag(tpid, tci);
            }
            for (label, class, ttl) in labels {
                packet = packet.mpls(label, class, ttl);
            }
            packet
        },
    )
}

/// Makes a list empty in most cases.
fn mostly_none<T: std::fmt::Debug>(
    strategy: impl Strategy<Value = Vec<T>>,
) -> impl Strategy<Value = Vec<T>> {
    option::weighted(0.4, strategy).prop_map(Option::unwrap_or_default)
}

/// Generates packets without VLAN tags.
fn bodies() -> impl Strategy<Value = PacketBuilder> {
    let checksums = prop_oneof![4 => Just(Checksums::Complete), 1 => Just(Checksums::Absent)];
    let internet = prop_oneof![transports(ipv4().boxed()), transports(ipv6().boxed())];
    let ether_types = sample::select(&[0x0600_u16, 0x88cc, 0x88e7, 0x9000, 0xffff]);
    prop_oneof![
        8 => (internet, vec(any::<u8>(), 0..64), checksums)
            .prop_map(|(packet, payload, checksums)| packet.payload(payload).checksums(checksums)),
        1 => (prop_oneof![0..5_u16, any::<u16>()], any::<([u8; 6], [u8; 4])>(), any::<([u8; 6], [u8; 4])>())
            .prop_map(|(operation, sender, target)| PacketBuilder::arp(operation, sender, target)),
        1 => (ether_types, vec(any::<u8>(), 4..64))
            .prop_map(|(ether_type, payload)| PacketBuilder::ethernet(ether_type).payload(payload)),
    ]
}

/// Generates IPv4 packets.
fn ipv4() -> impl Strategy<Value = PacketBuilder> {
    let addresses = any::<([u8; 4], [u8; 4])>();
    (addresses, any::<u8>(), any::<u8>(), mostly_none(vec(any::<u8>(), 1..40)), fragments())
        .prop_map(|((source, destination), tos, ttl, options, fragment)| {
            let packet = PacketBuilder::ipv4(source, destination).tos(tos).ttl(ttl);
            packet.ipv4_options(&options).fragment(fragment.unwrap_or(0))
        })
}

/// Generates IPv6 packets.
fn ipv6() -> impl Strategy<Value = PacketBuilder> {
    let addresses = any::<([u8; 16], [u8; 16])>();
    let extensions = vec((sample::select(&[0_u8, 43, 51, 60]), extension_contents()), 1..5);
    let extensions = (mostly_none(extensions), fragments(), any::<sample::Index>());
    (addresses, any::<u8>(), any::<u8>(), 0..1_u32 << 20, extensions).prop_map(
        |((source, destination), tos, ttl, label, (extensions, fragment, place))| {
            let packet = PacketBuilder::ipv6(source, destination).tos(tos).ttl(ttl);
            let mut packet = packet.flow_label(label);
            let place = place.index(extensions.len() + 1);
            for (index, (protocol, content)) in extensions.iter().enumerate() {
                packet = if index == place { with_fragment(packet, fragment) } else { packet };
                packet = packet.extension(*protocol, content);
            }
            if place == extensions.len() { with_fragment(packet, fragment) } else { packet }
        },
    )
}

/// Makes the packet a fragment, if a fragment field is given.
fn with_fragment(packet: PacketBuilder, fragment: Option<u16>) -> PacketBuilder {
    match fragment {
        Some(fragment) => packet.fragment(fragment),
        None => packet,
    }
}

/// Generates the more-fragments bit and the offset of an IP packet.
/// An offset of zero without the bit means that the packet is whole.
fn fragments() -> impl Strategy<Value = Option<u16>> {
    option::weighted(0.3, prop_oneof![Just(0_u16), Just(0x2000), 1..0x2000_u16, 0x2001..0x4000_u16])
}

/// Generates contents that are legal in every extension header.
/// As a routing header, the content has one segment, which may still be left to visit.
fn extension_contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![0; 6]),
        (0..2_u8, any::<[u8; 16]>()).prop_map(|(segments_left, address)| {
            [&[0, segments_left, 0, 0, 0, 0], address.as_slice()].concat()
        }),
    ]
}

/// Adds transport headers to generated packets.
fn transports(network: BoxedStrategy<PacketBuilder>) -> impl Strategy<Value = PacketBuilder> {
    let ports = any::<(u16, u16)>();
    let neighbour = (135..137_u8, any::<(u32, [u8; 16], Option<[u8; 6]>, Option<[u8; 6]>)>());
    let protocols = sample::select(&[47_u8, 50, 59, 103, 253]);
    prop_oneof![
        (network.clone(), ports, 0..0x1000_u16, 0..11_usize).prop_map(
            |(packet, ports, flags, words)| {
                packet.tcp(ports.0, ports.1).tcp_flags(flags).tcp_options(words)
            }
        ),
        (network.clone(), ports).prop_map(|(packet, (a, b))| packet.udp(a, b)),
        (network.clone(), ports).prop_map(|(packet, (a, b))| packet.sctp(a, b)),
        (network.clone(), 0..135_u8, any::<u8>()).prop_map(|(packet, a, b)| packet.icmp(a, b)),
        (network.clone(), neighbour).prop_map(|(packet, (kind, message))| {
            let (reserved, target, source, destination) = message;
            packet.neighbour(Neighbour { kind, reserved, target, source, destination })
        }),
        (network, protocols).prop_map(|(packet, protocol)| packet.protocol(protocol)),
    ]
}

/// Generates a packet, header fields to set, and the packet with these fields set.
pub fn header_sets() -> impl Strategy<Value = (PacketBuilder, Match, PacketBuilder)> {
    let changes = vec((any::<sample::Index>(), any::<u128>(), masks()), 1..6);
    (packets(), changes).prop_map(|(packet, changes)| {
        let fields = packet.writable_fields();
        let (mut value, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        let mut after = packet.clone();
        for (index, bits, bits_mask) in changes {
            let field = *index.get(&fields);
            // The key does not show all bits of an operation above 255, so the operation is written
            // whole.
            let bits_mask = if field == FieldId::ArpOp { u128::MAX } else { bits_mask };
            let old = after.key(VlanLimit::One).field(field);
            let new = (old & !bits_mask | bits & bits_mask) & field.value_max();
            if is_legal(&after, field, new) {
                after.set(field, new);
                value.set_field_masked(field, new, bits_mask);
                mask.add_bits(field, bits_mask);
            }
        }
        (packet, Match::new(&value, &mask), after)
    })
}

/// Generates masks of a field.
fn masks() -> impl Strategy<Value = u128> {
    prop_oneof![Just(u128::MAX), any::<u128>()]
}

/// Returns whether a field may have this value in this kind of packet.
/// Other values would change the kind of the packet.
///
/// A VLAN tag stays a VLAN tag, and an ICMPv6 message does not become a neighbour discovery
/// message.
fn is_legal(packet: &PacketBuilder, field: FieldId, value: u128) -> bool {
    match field {
        FieldId::VlanTci | FieldId::VlanVid => value & 0x1000 != 0,
        FieldId::ArpOp => value <= 0xff,
        FieldId::IcmpType => {
            packet.key(VlanLimit::One).field(FieldId::EthType) == 0x0800 || value < 135
        }
        _ => true,
    }
}

/// Generates legal frames cut short or with bytes changed, and frames of random
/// bytes.
pub fn hostile_frames() -> impl Strategy<Value = Vec<u8>> {
    let frames = packets().prop_map(|packet| packet.build());
    let bytes = prop_oneof![any::<u8>(), sample::select(&[0_u8, 1, 0x0f, 0x40, 0x4f, 0x7f, 0xff])];
    let changes = vec((any::<sample::Index>(), bytes), 0..4);
    let broken = (frames, any::<sample::Index>(), changes, any::<bool>());
    let broken = broken.prop_map(|(mut frame, end, changes, is_cut)| {
        for (place, byte) in changes {
            let place = place.index(frame.len());
            frame[place] = byte;
        }
        frame.truncate(if is_cut { end.index(frame.len()) } else { frame.len() });
        frame
    });
    prop_oneof![4 => broken, 1 => vec(any::<u8>(), 0..200)]
}
