//! A NIC with two ports, the far ends of these ports, and its controller.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, time::Duration};

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
    offload::{LtmIndex, OffloadDevice, OffloadError, OffloadEvent, Operation, Ticket},
    partition::StageId,
};
use shunt_nic::{Nic, NicCounters, NicLimits, NicPort, NicPorts};
use shunt_p4runtime::{
    client::{ClientSettings, P4RuntimeDevice, PacketToSend},
    codec::Ports,
    program::Program,
    server::ClockReading,
};
use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};
use tokio::{runtime::Handle, sync::Notify, task::JoinHandle};

/// A NIC with the ports 1 and 2, the far ends of these ports, and its controller.
pub(crate) struct NicFixture {
    /// The address that the NIC listens on.
    pub(crate) address: SocketAddr,
    pub(crate) target: P4RuntimeDevice,
    /// Notified when the offload device of the controller has events.
    news: Arc<Notify>,
    /// The far ends of the ports, at indexes 0 and 1, and of their representors.
    pub(crate) ends: Vec<Queues>,
    /// Frames that arrived in one burst with a frame that was returned already.
    came: Vec<VecDeque<Vec<u8>>>,
    pub(crate) traffic: Arc<NicCounters>,
    pub(crate) ports: NicPorts,
    server: JoinHandle<()>,
    pub(crate) pool: Pool,
    next: u64,
}

/// The indexes of the far ends of the representors, if the NIC has representors.
pub(crate) const REPRESENTORS: [usize; 2] = [2, 3];

impl NicFixture {
    /// Creates a NIC without representors.
    pub(crate) async fn new() -> Self {
        Self::with(NicLimits::default(), |_| None).await
    }

    /// Creates a NIC with limits that its controller does not know.
    pub(crate) async fn limited(limits: NicLimits) -> Self {
        Self::with(limits, |_| None).await
    }

    /// Creates a NIC with a representor for each port.
    pub(crate) async fn represented() -> Self {
        let mut fars = Vec::new();
        let mut fixture = Self::with(NicLimits::default(), |seed| {
            let (near, far) = pair(1, seed);
            fars.push(far);
            Some(Box::new(near))
        })
        .await;
        fars.into_iter().for_each(|mut far| {
            fixture.add_end(far.split(1).unwrap().remove(0));
        });
        fixture
    }

    async fn with(
        limits: NicLimits,
        mut representor: impl FnMut(u64) -> Option<Box<dyn Port>>,
    ) -> Self {
        let [(near_1, far_1), (near_2, far_2)] = [pair(1, 1), pair(1, 3)];
        let mut port = |number: u16, port: Pair| {
            let representor = representor(10 * u64::from(number));
            NicPort { number, port: Box::new(port), representor }
        };
        let ports = vec![port(1, near_1), port(2, near_2)];
        let address = "127.0.0.1:0".parse().unwrap();
        let program = program();
        let nic = Nic::start(program, limits, ports, address, ClockReading::default, 5).await;
        let nic = nic.unwrap();
        let settings = ClientSettings {
            program,
            ports: Ports((1..=9).map(|n| (DatapathPort::new(n.into()), n)).collect()).into(),
            retry: Duration::from_millis(5),
            ..ClientSettings::new(format!("http://{}", nic.address()))
        };
        let (address, traffic, ports) = (nic.address(), nic.traffic(), nic.ports());
        let server = tokio::spawn(async move { nic.run(std::future::pending()).await.unwrap() });
        let news = Arc::new(Notify::new());
        let target = P4RuntimeDevice::new(settings, &Handle::current(), {
            let news = Arc::clone(&news);
            move || news.notify_one()
        });
        let (ends, came, pool) = (Vec::new(), Vec::new(), Pool::new());
        let mut fixture =
            Self { address, target, news, ends, came, traffic, ports, server, pool, next: 0 };
        fixture.wait_until_restored().await;
        for mut far in [far_1, far_2] {
            fixture.add_end(far.split(1).unwrap().remove(0));
        }
        fixture
    }

    /// Waits until the NIC holds the entries of its controller.
    pub(crate) async fn wait_until_restored(&mut self) {
        let mut events = Vec::new();
        while !events.contains(&OffloadEvent::Restored) {
            self.news.notified().await;
            self.target.poll(&mut events);
        }
    }

