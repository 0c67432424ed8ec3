//! The packet thread of a NIC: forwards packets, and passes misses to representors or the controller.
//!
//! A packet that misses leaves unchanged by the representor of its ingress port. If the port has no
//! representor, the packet goes to the controller. A packet that an entry punts always goes to the
//! controller. A packet from a representor leaves by the port of the representor, and is not looked
//! up in the stages. A packet that hits is held while earlier packets of its flow are in the
//! switch: see [`FlowOrder`].
//!
//! The thread locks the stages once per burst, so no packet matches an entry that is being changed.
//! It never takes a lock of the server: packets for the controller go to a queue without waiting.
//! All lists are reused, so only packet-ins allocate memory.

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
use shunt_datapath::{
    BURST, Packet, Pool,
    packet::virtio::finish,
    port::{Capabilities, pair::RING},
};
use shunt_flow::{FlowKey, PortNo};
use shunt_p4runtime::{
    program::PACKET_IN,
    server::{ClockReading, Service},
    value,
    wire::p4::v1::{PacketIn, PacketMetadata},
};
use shunt_pipeline::DatapathPort;
use tracing::warn;

use crate::{
    chain::{NicChain, NicVerdict, NicWalk, REASON_ACTION, REASON_MISS},
    commands::{CommandQueue, NicCommand, OutgoingPacket},
    counters::{NicCounters, NicDropReason},
    packets::{flow_hash, parse_frame, rewrite},
    ports::{
        flow_order::FlowOrder,
        open_port::{OpenPort, PortSide},
    },
};

/// The longest wait in milliseconds, if a port without a descriptor must be polled.
const SLEEP_MAX_MS: u16 = 1;

/// The longest wait in milliseconds, if every port has a descriptor.
const WAIT_MAX_MS: u16 = 100;

/// The punt reason of a packet that the program cannot parse.
pub(crate) const REASON_UNPARSED: u8 = 1;

/// The capabilities of packet-ins: complete frames with checksums.
const WIRE: Capabilities = Capabilities {
    tx_checksum: false,
    tx_segmentation: false,
    tx_tunnel_segmentation: false,
    frame_max: usize::MAX,
    can_wait: false,
};

/// The data that the packet thread shares with other threads.
pub(crate) struct WorkerShared {
    pub(crate) chain: Arc<Mutex<NicChain>>,
    pub(crate) commands: Arc<CommandQueue>,
    pub(crate) traffic: Arc<NicCounters>,
    pub(crate) service: Service,
    pub(crate) clock: fn() -> ClockReading,
}

/// The state of the packet thread of a NIC.
pub(crate) struct NicWorker {
    shared: WorkerShared,
    epoll: Epoll,
    ports: BTreeMap<u16, OpenPort>,
    numbers: Vec<u16>,
    sleep_ms: u16,
    pool: Pool,
    burst: Vec<Packet>,
    walk: NicWalk,
    commands: VecDeque<NicCommand>,
    outgoing: Vec<(u16, Packet)>,
    punted: Vec<(Packet, PuntInfo)>,
    /// Set during a drain.
    /// A drain receives the packets that all representors had when it began.
    is_draining: bool,
    /// Working memory for the frames of one packet.
    frames: Vec<Packet>,
}

/// The metadata of a packet that the stages do not forward.
#[derive(Clone, Copy, Debug)]
struct PuntInfo {
    reason: u8,
    tag: u16,
    last_stage: u8,
    /// A hash that is equal for all packets of a flow.
    hash: u64,
}

/// The origin of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Port,
    /// The packets of the burst were held, and may leave now.
    Held,
}

/// The verdict of a packet that the program cannot parse.
const UNPARSED: NicVerdict =
    NicVerdict::Punt { reason: REASON_UNPARSED, miss_tag: 0, last_stage: 0 };

/// Number of small buffers that must stay free for the ports when packets are held.
const SMALL_KEPT: usize = 1024;
/// Number of large buffers that must stay free for the ports when packets are held.
const LARGE_KEPT: usize = 3 * BURST;

