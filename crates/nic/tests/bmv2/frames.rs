//! Generates frames: most have headers that the program parses, and some are damaged.

use proptest::{collection::vec, option, prelude::*, sample};
use shunt_flow::testing::packet::{Checksums, PacketBuilder, hostile_frames, packets};

/// Generates frames of all kinds that the program distinguishes, and random frames.
pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let known =
        (known_frames(), any::<u8>(), vec(damage(), 0..3)).prop_map(|(packet, kind, damages)| {
            let mut frame = packet.build();
            vary(&mut frame, kind);
            damages.into_iter().for_each(|damage| damage.apply(&mut frame));
            frame
        });
    let legal = packets().prop_map(|packet| packet.build());
    let all = prop_oneof![8 => known, 1 => legal, 1 => hostile_frames()];
    all.prop_filter("a sum of zero has two names, of which programs prefer one", |frame| {
        !frame.is_empty() && !frame.windows(2).skip(14).any(|pair| pair == [0xff, 0xff])
    })
}

fn known_frames() -> impl Strategy<Value = PacketBuilder> {
    let tag = option::weighted(0.4, any::<u16>());
    let padding = prop_oneof![Just(0_usize), 60..150_usize];
    let checksums = prop_oneof![4 => Just(Checksums::Complete), 1 => Just(Checksums::Absent)];
    let rest = (tag, padding, checksums, vec(any::<u8>(), 0..40), any::<[[u8; 6]; 2]>());
    (bodies(), rest).prop_map(|(packet, (tag, length_min, checksums, payload, macs))| {
        let packet = packet.macs(macs[0], macs[1]).padded(length_min).checksums(checksums);
        let packet = packet.payload(payload);
        match tag {
            Some(tci) => packet.tag(0x8100, tci),
            None => packet,
        }
    })
}

fn bodies() -> impl Strategy<Value = PacketBuilder> {
    let v4 = (any::<[[u8; 4]; 2]>(), fragments()).prop_map(|([source, target], fragment)| {
        PacketBuilder::ipv4(source, target).fragment(fragment)
    });
    let v6 =
        any::<[[u8; 16]; 2]>().prop_map(|[source, target]| PacketBuilder::ipv6(source, target));
    let internet = prop_oneof![v4, v6];
    let station = any::<([u8; 6], [u8; 4])>();
    let operation = prop_oneof![4 => 0..3_u16, 1 => any::<u16>()];
    prop_oneof![
        8 => (internet, any::<[u8; 2]>(), any::<[u16; 2]>(), 0..6_u8).prop_map(carrying),
        1 => (operation, station, station)
            .prop_map(|(operation, from, to)| PacketBuilder::arp(operation, from, to)),
        1 => sample::select(&[0x0600_u16, 0x88cc, 0x8847, 0x88e7, 0x894f, 0x9000, 0xffff])
            .prop_map(PacketBuilder::ethernet),
    ]
}

fn carrying(
    (packet, [tos, ttl], [a, b], kind): (PacketBuilder, [u8; 2], [u16; 2], u8),
) -> PacketBuilder {
    let packet = packet.tos(tos).ttl(ttl);
    match kind {
        0 => packet.udp(a, b),
        1 => packet.icmp(a.to_be_bytes()[0], b.to_be_bytes()[0]),
        2 => packet.protocol(a.to_be_bytes()[0]),
        3 => packet.tcp(a, b).tcp_flags(a ^ b).tcp_options(usize::from(b % 3)),
        _ => packet.tcp(a, b).tcp_flags(a ^ b),
    }
}

/// Sets values that the builder lacks: a drop-eligible tag, RARP, or IPv4 flags.
pub(crate) fn vary(frame: &mut [u8], kind: u8) {
    let is_tagged = frame[12..14] == [0x81, 0];
    if is_tagged {
        frame[14] |= kind & 0x10;
    }
    let network = if is_tagged { 18 } else { 14 };
    match &mut frame[network - 2..] {
        [high @ 0x08, low @ 0x06, ..] if kind & 1 == 1 => (*high, *low) = (0x80, 0x35),
        [0x08, 0x00, rest @ ..] => rest[6] |= kind & 0xc0,
        _ => {}
    }
}

fn fragments() -> impl Strategy<Value = u16> {
    prop_oneof![4 => Just(0_u16), 1 => Just(0x2000), 1 => any::<u16>().prop_map(|bits| bits & 0x3fff)]
}

/// The kinds of damage to a frame.
#[derive(Clone, Debug)]
enum Damage {
    /// The end of the frame is missing.
    Cut(sample::Index),
    /// The frame has additional bytes at its end.
    Longer(u8),
    /// A number in the headers increases or decreases a little.
    Moved(usize, u8),
    /// A byte of the headers changes.
    Other(usize, u8),
}

/// The header bytes after the addresses, in a frame with a tag and two headers.
const HEADERS: std::ops::Range<usize> = 12..82;

/// Offsets of length fields of IPv4, IPv6 and TCP, without and with a tag.
const LENGTHS: [usize; 8] = [17, 19, 21, 23, 46, 50, 66, 70];

/// Values that occur in headers: versions, protocols, types and lengths.
const BYTES: [u8; 14] = [0, 1, 2, 4, 6, 8, 17, 40, 0x45, 0x46, 58, 0x81, 132, 135];

fn damage() -> impl Strategy<Value = Damage> {
    let places = prop_oneof![HEADERS, sample::select(&LENGTHS[..])];
    let nudges = sample::select(&[1_u8, 2, 8, 16, 0xff, 0xfe, 0xf0][..]);
    prop_oneof![
        1 => any::<sample::Index>().prop_map(Damage::Cut),
        1 => (1..30_u8).prop_map(Damage::Longer),
        2 => (places, nudges).prop_map(|(place, by)| Damage::Moved(place, by)),
        2 => (HEADERS, sample::select(&BYTES[..])).prop_map(|(place, to)| Damage::Other(place, to)),
    ]
}

impl Damage {
    fn apply(&self, frame: &mut Vec<u8>) {
        match self {
            Self::Cut(end) => frame.truncate(end.index(frame.len() + 1)),
            Self::Longer(by) => frame.extend((0..*by).map(|byte| byte.wrapping_mul(37))),
            Self::Moved(place, by) => {
                if let Some(byte) = frame.get_mut(*place) {
                    *byte = byte.wrapping_add(*by);
                }
            }
            Self::Other(place, to) => {
                if let Some(byte) = frame.get_mut(*place) {
                    *byte = *to;
                }
            }
        }
    }
}
