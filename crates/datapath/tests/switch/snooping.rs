//! Tests IGMP messages that ports pass to the control plane for multicast snooping.

use std::{collections::BTreeMap, time::Duration};

use shunt_datapath::DropReason;
use shunt_flow::{PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::{BridgeSettings, MulticastSnooping, PuntReceiver};

use crate::harness::{BRIDGE, Switch, added};

/// Returns a learning switch with multicast snooping.
fn snooping() -> Switch {
    let mut switch = Switch::new(1, 3, super::thread_config());
    let multicast = Some(MulticastSnooping::default());
    let settings = BridgeSettings { multicast, ..BridgeSettings::default() };
    let change = switch.pipeline.set_settings(BRIDGE, settings).unwrap();
    switch.change(&change);
    switch.apply(&added(&["actions=normal"]));
    switch
}

/// Returns an IGMP report of the host at a port.
fn report(port: u8) -> Vec<u8> {
    let group = [239, 1, 1, 1];
    let frame = PacketBuilder::ipv4([10, 0, 0, port], group).protocol(2);
    let frame = frame.macs([2, 0, 0, 0, 0, port], [1, 0, 0x5e, 1, 1, 1]);
    frame.payload([&[0x16, 0, 0, 0], &group[..]].concat()).build()
}

/// Sends IGMP reports into a port.
fn send(switch: &mut Switch, port: u8, count: usize) {
    for _report in 0..count {
        assert!(switch.send(0, port.into(), &report(port)));
        switch.settle();
    }
}

/// Returns the number of IGMP messages that reached the control plane, by port.
fn count_punted(switch: &mut Switch) -> BTreeMap<PortNo, usize> {
    let mut counts = BTreeMap::new();
    while let Some(packet) = switch.controls[0].packet_ins.pop() {
        if let PuntReceiver::Multicast { port, .. } = packet.punt.receiver {
            *counts.entry(port).or_default() += 1;
        }
    }
    counts
}

#[test]
fn report_flood_displaces_no_other_port() {
    let mut switch = snooping();
    send(&mut switch, 1, 250);
    send(&mut switch, 2, 1);
    let counts = BTreeMap::from([(PortNo::new(1), 200), (PortNo::new(2), 1)]);
    assert_eq!(count_punted(&mut switch), counts);
    let refused = DropReason::SnoopingMessageRefused as usize;
    assert_eq!(switch.counters(0).dropped[refused].get(), 50);
    assert_eq!(switch.traffic[&1][0].forward_dropped.get(DropReason::SnoopingMessageRefused), 50);
    switch.wait(Duration::from_millis(50));
    send(&mut switch, 1, 20);
    assert_eq!(count_punted(&mut switch), BTreeMap::from([(PortNo::new(1), 10)]));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}
