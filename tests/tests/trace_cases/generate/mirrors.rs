//! Mirrors of a case: SPAN to a port, and RSPAN to a VLAN.
//!
//! Known differences are avoided. Open vSwitch counts packets that arrive on the output port of a
//! mirror, and then drops these packets. Open vSwitch ignores `snaplen` for a copy of a copy. In
//! Open vSwitch, the handling of a third tag depends on earlier outputs. The switches flood
//! packet-outs in different orders of ports.

use shunt_switch::config::MirrorOptions;

use super::{dice::Dice, normal, tables};
use crate::case::{Case, RecordedPacket};

/// Numbers of VLANs that frames have, 0 for no VLAN,
/// and a number that only mirrors use.
const VLANS: [u16; 5] = [0, 5, 10, 20, 99];

/// Returns the case of a seed: a case of another kind, with one or more mirrors.
pub(super) fn generate(seed: u64) -> Case {
    let dice = &mut Dice::new(seed ^ 0x6d69_7272);
    let (mut case, mirrors) = match dice.below(3) {
        0 => (normal::generate(seed), vec![rspan(dice)]),
        1 => (normal::generate(seed), spans(dice)),
        _ => (tables(seed), spans(dice)),
    };
    let is_output =
        |port: u32| mirrors.iter().any(|mirror| mirror.output_port == format!("p{port}"));
    case.packets.retain(|packet| {
        !is_output(packet.in_port) && packet.packet_out.is_none() && !is_tagged_twice(packet)
    });
    Case { id: format!("mirror-{seed}"), mirrors, ..case }
}

/// Returns whether a frame has two tags.
fn is_tagged_twice(packet: &RecordedPacket) -> bool {
    let is_tag = |octets: &[u8]| matches!(octets, [0x81, 0] | [0x88, 0xa8]);
    let frame = packet.frame();
    [12..14, 16..18].into_iter().all(|place| frame.get(place).is_some_and(is_tag))
}

/// Returns one to three mirrors to ports.
fn spans(dice: &mut Dice) -> Vec<MirrorOptions> {
    (0..1 + dice.below(3)).map(|index| span(dice, index)).collect()
}

fn span(dice: &mut Dice, index: usize) -> MirrorOptions {
    let select_all = dice.percent(30);
    let mut some = || if select_all { Vec::new() } else { ports(dice) };
    let (select_src_port, select_dst_port) = (some(), some());
    MirrorOptions {
        name: format!("m{index}"),
        select_all,
        select_src_port,
        select_dst_port,
        select_vlan: vlans(dice),
        output_port: format!("p{}", dice.port()),
        snaplen: if dice.percent(20) { dice.pick(&[14, 40, 64, 200]) } else { 0 },
        ..MirrorOptions::default()
    }
}

/// Returns a mirror of received packets to a VLAN.
fn rspan(dice: &mut Dice) -> MirrorOptions {
    MirrorOptions {
        name: "m0".to_owned(),
        select_src_port: ports(dice),
        select_vlan: vlans(dice),
        output_vlan: dice.pick(&[5, 10, 99]),
        ..MirrorOptions::default()
    }
}

fn ports(dice: &mut Dice) -> Vec<String> {
    let count = dice.below(4);
    let mut ports: Vec<_> = (0..count).map(|_| format!("p{}", dice.port())).collect();
    ports.sort();
    ports.dedup();
    ports
}

fn vlans(dice: &mut Dice) -> Vec<u16> {
    let mut vlans = if dice.percent(30) { vec![dice.pick(&VLANS)] } else { Vec::new() };
    vlans.extend(dice.percent(10).then_some(7));
    vlans
}
