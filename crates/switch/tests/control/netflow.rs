//! NetFlow of a running switch; the test is the collector.

use std::collections::{BTreeMap, BTreeSet};

use shunt_flow::testing::packet::PacketBuilder;
use shunt_flow_export::testing::{DecodedNetflow, decode_netflow};
use shunt_switch::NetflowStatus;
use tokio::net::UdpSocket;

use crate::{
    fixture::{SwitchFixture, in_time, wait_until},
    log::Log,
};

/// Returns a UDP packet of a flow.
fn udp(flow: u16) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(flow, 53).build()
}

async fn collector() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let target = socket.local_addr().unwrap().to_string();
    (socket, target)
}

async fn receive(socket: &UdpSocket) -> DecodedNetflow {
    let mut buffer = [0; 2000];
    let length = in_time(socket.recv(&mut buffer)).await.unwrap();
    decode_netflow(&buffer[..length]).unwrap()
}

fn status(fixture: &SwitchFixture) -> Option<NetflowStatus> {
    fixture.switch.bridges()[0].netflow.clone()
}

#[tokio::test]
async fn flows_of_all_threads_reach_every_collector() {
    let log = Log::capture();
    let fixture = SwitchFixture::start(2).await;
    let ports = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await];
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:p2"]).await.unwrap();
    let collectors = [collector().await, collector().await];
    let targets = collectors.each_ref().map(|(_, target)| target.as_str()).join(",");
    let settings = [("netflow.targets", targets.as_str()), ("netflow.engine_type", "9")];
    fixture.switch.set_bridge("br0", &settings).await.unwrap();
    for number in [0, 0, 1] {
        ports.iter().for_each(|port| port.send(&udp(number)));
    }
    // With this timeout, the flows are reported before they end.
    fixture.switch.set_bridge("br0", &[("netflow.active_timeout", "1")]).await.unwrap();
    for (socket, _) in &collectors {
        let (mut counts, mut sequence) = (BTreeMap::new(), 0);
        while counts.values().sum::<u64>() < 6 {
            let DecodedNetflow { header, records } = receive(socket).await;
            assert_eq!((header.engine.kind, header.engine.id), (9, 1), "the number of the bridge");
            assert_eq!(header.sequence, sequence);
            sequence += u32::try_from(records.len()).unwrap();
            for record in records {
                let key = (record.input, record.output, record.source, record.source_port);
                *counts.entry(key).or_insert(0) += record.packets;
            }
        }
        let mut by_ports = BTreeMap::new();
        for ((input, output, ..), packets) in &counts {
            by_ports.entry((*input, *output)).or_insert_with(Vec::new).push(*packets);
        }
        by_ports.values_mut().for_each(|packets| packets.sort_unstable());
        // Packets of p2 match no rule.
        let expected = [((1, 2), vec![1, 2]), ((2, 65_533), vec![1, 2])];
        assert_eq!(by_ports, BTreeMap::from(expected));
    }
    let shown = status(&fixture).unwrap();
    assert_eq!((shown.flows, shown.flows_lost, shown.problem), (4, 0, None));
    fixture.switch.set_bridge("br0", &[("netflow.targets", "")]).await.unwrap();
    assert_eq!(status(&fixture), None);
    wait_until(|| log.lines_with("bridge br0: NetFlow").len() == 3).await;
    let lines = log.lines_with("bridge br0: NetFlow");
    let ends = ["started", "changed", "stopped flows=4 flows_lost=0"];
    assert!(lines.iter().zip(ends).all(|(line, end)| line.contains(end)), "{lines:?}");
}

/// Receives `count` flows of one packet each, and checks that no flow is missing.
async fn receive_flows(socket: &UdpSocket, count: u16) {
    let (mut flows, mut sequence) = (BTreeSet::new(), 0);
    while flows.len() < usize::from(count) {
        let DecodedNetflow { header, records } = receive(socket).await;
        assert_eq!(header.sequence, sequence);
        sequence += u32::try_from(records.len()).unwrap();
        for record in records {
            assert!(record.packets == 1 && flows.insert(record.source_port), "{record:?}");
        }
    }
}

/// The flows exceed the ring of a thread and the send buffer of a socket.
#[tokio::test]
async fn all_flows_are_reported_when_netflow_stops() {
    const FLOWS: u16 = 20_000;
    let log = Log::capture();
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    let (socket, target) = collector().await;
    fixture.switch.set_bridge("br0", &[("netflow.targets", target.as_str())]).await.unwrap();
    (0..FLOWS).for_each(|number| port.send(&udp(number)));
    wait_until(|| fixture.port("p1").rx_packets == u64::from(FLOWS)).await;
    fixture.switch.set_bridge("br0", &[("netflow.targets", "")]).await.unwrap();
    receive_flows(&socket, FLOWS).await;
    let stopped = "bridge br0: NetFlow stopped flows=20000 flows_lost=0";
    wait_until(|| log.lines_with(stopped).len() == 1).await;
}

#[tokio::test]
async fn flows_are_reported_when_the_switch_stops() {
    let _log = Log::capture();
    let fixture = SwitchFixture::start(2).await;
    let ports = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await];
    let (socket, target) = collector().await;
    fixture.switch.set_bridge("br0", &[("netflow.targets", target.as_str())]).await.unwrap();
    for (port, number) in ports.iter().zip(0..) {
        port.send(&udp(number));
    }
    wait_until(|| fixture.port("p1").rx_packets + fixture.port("p2").rx_packets == 2).await;
    fixture.switch.stop().await;
    receive_flows(&socket, 2).await;
}

#[tokio::test]
async fn flows_are_reported_when_netflow_stops() {
    // All tests of this file capture the log: a thread without a capture could disable the log
    // lines of others.
    let _log = Log::capture();
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    let (socket, target) = collector().await;
    fixture.switch.set_bridge("br0", &[("netflow.targets", target.as_str())]).await.unwrap();
    port.send(&udp(0));
    wait_until(|| fixture.port("p1").rx_packets == 1).await;
    fixture.switch.remove_bridge("br0").await.unwrap();
    let DecodedNetflow { records, .. } = receive(&socket).await;
    assert_eq!((records.len(), records[0].packets, records[0].input), (1, 1, 1));
    fixture.add_bridge("br0").await;
    assert_eq!(status(&fixture), None, "a new bridge of the same name reports nothing");
}
