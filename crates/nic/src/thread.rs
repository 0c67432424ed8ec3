//! The packet thread of a NIC: from port to port, and to the controller.
//!
//! It takes the lock of the chain once for a burst, so that no packet meets an entry that is being
//! changed, and no lock of the server's ever: packets for the controller go into a queue that is never
//! waited for. Its lists are used again, so that a warm burst allocates nothing but what it hands to
//! the controller.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use parking_lot::Mutex;
use shunt_datapath::{
    BURST, Packet, Pool, RxQueue, TxQueue,
    offload::finish,
    port::{Capabilities, Port},
};
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
    chain::{Chain, Verdict, Walk},
    drops::{DropReason, Traffic},
    outbox::{Outbox, Outgoing},
    packets::{rewrite, take_apart},
};

/// The longest sleep: ports without a descriptor are looked at as often.
const SLEEP_MAX_MS: u16 = 1;

/// The longest sleep if every port has a descriptor.
const WAIT_MAX_MS: u16 = 100;

/// The reason of a packet that the program does not take apart.
const REASON_UNPARSED: u8 = 1;

/// What a controller takes: whole frames with their checksums.
const WIRE: Capabilities = Capabilities {
    tx_checksum: false,
    tx_segmentation: false,
    frame_max: usize::MAX,
    can_wait: false,
};

/// A port with its queues.
struct Opened {
    rx: Option<Box<dyn RxQueue>>,
    tx: Box<dyn TxQueue>,
    capabilities: Capabilities,
    // A device lives as long as its port.
    _port: Box<dyn Port>,
}

/// What the thread shares with others.
pub(crate) struct Shared {
    pub(crate) chain: Arc<Mutex<Chain>>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) service: Service,
    pub(crate) clock: fn() -> Now,
}

/// The thread's own things.
pub(crate) struct Worker {
    shared: Shared,
    ports: BTreeMap<u16, Opened>,
    numbers: Vec<u16>,
    pool: Pool,
    burst: Vec<Packet>,
    walk: Walk,
    outgoing: VecDeque<Outgoing>,
    leaving: Vec<(u16, Packet)>,
    /// With reason, tag and stage.
    punted: Vec<(Packet, [u16; 3])>,
    /// Frames of one packet.
    whole: Vec<Packet>,
}

/// A thread that runs.
#[derive(Debug)]
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    outbox: Arc<Outbox>,
    handle: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.outbox.wake();
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

