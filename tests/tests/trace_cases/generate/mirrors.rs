//! Mirrors of a case: SPAN to a port, and RSPAN to a VLAN.
//!
//! Two known differences are avoided. Open vSwitch counts packets that arrive on the output port of a
//! mirror, and then drops them. It floods in another order of ports, so the copies of flooded packets
//! come at another time.

use shunt_switch::config::MirrorOptions;

use super::{dice::Dice, normal, tables};
use crate::case::Case;

/// Numbers of VLANs that frames have, 0 for none, and one that only mirrors use.
const VLANS: [u16; 5] = [0, 5, 10, 20, 99];

/// Returns the case of a seed: one of the other kinds, with one to three mirrors.
pub(super) fn generate(seed: u64) -> Case {
    let dice = &mut Dice::new(seed ^ 0x6d69_7272);
    let mut case = if dice.percent(50) { tables(seed) } else { normal::generate(seed) };
    let mirrors: Vec<_> = (0..1 + dice.below(3)).map(|index| mirror(dice, index)).collect();
    let is_output =
        |port: u32| mirrors.iter().any(|mirror| mirror.output_port == format!("p{port}"));
    case.packets.retain(|packet| !is_output(packet.in_port));
    Case { id: format!("mirror-{seed}"), mirrors, ..case }
}

fn mirror(dice: &mut Dice, index: usize) -> MirrorOptions {
    let is_vlan = dice.percent(30);
    let select_all = !is_vlan && dice.percent(30);
    let mut ports = |most: usize| {
        let mut ports: Vec<String> =
            (0..dice.below(most + 1)).map(|_| format!("p{}", dice.port())).collect();
        ports.sort();
        ports.dedup();
        ports
    };
    let select_src_port = if select_all { Vec::new() } else { ports(3) };
    let select_dst_port = if select_all || is_vlan { Vec::new() } else { ports(3) };
    let mut select_vlan = if dice.percent(30) { vec![dice.pick(&VLANS)] } else { Vec::new() };
    select_vlan.extend(dice.percent(10).then_some(7));
    MirrorOptions {
        name: format!("m{index}"),
        select_all,
        select_src_port,
        select_dst_port,
        select_vlan,
        output_port: if is_vlan { String::new() } else { format!("p{}", dice.port()) },
        output_vlan: if is_vlan { dice.pick(&[5, 10, 99]) } else { 0 },
        snaplen: if dice.percent(20) { dice.pick(&[14, 40, 64, 200]) } else { 0 },
    }
}
