//! The packet thread of a NIC: from port to port, and to the controller.
//!
//! It takes the lock of the chain once for a burst, so that no packet meets an entry that is being
//! changed; it lets go of it before it speaks to the server, which takes its own lock first.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use nix::{
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    sys::eventfd::{EfdFlags, EventFd},
};
use parking_lot::Mutex;
use shunt_datapath::{
    BURST, Packet, Pool, RxQueue, TxQueue,
    offload::finish,
    port::{Capabilities, Port},
};
use shunt_flow::{FlowKey, PortNo};
use shunt_p4runtime::{
    program::{PACKET_IN, PACKET_OUT},
    server::Service,
    value,
    wire::p4::v1::{PacketIn, PacketMetadata, PacketOut},
};
use shunt_pipeline::DatapathPort;

use crate::{
    chain::{Chain, Verdict},
    packets::{rewrite, take_apart},
};

/// Packets of the controller that wait for the thread.
const OUTBOX_MAX: usize = 4096;

/// The longest sleep: ports without a descriptor are looked at as often.
const SLEEP_MAX_MS: u16 = 1;

/// The longest sleep if every port has a descriptor.
const WAIT_MAX_MS: u16 = 100;

/// The reason of a packet that the program does not take apart.
const REASON_UNPARSED: u8 = 1;

/// Packets from the controller, on their way to the thread.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: Mutex<VecDeque<Outgoing>>,
    wake: EventFd,
}

#[derive(Debug)]
struct Outgoing {
    port: u16,
    /// It goes through the stages.
    is_resubmitted: bool,
    payload: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new() -> nix::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { waiting: Mutex::default(), wake: EventFd::from_flags(flags)? })
    }

    pub(crate) fn post(&self, packet: &PacketOut) -> Result<(), &'static str> {
        let number = |field: u32| {
            let given = packet.metadata.iter().find(|given| given.metadata_id == field);
            given.and_then(|given| value::decode(&given.value))
        };
        let [egress, ingress, resubmit] = PACKET_OUT.fields else { return Err("no program") };
        let is_resubmitted = number(resubmit.id).is_some_and(|number| number != 0);
        let port = number(if is_resubmitted { ingress.id } else { egress.id });
        let port = port.and_then(|port| u16::try_from(port).ok()).ok_or("no such port")?;
        let mut waiting = self.waiting.lock();
        if waiting.len() >= OUTBOX_MAX {
            return Err("too many packets wait");
        }
        waiting.push_back(Outgoing { port, is_resubmitted, payload: packet.payload.clone() });
        drop(waiting);
        // A counter that is full wakes as well.
        let _ = self.wake.write(1);
        Ok(())
    }
}

/// A port with its queues.
struct Opened {
    rx: Option<Box<dyn RxQueue>>,
    tx: Box<dyn TxQueue>,
    capabilities: Capabilities,
    // A device lives as long as its port.
    _port: Box<dyn Port>,
}

