//! The NIC as a whole: rules by gRPC, frames by its ports.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a NIC that does not answer fails the test")]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use shunt_datapath::{
    Packet, Pool,
    port::{
        Port, Queues,
        pair::{Pair, pair},
    },
};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, testing::PacketBuilder};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    partition::StageId,
    target::{Event, LtmIndex, LtmTarget, Operation, Ticket},
};
use shunt_nic::{DropReason, Limits, Nic, NicPort, Traffic};
use shunt_p4runtime::{
    client::{P4Target, PacketToSend, Settings},
    codec::Ports,
    program::Program,
    server::Now,
};
use shunt_pipeline::{DatapathAction, DatapathPort};
use tokio::{runtime::Handle, sync::Notify};

fn clock() -> Now {
    Now::default()
}

/// A NIC with two ports, the far ends of these, and its controller.
struct World {
    target: P4Target,
    /// The target has something to say.
    news: Arc<Notify>,
    ends: [Queues; 2],
    traffic: Arc<Traffic>,
    /// Frames that came in one burst with one that was asked for.
    came: [VecDeque<Vec<u8>>; 2],
    pool: Pool,
    next: u64,
}

impl World {
    async fn new() -> Self {
        let [(near_1, far_1), (near_2, far_2)] = [pair(1, 1), pair(1, 3)];
        let port = |number, port: Pair| NicPort { number, port: Box::new(port) };
        let ports = vec![port(1, near_1), port(2, near_2)];
        let address = "127.0.0.1:0".parse().unwrap();
        let program = Program::new(3, 64).unwrap();
        let nic = Nic::start((program, Limits::default()), ports, address, (clock, 5)).await;
        let nic = nic.unwrap();
        let settings = Settings {
            program,
            ports: Ports(BTreeMap::from([1, 2].map(|n| (DatapathPort::new(n.into()), n)))),
            retry: Duration::from_millis(5),
            ..Settings::new(format!("http://{}", nic.address()))
        };
        let traffic = nic.traffic();
        tokio::spawn(nic.run(std::future::pending()));
        let news = Arc::new(Notify::new());
        let mut target = P4Target::new(settings, &Handle::current(), {
            let news = Arc::clone(&news);
            move || news.notify_one()
        });
        let mut events = Vec::new();
        while !events.contains(&Event::Restored) {
            news.notified().await;
            target.poll(&mut events);
        }
        let end = |mut far: Pair| far.split(1).unwrap().remove(0);
        let (ends, came) = ([end(far_1), end(far_2)], [VecDeque::new(), VecDeque::new()]);
        Self { target, news, traffic, ends, came, pool: Pool::new(), next: 0 }
    }

    async fn insert(&mut self, stage: u8, rule: LtmRule) {
        self.next += 1;
        let stage = StageId::new(stage).unwrap();
        let entry = LtmIndex(self.next);
        let operation = Operation::Insert { entry, stage, rule: Arc::new(rule) };
        self.target.submit(&mut vec![(Ticket(self.next), operation)]).unwrap();
        let answer = Event::Answered { ticket: Ticket(self.next), result: Ok(()) };
        let mut events = Vec::new();
        while !events.contains(&answer) {
            self.news.notified().await;
            self.target.poll(&mut events);
            assert!(events.iter().all(|event| *event == answer), "{events:?}");
        }
    }

    fn send(&mut self, end: usize, frame: &[u8]) {
        let mut packet = self.pool.take(frame.len(), DatapathPort::new(0)).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        let burst = [packet];
        assert_eq!(self.ends[end].tx.tx(&burst), 1);
        self.ends[end].tx.flush();
        burst.into_iter().for_each(|packet| self.pool.give(packet));
    }

    async fn receive(&mut self, end: usize) -> Vec<u8> {
        let mut burst: Vec<Packet> = Vec::new();
        for _ in 0..2000 {
            if let Some(frame) = self.came[end].pop_front() {
                return frame;
            }
            let rx = self.ends[end].rx.as_mut().unwrap();
            rx.rx(&mut self.pool, &mut burst).unwrap();
            for packet in burst.drain(..) {
                self.came[end].push_back(packet.frame().to_vec());
                self.pool.give(packet);
            }
            if self.came[end].is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        panic!("nothing came");
    }

    /// Whether nothing comes any more.
    async fn nothing(&mut self, end: usize) -> Result<(), Vec<u8>> {
        // What the controller sends behind it leaves behind it.
        let payload = PacketBuilder::ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).build();
        let port = if end == 0 { 1 } else { 2 };
        let direct = PacketToSend::Direct { port, payload: payload.clone() };
        self.target.send(direct).unwrap();
        let next = self.receive(end).await;
        if next == payload { Ok(()) } else { Err(next) }
    }

    async fn punted(&mut self) -> shunt_p4runtime::client::Packet {
        loop {
            if let Some(packet) = self.target.take_packets().pop() {
                return packet;
            }
            self.news.notified().await;
        }
    }
}

fn matching(fields: &[(FieldId, u128)]) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    for (field, value) in fields {
        key.set_field(*field, *value);
        mask.add_field(*field);
    }
    Match::new(&key, &mask)
}

