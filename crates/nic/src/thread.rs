//! The packet thread of a NIC: from port to port, and to whoever knows what the NIC does not.
//!
//! That is the representor of the port that a packet came by, as it came, or where there is none the
//! controller. A packet that an entry sends to the controller goes there in any case. What comes by a
//! representor leaves by its port, past the stages.
//!
//! The thread takes the lock of the chain once for a burst, so that no packet meets an entry that is
//! being changed, and no lock of the server's ever: packets for the controller go into a queue that is
//! never waited for. Its lists are used again, so that a warm burst allocates nothing but what it hands
//! to the controller.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use parking_lot::Mutex;
use shunt_datapath::{BURST, Packet, Pool, packet::virtio::finish, port::Capabilities};
use shunt_flow::{FlowKey, PortNo};
use shunt_p4runtime::{
    program::PACKET_IN,
    server::{Now, Service},
    value,
    wire::p4::v1::{PacketIn, PacketMetadata},
};
use shunt_pipeline::DatapathPort;
use tracing::warn;

use crate::{
    chain::{Chain, REASON_ASKED, REASON_MISS, Verdict, Walk},
    drops::{DropReason, Traffic},
    orders::{Order, Orders, Outgoing},
    packets::{flow_hash, rewrite, take_apart},
    side::Opened,
};

/// The longest sleep: ports without a descriptor are looked at as often.
const SLEEP_MAX_MS: u16 = 1;

/// The longest sleep if every port has a descriptor.
const WAIT_MAX_MS: u16 = 100;

/// The reason of a packet that the program does not take apart.
pub(crate) const REASON_UNPARSED: u8 = 1;

/// What a controller takes: whole frames with their checksums.
const WIRE: Capabilities = Capabilities {
    tx_checksum: false,
    tx_segmentation: false,
    frame_max: usize::MAX,
    can_wait: false,
};

/// What the thread shares with others.
pub(crate) struct Shared {
    pub(crate) chain: Arc<Mutex<Chain>>,
    pub(crate) orders: Arc<Orders>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) service: Service,
    pub(crate) clock: fn() -> Now,
}

/// The thread's own things.
pub(crate) struct Worker {
    shared: Shared,
    epoll: Epoll,
    ports: BTreeMap<u16, Opened>,
    numbers: Vec<u16>,
    sleep_ms: u16,
    pool: Pool,
    burst: Vec<Packet>,
    walk: Walk,
    orders: VecDeque<Order>,
    leaving: Vec<(u16, Packet)>,
    missed: Vec<(Packet, Miss)>,
    /// Frames of one packet.
    whole: Vec<Packet>,
}

/// How a packet came to no end.
#[derive(Clone, Copy, Debug)]
struct Miss {
    reason: u8,
    tag: u16,
    last_stage: u8,
    /// The same for all packets of a flow.
    hash: u64,
}

/// A thread that runs; it stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    orders: Arc<Orders>,
    handle: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders.wake();
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

