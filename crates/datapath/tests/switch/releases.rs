//! Tests receive queues that move between packet threads: order of flows, and measured loads.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, TryRecvError},
    },
    time::Duration,
};

use shunt_datapath::{
    Command, Packet, Pool, PortError, RxQueue, ThreadConfig,
    command::{ReleasedReceiver, ThreadReceiver},
    egress::{PortQos, htb::HtbOptions, scheduler::EgressScheduler},
    port::RxReport,
};
use shunt_flow::{Match, PortNo, testing::packet::PacketBuilder};
use shunt_pipeline::DatapathPort;

use super::waiting::per_flow;
use crate::harness::{BRIDGE, Switch, added, output, rule};

/// The answer to a request to release a queue.
type ReleaseAnswer = Receiver<Option<ReleasedReceiver>>;

/// Asks a thread to release a receive queue of a port.
fn release(switch: &mut Switch, thread: usize, port: u32, queue: u16) -> ReleaseAnswer {
    let (sender, answer) = mpsc::channel();
    let reply = Box::new(move |released| sender.send(released).unwrap());
    let command = Command::ReleaseReceiver(DatapathPort::new(port), queue, reply);
    assert!(switch.controls[thread].send(command).is_ok());
    answer
}

/// Attaches a released queue to a thread.
fn attach_released(switch: &mut Switch, thread: usize, port: u32, released: ReleasedReceiver) {
    let ReleasedReceiver { queue, state } = released;
    let receiver = ThreadReceiver {
        port: DatapathPort::new(port),
        bridge: BRIDGE,
        number: PortNo::new(port),
        queue,
        traffic: Arc::default(),
        policer: None,
        state,
    };
    assert!(switch.controls[thread].send(Command::AddReceiver(Box::new(receiver))).is_ok());
}

/// Returns packet `number` of a flow.
fn frame(flow: u16, number: u16) -> Vec<u8> {
    let payload = number.to_be_bytes();
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(flow, 53).payload(payload).build()
}

/// A random sequence (Numerical Recipes).
struct MoveDraws(u32);

impl MoveDraws {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % limit
    }
}

/// A receive queue of a test, and the request to release it.
struct MovingQueue {
    port: u32,
    number: u16,
    /// The thread that has the queue.
    thread: usize,
    /// The thread that will have the queue, and the answer of the other thread.
    pending: Option<(usize, ReleaseAnswer)>,
}

const THREADS: u16 = 3;
const FLOWS: u16 = 2000;
/// The port that all packets leave by.
const OUT: u32 = 3;

/// Packets of random flows, while receive queues move between threads.
struct MovingQueues {
    switch: Switch,
    random: MoveDraws,
    queues: Vec<MovingQueue>,
    /// Number of packets of each flow that were sent to the switch.
    sent: Vec<u16>,
    /// The packets that left, in the order of all threads.
    left: Vec<Vec<u8>>,
    moves: u32,
}

impl MovingQueues {
    fn new(seed: u32) -> Self {
        let config = ThreadConfig { translations_per_iteration: 2, ..super::thread_config() };
        let mut switch = Switch::new(THREADS, OUT, config);
        switch.apply(&[per_flow(1, OUT)]);
        let queues = (1..OUT).flat_map(|port| {
            (0..THREADS).map(move |number| MovingQueue {
                port,
                number,
                thread: number.into(),
                pending: None,
            })
        });
        let (queues, sent) = (queues.collect(), vec![0; FLOWS.into()]);
        Self { switch, random: MoveDraws(seed), queues, sent, left: Vec::new(), moves: 0 }
    }

    /// Sends a packet of a flow to the queue of the flow.
    fn send(&mut self, flow: u16) {
        let queue = &self.queues[usize::from(flow) % self.queues.len()];
        let number = &mut self.sent[usize::from(flow)];
        if self.switch.send(queue.number.into(), queue.port, &frame(flow, *number)) {
            *number += 1;
        }
    }