/// The thread's own things.
pub(crate) struct Worker {
    ports: BTreeMap<u16, Opened>,
    chain: Arc<Mutex<Chain>>,
    outbox: Arc<Outbox>,
    service: Service,
    clock: fn() -> Duration,
    pool: Pool,
    burst: Vec<Packet>,
    walk: Vec<u32>,
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
        let _ = self.outbox.wake.write(1);
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

impl Worker {
    pub(crate) fn new(
        (chain, outbox): (Arc<Mutex<Chain>>, Arc<Outbox>),
        service: Service,
        clock: fn() -> Duration,
    ) -> Self {
        Self {
            ports: BTreeMap::new(),
            chain,
            outbox,
            service,
            clock,
            pool: Pool::new(),
            burst: Vec::with_capacity(BURST),
            walk: Vec::new(),
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
        Ok(())
    }

    pub(crate) fn spawn(mut self) -> std::io::Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, outbox) = (Arc::clone(&stop), Arc::clone(&self.outbox));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&self.outbox.wake, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
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
                if !self.turn() {
                    let mut events = [EpollEvent::empty(); 8];
                    // A wait that fails is a turn without a pause.
                    let _ = epoll.wait(&mut events, EpollTimeout::from(sleep));
                    let _ = self.outbox.wake.read();
                }
            }
        })?;
        Ok(Running { stop, outbox, handle: Some(handle) })
    }

    /// Takes a burst from each port, and what the controller sends; whether there was anything.
    fn turn(&mut self) -> bool {
        let mut has_worked = self.take_outgoing();
        let numbers: Vec<u16> = self.ports.keys().copied().collect();
        for number in numbers {
            let Some(port) = self.ports.get_mut(&number) else { continue };
            let Some(rx) = &mut port.rx else { continue };
            // A port that fails gives nothing any more.
            if rx.rx(&mut self.pool, &mut self.burst).is_err() {
                port.rx = None;
            }
            let burst = std::mem::take(&mut self.burst);
            has_worked |= !burst.is_empty();
            self.burst = self.process(number, burst);
        }
        self.ports.values_mut().for_each(|port| port.tx.flush());
        has_worked
    }

    fn take_outgoing(&mut self) -> bool {
        let outgoing = std::mem::take(&mut *self.outbox.waiting.lock());
        let has_worked = !outgoing.is_empty();
        for Outgoing { port, is_resubmitted, payload } in outgoing {
            let ingress = DatapathPort::new(port.into());
            let Some(mut packet) = self.pool.take(payload.len(), ingress) else { continue };
            packet.frame_mut().copy_from_slice(&payload);
            if is_resubmitted {
                self.process(port, vec![packet]);
            } else {
                self.send(port, packet);
            }
        }
        has_worked
    }

    /// Walks a burst that came in by a port; gives back the empty list.
    fn process(&mut self, number: u16, mut burst: Vec<Packet>) -> Vec<Packet> {
        let now = (self.clock)();
        let (mut leaving, mut punted) = (Vec::new(), Vec::new());
        {
            let chain = &mut *self.chain.lock();
            for mut packet in burst.drain(..) {
                let mut key = FlowKey::ZERO;
                key.set_in_port(PortNo::new(number.into()));
                let Some(layers) = take_apart(packet.frame(), &mut key) else {
                    punted.push((packet, [REASON_UNPARSED.into(), 0, 0]));
                    continue;
                };
                let verdict = chain.walk(&key, &mut self.walk);
                chain.count(&self.walk, verdict, (packet.len(), now));
                match verdict {
                    Verdict::Drop => self.pool.give(packet),
                    Verdict::Punt { reason, miss_tag, last_stage } => {
                        let told = [reason.into(), miss_tag.into(), last_stage.into()];
                        punted.push((packet, told));
                    }
                    Verdict::Forward { port } => {
                        let rules = chain.rules(&self.walk);
                        if rewrite(&mut packet, &layers, &mut key, rules) {
                            leaving.push((port, packet));
                        } else {
                            self.pool.give(packet);
                        }
                    }
                }
            }
        }
        leaving.into_iter().for_each(|(port, packet)| self.send(port, packet));
        punted.into_iter().for_each(|(packet, told)| self.punt(number, packet, told));
        burst
    }

    /// Gives a packet to the controllers, checksums made and segments cut.
    fn punt(&mut self, number: u16, packet: Packet, [reason, tag, stage]: [u128; 3]) {
        let mut whole = Vec::new();
        let wire = Capabilities {
            tx_checksum: false,
            tx_segmentation: false,
            frame_max: usize::MAX,
            can_wait: false,
        };
        if finish(packet, &wire, &mut self.pool, &mut whole).is_err() {
            return;
        }
        for packet in whole {
            let values = [number.into(), reason, tag, stage];
            let metadata = PACKET_IN.fields.iter().zip(values).map(|(field, number)| {
                PacketMetadata { metadata_id: field.id, value: value::encode(number) }
            });
            let told = PacketIn { payload: packet.frame().to_vec(), metadata: metadata.collect() };
            self.pool.give(packet);
            self.service.packet_in(&told);
        }
    }

    /// Sends a packet; what a port does not take is dropped.
    fn send(&mut self, number: u16, packet: Packet) {
        let Some(port) = self.ports.get_mut(&number) else { return self.pool.give(packet) };
        let mut whole = Vec::new();
        if finish(packet, &port.capabilities, &mut self.pool, &mut whole).is_ok() {
            let mut sent = 0;
            while sent < whole.len() {
                let taken = port.tx.tx(&whole[sent..]);
                // The first of those left is not taken: the next may be.
                sent += taken.max(1);
            }
        }
        whole.into_iter().for_each(|packet| self.pool.give(packet));
    }
}
