//! Generated cases for `NORMAL`: VLAN and port settings that change, moving hosts, tagged frames,
//! packet-outs.

use shunt_flow::{PortNo, testing::packet::PacketBuilder};
use shunt_switch::config::{PortOptions, PortVlanMode, QinqEthtype};

use super::dice::Dice;
use crate::case::{Case, RecordedPacket};

/// Number of packets of a case.
const PACKETS: usize = 16;
/// Ingress ports of frames. The port above these ports has no link in some cases.
const PORTS: usize = 5;
/// Last bytes of the host addresses.
const HOSTS: [u8; 4] = [1, 2, 3, 4];
/// Destinations without a host.
///
/// The destinations are groups, reserved addresses, and the addresses next to reserved addresses.
/// The spanning tree address is not included: on a port that does not receive, this address is a
/// known difference.
const TARGETS: &[[u8; 6]] = &[
    [0xff; 6],
    [1, 0, 0x5e, 0, 0, 1],
    [0x33, 0x33, 0, 0, 0, 1],
    [1, 0x80, 0xc2, 0, 0, 1],
    [1, 0x80, 0xc2, 0, 0, 2],
    [1, 0x80, 0xc2, 0, 0, 0x0e],
    [1, 0x80, 0xc2, 0, 0, 0x0f],
    [1, 0x80, 0xc2, 0, 0, 0x10],
    [1, 0x80, 0xc2, 0, 0, 0x21],
    [1, 0, 0x0c, 0xcc, 0xcc, 0xcc],
    [1, 0, 0x0c, 0xcc, 0xcc, 0xcd],
    [1, 0, 0x0c, 0xcd, 0xcd, 0xcd],
    [0, 0xe0, 0x2b, 0, 0, 4],
    [0xaa, 0x55, 0xaa, 0x55, 0, 0],
    [0; 6],
];
/// Sources that are not learned, and the address of the bridge.
const SOURCES: &[[u8; 6]] =
    &[[1, 0, 0x5e, 0, 0, 1], [0xff; 6], [0; 6], [0xaa, 0x55, 0xaa, 0x55, 0, 0]];
const VLANS: &[u16] = &[5, 7, 100];
/// Settings of ports that restrict their packets.
const SETTINGS: &[&str] = &["no-flood", "no-forward", "no-receive"];
/// The opposites of these settings, in the same order.
const UNSETTINGS: &[&str] = &["flood", "forward", "receive"];

/// Actions of generated rules, in the text of `ovs-ofctl`.
///
/// Known differences are left out: two `NORMAL` actions in one action list, and pushed tags before
/// an access port.
const ACTIONS: &[&str] = &[
    "normal",
    "normal",
    "normal",
    "normal,output:2",
    "output:3,normal",
    "mod_vlan_vid:5,normal",
    "mod_vlan_vid:7,mod_vlan_pcp:3,normal,output:1",
    "strip_vlan,normal",
    "mod_vlan_pcp:5,normal",
    "load:0->NXM_OF_VLAN_TCI[],normal",
    "load:2->NXM_OF_IN_PORT[],normal",
    "load:0->NXM_OF_IN_PORT[],normal",
    "load:99->NXM_OF_IN_PORT[],normal",
    "load:0xffff->NXM_OF_IN_PORT[],normal",
    "set_field:02:00:00:00:00:02->eth_src,normal",
    "set_field:02:00:00:00:00:03->eth_dst,normal,output:4",
    "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],normal",
    "clone(mod_vlan_vid:7,normal),output:1",
    "clone(output:2),normal",
    "write_actions(normal)",
    "write_actions(mod_vlan_vid:100,normal)",
    "group:1",
    "group:2",
    "resubmit(2,1)",
    "resubmit(,1)",
    "load:0xfffa->NXM_NX_REG0[0..15],output:NXM_NX_REG0[0..15]",
    "learn(table=1,priority=9,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
     output:NXM_OF_IN_PORT[]),normal",
    "flood",
    "all",
    "drop",
];

/// Returns the case of a seed.
pub(super) fn generate(seed: u64) -> Case {
    let dice = &mut Dice::new(seed ^ 0x6e6f_726d);
    let changes = dice.percent(50);
    let (vlans, port_mods) = (vlans(dice), port_mods(dice));
    let down = if dice.percent(15) { vec![6] } else { Vec::new() };
    let mut case = Case {
        id: format!("normal-{seed}"),
        vlans,
        port_mods,
        down,
        groups: groups(dice),
        flows: rules(dice),
        packets: (0..PACKETS).map(|_| packet(dice, changes)).collect(),
        ..Case::default()
    };
    if case.has_closed_ports() {
        // Packet-outs from a port that does not receive are a known difference.
        let packet_outs = case.packets.iter_mut().filter(|packet| packet.packet_out.is_some());
        packet_outs.for_each(|packet| packet.in_port = PortNo::CONTROLLER.number());
    }
    case
}

fn vlans(dice: &mut Dice) -> Vec<PortOptions> {
    if dice.percent(20) {
        return Vec::new();
    }
    let mut ports = Vec::new();
    for number in 1..=PORTS + 1 {
        if dice.percent(70) {
            ports.push(port(dice, number));
        }
    }
    ports
}