    /// Runs a random thread once, and takes the packets that it has sent.
    fn run_iteration(&mut self) {
        let thread = self.random.below(THREADS.into()) as usize;
        self.switch.run_iteration(thread);
        self.left.extend(self.switch.receive(thread, OUT));
    }

    /// Asks for a random queue, and gives released queues to their next threads.
    fn move_queues(&mut self, begins: bool) {
        let Self { switch, random, queues, moves, .. } = self;
        for own in queues.iter_mut() {
            let Some((to, answer)) = &own.pending else { continue };
            let answered = answer.try_recv();
            if answered.as_ref().is_err_and(|error| *error == TryRecvError::Empty) {
                continue;
            }
            // A thread refuses the release only if the queue may overflow meanwhile. No time
            // passes in this test, so no queue may overflow.
            let released = answered.unwrap().unwrap();
            attach_released(switch, *to, own.port, released);
            (own.thread, own.pending) = (*to, None);
            *moves += 1;
        }
        let count = u32::try_from(queues.len()).unwrap();
        let own = &mut queues[random.below(count) as usize];
        if begins && own.pending.is_none() {
            let to = random.below(THREADS.into()) as usize;
            own.pending = Some((to, release(switch, own.thread, own.port, own.number)));
        }
    }

    /// Checks that each packet has left once, in the order of its flow.
    fn check(&self, seed: u32) {
        let mut expected = vec![0; FLOWS.into()];
        for got in &self.left {
            let flow = u16::from_be_bytes([got[34], got[35]]);
            let number = &mut expected[usize::from(flow)];
            assert!(*got == frame(flow, *number), "seed {seed}, flow {flow}, packet {number}");
            *number += 1;
        }
        assert!(expected == self.sent, "seed {seed}: each packet leaves");
        for thread in 0..THREADS.into() {
            assert_eq!(self.switch.counters(thread).unaccounted(), 0, "seed {seed}");
        }
    }
}

/// Old and new flows are mixed, so packets wait for translations.
#[test]
fn queues_that_move_keep_every_flow_in_order() {
    for seed in 1..=8 {
        let mut moving = MovingQueues::new(seed);
        for newest in 8..FLOWS {
            for _ in 0..3 {
                let age = moving.random.below(8);
                moving.send(newest - u16::try_from(age).unwrap());
            }
            moving.run_iteration();
            moving.move_queues(newest % 4 == 0);
        }
        let is_pending = |own: &MovingQueue| own.pending.is_some();
        for _ in 0..10_000 {
            moving.run_iteration();
            moving.move_queues(false);
            let held: usize = moving.switch.threads.iter().map(|thread| thread.held()).sum();
            let is_sent =
                moving.left.len() == moving.sent.iter().map(|n| usize::from(*n)).sum::<usize>();
            if held == 0 && is_sent && !moving.queues.iter().any(is_pending) {
                break;
            }
        }
        assert!(moving.moves > 100, "seed {seed}: {} moves", moving.moves);
        moving.check(seed);
    }
}

#[test]
fn queue_is_released_without_waiting_packets() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 1, ..super::thread_config() };
    let mut switch = Switch::new(2, OUT, config);
    switch.apply(&[per_flow(1, OUT)]);
    (0..5).for_each(|flow| assert!(switch.send(0, 1, &frame(flow, 0))));
    switch.run_iteration(0);
    assert_eq!(switch.threads[0].held(), 4);
    let answer = release(&mut switch, 0, 1, 0);
    // The frame arrives after the request.
    assert!(switch.send(0, 1, &frame(0, 1)));
    for held in (0..4).rev() {
        assert!(!switch.sleep(0), "packets wait");
        switch.run_iteration(0);
        assert_eq!(switch.threads[0].held(), held);
        assert!(answer.try_recv().is_err(), "{held} packets wait");
    }
    assert!(!switch.sleep(0), "the queue is not released yet");
    switch.run_iteration(0);
    let released = answer.try_recv().unwrap().unwrap();
    assert_eq!((released.state.number, released.state.received), (0, 5));
    switch.settle();
    assert_eq!(switch.receive(0, OUT).len(), 5, "the thread does not poll the queue");
    attach_released(&mut switch, 1, 1, released);
    switch.settle();
    assert_eq!(switch.receive(1, OUT), [frame(0, 1)]);
    // The thread that has released the queue has it no more.
    let answer = release(&mut switch, 0, 1, 0);
    switch.settle();
    assert!(answer.try_recv().unwrap().is_none());
}

