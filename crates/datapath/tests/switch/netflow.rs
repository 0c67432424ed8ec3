//! Tests exported NetFlow flows: their packet counts, and their output ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc,
    time::Duration,
};

use shunt_datapath::{
    BURST, Command, ThreadConfig,
    netflow::{ExpiredFlow, NETFLOW_FLOWS_MAX, NetflowCache, NetflowReceiver, netflow_cache},
    sample::SampledEgress,
};
use shunt_flow::testing::packet::PacketBuilder;
use shunt_pipeline::{BridgeId, DatapathPort};

use super::waiting::{flow, per_flow};
use crate::harness::{BRIDGE, Switch, added};

/// Makes thread 0 count the flows of a bridge; returns the receiver of ended flows.
fn count(switch: &mut Switch, bridge: BridgeId) -> NetflowReceiver {
    let (cache, receiver) = netflow_cache(bridge, NETFLOW_FLOWS_MAX, 5);
    let command = Command::CountFlows(bridge, Some(Box::new(cache)), Box::new(|_| {}));
    switch.controls[0].send(command).unwrap();
    receiver
}

/// Ends the count of the flows of a bridge; returns the flows left in the cache.
fn end_count(switch: &mut Switch, bridge: BridgeId) -> Vec<ExpiredFlow> {
    let (sender, caches) = mpsc::channel();
    let reply = Box::new(move |cache| drop(sender.send(cache)));
    switch.controls[0].send(Command::CountFlows(bridge, None, reply)).unwrap();
    switch.settle();
    let cache: Option<Box<NetflowCache>> = caches.recv().unwrap();
    cache.map(|own| own.into_flows().collect()).unwrap_or_default()
}

/// Expires all flows, and returns them.
fn expire_flows(switch: &mut Switch, receiver: &mut NetflowReceiver) -> Vec<ExpiredFlow> {
    switch.wait(Duration::from_secs(12));
    switch.settle();
    std::iter::from_fn(|| receiver.pop()).collect()
}

const fn egress_port(number: u32) -> SampledEgress {
    SampledEgress::Port(DatapathPort::new(number))
}

#[test]
fn a_flow_has_its_packets_and_output_ports() {
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(&added(&[
        "in_port=1,udp,tp_src=1,actions=output:2",
        "in_port=1,udp,tp_src=2,actions=output:2,output:3",
        "in_port=1,udp,tp_src=3,actions=mod_vlan_vid:9,output:4",
        "in_port=1,udp,tp_src=4,actions=drop",
        "in_port=1,udp,tp_src=5,actions=in_port",
        "in_port=1,udp,tp_src=6,actions=controller",
        "in_port=1,udp,tp_src=7,actions=mod_tp_src:99,resubmit(,1)",
        "table=1,udp,actions=output:3",
        "in_port=1,arp,actions=output:3",
    ]));
    let mut receiver = count(&mut switch, BRIDGE);
    let expected = [
        egress_port(2),
        SampledEgress::Ports(2),
        egress_port(4),
        SampledEgress::Dropped,
        egress_port(1),
        SampledEgress::Controller,
        egress_port(3),
    ];
    // A flow of one packet has no cache hit: its output port comes from its translation.
    for packets in [1, 3] {
        for number in 1..=7 {
            for _ in 0..packets {
                assert!(switch.send(0, 1, &flow(number)));
                switch.settle();
            }
        }
        let flows = expire_flows(&mut switch, &mut receiver);
        let bytes = flow(1).len() as u64;
        let found: BTreeMap<_, _> = flows
            .iter()
            .map(|own| (own.key.source_port, (own.egress, own.counts.packets, own.counts.bytes)))
            .collect();
        let expected = expected.map(|egress| (egress, packets, packets * bytes));
        assert_eq!((flows.len(), found), (7, (1..).zip(expected).collect()));
        assert!(flows.iter().all(|own| (own.key.in_port, own.key.destination_port) == (1, 53)));
    }
    assert_eq!(receiver.lost(), 0);
}