/// Holds a packet until earlier packets of its flow have been sent.
///
/// If the queue has no room, all held packets of this queue are diverted in order, and then the
/// packet itself.
fn hold(
    order: &mut FlowOrder,
    hash: u64,
    packet: Packet,
    pool: &Pool,
    punted: &mut Vec<(Packet, PuntInfo)>,
) {
    let kept = if packet.len() > Pool::SMALL { LARGE_KEPT } else { SMALL_KEPT };
    if order.has_room(hash) && pool.left(packet.len()) > kept {
        return order.hold(hash, packet);
    }
    while let Some((earlier, own)) = order.take(hash) {
        divert(order, own, earlier, punted);
    }
    divert(order, hash, packet, punted);
}

/// Sends a packet to the switch as if it had missed, to keep the order of its flow.
fn divert(order: &mut FlowOrder, hash: u64, packet: Packet, punted: &mut Vec<(Packet, PuntInfo)>) {
    order.divert(hash);
    let info = PuntInfo { reason: REASON_MISS, tag: 0, last_stage: 0, hash };
    punted.push((packet, info));
}

/// A handle of a running packet thread, which stops when the handle is dropped.
#[derive(Debug)]
pub(crate) struct NicThread {
    stop: Arc<AtomicBool>,
    commands: Arc<CommandQueue>,
    handle: Option<JoinHandle<()>>,
}

impl NicThread {
    /// Returns the commands for the thread.
    pub(crate) fn commands(&self) -> &CommandQueue {
        &self.commands
    }
}

impl Drop for NicThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.commands.wake();
        if let Some(handle) = self.handle.take() {
            // The message of a panic of the thread is printed already.
            let _ = handle.join();
        }
    }
}

