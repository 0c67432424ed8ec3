//! Tests BFD packets that ports pass to the control plane.

use std::{collections::BTreeMap, time::Duration};

use shunt_datapath::DropReason;
use shunt_flow::{PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::{PortBfd, PortInfo, PuntReceiver};

use crate::harness::{BRIDGE, Switch, added};

/// Returns a switch with BFD sessions on its ports 1 and 2.
fn with_bfd() -> Switch {
    let mut switch = Switch::new(1, 3, super::thread_config());
    let mut ports: Vec<PortInfo> = (1..=3).map(PortInfo::datapath).collect();
    for port in ports.iter_mut().take(2) {
        port.bfd = Some(PortBfd { destination: None, is_forwarding: false });
    }
    let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
    switch.change(&change);
    switch.apply(&added(&["actions=output:3"]));
    switch
}

/// Returns the number of BFD packets that reached the control plane, by port.
fn count_punted(switch: &mut Switch) -> BTreeMap<PortNo, usize> {
    let mut counts = BTreeMap::new();
    while let Some(packet) = switch.controls[0].packet_ins.pop() {
        if let PuntReceiver::Bfd(port) = packet.punt.receiver {
            *counts.entry(port).or_default() += 1;
        }
    }
    counts
}

/// Returns a UDP packet to a port, with a time to live.
fn packet(port: u16, ttl: u8) -> Vec<u8> {
    let addresses = PacketBuilder::ipv4([169, 254, 1, 1], [169, 254, 1, 0]);
    addresses.ttl(ttl).udp(49_152, port).build()
}

/// Each port has its own limit of BFD packets to the control plane.
#[test]
fn each_port_has_its_own_bfd_limit() {
    let mut switch = with_bfd();
    let packet = |port| packet(port, 255);
    for _ in 0..10 {
        (0..10).for_each(|_| assert!(switch.send(0, 1, &packet(3784))));
        switch.settle();
    }
    assert!(switch.send(0, 2, &packet(3784)) && switch.send(0, 2, &packet(3785)));
    switch.settle();
    let counts = BTreeMap::from([(PortNo::new(1), 32), (PortNo::new(2), 1)]);
    assert_eq!(count_punted(&mut switch), counts);
    let refused = DropReason::BfdPacketRefused as usize;
    assert_eq!(switch.counters(0).dropped[refused].get(), 68);
    assert_eq!(switch.receive(0, 3), [packet(3785)], "another port is no BFD");
    switch.wait(Duration::from_millis(5));
    (0..12).for_each(|_| assert!(switch.send(0, 1, &packet(3784))));
    switch.settle();
    assert_eq!(count_punted(&mut switch), BTreeMap::from([(PortNo::new(1), 10)]));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn remote_floods_take_no_place_of_bfd() {
    let mut switch = with_bfd();
    let remote = packet(3784, 254);
    for _ in 0..10 {
        (0..10).for_each(|_| assert!(switch.send(0, 1, &remote)));
        switch.settle();
        assert_eq!(switch.receive(0, 3), vec![remote.clone(); 10], "the tables forward them");
    }
    assert!(switch.send(0, 1, &packet(3784, 255)));
    switch.settle();
    assert_eq!(count_punted(&mut switch), BTreeMap::from([(PortNo::new(1), 1)]));
    assert_eq!(switch.counters(0).dropped[DropReason::BfdPacketRefused as usize].get(), 0);
    assert_eq!(switch.counters(0).unaccounted(), 0);
}
