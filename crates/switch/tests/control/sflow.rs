//! sFlow of a running switch; the test is the collector.

use std::collections::BTreeSet;

use shunt_flow_export::testing::{DecodedDatagram, DecodedSample, decode_sflow};
use shunt_switch::SflowStatus;
use tokio::net::UdpSocket;

use crate::{
    fixture::{SwitchFixture, frame, in_time, wait_until},
    log::Log,
};

/// A collector on a separate UDP port.
struct Collector {
    socket: UdpSocket,
    target: String,
}

impl Collector {
    async fn bind() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let target = socket.local_addr().unwrap().to_string();
        Self { socket, target }
    }

    async fn receive(&self) -> DecodedDatagram {
        let mut buffer = [0; 2000];
        let length = in_time(self.socket.recv(&mut buffer)).await.unwrap();
        decode_sflow(&buffer[..length]).unwrap()
    }
}

fn status(fixture: &SwitchFixture) -> Option<SflowStatus> {
    fixture.switch.bridges()[0].sflow.clone()
}

#[tokio::test]
async fn samples_of_all_threads_reach_every_collector() {
    let log = Log::capture();
    let fixture = SwitchFixture::start(2).await;
    let ports = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 1).await];
    fixture.switch.add_rules("br0", &["in_port=p1,actions=output:p2"]).await.unwrap();
    let collectors = [Collector::bind().await, Collector::bind().await];
    let targets = collectors.each_ref().map(|own| own.target.as_str()).join(",");
    let settings = [
        ("sflow.targets", targets.as_str()),
        ("sflow.agent", "192.0.2.7"),
        ("sflow.sampling", "1"),
        ("sflow.polling", "0"),
    ];
    fixture.switch.set_bridge("br0", &settings).await.unwrap();
    for number in 0..3 {
        ports.iter().for_each(|port| port.send(&frame(number)));
    }
    for collector in &collectors {
        let (mut inputs, mut sequences) = (Vec::new(), BTreeSet::new());
        while inputs.len() < 6 {
            let datagram = collector.receive().await;
            assert_eq!(datagram.address.to_string(), "192.0.2.7");
            assert_eq!(datagram.sub_agent, 1, "the number of the bridge");
            for sample in &datagram.samples {
                sequences.insert(sample.words[0]);
                inputs.push((sample.words[5], sample.words[6]));
                let header = sample.header().unwrap();
                assert_eq!(header, frame(header[20]));
            }
        }
        assert!(sequences.into_iter().eq(1..=6));
        // The ports have no network device, so the switch has assigned their indices.
        let forwarded = inputs.iter().filter(|(input, output)| (input & output) >> 23 == 1);
        assert_eq!(forwarded.count(), 3, "{inputs:?}");
        let dropped = inputs.iter().filter(|(_, output)| *output == 0x4000_0100);
        assert_eq!(dropped.count(), 3, "{inputs:?}");
    }
    let shown = status(&fixture).unwrap();
    assert_eq!((shown.samples, shown.samples_dropped, shown.problem), (6, 0, None));
    fixture.switch.set_bridge("br0", &[("sflow.targets", "")]).await.unwrap();
    assert_eq!(status(&fixture), None);
    let lines = log.lines_with("bridge br0: sFlow st");
    assert!(matches!(&*lines, [on, off] if on.contains("started") && off.contains("stopped")));
}

/// A port that is added while sFlow runs has an index from its first sample on.
#[tokio::test]
async fn first_sample_of_port_has_its_index() {
    let fixture = SwitchFixture::start(1).await;
    let collector = Collector::bind().await;
    let settings = [
        ("sflow.targets", collector.target.as_str()),
        ("sflow.sampling", "1"),
        ("sflow.polling", "0"),
    ];
    fixture.switch.set_bridge("br0", &settings).await.unwrap();
    let sample = async |frame: u8| loop {
        let samples = collector.receive().await.samples;
        let is_own = |sample: &&DecodedSample| sample.header().unwrap()[20] == frame;
        if let Some(sample) = samples.iter().find(is_own) {
            break sample.words[5];
        }
    };
    let (mut known, mut ports) = (BTreeSet::new(), Vec::new());
    for number in 1..6 {
        let port = fixture.add_port(&format!("p{number}"), 0).await;
        port.send(&frame(number));
        ports.push(port);
        let index = sample(number).await;
        assert_eq!(index >> 23, 1, "port {number} has the index {index}");
        assert!(known.insert(index), "port {number} has the index {index} of another one");
    }
}

#[tokio::test]
async fn counters_are_reported_at_once() {
    let fixture = SwitchFixture::start(1).await;
    let _ports = [fixture.add_port("p1", 0).await, fixture.add_port("p2", 0).await];
    let collector = Collector::bind().await;
    let targets = collector.target.as_str();
    fixture.switch.set_bridge("br0", &[("sflow.targets", targets)]).await.unwrap();
    let datagram = collector.receive().await;
    assert_eq!(datagram.address.to_string(), "127.0.0.1", "the address of the route");
    let names = datagram.samples.iter().map(|sample| sample.port_name().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["p1", "p2"]);
}

#[tokio::test]
async fn an_sflow_problem_is_logged_once() {
    let log = Log::capture();
    let fixture = SwitchFixture::start(1).await;
    let collector = Collector::bind().await;
    let settings = [("sflow.targets", collector.target.as_str()), ("sflow.agent", "nosuch0")];
    fixture.switch.set_bridge("br0", &settings).await.unwrap();
    let problem = "agent nosuch0 is not a network device";
    wait_until(|| status(&fixture).unwrap().problem.as_deref() == Some(problem)).await;
    fixture.switch.set_bridge("br0", &[("sflow.agent", "127.0.0.9")]).await.unwrap();
    wait_until(|| status(&fixture).unwrap().agent_address == "127.0.0.9").await;
    assert_eq!(status(&fixture).unwrap().problem, None);
    assert_eq!(log.lines_with(problem).len(), 1);
    fixture.switch.remove_bridge("br0").await.unwrap();
    fixture.add_bridge("br0").await;
    assert_eq!(status(&fixture), None, "a new bridge of the same name sends nothing");
}