#[test]
fn a_full_transmit_queue_keeps_the_queue() {
    let mut switch = Switch::new(1, OUT, super::thread_config());
    switch.apply(&[rule(1, Match::any(), vec![output(OUT)])]);
    // The port sends about 100 frames in a second.
    let options = HtbOptions { max_rate: 50_000, queues: [].into() };
    let qos = PortQos::Queues(Arc::new(EgressScheduler::new(&options, switch.now)));
    let port = DatapathPort::new(OUT);
    assert!(switch.controls[0].send(Command::SetQos(port, Some(qos))).is_ok());
    switch.settle();
    (0..100).for_each(|number| assert!(switch.send(0, 1, &frame(1, number))));
    switch.settle();
    let sent = switch.receive(0, OUT).len();
    assert!((1..90).contains(&sent), "{sent} frames fill the bucket");
    let answer = release(&mut switch, 0, 1, 0);
    switch.settle();
    switch.wait(Duration::from_micros(499));
    switch.settle();
    assert!(answer.try_recv().is_err(), "packets are in the egress queue");
    // In a longer pause, the ring of the device would overflow.
    switch.wait(Duration::from_micros(1));
    switch.settle();
    assert!(answer.try_recv().unwrap().is_none());
    assert!(switch.send(0, 1, &frame(2, 0)));
    let before = switch.counters(0).received.get();
    switch.settle();
    assert_eq!(switch.counters(0).received.get(), before + 1, "the thread polls the queue");
}

/// Returns a switch that sends port 1 to port 2, and port 2 to the slow port `OUT`.
///
/// An egress queue of that port has packets of port 2.
fn behind_a_slow_output() -> Switch {
    let mut switch = Switch::new(1, OUT, super::thread_config());
    let to_slow = format!("in_port=2,actions=output:{OUT}");
    switch.apply(&added(&["in_port=1,actions=output:2", &to_slow]));
    // The port sends about 100 frames in a second.
    let options = HtbOptions { max_rate: 50_000, queues: [].into() };
    let qos = PortQos::Queues(Arc::new(EgressScheduler::new(&options, switch.now)));
    let port = DatapathPort::new(OUT);
    assert!(switch.controls[0].send(Command::SetQos(port, Some(qos))).is_ok());
    switch.settle();
    (0..100).for_each(|number| assert!(switch.send(0, 2, &frame(1, number))));
    switch.settle();
    let sent = switch.receive(0, OUT).len();
    assert!((1..90).contains(&sent), "{sent} frames fill the bucket");
    switch
}

#[test]
fn other_busy_outputs_keep_no_queue() {
    let mut switch = behind_a_slow_output();
    (0..10).for_each(|number| assert!(switch.send(0, 1, &frame(2, number))));
    switch.settle();
    // The output stays busy, and the next packet of the queue arrives after the request.
    assert!(switch.send(0, 2, &frame(3, 0)));
    let answer = release(&mut switch, 0, 1, 0);
    assert!(switch.send(0, 1, &frame(2, 10)));
    switch.settle();
    let released = answer.try_recv().unwrap().unwrap();
    assert_eq!(released.state.received, 10, "no packet is lost");
    let kept = release(&mut switch, 0, 2, 0);
    switch.settle();
    assert!(kept.try_recv().is_err(), "packets of the receive queue are in the egress queue");
    attach_released(&mut switch, 0, 1, released);
    switch.settle();
    let expected: Vec<_> = (0..11).map(|number| frame(2, number)).collect();
    assert_eq!(switch.receive(0, 2), expected);
}