fn rule(tag: u32, fields: &[(FieldId, u128)], writes: &[(FieldId, u128)], next: Next) -> LtmRule {
    let rewrite = matching(writes);
    let set = (!writes.is_empty()).then(|| DatapathAction::SetHeader(rewrite.clone()));
    LtmRule {
        tag: Tag::new(tag),
        matching: matching(fields),
        length: 1,
        actions: set.into_iter().collect(),
        rewrite,
        next,
    }
}

fn to(port: u32, mut rule: LtmRule) -> LtmRule {
    let output = DatapathAction::Output {
        port: DatapathPort::new(port),
        unless_ingress: true,
        max_len: None,
    };
    rule.actions = rule.actions.iter().cloned().chain([output]).collect();
    rule.next = Next::End;
    rule
}

fn frame() -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 2000).build()
}

#[tokio::test]
async fn a_packet_without_an_entry_goes_to_the_controller_as_it_came() {
    let mut world = World::new().await;
    world.send(0, &frame());
    let packet = world.punted().await;
    assert_eq!(packet.payload, frame());
    assert_eq!((packet.ingress_port, packet.reason, packet.miss_tag), (1, 0, 0));
}

#[tokio::test]
async fn a_chain_rewrites_and_forwards_and_one_that_ends_midway_does_not() {
    let mut world = World::new().await;
    let ttl = (FieldId::NwTtl, 9);
    let first = rule(0, &[(FieldId::EthType, 0x0800)], &[ttl], Next::Tag(Tag::new(5)));
    world.insert(0, first).await;
    world.send(0, &frame());
    let packet = world.punted().await;
    assert_eq!((&packet.payload, packet.miss_tag, packet.last_stage), (&frame(), 5, 1));
    // Stage 1 is skipped; the last sees what the first wrote.
    world.insert(2, to(2, rule(5, &[ttl], &[(FieldId::TcpDst, 7777)], Next::End))).await;
    world.send(0, &frame());
    let sent = world.receive(1).await;
    let mut key = FlowKey::ZERO;
    shunt_flow::extract::extract(&sent, Default::default(), &mut key);
    assert_eq!((key.field(FieldId::NwTtl), key.field(FieldId::UdpDst)), (9, 7777));
    // Nothing is sent back to where it came from: what leaves by the second port came by the first.
    world.send(1, &PacketBuilder::ipv4([10, 0, 0, 9], [10, 0, 0, 2]).udp(1000, 2000).build());
    world.send(0, &frame());
    assert_eq!(world.receive(1).await, sent);
    assert_eq!(world.nothing(1).await, Ok(()));
    assert_eq!(world.traffic.dropped(DropReason::Rule), 1);
}

#[tokio::test]
async fn a_header_that_is_cut_short_never_enters_the_tables() {
    let mut world = World::new().await;
    let arp = 0x0806u16;
    world.insert(0, to(2, rule(0, &[(FieldId::EthType, arp.into())], &[], Next::End))).await;
    let mut whole = [vec![2; 12], arp.to_be_bytes().to_vec()].concat();
    whole.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    whole.extend([0; 20]);
    for length in [16, whole.len() - 1] {
        world.send(0, &whole[..length]);
        let packet = world.punted().await;
        assert_eq!((packet.reason, packet.payload.len()), (1, length));
    }
    world.send(0, &whole);
    assert_eq!(world.receive(1).await, whole);
}

#[tokio::test]
async fn a_packet_for_a_port_that_is_not_there_is_not_sent() {
    let mut world = World::new().await;
    world.target.send(PacketToSend::Direct { port: 9, payload: frame() }).unwrap();
    world.target.send(PacketToSend::Direct { port: 2, payload: Vec::new() }).unwrap();
    world.target.send(PacketToSend::Direct { port: 2, payload: frame() }).unwrap();
    assert_eq!(world.receive(1).await, frame());
    assert_eq!(world.traffic.received(), 1);
}

#[tokio::test]
async fn every_packet_is_sent_or_handed_over_or_dropped_for_a_reason() {
    let mut world = World::new().await;
    world.insert(0, to(2, rule(0, &[(FieldId::EthType, 0x0800)], &[], Next::End))).await;
    for end in [0, 1, 0] {
        world.send(end, &frame());
    }
    world.send(0, &[0; 14]);
    world.punted().await;
    world.receive(1).await;
    world.receive(1).await;
    let counts = || {
        let traffic = &world.traffic;
        let dropped: u64 = DropReason::ALL.iter().map(|reason| traffic.dropped(*reason)).sum();
        (traffic.received(), traffic.sent() + traffic.handed_over() + dropped)
    };
    for _ in 0..1000 {
        if counts() == (4, 4) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{:?}", counts());
}

#[tokio::test]
async fn a_packet_of_the_controller_leaves_by_its_port_or_meets_the_stages() {
    let mut world = World::new().await;
    let direct = PacketToSend::Direct { port: 2, payload: frame() };
    world.target.send(direct).unwrap();
    assert_eq!(world.receive(1).await, frame());
    let resubmit = || PacketToSend::Resubmit { port: 2, payload: frame() };
    world.target.send(resubmit()).unwrap();
    assert_eq!(world.punted().await.ingress_port, 2);
    world.insert(0, to(1, rule(0, &[(FieldId::InPort, 2)], &[], Next::End))).await;
    world.target.send(resubmit()).unwrap();
    assert_eq!(world.receive(0).await, frame());
}
