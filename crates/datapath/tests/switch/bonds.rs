//! Tests a balancing bond: the network returns broadcasts, which must not reach their senders.
//!
//! The module also tests the LACP frames that members of the bond pass to the control plane.

use std::{
    array,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use shunt_datapath::DropReason;
use shunt_flow::{PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::{
    BondBalance, BondCounters, BondHash, BondMember, LacpAdmission, PortInfo, PuntReceiver,
};

use crate::harness::{BRIDGE, Switch, added};

/// The port of the host behind the switch.
///
/// Ports 1 and 2 are the bond, and port 1 is its active member.
const HOST: u32 = 3;

/// Returns a switch with two threads; port 1 sends all packets of the bond.
fn switch() -> Switch {
    with_lacp(LacpAdmission::Off)
}

/// Returns a switch with two threads and a bond with this LACP state.
fn with_lacp(lacp: LacpAdmission) -> Switch {
    let mut switch = Switch::new(2, 3, super::thread_config());
    let buckets = array::from_fn(|_| Some(PortNo::new(1)));
    let counters = BondCounters::new("b");
    let balance = Arc::new(BondBalance::new(BondHash::Source, 0, buckets, counters));
    let mut ports: Vec<PortInfo> = (1..=3).map(PortInfo::datapath).collect();
    for port in ports.iter_mut().filter(|port| port.number != PortNo::new(HOST)) {
        port.bond = Some(BondMember {
            bond: Arc::from("b"),
            is_active: port.number == PortNo::new(1),
            balance: Some(Arc::clone(&balance)),
            lacp,
        });
    }
    let change = switch.pipeline.set_ports(BRIDGE, ports).unwrap();
    switch.change(&change);
    switch.apply(&added(&["actions=normal"]));
    switch
}

/// Returns a broadcast of a host.
fn broadcast(host: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, host], [255; 4])
        .macs([2, 0, 0, 0, 0, host], [0xff; 6])
        .udp(1, 2)
        .build()
}

/// Returns the number of learned MAC addresses, and their ports.
fn learned_at(switch: &Switch) -> (usize, BTreeSet<PortNo>) {
    let macs = switch.pipeline.macs(BRIDGE);
    (macs.len(), macs.iter().map(|entry| entry.port).collect())
}

/// Returns all frames that the threads have sent to the host.
fn received_by_host(switch: &mut Switch) -> Vec<Vec<u8>> {
    (0..2).flat_map(|thread| switch.receive(thread, HOST)).collect()
}

fn count_loop_drops(switch: &Switch) -> u64 {
    let count = |thread| switch.counters(thread).dropped[DropReason::BondLoop as usize].get();
    (0..2).map(count).sum()
}

#[test]
fn address_is_learned_before_packet_is_sent() {
    let mut switch = switch();
    assert!(switch.send(0, HOST, &broadcast(1)) && switch.send(0, HOST, &broadcast(1)));
    for _ in 0..3 {
        switch.run_iteration(0);
        assert_eq!((switch.receive(0, 1).len(), switch.threads[0].held() > 0), (0, true));
    }
    assert_eq!(switch.counters(0).learn_requests.get(), 1);
    switch.settle();
    assert_eq!(switch.receive(0, 1), [broadcast(1), broadcast(1)]);
    assert_eq!(switch.counters(0).learn_requests.get(), 1, "the second packet knows the address");
    assert_eq!(learned_at(&switch), (1, BTreeSet::from([PortNo::new(HOST)])));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

/// The returned copy reaches a thread with a version without the learned address.
#[test]
fn a_returned_copy_waits_for_the_learned_address() {
    for [host, copy] in [[0, 1], [1, 0]] {
        let mut switch = switch();
        assert!(switch.send(host, HOST, &broadcast(1)) && switch.send(copy, 1, &broadcast(1)));
        switch.run_iteration(host);
        switch.run_iteration(copy);
        assert_eq!((switch.threads[host].held(), switch.threads[copy].held()), (1, 1));
        switch.settle();
        assert_eq!(switch.receive(host, 1), [broadcast(1)]);
        assert_eq!((received_by_host(&mut switch), count_loop_drops(&switch)), (Vec::new(), 1));
        assert_eq!(learned_at(&switch), (1, BTreeSet::from([PortNo::new(HOST)])));
    }
}

/// The network returns each broadcast on the active member; the bond drops it.
#[test]
fn no_host_of_many_gets_its_own_broadcast() {
    let mut switch = switch();
    for host in 1..=200 {
        assert!(switch.send(0, HOST, &broadcast(host)));
        let mut worked = true;
        while worked {
            worked = switch.coordinator.run_iteration();
            for thread in [1, 0] {
                worked |= switch.run_iteration(thread);
                // The network returns each frame on the active member.
                for frame in switch.receive(thread, 1) {
                    assert!(switch.send(1, 1, &frame));
                    worked = true;
                }
            }
            worked |= switch.learn();
        }
    }
    assert_eq!((received_by_host(&mut switch), count_loop_drops(&switch)), (Vec::new(), 200));
    assert_eq!(learned_at(&switch), (200, BTreeSet::from([PortNo::new(HOST)])));
}

/// A packet from the network waits until its source address is learned.
#[test]
fn packets_from_a_bond_reach_hosts() {
    let mut switch = switch();
    assert!(switch.send(0, 1, &broadcast(9)));
    switch.run_iteration(0);
    assert_eq!((received_by_host(&mut switch), switch.threads[0].held()), (Vec::new(), 1));
    switch.settle();
    assert_eq!(received_by_host(&mut switch), [broadcast(9)]);
    assert_eq!(learned_at(&switch), (1, BTreeSet::from([PortNo::new(1)])));
}

/// Returns the number of LACP frames that reached the control plane, by port.
fn count_punted(switch: &mut Switch) -> BTreeMap<PortNo, usize> {
    let mut counts = BTreeMap::new();
    while let Some(packet) = switch.controls[0].packet_ins.pop() {
        if let PuntReceiver::Lacp(port) = packet.punt.receiver {
            *counts.entry(port).or_default() += 1;
        }
    }
    counts
}

#[test]
fn each_link_has_its_own_slow_protocol_limit() {
    let mut switch = with_lacp(LacpAdmission::All);
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0x09]);
    for _ in 0..10 {
        (0..10).for_each(|_| assert!(switch.send(0, 1, &frame)));
        switch.settle();
    }
    assert!(switch.send(0, 2, &frame));
    switch.settle();
    let counts = BTreeMap::from([(PortNo::new(1), 10), (PortNo::new(2), 1)]);
    assert_eq!(count_punted(&mut switch), counts);
    let refused = DropReason::LacpFrameRefused as usize;
    assert_eq!(switch.counters(0).dropped[refused].get(), 90);
    assert_eq!(switch.traffic[&1][0].forward_dropped.get(DropReason::LacpFrameRefused), 90);
    switch.wait(Duration::from_millis(500));
    (0..10).for_each(|_| assert!(switch.send(0, 1, &frame)));
    switch.settle();
    assert_eq!(count_punted(&mut switch), BTreeMap::from([(PortNo::new(1), 5)]));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}