/// Nobody waits for a thread that has ended, however it has.
struct Closing(Arc<Orders>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Worker {
    pub(crate) fn new(shared: Shared) -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*shared.orders, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self {
            shared,
            epoll,
            ports: BTreeMap::new(),
            numbers: Vec::new(),
            sleep_ms: WAIT_MAX_MS,
            pool: Pool::new(),
            burst: Vec::with_capacity(BURST),
            walk: Walk::default(),
            orders: VecDeque::new(),
            leaving: Vec::new(),
            missed: Vec::new(),
            whole: Vec::new(),
        })
    }

    pub(crate) fn spawn(mut self) -> std::io::Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, orders) = (Arc::clone(&stop), Arc::clone(&self.shared.orders));
        let closing = Closing(Arc::clone(&orders));
        let handle = Builder::new().name("shunt-nic".to_owned()).spawn(move || {
            let _closing = closing;
            while !stopped.load(Ordering::Relaxed) {
                if !self.turn() {
                    let mut events = [EpollEvent::empty(); 8];
                    // A wait that fails is a turn without a pause.
                    let _ = self.epoll.wait(&mut events, EpollTimeout::from(self.sleep_ms));
                    self.shared.orders.awake();
                }
            }
        })?;
        Ok(Running { stop, orders, handle: Some(handle) })
    }

    /// Does what it was told to, and takes a burst from each queue; whether there was anything.
    fn turn(&mut self) -> bool {
        let mut has_worked = self.take_orders();
        for index in 0..self.numbers.len() {
            has_worked |= self.take_from_port(self.numbers[index]);
            has_worked |= self.take_from_representor(self.numbers[index]);
        }
        self.ports.values_mut().for_each(Opened::flush);
        has_worked
    }

    fn take_orders(&mut self) -> bool {
        self.shared.orders.take(&mut self.orders);
        let has_worked = !self.orders.is_empty();
        while let Some(order) = self.orders.pop_front() {
            match order {
                Order::Send(packet) => self.take_outgoing(packet),
                Order::Add(number, port) => self.add(number, *port),
                Order::Remove(number, reply) => {
                    if let Some(port) = self.remove(number) {
                        // Who does not wait for it any more, closes it no less.
                        let _ = reply.send(Box::new(port));
                    }
                }
            }
        }
        has_worked
    }

    fn add(&mut self, number: u16, port: Opened) {
        if let Err(error) = port.sides().try_for_each(|side| side.register(&self.epoll)) {
            warn!(port = number, %error, "a port cannot be waited for");
        }
        self.ports.insert(number, port);
        self.note_ports();
    }

    fn remove(&mut self, number: u16) -> Option<Opened> {
        let port = self.ports.remove(&number)?;
        port.sides().for_each(|side| side.unregister(&self.epoll));
        self.note_ports();
        Some(port)
    }

    fn note_ports(&mut self) {
        self.numbers.clear();
        self.numbers.extend(self.ports.keys());
        let can_wait = self.ports.values().flat_map(Opened::sides).all(|side| side.can_wait());
        self.sleep_ms = if can_wait { WAIT_MAX_MS } else { SLEEP_MAX_MS };
    }

    fn take_from_port(&mut self, number: u16) -> bool {
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let room = (&mut self.pool, &mut self.burst);
        if let Err(error) = port.port.receive(0, &self.epoll, room) {
            self.shared.traffic.break_port();
            warn!(port = number, %error, "a port has failed and is not asked any more");
            // Whoever has the representor finds it broken, and opens the port anew.
            if let Some(representor) = port.representor.take() {
                representor.unregister(&self.epoll);
            }
        }
        let count = self.burst.len();
        self.shared.traffic.receive(count);
        self.process(number);
        count > 0
    }

    /// What comes by a representor leaves by its port.
    fn take_from_representor(&mut self, number: u16) -> bool {
        let mut has_worked = false;
        for queue in 0.. {
            let Some(port) = self.ports.get_mut(&number) else { break };
            let Some(representor) = &mut port.representor else { break };
            if queue >= representor.queues_count() {
                break;
            }
            let room = (&mut self.pool, &mut self.burst);
            if let Err(error) = representor.receive(queue, &self.epoll, room) {
                self.shared.traffic.break_port();
                warn!(port = number, %error, "a representor has failed and is not asked any more");
            }
            has_worked |= !self.burst.is_empty();
            self.shared.traffic.receive(self.burst.len());
            for packet in self.burst.drain(..) {
                let room = (&mut self.pool, &mut self.whole);
                self.shared.traffic.note_sent(port.port.send(0, packet, room));
            }
        }
        has_worked
    }

    fn take_outgoing(&mut self, packet: Outgoing) {
        let Outgoing { port, is_resubmitted, payload } = packet;
        self.shared.traffic.receive(1);
        let ingress = DatapathPort::new(port.into());
        let Some(mut packet) = self.pool.take(payload.len(), ingress) else {
            return self.shared.traffic.drop_for(DropReason::NoBuffer);
        };
        packet.frame_mut().copy_from_slice(&payload);
        if is_resubmitted {
            self.burst.push(packet);
            self.process(port);
        } else {
            self.send(port, packet);
        }
    }

    /// Walks the burst, which came in by a port.
    fn process(&mut self, number: u16) {
        self.walk_burst(number);
        while let Some((port, packet)) = self.leaving.pop() {
            self.send(port, packet);
        }
        while let Some((packet, miss)) = self.missed.pop() {
            self.hand_over(number, packet, miss);
        }
    }

    fn walk_burst(&mut self, number: u16) {
        if self.burst.is_empty() {
            return;
        }
        let now = (self.shared.clock)().steady;
        let chain = &mut *self.shared.chain.lock();
        // What is put aside is taken from the end.
        for mut packet in self.burst.drain(..).rev() {
            let mut key = FlowKey::ZERO;
            key.set_in_port(PortNo::new(number.into()));
            let Some(layers) = take_apart(packet.frame(), &mut key) else {
                let miss = Miss { reason: REASON_UNPARSED, tag: 0, last_stage: 0, hash: 0 };
                self.missed.push((packet, miss));
                continue;
            };
            let verdict = chain.walk(&key, &mut self.walk);
            chain.count(&self.walk, verdict, (packet.len(), now));
            match verdict {
                Verdict::Drop => {
                    self.shared.traffic.hit();
                    self.shared.traffic.drop_for(DropReason::Rule);
                    self.pool.give(packet);
                }
                Verdict::Punt { reason, miss_tag: tag, last_stage } => {
                    if reason == REASON_MISS && last_stage > 0 {
                        self.shared.traffic.miss_midway();
                    }
                    let miss = Miss { reason, tag, last_stage, hash: flow_hash(&key) };
                    self.missed.push((packet, miss));
                }
                Verdict::Forward { port } => {
                    self.shared.traffic.hit();
                    let writes = chain.writes(&self.walk);
                    if rewrite(&mut packet, &layers, &mut key, writes) {
                        self.leaving.push((port, packet));
                    } else {
                        self.shared.traffic.drop_for(DropReason::Unsendable);
                        self.pool.give(packet);
                    }
                }
            }
        }
    }

    /// Gives a packet to whoever knows what to do with it.
    fn hand_over(&mut self, number: u16, packet: Packet, miss: Miss) {
        let port = self.ports.get_mut(&number);
        let representor = port.and_then(|port| port.representor.as_mut());
        match representor.filter(|_| miss.reason != REASON_ASKED) {
            Some(representor) => {
                #[expect(clippy::cast_possible_truncation, reason = "a remainder of few")]
                let queue = (miss.hash % representor.queues_count().max(1) as u64) as usize;
                let room = (&mut self.pool, &mut self.whole);
                let traffic = &self.shared.traffic;
                match representor.send(queue, packet, room) {
                    Ok(()) => traffic.represent(),
                    Err(_) => traffic.drop_for(DropReason::Representor),
                }
            }
            None => self.punt(number, packet, miss),
        }
    }

    /// Gives a packet to the controllers, checksums made and segments cut.
    fn punt(&mut self, number: u16, packet: Packet, miss: Miss) {
        if finish(packet, &WIRE, &mut self.pool, &mut self.whole).is_err() {
            return self.shared.traffic.drop_for(DropReason::Unsendable);
        }
        let mut is_taken = true;
        for packet in self.whole.drain(..) {
            let values = [number, miss.reason.into(), miss.tag, miss.last_stage.into()];
            let metadata = PACKET_IN.fields.iter().zip(values).map(|(field, number)| {
                PacketMetadata { metadata_id: field.id, value: value::encode(number.into()) }
            });
            let payload = packet.frame().to_vec();
            self.pool.give(packet);
            is_taken &=
                self.shared.service.packet_in(PacketIn { payload, metadata: metadata.collect() });
        }
        if is_taken {
            self.shared.traffic.hand_over();
        } else {
            self.shared.traffic.drop_for(DropReason::Controller);
        }
    }

    /// Sends a packet; what a port does not take is dropped.
    fn send(&mut self, number: u16, packet: Packet) {
        let Some(port) = self.ports.get_mut(&number) else {
            self.shared.traffic.drop_for(DropReason::NoPort);
            return self.pool.give(packet);
        };
        let sent = port.port.send(0, packet, (&mut self.pool, &mut self.whole));
        self.shared.traffic.note_sent(sent);
    }
}
