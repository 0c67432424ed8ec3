//! Tests of the reads of ports: their existence, peers, links, settings and VLANs.

use std::{collections::BTreeSet, sync::Arc};

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_kairo::Direct;
use shunt_pipeline::{
    BridgeSettings, Change, Evictor, FlowModCommand, Mirror, MirrorOutput, MirroredPorts,
    PortConfig, PortInfo, PortKind, PortVlans, PriorityTags, QinqEthtype, Time, VlanMode,
    text::parse_rule,
};

use crate::{BRIDGE, Kind, PEER, Switch, WHOLE, any_packet, packet};

/// The VLAN of tagged packets.
const VLAN: u16 = 5;

#[test]
fn a_changed_output_port_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[1].kind = PortKind::Unbound)]
    });
}

#[test]
fn an_added_output_port_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=output:9");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports.push(PortInfo::datapath(9)))]
    });
}

#[test]
fn a_removed_patch_peer_evicts_entries() {
    let switch = Switch::new();
    lead_to_peer(&switch);
    add_peer(&switch);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        let ports = (2..=4).map(PortInfo::datapath).collect();
        vec![switch.0.set_ports(PEER, ports).unwrap()]
    });
}

#[test]
fn a_port_added_to_a_flood_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=flood");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Ports, |switch| {
        vec![switch.set_ports(|ports| ports.push(PortInfo::datapath(5)))]
    });
}

#[test]
fn a_changed_port_of_many_outputs_evicts_entries() {
    let switch = Switch::new();
    switch.set_ports(|ports| ports.extend((5..=40).map(PortInfo::datapath)));
    let outputs: Vec<_> = (2..=40).map(|port| format!("output:{port}")).collect();
    switch.add(&format!("actions={}", outputs.join(",")));
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Ports, |switch| {
        vec![switch.set_ports(|ports| ports[1].kind = PortKind::Unbound)]
    });
}

#[test]
fn the_first_no_recv_port_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::PortFilters, |switch| {
        vec![switch.set_ports(|ports| ports[0].config = no_recv())]
    });
}

#[test]
fn a_further_no_recv_port_evicts_entries() {
    let switch = Switch::new();
    switch.set_ports(|ports| ports[3].config = no_recv());
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[0].config = no_recv())]
    });
}

#[test]
fn the_first_no_fwd_port_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=goto_table:1");
    switch.add("table=1,actions=in_port");
    // A later sub-traversal has no other read that covers the filtering of ports.
    let version = switch.0.version();
    let mut parts = switch.0.translate_sub_traversals(&any_packet(), None, version, &[1]);
    let entry = parts.remove(1).traversal;
    switch.assert_needed(entry, Kind::PortFilters, |switch| {
        vec![switch.set_ports(|ports| ports[0].config = no_fwd())]
    });
}

#[test]
fn a_further_no_fwd_port_evicts_entries() {
    let switch = Switch::new();
    switch.set_ports(|ports| ports[3].config = no_fwd());
    switch.add("actions=in_port");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[0].config = no_fwd())]
    });
}

#[test]
fn a_changed_link_of_a_bundle_evicts_entries() {
    let switch = Switch::new();
    switch.set_ports(|ports| ports[1].link_up = false);
    switch.add("actions=bundle(eth_src,0,active_backup,ofport,members:2,3)");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Port, |switch| {
        vec![switch.set_ports(|ports| ports[1].link_up = true)]
    });
}

#[test]
fn port_change_evicts_only_its_readers() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let mut engine = Direct::new(switch.0.version(), 1);
    engine.installed(WHOLE, &Arc::new(switch.translate(&any_packet())));
    let mut ports: Vec<_> = (1..=5).map(PortInfo::datapath).collect();
    let mut set = |ports: &Vec<_>| {
        let change = switch.0.set_ports(BRIDGE, ports.clone()).unwrap();
        engine.apply(&change.deltas, change.version)
    };
    assert!(set(&ports).is_empty());
    ports[3].link_up = false;
    assert!(set(&ports).is_empty());
    ports.pop();
    assert!(set(&ports).is_empty());
    ports[1].config = PortConfig { no_flood: true, ..PortConfig::default() };
    assert_eq!(set(&ports), [WHOLE]);
}

#[test]
fn an_added_peer_bridge_evicts_entries() {
    let switch = Switch::new();
    lead_to_peer(&switch);
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Bridge, add_peer);
}

#[test]
fn port_added_to_normal_flood_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=normal");
    switch.learn(&any_packet());
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Ports, |switch| {
        vec![switch.set_ports(|ports| ports.push(PortInfo::datapath(5)))]
    });
}

/// Tests every pair of VLAN modes between which a flood to the port differs.
#[test]
fn changed_vlans_of_a_normal_flood_evict() {
    for [before, now] in changes(&[
        vlans_of(VlanMode::Trunk),
        only(VLAN + 1),
        vlans_of(VlanMode::Access(VLAN)),
        vlans_of(VlanMode::Access(VLAN + 1)),
        vlans_of(VlanMode::NativeUntagged(VLAN)),
        vlans_of(VlanMode::Dot1qTunnel(VLAN)),
    ]) {
        if looks_alike(&before, &now) {
            continue;
        }
        let switch = Switch::new();
        switch.set_ports(|ports| ports[1].vlans = before.clone());
        switch.add("actions=normal");
        switch.learn(&tagged_packet(1, [1, 2]));
        let entry = switch.translate(&tagged_packet(1, [1, 2]));
        switch.assert_needed(entry, Kind::Ports, |switch| {
            vec![switch.set_ports(|ports| ports[1].vlans = now)]
        });
    }
}

