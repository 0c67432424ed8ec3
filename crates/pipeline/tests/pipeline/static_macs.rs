//! Tests of static MAC addresses, which an operator adds.

use shunt_flow::PortNo;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Delta, Learning, MacObservation, Object, ReplacedMac, StaticMac,
    StaticMacError, VlanMode,
};

use crate::{
    normal::{A_TO_B, B_TO_A, at, known_macs, port_vlans, send, switch_without_vlans},
    switch::{BRIDGE, Switch, ports},
};

/// Adds the address of host A as a static one.
fn add_static(switch: &Switch, port: u32) -> Result<Option<ReplacedMac>, StaticMacError> {
    let added = StaticMac { vlan: 0, mac: [2, 0, 0, 0, 0, 0x0a], port: PortNo::new(port) };
    switch.pipeline.add_static_mac(BRIDGE, added, at(1)).map(|(_, replaced)| replaced)
}

#[test]
fn packets_and_time_keep_a_static_address() {
    let switch = switch_without_vlans();
    send(&switch, A_TO_B, 1);
    let learned = ReplacedMac { port: PortNo::new(1), is_static: false };
    assert_eq!(add_static(&switch, 3), Ok(Some(learned)));
    assert_eq!(add_static(&switch, 3), Ok(None));
    let traversal = switch.translate(A_TO_B);
    assert!(traversal.learnings.is_empty() && traversal.refreshes.is_empty());
    // A request that is older than the static address, as of a thread that lags behind.
    let mut observed = switch.translate(&A_TO_B.replace("00:0a", "00:0c")).learnings;
    let [Learning::Mac(observation)] = &mut *observed else { panic!("{observed:?}") };
    observation.mac[5] = 0x0a;
    switch.pipeline.learn(&observed, at(2));
    switch.pipeline.expire(at(1_000_000));
    switch.pipeline.flush_macs(BRIDGE);
    switch.pipeline.flush_port(BRIDGE, PortNo::new(3));
    assert_eq!(known_macs(&switch), [(0, 0x0a, 3)]);
    assert_eq!(send(&switch, B_TO_A, 3), "3");
    assert_eq!(switch.pipeline.static_macs_count(BRIDGE), 1);
}

#[test]
fn a_removed_static_address_is_learned_again() {
    let switch = switch_without_vlans();
    add_static(&switch, 3).unwrap();
    let mac = [2, 0, 0, 0, 0, 0x0a];
    let change = switch.pipeline.remove_static_mac(BRIDGE, 0, mac).unwrap();
    assert!(matches!(*change.deltas, [Delta::Changed(Object::Mac(_, 0, own))] if own == mac));
    let error = StaticMacError::NoSuchMac { vlan: 0, mac };
    let (missing, text) = (Err(error), error.to_string());
    assert_eq!(switch.pipeline.remove_static_mac(BRIDGE, 0, mac).map(|_| ()), missing);
    assert!(text.contains("address 02:00:00:00:00:0a in VLAN 0: see"), "{text}");
    send(&switch, A_TO_B, 1);
    assert_eq!(known_macs(&switch), [(0, 0x0a, 1)]);
    assert_eq!(switch.pipeline.remove_static_mac(BRIDGE, 0, mac).map(|_| ()), missing);
}

#[test]
fn a_static_address_ends_with_its_port() {
    let switch = switch_without_vlans();
    add_static(&switch, 3).unwrap();
    switch.set_ports(ports().into_iter().filter(|port| port.number.number() != 3).collect());
    assert_eq!((known_macs(&switch), switch.pipeline.static_macs_count(BRIDGE)), (vec![], 0));
    assert_eq!(add_static(&switch, 3), Err(StaticMacError::NoSuchPort(PortNo::new(3))));
    let access = port_vlans(VlanMode::Access(5));
    let switch = crate::normal::switch([(); 4].map(|()| access.clone()));
    let refused = StaticMacError::VlanNotCarried { port: PortNo::new(3), vlan: 0 };
    assert_eq!(add_static(&switch, 3), Err(refused));
}

