//! IPFIX of a running switch; the test is the collector.

use std::collections::BTreeMap;

use shunt_flow::testing::packet::PacketBuilder;
use shunt_flow_export::testing::{DecodedIpfix, DecodedIpfixRecord, IpfixDecoder};
use shunt_switch::{IpfixStatus, config::CollectorSetOptions};
use tokio::net::UdpSocket;

use crate::{
    fixture::{SwitchFixture, frame, in_time, wait_until},
    log::Log,
};

/// Number of templates: 14 kinds of flows, and one for the sampling rate.
const TEMPLATES: usize = 15;

/// A collector on a separate UDP port.
struct FlowCollector {
    socket: UdpSocket,
    target: String,
    decoder: IpfixDecoder,
}

impl FlowCollector {
    async fn bind() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let target = socket.local_addr().unwrap().to_string();
        Self { socket, target, decoder: IpfixDecoder::default() }
    }

    async fn receive(&mut self) -> DecodedIpfix {
        let mut buffer = [0; 2000];
        let length = in_time(self.socket.recv(&mut buffer)).await.unwrap();
        self.decoder.decode(&buffer[..length]).unwrap()
    }

    /// Receives all IPFIX templates.
    ///
    /// Returns the sequence number and the observation domain of their first message.
    async fn templates(&mut self) -> (u32, u32) {
        let first = self.receive().await;
        let mut count = first.templates;
        while count < TEMPLATES {
            count += self.receive().await.templates;
        }
        (first.sequence, first.domain)
    }

    /// Receives until there are `count` flows, and returns them.
    async fn flows(&mut self, count: usize) -> Vec<DecodedIpfixRecord> {
        let mut flows = Vec::new();
        while flows.len() < count {
            // Records with a packet count are flows.
            let records = self.receive().await.records.into_iter();
            flows.extend(records.filter(|own| own.value(2).is_some()));
        }
        flows
    }
}

fn status(fixture: &SwitchFixture) -> Option<IpfixStatus> {
    fixture.switch.bridges()[0].ipfix.clone()
}

/// Returns a TCP packet of a flow.
fn tcp(flow: u16) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(flow, 80).build()
}

#[tokio::test]
async fn each_sample_is_a_flow_without_a_cache() {
    let log = Log::capture();
    let fixture = SwitchFixture::start(2).await;
    let ports = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await];
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:p2"]).await.unwrap();
    let mut collector = FlowCollector::bind().await;
    let settings = [
        ("ipfix.targets", collector.target.as_str()),
        ("ipfix.sampling", "1"),
        ("ipfix.obs_domain_id", "11"),
        ("ipfix.obs_point_id", "22"),
    ];
    fixture.switch.set_bridge("br0", &settings).await.unwrap();
    assert_eq!(collector.templates().await, (0, 11));
    for number in 0..3 {
        ports[0].send(&tcp(number));
    }
    ports[1].send(&frame(1));
    let flows = collector.flows(4).await;
    let value = |flow: &DecodedIpfixRecord, element| flow.value(element).unwrap();
    assert!(flows.iter().all(|own| (value(own, 138), value(own, 2)) == (22, 1)));
    let of_ip: Vec<_> = flows.iter().filter(|own| own.value(60) == Some(4)).collect();
    let mut sources: Vec<_> = of_ip.iter().map(|own| value(own, 7)).collect();
    sources.sort_unstable();
    assert_eq!(sources, [0, 1, 2]);
    for flow in of_ip {
        assert_eq!((value(flow, 8), value(flow, 12)), (0x0a00_0001, 0x0a00_0002));
        assert_eq!((value(flow, 4), value(flow, 11)), (6, 80));
        assert_eq!(value(flow, 1) + 14, value(flow, 352), "bytes without the Ethernet header");
        // The ports have no network device, so the switch has assigned their indices.
        assert!(value(flow, 10) >> 23 == 1 && value(flow, 14) >> 23 == 1);
        assert_ne!(value(flow, 10), value(flow, 14));
    }
    let other = flows.iter().find(|own| own.value(60).is_none()).unwrap();
    assert_eq!((value(other, 256), value(other, 14)), (0x88b5, 0), "dropped: no egress interface");
    let shown = status(&fixture).unwrap();
    assert_eq!((shown.samples, shown.samples_dropped, shown.flows), (4, 0, 4));
    fixture.switch.set_bridge("br0", &[("ipfix.targets", "")]).await.unwrap();
    assert_eq!(status(&fixture), None);
    wait_until(|| log.lines_with("bridge br0: IPFIX").len() == 2).await;
    let lines = log.lines_with("bridge br0: IPFIX");
    let stopped = "stopped flows=4 flows_lost=0";
    assert!(matches!(&*lines, [on, off] if on.contains("started") && off.contains(stopped)));
}

