//! Generated frames that the rules of [`rules`](super::rules) are likely to match.

use shunt_flow::testing::packet::{Neighbour, PacketBuilder};

use super::{Theme, dice::Dice};
use crate::case::RecordedPacket;

/// Last bytes of the MAC addresses.
const MACS: [u8; 3] = [1, 2, 3];
const IPV4: [[u8; 4]; 4] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 1, 1], [192, 168, 0, 1]];
const IPV6: [u128; 4] = [
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0000_0000_0000_0000_0002,
    0xfe80_0000_0000_0000_0000_0000_0000_0001,
    0xff02_0000_0000_0000_0000_0000_0000_0001,
];
const PORTS: [u16; 4] = [53, 80, 1000, 2000];
/// Minimum length of a frame without the frame check sequence.
const LENGTH_MIN: usize = 60;

/// Returns a frame for one of the ingress ports.
pub(crate) fn packet(dice: &mut Dice, theme: Theme) -> RecordedPacket {
    let mut frame = headers(dice, theme).build();
    if theme.broken && dice.percent(60) {
        for _ in 0..dice.below(3) {
            let place = 12 + dice.below(frame.len().min(64) - 12);
            frame[place] = dice.pick(&[0, 1, 0x45, 0x46, 0x4f, 0x60, 0x81, 0x88, 0xff]);
        }
        if dice.percent(50) {
            frame.truncate(14 + dice.below(frame.len() - 14));
        }
    }
    let frame = frame.iter().map(|octet| format!("{octet:02x}")).collect();
    let in_port = u32::try_from(dice.port()).unwrap_or(1);
    RecordedPacket { in_port, frame, ..RecordedPacket::default() }
}

fn headers(dice: &mut Dice, theme: Theme) -> PacketBuilder {
    let mut packet = network(dice);
    let source = [2, 0, 0, 0, 0, dice.pick(&MACS)];
    let target = match dice.below(8) {
        0 => [0xff; 6],
        1 => [1, 0, 0x5e, 0, 0, 1],
        _ => [2, 0, 0, 0, 0, dice.pick(&MACS)],
    };
    packet = packet.macs(source, target).padded(LENGTH_MIN);
    for _ in 0..dice.pick(&[0, 0, 0, 1, 1, theme.tags_max]) {
        let priority = dice.pick(&[0_u16, 0, 3, 7]) << 13;
        packet =
            packet.tag(dice.pick(&[0x8100, 0x8100, 0x88a8]), dice.pick(&[5, 7, 100, 0]) | priority);
    }
    if theme.labels && dice.percent(60) {
        for _ in 0..dice.pick(&[1, 1, 2, 3]) {
            packet =
                packet.mpls(dice.pick(&[16, 17, 100]), dice.pick(&[0, 3]), dice.pick(&[64, 1, 2]));
        }
    }
    let filler = dice.pick(&[22_u8, 22, 60, 120]);
    packet.payload((0..filler).map(|place| place.wrapping_mul(13)).collect::<Vec<_>>())
}

fn network(dice: &mut Dice) -> PacketBuilder {
    match dice.below(12) {
        0..6 => {
            let packet = PacketBuilder::ipv4(dice.pick(&IPV4), dice.pick(&IPV4));
            let packet = if dice.percent(10) { packet.ipv4_options(&[1, 1, 1, 0]) } else { packet };
            let packet = traffic(dice, packet);
            let packet = fragment(dice, packet);
            transport(dice, packet, false)
        }
        6..10 => {
            let [from, to] = [dice.pick(&IPV6), dice.pick(&IPV6)].map(u128::to_be_bytes);
            let mut packet = traffic(dice, PacketBuilder::ipv6(from, to));
            packet = packet.flow_label(dice.pick(&[0, 0, 0x12345]));
            if dice.percent(15) {
                packet = packet.extension(dice.pick(&[0, 43, 60]), &[0; 6]);
            }
            packet = fragment(dice, packet);
            transport(dice, packet, true)
        }
        10 => {
            let mac = [2, 0, 0, 0, 0, dice.pick(&MACS)];
            let (sender, target) = ((mac, dice.pick(&IPV4)), ([0; 6], dice.pick(&IPV4)));
            PacketBuilder::arp(dice.pick(&[1, 2, 1, 3]), sender, target)
        }
        _ => PacketBuilder::ethernet(dice.pick(&[0x88cc, 0x0600, 0x1234, 0x88e7])),
    }
}

fn traffic(dice: &mut Dice, packet: PacketBuilder) -> PacketBuilder {
    packet.tos(dice.pick(&[0, 0, 0x28, 0xb8, 2, 3])).ttl(dice.pick(&[64, 64, 64, 1, 2, 0, 255]))
}

fn fragment(dice: &mut Dice, packet: PacketBuilder) -> PacketBuilder {
    match dice.below(12) {
        0 => packet.fragment(0x2000),
        1 => packet.fragment(185),
        _ => packet,
    }
}

fn transport(dice: &mut Dice, packet: PacketBuilder, is_ipv6: bool) -> PacketBuilder {
    let (from, to) = (dice.pick(&PORTS), dice.pick(&PORTS));
    match dice.below(8) {
        0..3 => packet.tcp(from, to).tcp_flags(dice.pick(&[2, 0x10, 0x11, 0x12, 4])),
        3 | 4 => packet.udp(from, to),
        5 if is_ipv6 => {
            let mac = [2, 0, 0, 0, 0, 0xaa];
            let (kind, source, destination) =
                if dice.percent(50) { (135, Some(mac), None) } else { (136, None, Some(mac)) };
            let target = IPV6[2].to_be_bytes();
            packet.neighbour(Neighbour { kind, reserved: 0, target, source, destination })
        }
        5 | 6 => {
            let (kind, code) =
                if is_ipv6 { (128, 0) } else { dice.pick(&[(8, 0), (0, 0), (3, 1)]) };
            packet.icmp(kind, code)
        }
        _ if dice.percent(50) => packet.sctp(from, to),
        _ => packet.protocol(dice.pick(&[2, 47, 50, 89])),
    }
}