/// In Open vSwitch, such an address is added, and floods ignore it.
#[test]
fn group_addresses_are_refused_and_flooded() {
    let switch = switch_without_vlans();
    for (mac, text) in [
        ([0xff; 6], "ff:ff:ff:ff:ff:ff"),
        ([1, 0, 0x5e, 1, 2, 3], "01:00:5e:01:02:03"),
        ([1, 0x80, 0xc2, 0, 0, 0x20], "01:80:c2:00:00:20"),
    ] {
        let added = StaticMac { vlan: 0, mac, port: PortNo::new(3) };
        let refused = switch.pipeline.add_static_mac(BRIDGE, added, at(1)).map(|_| ());
        assert_eq!(refused, Err(StaticMacError::GroupAddress(mac)));
        assert!(StaticMacError::GroupAddress(mac).to_string().starts_with(text));
        // NORMAL requests no such learning, but a saved state may.
        let learned = Learning::Mac(MacObservation {
            bridge: BRIDGE,
            vlan: 0,
            mac,
            port: PortNo::new(3),
            is_announcement: false,
            precedes_packet: false,
        });
        switch.pipeline.learn(&[learned], at(1));
        let packet = format!("in_port=1,dl_src=02:00:00:00:00:0a,dl_dst={text}");
        assert_eq!(send(&switch, &packet, 2), "2 3 4 100", "{text}");
    }
}

#[test]
fn a_list_of_static_addresses_is_one_version() {
    let switch = switch_without_vlans();
    let of_port = |port, last| {
        let mac = [2, 0, 0, 0, 0, last];
        StaticMac { vlan: 0, mac, port: PortNo::new(port) }
    };
    let added = [of_port(1, 1), of_port(9, 2), of_port(3, 3), of_port(4, 1)];
    let before = switch.pipeline.version();
    let (change, refused) = switch.pipeline.add_static_macs(BRIDGE, &added, at(1));
    let missing = StaticMacError::NoSuchPort(PortNo::new(9));
    assert_eq!(refused, [(added[1], missing)]);
    assert_eq!(known_macs(&switch), [(0, 1, 4), (0, 3, 3)]);
    assert_eq!((change.version, switch.pipeline.version()), (before.next(), before.next()));
    assert_eq!(send(&switch, B_TO_A.replace("00:0a", "00:03").as_str(), 2), "3");
    let (change, refused) = switch.pipeline.add_static_macs(BridgeId::new(9), &added, at(1));
    assert!(change.deltas.is_empty() && refused.len() == added.len(), "{refused:?}");
}

/// Learned addresses share the places that static ones leave, at least one.
#[test]
fn static_addresses_fill_the_table_to_its_limit() {
    let switch = switch_without_vlans();
    let settings = BridgeSettings { macs_max: 2, ..switch.pipeline.settings(BRIDGE).unwrap() };
    switch.pipeline.set_settings(BRIDGE, settings).unwrap();
    let add = |last| {
        let added = StaticMac { vlan: 0, mac: [2, 0, 0, 0, 0, last], port: PortNo::new(4) };
        switch.pipeline.add_static_mac(BRIDGE, added, at(1)).map(|_| ())
    };
    send(&switch, A_TO_B, 1);
    send(&switch, B_TO_A, 2);
    assert_eq!(add(1), Ok(()));
    // Of two ports with one learned address each, the one with the higher number loses it.
    assert_eq!(known_macs(&switch), [(0, 1, 4), (0, 0x0a, 1)]);
    assert_eq!(add(2), Ok(()));
    send(&switch, B_TO_A, 3);
    assert_eq!(known_macs(&switch), [(0, 1, 4), (0, 2, 4), (0, 0x0b, 2)]);
    assert_eq!(add(3), Err(StaticMacError::Full(2)));
    let text = StaticMacError::Full(2).to_string();
    assert!(text.contains("`mac_entries` (OVSDB: `other_config:mac-table-size`)"), "{text}");
    assert_eq!(add(2), Ok(()), "this address is static already");
}
