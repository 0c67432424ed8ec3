//! Tests that flows keep their order while some of their packets are in the switch.

use std::sync::Arc;

use shunt_datapath::port::{Port, pair::pair};
use shunt_flow::{FieldId, testing::PacketBuilder};
use shunt_gigaflow::ltm::Next;

use crate::fixture::{NicFixture, rule, with_output};

/// A NIC with ports 7 and 8 of a switch; the test acts as the switch.
struct Ordered {
    fixture: NicFixture,
    /// The ports, which are open until they are dropped.
    ports: Vec<Box<dyn Port>>,
    /// The numbers of the far ends of the ports.
    ends: [usize; 2],
    /// The numbers of the queues of the representors, which the switch would use.
    representors: [usize; 2],
}

impl Ordered {
    async fn new() -> Self {
        let mut fixture = NicFixture::new().await;
        let (mut ports, mut ends, mut representors) = (Vec::new(), [0; 2], [0; 2]);
        for (index, number) in [7, 8].into_iter().enumerate() {
            let (near, mut far) = pair(1, 50 + 10 * u64::from(number));
            let mut port = fixture.ports.represent(number, Box::new(near), 60, Arc::default());
            representors[index] = fixture.add_end(port.split(1).unwrap().remove(0));
            ends[index] = fixture.add_end(far.split(1).unwrap().remove(0));
            ports.push(port);
        }
        Self { fixture, ports, ends, representors }
    }

    fn send(&mut self, numbers: impl IntoIterator<Item = u16>) {
        for number in numbers {
            self.fixture.send(self.ends[0], &numbered_frame(number));
        }
    }

    /// Receives frames of the flow that missed, from the representor of port 7.
    async fn receive_missed(&mut self, numbers: impl IntoIterator<Item = u16>) {
        for number in numbers {
            assert_eq!(self.fixture.receive(self.representors[0]).await, numbered_frame(number));
        }
    }

    /// Receives frames of the flow that left by port 8.
    async fn receive_forwarded(&mut self, numbers: impl IntoIterator<Item = u16>) {
        for number in numbers {
            assert_eq!(self.fixture.receive(self.ends[1]).await, numbered_frame(number));
        }
    }

    /// Sends frames of the flow as the switch does.
    fn forward(&mut self, numbers: impl IntoIterator<Item = u16>) {
        for number in numbers {
            self.fixture.send(self.representors[1], &numbered_frame(number));
        }
    }

    /// Reports the number of finished frames as the switch does.
    fn finish(&mut self, count: u64) {
        self.fixture.ends[self.representors[0]].rx.as_mut().unwrap().finished(count);
    }

    /// Inserts an entry for all packets of port 7.
    async fn insert(&mut self) {
        self.fixture
            .insert(0, with_output(8, rule(0, &[(FieldId::InPort, 7)], &[], Next::End)))
            .await;
    }

    /// Waits until a packet of another flow has left.
    async fn other_flow_leaves(&mut self) {
        let other = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 9]).udp(1000, 2000).build();
        self.fixture.send(self.ends[0], &other);
        assert_eq!(self.fixture.receive(self.ends[1]).await, other);
    }
}

fn numbered_frame(number: u16) -> Vec<u8> {
    let payload = number.to_be_bytes();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 2000).payload(payload).build()
}

#[tokio::test]
async fn hit_waits_for_earlier_packets_of_flow() {
    let mut nic = Ordered::new().await;
    nic.send(0..3);
    nic.receive_missed(0..3).await;
    nic.insert().await;
    nic.send(3..6);
    nic.other_flow_leaves().await;
    // The switch has finished only some of the diverted packets.
    nic.forward(0..2);
    nic.finish(2);
    nic.receive_forwarded(0..2).await;
    nic.other_flow_leaves().await;
    nic.forward(2..3);
    nic.finish(3);
    nic.send(6..8);
    nic.receive_forwarded(2..8).await;
    assert_eq!(nic.fixture.traffic.hits(), 7);
    assert_eq!(nic.fixture.traffic.represented(), 3);
}

#[tokio::test]
async fn dropped_earlier_packets_release_held_ones() {
    let mut nic = Ordered::new().await;
    nic.send(0..2);
    nic.receive_missed(0..2).await;
    nic.insert().await;
    nic.send(2..4);
    nic.other_flow_leaves().await;
    nic.finish(2);
    nic.receive_forwarded(2..4).await;
    nic.send(4..6);
    nic.receive_forwarded(4..6).await;
}

#[tokio::test]
async fn packets_that_cannot_be_held_follow_in_order() {
    let mut nic = Ordered::new().await;
    nic.send(0..1);
    nic.receive_missed(0..1).await;
    nic.insert().await;
    // At most 256 packets are held. With the next packet, all held packets take the path through
    // the switch.
    nic.send(1..258);
    nic.receive_missed(1..258).await;
    nic.send(258..260);
    nic.other_flow_leaves().await;
    nic.forward(0..258);
    nic.finish(258);
    nic.receive_forwarded(0..260).await;
}

#[tokio::test]
async fn held_packets_end_with_their_port() {
    let mut nic = Ordered::new().await;
    nic.send(0..1);
    nic.receive_missed(0..1).await;
    nic.insert().await;
    nic.send(1..5);
    nic.other_flow_leaves().await;
    // The switch never finishes the first packet. Only the end of the port frees the held packets.
    nic.ports.clear();
    let traffic = &nic.fixture.traffic;
    let ended: u64 =
        shunt_nic::NicDropReason::ALL.iter().map(|reason| traffic.dropped(*reason)).sum();
    assert_eq!(traffic.received(), traffic.sent() + traffic.represented() + ended);
    assert_eq!(ended, 4);
}