/// A receive queue with a ring that a test fills.
struct FillingRx {
    queue: Box<dyn RxQueue>,
    is_full: Arc<AtomicBool>,
}

impl RxQueue for FillingRx {
    fn rx(&mut self, pool: &mut Pool, burst: &mut Vec<Packet>) -> Result<RxReport, PortError> {
        self.queue.rx(pool, burst)
    }

    fn may_overflow(&self, _: Duration) -> bool {
        self.is_full.load(Relaxed)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queue.wait_fd()
    }
}

#[test]
fn a_queue_is_polled_before_its_ring_overflows() {
    let mut switch = behind_a_slow_output();
    // Without packets in the egress queue, the thread releases the queue.
    for _ in 0..200 {
        switch.wait(Duration::from_millis(100));
        switch.settle();
    }
    let answer = release(&mut switch, 0, 2, 0);
    switch.settle();
    let ReleasedReceiver { queue, state } = answer.try_recv().unwrap().unwrap();
    let is_full = Arc::<AtomicBool>::default();
    let queue = Box::new(FillingRx { queue, is_full: Arc::clone(&is_full) });
    attach_released(&mut switch, 0, 2, ReleasedReceiver { queue, state });
    (0..100).for_each(|number| assert!(switch.send(0, 2, &frame(1, number))));
    switch.settle();
    let answer = release(&mut switch, 0, 2, 0);
    assert!(switch.send(0, 2, &frame(2, 0)));
    let before = switch.counters(0).received.get();
    switch.settle();
    assert!(answer.try_recv().is_err(), "packets are in the egress queue");
    assert_eq!(switch.counters(0).received.get(), before, "the thread does not poll the queue");
    is_full.store(true, Relaxed);
    switch.settle();
    assert!(answer.try_recv().unwrap().is_none());
    switch.settle();
    assert_eq!(switch.counters(0).received.get(), before + 1, "the thread polls the queue");
}

#[test]
fn time_of_iteration_is_divided_by_packets() {
    let mut switch = Switch::new(1, OUT, super::thread_config());
    switch.apply(&[rule(1, Match::any(), vec![output(OUT)])]);
    (0..30).for_each(|number| assert!(switch.send(0, 1, &frame(1, number))));
    (0..10).for_each(|number| assert!(switch.send(0, 2, &frame(1, number))));
    switch.run_iteration(0);
    switch.wait(Duration::from_micros(40));
    switch.settle();
    // No packet arrives in this time.
    switch.wait(Duration::from_secs(1));
    switch.settle();
    let mut load = |port| {
        let answer = release(&mut switch, 0, port, 0);
        switch.settle();
        let load = answer.try_recv().unwrap().unwrap().state.load;
        [load.busy_ns.get(), load.packets.get(), load.bursts.get()]
    };
    assert_eq!(load(1), [30_000, 30, 1]);
    assert_eq!(load(2), [10_000, 10, 1]);
}

#[test]
fn removed_port_returns_all_queues_of_thread() {
    let mut switch = Switch::new(2, OUT, super::thread_config());
    let answer = release(&mut switch, 0, 1, 0);
    switch.settle();
    attach_released(&mut switch, 1, 1, answer.try_recv().unwrap().unwrap());
    switch.settle();
    let (sender, removed) = mpsc::channel();
    let reply = Box::new(move |queues| sender.send(queues).unwrap());
    let command = Command::RemovePort(DatapathPort::new(1), reply);
    assert!(switch.controls[1].send(command).is_ok());
    switch.settle();
    let removed: Option<shunt_datapath::command::RemovedQueues> = removed.try_recv().unwrap();
    assert_eq!(removed.unwrap().rx.len(), 2);
}