#[tokio::test]
async fn samples_are_collected_into_flows() {
    // All tests of this file capture the log: a thread without a capture could disable the log
    // lines of others.
    let _log = Log::capture();
    let fixture = SwitchFixture::start(1).await;
    let port = fixture.add_port("p1", 0).await;
    let mut collector = FlowCollector::bind().await;
    let settings = [
        ("ipfix.targets", collector.target.as_str()),
        ("ipfix.sampling", "1"),
        ("ipfix.cache_active_timeout", "60"),
        ("ipfix.cache_max_flows", "2"),
    ];
    fixture.switch.set_bridge("br0", &settings).await.unwrap();
    for number in [1, 2, 1, 2, 2, 3] {
        port.send(&tcp(number));
    }
    let values = |own: DecodedIpfixRecord| [7, 2, 136].map(|element| own.value(element).unwrap());
    // The first flow is reported to make space for the third flow.
    let flows = collector.flows(1).await;
    assert_eq!(flows.into_iter().map(values).collect::<Vec<_>>(), [[1, 2, 5]]);
    wait_until(|| status(&fixture).unwrap().samples == 6).await;
    assert_eq!(status(&fixture).unwrap().active_flows, 2);
    // A change of the options ends the other flows, and begins a new stream. Both streams have
    // their own socket.
    fixture.switch.set_bridge("br0", &[("ipfix.obs_domain_id", "5")]).await.unwrap();
    let (mut ended, mut templates) = (Vec::new(), 0);
    while ended.len() < 2 || templates < TEMPLATES {
        let message = collector.receive().await;
        if message.domain == 5 {
            assert!(templates > 0 || message.sequence == 0);
            templates += message.templates;
        } else {
            let flows = message.records.into_iter().filter(|own| own.value(2).is_some());
            ended.extend(flows.map(values));
        }
    }
    assert_eq!(ended, [[2, 3, 4], [3, 1, 4]]);
    // The counters continue after the change.
    let shown = status(&fixture).unwrap();
    assert_eq!((shown.samples, shown.flows, shown.flows_lost), (6, 3, 0));
    assert!(shown.messages >= 4 && shown.options.obs_domain_id == 5, "{shown:?}");
    // The flows in the cache are reported when the daemon ends.
    port.send(&tcp(7));
    wait_until(|| status(&fixture).unwrap().samples == 7).await;
    fixture.switch.stop().await;
    let flows = collector.flows(1).await;
    assert_eq!(flows.into_iter().map(values).collect::<Vec<_>>(), [[7, 1, 4]]);
}

/// A rule samples the packets that it matches, for its set of collectors.
#[tokio::test]
async fn rules_sample_packets_for_their_collectors() {
    let log = Log::capture();
    let fixture = SwitchFixture::start(2).await;
    let ports = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await];
    let mut collector = FlowCollector::bind().await;
    let (id, targets) = (7, vec![collector.target.clone()]);
    let set = CollectorSetOptions { id, targets, ..CollectorSetOptions::default() };
    fixture.switch.set_collector_sets("br0", vec![set]).await.unwrap();
    let sample = "sample(probability=65535,collector_set_id=7,obs_domain_id=3,obs_point_id=4";
    let rules = [
        format!("in_port=p1,actions={sample}),output:p2"),
        format!("in_port=p2,actions={sample},sampling_port=p1),output:p1"),
    ];
    fixture.switch.add_rules("br0", &rules.each_ref().map(String::as_str)).await.unwrap();
    for (port, number) in ports.iter().zip(1..) {
        port.send(&tcp(number));
    }
    let mut flows = BTreeMap::new();
    while flows.len() < 2 {
        let message = collector.receive().await;
        assert_eq!(message.domain, 3);
        let values = |own: DecodedIpfixRecord| {
            let value = |element| own.value(element).unwrap();
            (value(7), [138, 2, 61, 10, 14].map(value))
        };
        flows.extend(message.records.into_iter().map(values));
    }
    // The fields are: point, packets, direction, ingress and egress interface.
    let [first, second] = [1, 2].map(|number| flows[&number]);
    assert_eq!((first[..3].to_vec(), second[..3].to_vec()), (vec![4, 1, 0], vec![4, 1, 1]));
    assert_eq!((first[4], second[4]), (0, first[3]), "p1 is sampled as an egress port");
    assert!(first[3] != 0 && second[3] != 0 && first[3] != second[3]);
    let shown = fixture.switch.bridges().remove(0).collector_sets.remove(0);
    assert_eq!((shown.samples, shown.flows, shown.flows_lost), (2, 2, 0));
    fixture.switch.set_collector_sets("br0", Vec::new()).await.unwrap();
    assert_eq!(fixture.switch.bridges()[0].collector_sets, []);
    let stopped = "bridge br0: collector set 7: stopped flows=2 flows_lost=0";
    wait_until(|| log.lines_with(stopped).len() == 1).await;
}
