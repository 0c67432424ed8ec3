//! Tests that the queues of a packet port move between running packet threads without a loss.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::Ordering::SeqCst,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use shunt_datapath::{
    ChangeSender, Command, CoordinatorHandle, EvictionCoordinator, Packet, PacketThread,
    ThreadConfig, TxQueue, Waker,
    command::{ReleasedReceiver, RxQueueState, ThreadPort, ThreadReceiver},
    metrics::PortTraffic,
    port::{Port, PortCounters, Queues, RxQueue},
    thread::{
        ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_coordinator,
        spawn_packet_thread, thread_ends,
    },
};
use shunt_flow::{PortNo, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, DatapathPort, FlowModCommand, Iterative, Modification, OwnerId,
    Pipeline, PortInfo, Time, text::parse_rule,
};

use crate::{
    frames::settles,
    in_namespace, ip, packet_port, split_one,
    switchovers::{Done, FLOWS, MEASURED, Progress, has_rings, send_until_done},
};

const BRIDGE: BridgeId = BridgeId::new(1);
/// Number of the packet port.
const FROM: u32 = 1;
/// Number of the port to which the switch sends all frames of the packet port.
const TO: u32 = 2;
/// Number of packet threads.
const THREADS: u16 = 2;
/// Number of moves from sockets, and then from rings.
const MOVES: u16 = 20;
/// Number of frames that pass between two moves.
const FRAMES_BETWEEN: u64 = 500;
/// Time limit for work that usually takes milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Waits until a condition holds; returns whether it held in time.
#[expect(clippy::disallowed_methods, reason = "real threads take real time")]
fn holds_in_time(is_true: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_true() {
        if start.elapsed() > TIME_LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// A transmit queue that passes copies of its frames to the test.
///
/// The queues of all threads share a channel, which has the order in which the frames left.
struct SinkTx(Sender<Vec<u8>>);

impl TxQueue for SinkTx {
    fn tx(&mut self, packets: &[Packet]) -> usize {
        packets.iter().for_each(|packet| drop(self.0.send(packet.frame().to_vec())));
        packets.len()
    }

    fn flush(&mut self) {}
}

/// Two running packet threads, which send all frames to [`SinkTx`].
struct RunningSwitch {
    running: Vec<Running<PacketThread>>,
    controls: Vec<ControlEnds>,
    coordinator: Running<Option<EvictionCoordinator>>,
    _changes: ChangeSender,
    /// The counters of the packet port, by packet thread.
    traffic: Vec<Arc<PortTraffic>>,
    /// The packet thread of each receive queue.
    owners: Vec<usize>,
}

fn pipeline() -> Arc<Pipeline> {
    let pipeline = Arc::new(Pipeline::new(1));
    pipeline.add_bridge(BRIDGE, BridgeSettings::default());
    pipeline.set_ports(BRIDGE, [FROM, TO].map(PortInfo::datapath).into()).unwrap();
    let rule = parse_rule(FlowModCommand::Add, "actions=output:2", &NoPortNames).unwrap();
    pipeline.modify(BRIDGE, [Modification::Flow(rule)], Time::ZERO).unwrap();
    pipeline
}

impl RunningSwitch {
    /// Starts the threads, and adds the queues of a packet port.
    #[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
    fn start(port: &mut dyn Port, sink: &Sender<Vec<u8>>) -> Self {
        let (pipeline, epoch) = (pipeline(), Instant::now());
        let version = pipeline.version();
        let waker = || Arc::new(Waker::new().unwrap());
        let wakers = Wakers { coordinator: waker(), control: waker(), learner: waker() };
        let (mut running, mut controls, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..THREADS {
            let sizes = QueueSizes::default();
            let made = thread_ends(OwnerId(index), version, sizes, wakers.clone()).unwrap();
            let thread = PacketThread::new(ThreadConfig::default(), Arc::clone(&pipeline), made.0);
            let config = RunnerConfig { index, cpu: None, epoch };
            running.push(spawn_packet_thread(thread, config).unwrap());
            controls.push(made.1);
            ends.push(made.2);
        }
        let engine = Box::new(Iterative::new(pipeline));
        let (coordinator, changes) =
            EvictionCoordinator::new(engine, version, ends, wakers.coordinator);
        let handle = CoordinatorHandle::new(coordinator, |_| {});
        let changes = changes.helping(&handle);
        let coordinator = spawn_coordinator(handle).unwrap();
        let traffic = (0..THREADS).map(|_| Arc::default()).collect();
        let mut switch =
            Self { running, controls, coordinator, _changes: changes, traffic, owners: Vec::new() };
        switch.add_ports(port, sink);
        switch
    }

    fn add_ports(&mut self, port: &mut dyn Port, sink: &Sender<Vec<u8>>) {
        let capabilities = port.capabilities();
        let mut receivers = Vec::new();
        for (thread, Queues { rx, tx }) in port.split(THREADS).unwrap().into_iter().enumerate() {
            receivers.push(rx.unwrap());
            let sink: Box<dyn TxQueue> = Box::new(SinkTx(sink.clone()));
            for (port, tx) in [(FROM, tx), (TO, sink)] {
                let traffic =
                    if port == FROM { Arc::clone(&self.traffic[thread]) } else { Arc::default() };
                let added = ThreadPort {
                    port: DatapathPort::new(port),
                    bridge: BRIDGE,
                    number: PortNo::new(port),
                    capabilities,
                    queues: Queues { rx: None, tx },
                    traffic,
                };
                assert!(self.controls[thread].send(Command::AddPort(Box::new(added))).is_ok());
            }
        }
        for (number, queue) in (0_u16..).zip(receivers) {
            self.owners.push(usize::from(number));
            let state = RxQueueState { number, ..RxQueueState::default() };
            self.attach(queue, state);
        }
    }

    /// Gives a receive queue to the thread in `owners`.
    fn attach(&mut self, queue: Box<dyn RxQueue>, state: RxQueueState) {
        let thread = self.owners[usize::from(state.number)];
        let receiver = ThreadReceiver {
            port: DatapathPort::new(FROM),
            bridge: BRIDGE,
            number: PortNo::new(FROM),
            queue,
            traffic: Arc::clone(&self.traffic[thread]),
            policer: None,
            state,
        };
        assert!(self.controls[thread].send(Command::AddReceiver(Box::new(receiver))).is_ok());
    }

    /// Asks the thread of a receive queue until it releases the queue.
    ///
    /// A thread that waits long for its CPU keeps the queue for now.
    fn release(&mut self, number: u16) -> ReleasedReceiver {
        let thread = self.owners[usize::from(number)];
        for _ in 0..1000 {
            let (sender, answer) = mpsc::channel::<Option<ReleasedReceiver>>();
            let reply = Box::new(move |released| drop(sender.send(released)));
            let command = Command::ReleaseReceiver(DatapathPort::new(FROM), number, reply);
            assert!(self.controls[thread].send(command).is_ok());
            if let Some(released) = answer.recv_timeout(TIME_LIMIT).unwrap() {
                return released;
            }
        }
        unreachable!("thread {thread} keeps queue {number}")
    }

    /// Moves queues to the other thread while frames pass.
    fn move_queues(&mut self, progress: &Progress) {
        for round in 0..MOVES {
            let before = progress.received.load(SeqCst);
            let is_passed = || progress.received.load(SeqCst) >= before + FRAMES_BETWEEN;
            assert!(holds_in_time(is_passed), "no frames pass before move {round}");
            let number = round % THREADS;
            let ReleasedReceiver { queue, state } = self.release(number);
            assert_eq!(state.number, number);
            let owner = &mut self.owners[usize::from(number)];
            *owner = 1 - *owner;
            self.attach(queue, state);
        }
    }

    /// Stops the threads; checks that the counters have `count` frames.
    fn stop(self, count: u64) {
        let (mut received, mut sent) = (0, 0);
        for thread in self.running {
            let thread = thread.stop().unwrap();
            let counters = thread.counters();
            assert_eq!(counters.unaccounted(), 0);
            received += counters.received.get();
            sent += counters.sent.get();
        }
        let of_port = self.traffic.iter().map(|traffic| traffic.rx_packets.get()).sum::<u64>();
        assert_eq!([received, sent, of_port], [count; 3]);
        let both = self.traffic.iter().all(|traffic| traffic.rx_packets.get() > 0);
        assert!(both, "each thread has received frames");
        drop(self.coordinator.stop());
    }
}

/// Receives the frames that leave, in order; returns the next number of each flow.
///
/// Ends when the threads have stopped.
fn check_order(sink: &Receiver<Vec<u8>>, progress: &Progress) -> HashMap<u8, u64> {
    let mut next: HashMap<u8, u64> = HashMap::new();
    while let Ok(frame) = sink.recv_timeout(TIME_LIMIT) {
        let expected = next.entry(frame[29]).or_default();
        let number = u64::from_be_bytes(frame[50..58].try_into().unwrap());
        assert_eq!(number, *expected, "flow {}", frame[29]);
        *expected += 1;
        progress.add_received(1);
    }
    next
}

/// The queues move while they are sockets, and while they are rings.
#[test]
fn moved_queues_of_a_packet_port_lose_nothing() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 up");
        ip("link set b0 up");
        let (mut sender, mut port) = (packet_port("a0"), packet_port("b0"));
        assert!(settles(|| sender.link_up() && port.link_up()));
        let sending = split_one(&mut *sender);
        let (sink, left) = mpsc::channel();
        let mut switch = RunningSwitch::start(&mut *port, &sink);
        // The channel ends with the transmit queues of the threads.
        drop(sink);
        let progress = Progress::default();
        let (rounds, next) = thread::scope(|scope| {
            let done = Done(&progress);
            let sender = scope.spawn(|| send_until_done(sending, &progress));
            let shared = &progress;
            let checker = scope.spawn(move || check_order(&left, shared));
            assert!(port.maintenance(Time::ZERO).is_none());
            switch.move_queues(&progress);
            port.maintenance(Time::ZERO.after(MEASURED)).unwrap()();
            assert!(has_rings(&*port));
            switch.move_queues(&progress);
            drop(done);
            let rounds = sender.join().unwrap();
            let count = progress.sent.load(SeqCst);
            let is_received = || progress.received.load(SeqCst) == count;
            assert!(holds_in_time(is_received), "{} of {count}", progress.received.load(SeqCst));
            switch.stop(count);
            (rounds, checker.join().unwrap())
        });
        assert_eq!(port.counters(), PortCounters::default());
        let expected: HashMap<_, _> = (0..FLOWS).map(|flow| (flow, rounds)).collect();
        assert_eq!(next, expected, "each flow has all its frames");
    });
}