/// Returns a port with some VLAN settings, which may be only the VLAN of the port.
fn port(dice: &mut Dice, number: usize) -> PortOptions {
    let modes = [
        PortVlanMode::Access,
        PortVlanMode::Access,
        PortVlanMode::Trunk,
        PortVlanMode::NativeTagged,
        PortVlanMode::NativeUntagged,
        PortVlanMode::Dot1qTunnel,
    ];
    let mode = dice.pick(&modes);
    let tag = (mode != PortVlanMode::Trunk).then(|| dice.pick(VLANS));
    let trunks = match dice.below(5) {
        _ if matches!(mode, PortVlanMode::Access | PortVlanMode::Dot1qTunnel) => &[][..],
        0 => &[5],
        1 => &[0, 7],
        2 => &[5, 7],
        3 => &[4000],
        _ => &[],
    };
    let port = PortOptions {
        name: format!("p{number}"),
        vlan_mode: Some(mode),
        tag,
        trunks: trunks.to_vec(),
        ..PortOptions::default()
    };
    if mode != PortVlanMode::Dot1qTunnel {
        return port;
    }
    let cvlans = dice.pick(&[&[][..], &[], &[5], &[0, 7], &[5, 100]]).to_vec();
    PortOptions { cvlans, qinq_ethtype: dice.pick(&QinqEthtype::ALL), ..port }
}

fn port_mods(dice: &mut Dice) -> Vec<[String; 2]> {
    let count = dice.pick(&[0, 0, 1, 1, 2, 3]);
    (0..count).map(|_| [format!("p{}", dice.port()), dice.pick(SETTINGS).to_owned()]).collect()
}

fn groups(dice: &mut Dice) -> Vec<String> {
    let (kind, port) = (dice.pick(&["all", "indirect"]), dice.port());
    vec![
        format!("group_id=1,type={kind},bucket=actions=normal"),
        format!("group_id=2,type=ff,bucket=watch_port:{port},actions=mod_vlan_vid:5,normal"),
    ]
}

fn rules(dice: &mut Dice) -> Vec<String> {
    let mut rules = vec![format!("table=0,priority=0,actions={}", dice.pick(&ACTIONS[..3]))];
    for _ in 0..dice.pick(&[0, 1, 2, 3]) {
        let matching = match dice.below(7) {
            0 => format!("in_port={}", dice.port()),
            1 => format!("dl_vlan={}", dice.pick(VLANS)),
            2 => "vlan_tci=0".to_owned(),
            3 => "arp".to_owned(),
            4 => format!("dl_src=02:00:00:00:00:0{}", dice.pick(&HOSTS)),
            5 => format!("dl_dst=02:00:00:00:00:0{}", dice.pick(&HOSTS)),
            _ => "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00".to_owned(),
        };
        let priority = 10 + dice.below(100);
        rules
            .push(format!("table=0,priority={priority},{matching},actions={}", dice.pick(ACTIONS)));
    }
    rules.push(format!("table=1,priority=0,actions={}", dice.pick(&ACTIONS[..6])));
    let numbered = |(index, rule)| format!("cookie={:#x},{rule}", index + 1);
    rules.iter().enumerate().map(numbered).collect()
}

fn packet(dice: &mut Dice, changes: bool) -> RecordedPacket {
    let in_port = u32::try_from(1 + dice.below(PORTS)).unwrap_or(1);
    let frame = frame(dice).iter().map(|octet| format!("{octet:02x}")).collect();
    let mut packet = RecordedPacket { in_port, frame, ..RecordedPacket::default() };
    if changes && dice.percent(12) {
        let settings = if dice.percent(50) { SETTINGS } else { UNSETTINGS };
        let setting = dice.pick(settings);
        packet.port_mods.push([format!("p{}", dice.port()), setting.to_owned()]);
    }
    if changes && dice.percent(6) {
        let number = dice.port();
        packet.vlans.push(port(dice, number));
    }
    if dice.percent(12) {
        let actions = ["normal", "normal", "table", "flood", "all", "strip_vlan,normal"];
        packet.packet_out = Some(dice.pick(&actions).to_owned());
        packet.in_port = dice.pick(&[1, 2, 3, 4, 5, 6, 0xffff_fffd, 0xffff_fffe, 0xffff_ffff]);
        if packet.frame[..12] == packet.frame[12..24] {
            // A frame from a host to itself is a known difference.
            packet.frame.replace_range(10..12, "77");
        }
    }
    packet
}

fn frame(dice: &mut Dice) -> Vec<u8> {
    let host = |dice: &mut Dice| [2, 0, 0, 0, 0, dice.pick(&HOSTS)];
    let source = if dice.percent(8) { dice.pick(SOURCES) } else { host(dice) };
    let target = if dice.percent(30) { dice.pick(TARGETS) } else { host(dice) };
    let headers = match dice.below(5) {
        0 => {
            let (own, other) = ([10, 0, 0, source[5]], [10, 0, 0, dice.pick(&HOSTS)]);
            // A request for the sender's own address is gratuitous.
            let asked = if dice.percent(40) { own } else { other };
            PacketBuilder::arp(dice.pick(&[1, 2]), (source, own), ([0; 6], asked))
        }
        1 => PacketBuilder::ethernet(0x88cc),
        _ => PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2),
    };
    let mut packet = headers.macs(source, target).padded(60);
    for _ in 0..dice.pick(&[0, 0, 0, 1, 1, 1, 2]) {
        let tci = dice.pick(&[0, 0, 5, 5, 7, 100, 4000]) | dice.pick(&[0_u16, 0, 3, 7]) << 13;
        packet = packet.tag(dice.pick(&[0x8100, 0x8100, 0x8100, 0x88a8]), tci);
    }
    let mut frame = packet.payload(vec![0x5a; 30]).build();
    if dice.percent(3) {
        // The frame is truncated within the tag, if the frame has a tag.
        frame.truncate(dice.pick(&[14, 15, 16, 17]));
    }
    frame
}
