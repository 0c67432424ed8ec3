//! Tests patch ports: a translation traverses several bridges under one version.

use shunt_datapath::thread::QueueSizes;
use shunt_flow::{PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::{BridgeId, BridgeSettings, Change, DatapathPort, PortInfo, PortKind};

use crate::harness::{BRIDGE, ENGINES, Engine, Switch, added};

const PEER: BridgeId = BridgeId::new(2);

/// Returns a switch in which port 5 of [`BRIDGE`] leads to port 1 of [`PEER`].
/// Ports 2 and 3 of the peer are ports 12 and 13 of the datapath.
fn switch(engine: Engine, rules: &[&str], peer_rules: &[&str]) -> Switch {
    let sizes = QueueSizes::default();
    let mut switch = Switch::with_engine(1, 1, super::thread_config(), sizes, engine);
    let patch = |own, bridge, port| {
        PortInfo::new(PortNo::new(own), PortKind::Patch { bridge, port: PortNo::new(port) })
    };
    let of_peer =
        |own| PortInfo::new(PortNo::new(own), PortKind::Datapath(DatapathPort::new(own + 10)));
    let change = switch.pipeline.add_bridge(PEER, BridgeSettings::default());
    switch.change(&change);
    let change = switch.pipeline.set_ports(BRIDGE, vec![PortInfo::datapath(1), patch(5, PEER, 1)]);
    switch.change(&change.unwrap());
    let ports = vec![patch(1, BRIDGE, 5), of_peer(2), of_peer(3)];
    let change = switch.pipeline.set_ports(PEER, ports);
    switch.change(&change.unwrap());
    [2, 3].into_iter().for_each(|own| switch.add_port(own + 10, PEER, PortNo::new(own)));
    for (bridge, rules) in [(BRIDGE, rules), (PEER, peer_rules)] {
        let change = publish(&switch, bridge, rules);
        switch.change(&change);
    }
    switch.settle();
    switch
}

/// Publishes a version, and does not send it to the coordinator.
fn publish(switch: &Switch, bridge: BridgeId, rules: &[&str]) -> Change {
    switch.pipeline.apply(bridge, &added(rules), switch.now).unwrap()
}

/// The result of a packet: last bytes of source and destination, and output port.
type ForwardingResult = (u8, u8, u32);

/// Sends a packet of a flow, and runs one iteration of the thread.
fn send(switch: &mut Switch, flow: u16) -> ForwardingResult {
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(flow, 53).build();
    assert!(switch.send(0, 1, &frame));
    switch.run_iteration(0);
    let mut fates = Vec::new();
    for port in [12, 13] {
        let frames = switch.receive(0, port);
        fates.extend(frames.iter().map(|frame| (frame[11], frame[5], port)));
    }
    assert_eq!(fates.len(), 1, "the packet leaves once");
    fates[0]
}

#[test]
fn peer_change_evicts_entries_through_patches() {
    if !super::HAS_CACHE {
        return;
    }
    for engine in ENGINES {
        let peer = ["priority=5,udp,actions=output:2"];
        let mut switch = switch(*engine, &["udp,actions=output:5"], &peer);
        assert_eq!([send(&mut switch, 1).2, send(&mut switch, 1).2], [12, 12]);
        switch.settle();
        let upcalls = switch.counters(0).upcalls.get();
        // The cache entry does not depend on rules of lower priority.
        let change = publish(&switch, PEER, &["priority=4,udp,actions=output:3"]);
        switch.change(&change);
        assert_eq!(send(&mut switch, 1).2, 12);
        assert_eq!(switch.counters(0).upcalls.get(), upcalls);
        let change = publish(&switch, PEER, &["priority=6,udp,actions=output:3"]);
        switch.change(&change);
        assert_eq!((send(&mut switch, 1).2, switch.counters(0).evicted.get()), (13, 1));
    }
}

#[test]
fn packet_through_patch_port_uses_one_version() {
    // The source address encodes the version of the bridge; the destination address and the port
    // encode that of the peer.
    let source = |version| {
        let of = |flow| {
            format!(
                "udp,tp_src={flow},actions=set_field:02:00:00:00:00:0{version}->eth_src,output:5"
            )
        };
        [1, 2, 3, 4].map(of)
    };
    let target = |version| {
        let set = format!("set_field:02:00:00:00:00:0{version}->eth_dst");
        [
            format!("udp,actions={set},resubmit(,1)"),
            format!("table=1,udp,actions=output:{}", version + 1),
        ]
    };
    for engine in ENGINES {
        let (rules, peer) = (source(1), target(1));
        let (rules, peer) = (rules.each_ref().map(|own| &**own), peer.each_ref().map(|own| &**own));
        let mut switch = switch(*engine, &rules, &peer);
        assert_eq!([send(&mut switch, 1), send(&mut switch, 1)], [(1, 1, 12); 2]);
        let own = publish(&switch, BRIDGE, &source(2).each_ref().map(|own| &**own));
        let others = publish(&switch, PEER, &target(2).each_ref().map(|own| &**own));
        // Both changes are published. The thread stays at its version, for a cached flow and for a
        // flow that it translates now.
        let mut forward_both = |change: Option<&Change>, flow| {
            change.into_iter().for_each(|change| switch.change(change));
            [send(&mut switch, 1), send(&mut switch, flow)]
        };
        assert_eq!(forward_both(None, 2), [(1, 1, 12); 2]);
        assert_eq!(forward_both(Some(&own), 3), [(2, 1, 12); 2]);
        assert_eq!(forward_both(Some(&others), 4), [(2, 2, 13); 2]);
    }
}