    /// Adds a far end, and returns its number.
    pub(crate) fn add_end(&mut self, end: Queues) -> usize {
        self.ends.push(end);
        self.came.push(VecDeque::new());
        self.ends.len() - 1
    }

    /// Ends the server of the NIC.
    pub(crate) async fn stop_server(&mut self) {
        self.server.abort();
        assert!((&mut self.server).await.unwrap_err().is_cancelled());
    }

    pub(crate) async fn insert(&mut self, stage: u8, rule: LtmRule) {
        assert_eq!(self.try_insert(stage, rule).await, Ok(()));
    }

    pub(crate) async fn try_insert(
        &mut self,
        stage: u8,
        rule: LtmRule,
    ) -> Result<(), OffloadError> {
        self.next += 1;
        let stage = StageId::new(stage).unwrap();
        let entry = LtmIndex(self.next);
        let operation = Operation::Insert { entry, stage, rule: Arc::new(rule) };
        self.target.submit(&mut vec![(Ticket(self.next), operation)]).unwrap();
        let mut events = Vec::new();
        loop {
            self.news.notified().await;
            self.target.poll(&mut events);
            match events.pop() {
                Some(OffloadEvent::Completed { ticket, result }) if ticket == Ticket(self.next) => {
                    assert!(events.is_empty(), "{events:?}");
                    return result;
                }
                None => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn send(&mut self, end: usize, frame: &[u8]) {
        let mut packet = self.pool.take(frame.len(), DatapathPort::new(0)).unwrap();
        packet.frame_mut().copy_from_slice(frame);
        let burst = [packet];
        assert_eq!(self.ends[end].tx.tx(&burst), 1);
        self.ends[end].tx.flush();
        burst.into_iter().for_each(|packet| self.pool.put_back(packet));
    }

    pub(crate) async fn receive(&mut self, end: usize) -> Vec<u8> {
        let mut burst: Vec<Packet> = Vec::new();
        for _ in 0..2000 {
            if let Some(frame) = self.came[end].pop_front() {
                return frame;
            }
            let rx = self.ends[end].rx.as_mut().unwrap();
            rx.rx(&mut self.pool, &mut burst).unwrap();
            for packet in burst.drain(..) {
                self.came[end].push_back(packet.frame().to_vec());
                self.pool.put_back(packet);
            }
            if self.came[end].is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        panic!("no frame arrived");
    }

    /// Checks that no frame arrives at a far end; returns an arriving frame as error.
    pub(crate) async fn expect_nothing(&mut self, end: usize) -> Result<(), Vec<u8>> {
        // A packet-out that the controller sends now arrives after all earlier frames.
        let payload = PacketBuilder::ipv4([1, 1, 1, 1], [2, 2, 2, 2]).udp(1, 2).build();
        let port = if end == 0 { 1 } else { 2 };
        let direct = PacketToSend::Direct { port, payload: payload.clone() };
        self.target.send(direct).unwrap();
        let next = self.receive(end).await;
        if next == payload { Ok(()) } else { Err(next) }
    }

    pub(crate) async fn receive_punted(&mut self) -> shunt_p4runtime::client::DevicePacket {
        loop {
            if let Some(packet) = self.target.take_packets().pop() {
                return packet;
            }
            self.news.notified().await;
        }
    }
}

/// Returns the P4 program of the NIC.
pub(crate) fn program() -> Program {
    Program::new(3, 64).unwrap()
}

pub(crate) fn matching(fields: &[(FieldId, u128)]) -> Match {
    let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    for (field, value) in fields {
        key.set_field(*field, *value);
        mask.add_field(*field);
    }
    Match::new(&key, &mask)
}

pub(crate) fn rule(
    tag: u32,
    fields: &[(FieldId, u128)],
    writes: &[(FieldId, u128)],
    next: Next,
) -> LtmRule {
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

pub(crate) fn with_output(port: u32, mut rule: LtmRule) -> LtmRule {
    let output = DatapathAction::Output {
        port: DatapathPort::new(port),
        queue: QueueId::DEFAULT,
        unless_ingress: true,
        max_len: None,
    };
    rule.actions = rule.actions.iter().cloned().chain([output]).collect();
    rule.next = Next::End;
    rule
}

pub(crate) fn frame() -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 2000).build()
}