/// A change of VLANs also forgets the addresses that were learned at the port.
/// No delta reports these addresses: an entry that reads the location of an address reads the port
/// too.
#[test]
fn changed_vlans_of_the_output_port_evict() {
    for [before, now] in changes(&[
        vlans_of(VlanMode::Trunk),
        vlans_of(VlanMode::Access(VLAN)),
        vlans_of(VlanMode::NativeTagged(VLAN)),
        vlans_of(VlanMode::NativeUntagged(VLAN)),
        only(VLAN),
    ]) {
        let switch = Switch::new();
        switch.set_ports(|ports| ports[1].vlans = before.clone());
        switch.add("actions=normal");
        switch.learn(&tagged_packet(1, [1, 2]));
        for answer in [packet, tagged_packet] {
            switch.learn(&answer(2, [2, 1]));
        }
        let entry = switch.translate(&tagged_packet(1, [1, 2]));
        switch.assert_needed(entry, Kind::Port, |switch| {
            vec![switch.set_ports(|ports| ports[1].vlans = now)]
        });
    }
}

#[test]
fn changed_vlans_of_the_ingress_port_evict() {
    for [before, now] in changes(&[
        vlans_of(VlanMode::Trunk),
        vlans_of(VlanMode::Access(VLAN)),
        vlans_of(VlanMode::NativeTagged(VLAN)),
        vlans_of(VlanMode::Dot1qTunnel(VLAN)),
        only(VLAN),
    ]) {
        let switch = Switch::new();
        switch.set_ports(|ports| ports[0].vlans = before.clone());
        switch.add("actions=normal");
        switch.learn(&any_packet());
        for answer in [packet, tagged_packet] {
            switch.learn(&answer(2, [2, 1]));
        }
        let entry = switch.translate(&any_packet());
        switch.assert_needed(entry, Kind::Port, |switch| {
            vec![switch.set_ports(|ports| ports[0].vlans = now)]
        });
    }
}

#[test]
fn an_added_mirror_evicts_entries() {
    let switch = Switch::new();
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Bridge, |switch| vec![add_mirror(switch)]);
}

#[test]
fn an_added_output_of_a_mirror_evicts_entries() {
    let switch = Switch::new();
    switch.set_ports(|ports| ports.truncate(3));
    add_mirror(&switch);
    switch.add("actions=output:2");
    let entry = switch.translate(&any_packet());
    switch.assert_needed(entry, Kind::Bridge, |switch| {
        vec![switch.set_ports(|ports| ports.push(PortInfo::datapath(4)))]
    });
}

/// Adds a mirror that copies all packets to port 4.
fn add_mirror(switch: &Switch) -> Change {
    let mirror = Mirror {
        name: "m1".into(),
        ports: MirroredPorts::All,
        vlans: BTreeSet::new(),
        output: MirrorOutput::Port("p4".into()),
        snaplen: None,
    };
    let settings = BridgeSettings { mirrors: vec![mirror], ..BridgeSettings::default() };
    switch.0.set_settings(BRIDGE, settings).unwrap()
}

fn no_recv() -> PortConfig {
    PortConfig { no_recv: true, ..PortConfig::default() }
}

fn no_fwd() -> PortConfig {
    PortConfig { no_fwd: true, ..PortConfig::default() }
}

/// Adds a rule that sends packets to the peer bridge, and to another port.
fn lead_to_peer(switch: &Switch) {
    switch.set_ports(|ports| {
        ports[1].kind = PortKind::Patch { bridge: PEER, port: PortNo::new(1) };
    });
    switch.add("actions=output:2,output:3");
}

/// Adds the peer bridge; its first port is the other end of the patch.
fn add_peer(switch: &Switch) -> Vec<Change> {
    let added = switch.0.add_bridge(PEER, BridgeSettings::default());
    let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
    ports[0].kind = PortKind::Patch { bridge: BRIDGE, port: PortNo::new(2) };
    let ports = switch.0.set_ports(PEER, ports).unwrap();
    let rule = parse_rule(FlowModCommand::Add, "actions=output:4", &NoPortNames).unwrap();
    vec![added, ports, switch.0.apply(PEER, &[rule], Time::ZERO).unwrap()]
}

/// Returns the key of a packet with the tag of the VLAN.
fn tagged_packet(port: u32, hosts: [u8; 2]) -> FlowKey {
    let mut key = packet(port, hosts);
    key.set_field(FieldId::VlanTci, u128::from(0x1000 | VLAN));
    key
}

const fn vlans_of(mode: VlanMode) -> PortVlans {
    PortVlans {
        mode,
        trunks: None,
        cvlans: None,
        qinq_ethtype: QinqEthtype::Dot1ad,
        priority_tags: PriorityTags::Never,
    }
}

/// Returns the settings of a trunk of one VLAN.
fn only(vlan: u16) -> PortVlans {
    PortVlans { trunks: Some([vlan].into()), ..PortVlans::default() }
}

/// Returns whether flooded frames of the VLAN are equal with both settings.
fn looks_alike(one: &PortVlans, other: &PortVlans) -> bool {
    let look = |own: &PortVlans| own.carries(VLAN).then(|| own.id_on_wire(VLAN));
    look(one) == look(other)
}

/// Returns all ordered pairs of VLAN settings.
fn changes(all: &[PortVlans]) -> Vec<[PortVlans; 2]> {
    let pairs = all.iter().flat_map(|before| all.iter().map(move |now| [before, now]));
    pairs.filter(|[before, now]| before != now).map(|pair| pair.map(PortVlans::clone)).collect()
}