#[test]
fn flow_has_output_port_of_last_packet() {
    let mut switch = Switch::new(1, 3, super::thread_config());
    switch.apply(&added(&["priority=1,actions=output:2"]));
    let mut receiver = count(&mut switch, BRIDGE);
    for rule in ["priority=2,actions=output:3", "priority=3,actions=output:2"] {
        for _ in 0..2 {
            assert!(switch.send(0, 1, &flow(1)));
            switch.settle();
        }
        switch.apply(&added(&[rule]));
    }
    let flows = expire_flows(&mut switch, &mut receiver);
    assert_eq!((flows.len(), flows[0].egress, flows[0].counts.packets), (1, egress_port(3), 4));
}

#[test]
fn only_flows_of_the_bridge_are_counted() {
    let other = BridgeId::new(2);
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&added(&["actions=output:2"]));
    let mut of_other = count(&mut switch, other);
    let mut receiver = count(&mut switch, BRIDGE);
    let tagged = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tag(0x8100, 7).udp(1, 53);
    assert!(switch.send(0, 1, &tagged.build()));
    switch.settle();
    assert_eq!(expire_flows(&mut switch, &mut of_other), []);
    let flows: Vec<_> = std::iter::from_fn(|| receiver.pop()).collect();
    assert_eq!((flows.len(), flows[0].counts.packets), (1, 1));
    // The end of the count returns the flows so far.
    assert!(switch.send(0, 1, &flow(1)));
    switch.settle();
    let flows = end_count(&mut switch, BRIDGE);
    assert_eq!((flows.len(), flows[0].counts.packets), (1, 1));
    assert!(switch.send(0, 1, &flow(1)));
    switch.settle();
    assert_eq!(expire_flows(&mut switch, &mut receiver), []);
    assert_eq!((receiver.flows(), receiver.lost()), (0, 0));
    assert_eq!(end_count(&mut switch, BRIDGE), []);
}

/// The test makes more flows than the ring of ended flows holds.
#[test]
fn a_cache_that_ends_has_all_flows() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&added(&["actions=drop"]));
    let mut receiver = count(&mut switch, BRIDGE);
    let flows: u16 = 20_000;
    for number in 0..flows {
        while !switch.send(0, 1, &flow(number)) {
            switch.settle();
        }
    }
    switch.settle();
    let ended = end_count(&mut switch, BRIDGE);
    let ports: BTreeSet<u16> = ended.iter().map(|own| own.key.source_port).collect();
    assert_eq!((ended.len(), ports.len()), (usize::from(flows), usize::from(flows)));
    assert!(receiver.pop().is_none() && receiver.lost() == 0);
}

/// Packets that wait for their translation are counted as well.
#[test]
fn every_packet_of_all_bursts_is_counted() {
    let config = ThreadConfig { translations_per_iteration: 2, ..super::thread_config() };
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[per_flow(1, 2)]);
    let mut receiver = count(&mut switch, BRIDGE);
    let mut received = 0;
    for round in 0..40 {
        for number in 0..BURST {
            let number = u16::try_from(number).unwrap();
            assert!(switch.send(0, 1, &flow(round % 8 * 100 + number)));
        }
        switch.settle();
        received += switch.receive(0, 2).len();
    }
    let flows = expire_flows(&mut switch, &mut receiver);
    let packets: u64 = flows.iter().map(|own| own.counts.packets).sum();
    assert_eq!((flows.len(), packets, received), (8 * BURST, 40 * BURST as u64, 40 * BURST));
    assert!(flows.iter().all(|own| (own.egress, own.counts.packets) == (egress_port(2), 5)));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

/// A thread sleeps at most until the next scan, so flows expire in time.
#[test]
fn an_idle_thread_wakes_to_end_flows() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&added(&["actions=output:2"]));
    let mut receiver = count(&mut switch, BRIDGE);
    assert!(switch.send(0, 1, &flow(1)));
    switch.settle();
    for _ in 0..100 {
        if !receiver.is_empty() {
            break;
        }
        let sleep = switch.threads[0].sleep_max();
        assert!(sleep <= Duration::from_secs(1), "{sleep:?}");
        switch.wait(sleep.max(Duration::from_millis(1)));
        switch.settle();
    }
    assert_eq!(receiver.len(), 1);
    assert!(receiver.pop().is_some_and(|own| own.counts.packets == 1));
}