impl Worker {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            ports: BTreeMap::new(),
            numbers: Vec::new(),
            pool: Pool::new(),
            burst: Vec::with_capacity(BURST),
            walk: Walk::default(),
            outgoing: VecDeque::new(),
            leaving: Vec::new(),
            punted: Vec::new(),
            whole: Vec::new(),
        }
    }

    pub(crate) fn add(
        &mut self,
        number: u16,
        mut port: Box<dyn Port>,
    ) -> Result<(), shunt_datapath::PortError> {
        let capabilities = port.capabilities();
        if let Some(queues) = port.split(1)?.into_iter().next() {
            let tx = queues.tx;
            self.ports.insert(number, Opened { rx: queues.rx, tx, capabilities, _port: port });
        }
        self.numbers = self.ports.keys().copied().collect();
        Ok(())
    }

    pub(crate) fn spawn(mut self) -> std::io::Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, outbox) = (Arc::clone(&stop), Arc::clone(&self.shared.outbox));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*self.shared.outbox, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let mut can_wait = true;
        for port in self.ports.values() {
            match port.rx.as_ref().and_then(|rx| rx.wait_fd()) {
                Some(fd) => epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?,
                None => can_wait = false,
            }
        }
        let sleep = if can_wait { WAIT_MAX_MS } else { SLEEP_MAX_MS };
        let handle = Builder::new().name("shunt-nic".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if !self.turn(&epoll) {
                    let mut events = [EpollEvent::empty(); 8];
                    // A wait that fails is a turn without a pause.
                    let _ = epoll.wait(&mut events, EpollTimeout::from(sleep));
                    self.shared.outbox.awake();
                }
            }
        })?;
        Ok(Running { stop, outbox, handle: Some(handle) })
    }

    /// Takes a burst from each port, and what the controller sends; whether there was anything.
    fn turn(&mut self, epoll: &Epoll) -> bool {
        let mut has_worked = self.take_outgoing();
        for index in 0..self.numbers.len() {
            let number = self.numbers[index];
            let Some(port) = self.ports.get_mut(&number) else { continue };
            let Some(rx) = &mut port.rx else { continue };
            if let Err(error) = rx.rx(&mut self.pool, &mut self.burst) {
                // Its descriptor may be readable for ever, and would end every sleep.
                if let Some(fd) = rx.wait_fd() {
                    let _ = epoll.delete(fd);
                }
                port.rx = None;
                self.shared.traffic.break_port();
                warn!(port = number, %error, "a port has failed and is not asked any more");
            }
            has_worked |= !self.burst.is_empty();
            self.shared.traffic.receive(self.burst.len());
            self.process(number);
        }
        self.ports.values_mut().for_each(|port| port.tx.flush());
        has_worked
    }

    fn take_outgoing(&mut self) -> bool {
        self.shared.outbox.take(&mut self.outgoing);
        let has_worked = !self.outgoing.is_empty();
        self.shared.traffic.receive(self.outgoing.len());
        while let Some(Outgoing { port, is_resubmitted, payload }) = self.outgoing.pop_front() {
            let ingress = DatapathPort::new(port.into());
            let Some(mut packet) = self.pool.take(payload.len(), ingress) else {
                self.shared.traffic.drop_for(DropReason::NoBuffer);
                continue;
            };
            packet.frame_mut().copy_from_slice(&payload);
            if is_resubmitted {
                self.burst.push(packet);
                self.process(port);
            } else {
                self.send(port, packet);
            }
        }
        has_worked
    }

    /// Walks the burst, which came in by a port.
    fn process(&mut self, number: u16) {
        self.walk_burst(number);
        while let Some((port, packet)) = self.leaving.pop() {
            self.send(port, packet);
        }
        while let Some((packet, told)) = self.punted.pop() {
            self.punt(number, packet, told);
        }
    }

    fn walk_burst(&mut self, number: u16) {
        let now = (self.shared.clock)().steady;
        let chain = &mut *self.shared.chain.lock();
        // What is put aside is taken from the end.
        for mut packet in self.burst.drain(..).rev() {
            let mut key = FlowKey::ZERO;
            key.set_in_port(PortNo::new(number.into()));
            let Some(layers) = take_apart(packet.frame(), &mut key) else {
                self.punted.push((packet, [REASON_UNPARSED.into(), 0, 0]));
                continue;
            };
            let verdict = chain.walk(&key, &mut self.walk);
            chain.count(&self.walk, verdict, (packet.len(), now));
            match verdict {
                Verdict::Drop => {
                    self.shared.traffic.drop_for(DropReason::Rule);
                    self.pool.give(packet);
                }
                Verdict::Punt { reason, miss_tag, last_stage } => {
                    self.punted.push((packet, [reason.into(), miss_tag, last_stage.into()]));
                }
                Verdict::Forward { port } => {
                    let rules = chain.rules(&self.walk);
                    if rewrite(&mut packet, &layers, &mut key, rules) {
                        self.leaving.push((port, packet));
                    } else {
                        self.shared.traffic.drop_for(DropReason::Unsendable);
                        self.pool.give(packet);
                    }
                }
            }
        }
    }

    /// Gives a packet to the controllers, checksums made and segments cut.
    fn punt(&mut self, number: u16, packet: Packet, [reason, tag, stage]: [u16; 3]) {
        if finish(packet, &WIRE, &mut self.pool, &mut self.whole).is_err() {
            return self.shared.traffic.drop_for(DropReason::Unsendable);
        }
        let mut is_taken = true;
        for packet in self.whole.drain(..) {
            let values = [number, reason, tag, stage];
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
        let traffic = &self.shared.traffic;
        let Some(port) = self.ports.get_mut(&number) else {
            traffic.drop_for(DropReason::NoPort);
            return self.pool.give(packet);
        };
        if finish(packet, &port.capabilities, &mut self.pool, &mut self.whole).is_err() {
            return traffic.drop_for(DropReason::Unsendable);
        }
        let (mut tried, mut sent) = (0, 0);
        while tried < self.whole.len() {
            let taken = port.tx.tx(&self.whole[tried..]);
            // The first of those left is not taken: the next may be.
            tried += taken.max(1);
            sent += taken;
        }
        if sent == self.whole.len() {
            traffic.send();
        } else {
            traffic.drop_for(DropReason::Refused);
        }
        self.whole.drain(..).for_each(|packet| self.pool.give(packet));
    }
}