/// A guard that closes the command queue when the thread ends, also by a panic.
struct CloseOnDrop(Arc<CommandQueue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl NicWorker {
    /// Returns a worker without ports. Fails if the system has no descriptors.
    pub(crate) fn new(shared: WorkerShared) -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&*shared.commands, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self {
            shared,
            epoll,
            ports: BTreeMap::new(),
            numbers: Vec::new(),
            sleep_ms: WAIT_MAX_MS,
            pool: Pool::new(),
            burst: Vec::with_capacity(BURST),
            walk: NicWalk::default(),
            commands: VecDeque::new(),
            outgoing: Vec::new(),
            punted: Vec::new(),
            is_draining: false,
            frames: Vec::new(),
        })
    }

    /// Starts the packet thread. Fails if the system cannot start a thread.
    pub(crate) fn spawn(mut self) -> std::io::Result<NicThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, commands) = (Arc::clone(&stop), Arc::clone(&self.shared.commands));
        let watch = shunt_thread_watch::WatchedThread::new("nic thread");
        let closing = CloseOnDrop(Arc::clone(&commands));
        let handle = Builder::new().name("shunt-nic".to_owned()).spawn(move || {
            let _closing = closing;
            while !stopped.load(Ordering::Relaxed) {
                if !watch.run(|| self.run_iteration()) && !self.has_progress() {
                    let mut events = [EpollEvent::empty(); 8];
                    // If the wait fails, the next iteration begins at once.
                    let _ = self.epoll.wait(&mut events, EpollTimeout::from(self.sleep_ms));
                    self.shared.commands.clear_wake();
                }
            }
        })?;
        Ok(NicThread { stop, commands, handle: Some(handle) })
    }

    /// Executes the commands, and polls each queue once. Returns whether it worked.
    fn run_iteration(&mut self) -> bool {
        let mut has_worked = self.run_commands();
        self.begin_drain();
        for index in 0..self.numbers.len() {
            has_worked |= self.poll_representor(self.numbers[index]);
        }
        has_worked |= self.end_drain();
        for index in 0..self.numbers.len() {
            has_worked |= self.poll_port(self.numbers[index]);
        }
        self.ports.values_mut().for_each(OpenPort::flush);
        has_worked
    }

    /// Begins a drain: receives all packets that the representors have now.
    fn begin_drain(&mut self) {
        let is_busy = |port: &OpenPort| port.order.as_ref().is_some_and(FlowOrder::is_busy);
        if self.is_draining || !self.ports.values().any(is_busy) {
            return;
        }
        self.is_draining = true;
        for port in self.ports.values_mut() {
            // The progress of the switch is read before the queues: the queues then have the
            // packets of all finished frames.
            if let Some(order) = &mut port.order {
                order.observe();
            }
        }
        let representors = self.ports.values_mut().filter_map(|port| port.representor.as_mut());
        representors.for_each(PortSide::begin_drain);
    }

    /// Ends a drain, and processes held packets of flows without packets in the switch.
    ///
    /// Returns whether a held packet was processed.
    fn end_drain(&mut self) -> bool {
        let mut representors = self.ports.values().filter_map(|port| port.representor.as_ref());
        if !self.is_draining || !representors.all(PortSide::is_drained) {
            return false;
        }
        self.is_draining = false;
        let mut has_worked = false;
        for index in 0..self.numbers.len() {
            let number = self.numbers[index];
            if let Some(order) = self.order(number) {
                order.clear();
            }
            while self.take_cleared(number) {
                self.process(number, Origin::Held);
                has_worked = true;
            }
        }
        has_worked
    }

    /// Moves held packets of a port that may leave now into the burst.
    ///
    /// Returns whether the burst has packets now.
    fn take_cleared(&mut self, number: u16) -> bool {
        let order = self.ports.get_mut(&number).and_then(|port| port.order.as_mut());
        if let Some(order) = order {
            let cleared = std::iter::from_fn(|| order.take_cleared());
            self.burst.extend(cleared.take(BURST));
        }
        !self.burst.is_empty()
    }

    /// Returns the record of the flow order of a port, if the port has one.
    fn order(&mut self, number: u16) -> Option<&mut FlowOrder> {
        self.ports.get_mut(&number)?.order.as_mut()
    }

    /// Returns whether the switch has made progress that a held packet waits for.
    fn has_progress(&self) -> bool {
        let orders = self.ports.values().filter_map(|port| port.order.as_ref());
        orders.fold(false, |found, order| order.has_progress() | found)
    }

    /// Executes waiting commands; returns whether there were any.
    fn run_commands(&mut self) -> bool {
        self.shared.commands.take(&mut self.commands);
        let has_worked = !self.commands.is_empty();
        while let Some(command) = self.commands.pop_front() {
            match command {
                NicCommand::Send(packet) => self.send_outgoing(packet),
                NicCommand::Add(number, port) => self.add(number, *port),
                NicCommand::Remove(number, reply) => {
                    if let Some(port) = self.remove(number) {
                        // If no caller waits any more, the port is dropped, which closes it.
                        let _ = reply.send(Box::new(port));
                    }
                }
            }
        }
        has_worked
    }

    /// Adds a port to the thread.
    fn add(&mut self, number: u16, port: OpenPort) {
        if let Err(error) = port.sides().try_for_each(|side| side.register(&self.epoll)) {
            warn!(
                port = number,
                %error,
                "NIC: a port cannot be added to the epoll set, so its packets wait for a poll"
            );
        }
        self.ports.insert(number, port);
        self.update_ports();
    }

    /// Removes a port, after the packets of its representor.
    fn remove(&mut self, number: u16) -> Option<OpenPort> {
        // The switch has counted the packets in these queues as sent, and sends no more packets.
        for _ in 0..RING.div_ceil(BURST) {
            if !self.poll_representor(number) {
                break;
            }
        }
        let mut port = self.ports.remove(&number)?;
        port.flush();
        while let Some(packet) = port.order.as_mut().and_then(FlowOrder::take_any) {
            self.shared.traffic.count_drop(NicDropReason::NoPort, Some(&port.losses));
            self.pool.put_back(packet);
        }
        port.sides().for_each(|side| side.unregister(&self.epoll));
        self.update_ports();
        Some(port)
    }

    /// Updates the list of port numbers, and the longest sleep.
    fn update_ports(&mut self) {
        self.numbers.clear();
        self.numbers.extend(self.ports.keys());
        let can_wait = self.ports.values().flat_map(OpenPort::sides).all(|side| side.can_wait());
        self.sleep_ms = if can_wait { WAIT_MAX_MS } else { SLEEP_MAX_MS };
    }

    /// Receives a burst from a port; returns whether there was one.
    fn poll_port(&mut self, number: u16) -> bool {
        let Some(port) = self.ports.get_mut(&number) else { return false };
        let received = port.port.receive(0, &self.epoll, &mut self.pool, &mut self.burst);
        match received {
            Ok(report) => port.losses.count_refused(&report),
            Err(error) => {
                self.shared.traffic.count_broken_port();
                warn!(port = number, %error, "NIC: a port failed, and is no longer polled: remove \
                                              it, and add it again");
                // The representor is dropped too, so that the switch reopens the port.
                if let Some(representor) = port.representor.take() {
                    representor.unregister(&self.epoll);
                }
                if let Some(order) = &mut port.order {
                    order.end();
                }
            }
        }
        let count = self.burst.len();
        self.shared.traffic.count_received(count);
        self.process(number, Origin::Port);
        count > 0
    }

    /// Polls the representor of a port, and sends the received packets by the port.
    fn poll_representor(&mut self, number: u16) -> bool {
        let mut has_worked = false;
        for queue in 0.. {
            let Some(port) = self.ports.get_mut(&number) else { break };
            let Some(representor) = &mut port.representor else { break };
            if queue >= representor.queues_count() {
                break;
            }
            let (pool, burst) = (&mut self.pool, &mut self.burst);
            match representor.receive(queue, &self.epoll, pool, burst) {
                Ok(report) => port.losses.count_not_sent(report.refused),
                Err(error) => {
                    self.shared.traffic.count_broken_port();
                    warn!(
                        port = number,
                        %error,
                        "NIC: a representor failed, and is not polled: add its port again"
                    );
                }
            }
            if representor.has_ended(queue)
                && let Some(order) = &mut port.order
            {
                order.end();
            }
            has_worked |= !self.burst.is_empty();
            self.shared.traffic.count_received(self.burst.len());
            for packet in self.burst.drain(..) {
                match port.port.send(0, packet, &mut self.pool, &mut self.frames) {
                    Ok(()) => self.shared.traffic.count_sent(),
                    Err(reason) => self.shared.traffic.count_not_sent(reason, &port.losses),
                }
            }
        }
        has_worked
    }

    /// Sends a packet-out of the controller.
    fn send_outgoing(&mut self, packet: OutgoingPacket) {
        let OutgoingPacket { port, is_resubmitted, payload } = packet;
        self.shared.traffic.count_received(1);
        let ingress = DatapathPort::new(port.into());
        let Some(mut packet) = self.pool.take(payload.len(), ingress) else {
            return self.count_drop(port, NicDropReason::NoBuffer);
        };
        packet.frame_mut().copy_from_slice(&payload);
        if is_resubmitted {
            self.burst.push(packet);
            self.process(port, Origin::Port);
        } else {
            self.send(port, port, packet);
        }
    }

    /// Processes the packets of the burst, which arrived on a port or were held.
    fn process(&mut self, number: u16, origin: Origin) {
        self.walk_burst(number, origin);
        let mut outgoing = std::mem::take(&mut self.outgoing);
        for (port, packet) in outgoing.drain(..) {
            self.send(number, port, packet);
        }
        self.outgoing = outgoing;
        let mut punted = std::mem::take(&mut self.punted);
        for (packet, info) in punted.drain(..) {
            self.divert(number, packet, info);
        }
        self.punted = punted;
    }

    /// Looks up the packets of a burst in the stages, and forwards them.
    fn walk_burst(&mut self, number: u16, origin: Origin) {
        if self.burst.is_empty() {
            return;
        }
        let now = (self.shared.clock)().steady;
        let port = self.ports.get_mut(&number);
        let (order, losses) = port.map(OpenPort::order_and_losses).unzip();
        let mut order = order.flatten();
        let chain = &mut *self.shared.chain.lock();
        for mut packet in self.burst.drain(..) {
            let mut key = FlowKey::ZERO;
            key.set_in_port(PortNo::new(number.into()));
            let layers = parse_frame(packet.frame(), &mut key);
            // Packets that the program cannot parse always miss, so one hash is enough for all of
            // them.
            let hash = || if layers.is_some() { flow_hash(&key) } else { 0 };
            // While no packet is in the switch, packets that hit need no hash.
            let busy_hash = order.as_ref().filter(|order| order.is_busy()).map(|_| hash());
            if let (Some(hash), Some(order), Origin::Port) = (busy_hash, &mut order, origin)
                && order.is_held(hash)
            {
                hold(order, hash, packet, &self.pool, &mut self.punted);
                continue;
            }
            let verdict = match &layers {
                Some(_) => chain.walk(&key, &mut self.walk),
                None => UNPARSED,
            };
            if let NicVerdict::Forward { .. } = verdict
                && let (Some(hash), Some(order)) = (busy_hash, &mut order)
                && order.is_diverted(hash)
            {
                match origin {
                    Origin::Port => hold(order, hash, packet, &self.pool, &mut self.punted),
                    Origin::Held => divert(order, hash, packet, &mut self.punted),
                }
                continue;
            }
            if layers.is_some() {
                chain.count(&self.walk, verdict, packet.len(), now);
            }
            match verdict {
                NicVerdict::Drop => {
                    self.shared.traffic.count_hit();
                    self.shared.traffic.count_drop(NicDropReason::Rule, losses);
                    self.pool.put_back(packet);
                }
                NicVerdict::Punt { reason, miss_tag: tag, last_stage } => {
                    if reason == REASON_MISS && last_stage > 0 {
                        self.shared.traffic.count_partial_hit();
                    }
                    let hash = hash();
                    if let Some(order) = &mut order
                        && reason != REASON_ACTION
                    {
                        order.divert(hash);
                    }
                    self.punted.push((packet, PuntInfo { reason, tag, last_stage, hash }));
                }
                NicVerdict::Forward { port } => {
                    self.shared.traffic.count_hit();
                    let writes = chain.writes(&self.walk);
                    let is_written = layers
                        .is_some_and(|layers| rewrite(&mut packet, &layers, &mut key, writes));
                    if is_written {
                        self.outgoing.push((port, packet));
                    } else {
                        self.shared.traffic.count_drop(NicDropReason::Unsendable, losses);
                        self.pool.put_back(packet);
                    }
                }
            }
        }
    }

    /// Passes a packet to the representor of its port, or punts it to the controller.
    fn divert(&mut self, number: u16, packet: Packet, info: PuntInfo) {
        let port = self.ports.get_mut(&number);
        let representor = port.and_then(|port| port.representor.as_mut());
        match representor.filter(|_| info.reason != REASON_ACTION) {
            Some(representor) => {
                #[expect(clippy::cast_possible_truncation, reason = "there are few queues")]
                let queue = (info.hash % representor.queues_count().max(1) as u64) as usize;
                let sent = representor.send(queue, packet, &mut self.pool, &mut self.frames);
                let count = representor.sent(queue);
                match sent {
                    Ok(()) => self.shared.traffic.count_represented(),
                    Err(_) => self.count_drop(number, NicDropReason::Representor),
                }
                if let Some(order) = self.order(number) {
                    order.diverted(info.hash, count);
                }
            }
            None => self.punt(number, packet, info),
        }
    }

    /// Sends a packet to the controller, segmented and with complete checksums.
    fn punt(&mut self, number: u16, packet: Packet, info: PuntInfo) {
        if finish(packet, &WIRE, &mut self.pool, &mut self.frames).is_err() {
            return self.count_drop(number, NicDropReason::Unsendable);
        }
        let mut is_taken = true;
        for packet in self.frames.drain(..) {
            let values = [number, info.reason.into(), info.tag, info.last_stage.into()];
            let metadata = PACKET_IN.fields.iter().zip(values).map(|(field, number)| {
                PacketMetadata { metadata_id: field.id, value: value::encode(number.into()) }
            });
            let payload = packet.frame().to_vec();
            self.pool.put_back(packet);
            is_taken &=
                self.shared.service.packet_in(PacketIn { payload, metadata: metadata.collect() });
        }
        if is_taken {
            self.shared.traffic.count_handed_over();
        } else {
            self.count_drop(number, NicDropReason::Controller);
        }
    }

    /// Sends a packet by a port. A packet that the port refuses is dropped.
    fn send(&mut self, ingress: u16, output: u16, packet: Packet) {
        let Some(port) = self.ports.get_mut(&output) else {
            self.count_drop(ingress, NicDropReason::NoPort);
            return self.pool.put_back(packet);
        };
        match port.port.send(0, packet, &mut self.pool, &mut self.frames) {
            Ok(()) => self.shared.traffic.count_sent(),
            Err(reason) => self.count_drop(ingress, reason),
        }
    }

    /// Counts a dropped packet, also at its ingress port.
    fn count_drop(&self, ingress: u16, reason: NicDropReason) {
        let losses = self.ports.get(&ingress).map(|port| &*port.losses);
        self.shared.traffic.count_drop(reason, losses);
    }
}
