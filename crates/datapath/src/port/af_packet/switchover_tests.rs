//! Tests of switchovers, with a model of the kernel that fills both sources.
//!
//! Each source is a queue. A CPU delivers a frame by the program that it finds at the beginning of
//! the delivery. As in the kernel, a program has ended when every delivery that began with it is
//! finished.

use std::{collections::VecDeque, sync::Arc};

use shunt_pipeline::DatapathPort;

#[cfg(not(loom))]
use super::EMPTY_MAX;
use super::{FrameSource, RingSource, RxMode, SwitchingReader, Switchover};
use crate::{
    packet::buffer::{Packet, Pool},
    port::RxReport,
    sync::{AtomicU64, Mutex, Ordering},
};

/// Number of CPUs that deliver frames.
const CPUS: usize = 2;

/// A frame: its flow, and its number in the flow.
type Frame = [u8; 5];

/// Returns a frame of a flow.
fn frame(flow: u8, number: u32) -> Frame {
    let [a, b, c, d] = number.to_be_bytes();
    [flow, a, b, c, d]
}

/// The model of the kernel: CPUs that deliver frames to sources by a program.
struct Kernel {
    /// The index of the source that the program chooses.
    program: AtomicU64,
    /// The locks that each CPU holds while it delivers a frame.
    deliveries: [Mutex<()>; CPUS],
    /// The queue of each source.
    queues: [Queue; 2],
}

/// The frames that a source holds.
type Queue = Arc<Mutex<VecDeque<Frame>>>;

/// Number of the queue of the socket.
const SOCKET: u64 = 0;
/// Number of the queue of the ring.
const RING: u64 = 1;

impl Kernel {
    /// Creates the model, with a program that selects the socket.
    fn new() -> Arc<Self> {
        Arc::new(Self {
            program: AtomicU64::new(SOCKET),
            deliveries: [Mutex::new(()), Mutex::new(())],
            queues: [Queue::default(), Queue::default()],
        })
    }

    /// Delivers a frame on a CPU.
    fn deliver(&self, cpu: usize, frame: Frame) {
        let _delivery = self.deliveries[cpu].lock().unwrap();
        let source = self.program.load(Ordering::Acquire);
        self.queues[usize::try_from(source).unwrap()].lock().unwrap().push_back(frame);
    }

    /// Replaces the program, and waits until the old program has ended.
    fn direct(&self, source: u64) {
        self.program.store(source, Ordering::Release);
        self.deliveries.iter().for_each(|delivery| drop(delivery.lock().unwrap()));
    }

    /// Offers a ring to the reader, and switches to the ring.
    fn switch_to_ring(&self, switchover: &Switchover<QueueSource>) {
        switchover.offer(QueueSource::new(&self.queues[1]));
        switchover.set(RxMode::ToRing);
        self.direct(RING);
        switchover.set(RxMode::Ring);
    }

    /// Moves reception from the ring to the socket.
    fn switch_to_socket(&self, switchover: &Switchover<QueueSource>) {
        switchover.set(RxMode::ToSocket);
        self.direct(SOCKET);
        switchover.set(RxMode::Socket);
    }
}

/// A source with its frames in a queue of the model.
struct QueueSource {
    /// The queue of the source.
    queue: Queue,
    /// A function that runs before the next receive.
    interruption: Option<Interruption>,
}

/// Work that another thread does in the middle of a call.
type Interruption = Box<dyn FnOnce() + Send>;

impl QueueSource {
    /// Creates a source for a queue.
    fn new(queue: &Queue) -> Self {
        Self { queue: Arc::clone(queue), interruption: None }
    }
}

impl FrameSource for QueueSource {
    fn receive(
        &mut self,
        pool: &mut Pool,
        burst: &mut Vec<Packet>,
        max: usize,
        _: &mut RxReport,
    ) -> bool {
        self.interruption.take().into_iter().for_each(|interrupt| interrupt());
        while burst.len() < max {
            let Some(frame) = self.queue.lock().unwrap().pop_front() else { return true };
            let mut packet = pool.take(frame.len(), DatapathPort::default()).unwrap();
            packet.frame_mut().copy_from_slice(&frame);
            burst.push(packet);
        }
        false
    }

    fn is_empty(&mut self) -> bool {
        self.queue.lock().unwrap().is_empty()
    }
}

impl RingSource for QueueSource {
    fn clear_error(&self) {}
}

/// A reader of both queues, and the frames that it has received.
struct Reader {
    /// The reader under test.
    reader: SwitchingReader<QueueSource, QueueSource>,
    /// The pool of packet buffers.
    pool: Pool,
    /// The frames that were received, in order.
    received: Vec<Frame>,
}

impl Reader {
    /// Creates the reader of both queues.
    fn new(kernel: &Kernel, switchover: &Arc<Switchover<QueueSource>>) -> Self {
        let socket = QueueSource::new(&kernel.queues[0]);
        let reader = SwitchingReader::new(Arc::clone(switchover), socket);
        Self { reader, pool: Pool::new(), received: Vec::new() }
    }

    /// Receives once, at most `max` frames.
    fn receive(&mut self, max: usize) {
        let (mut burst, mut report) = (Vec::new(), RxReport::default());
        self.reader.receive(&mut self.pool, &mut burst, max, &mut report);
        for packet in burst {
            self.received.push(packet.frame().try_into().unwrap());
            self.pool.put_back(packet);
        }
    }

    /// Receives all remaining frames, and checks the order of each flow.
    fn finish(mut self, flows: &[u32]) {
        let total: u32 = flows.iter().sum();
        for _ in 0..4 + total {
            self.receive(2);
        }
        for (flow, count) in (0..).zip(flows) {
            let own = self.received.iter().filter(|frame| frame[0] == flow).copied();
            let expected = (0..*count).map(|number| frame(flow, number));
            assert!(own.eq(expected), "flow {flow}: {:?}", self.received);
        }
        assert_eq!(self.received.len(), usize::try_from(total).unwrap());
        assert_eq!(self.pool.out(), 0);
    }
}

/// During the switchovers, two CPUs deliver one flow each.
#[cfg(not(loom))]
#[test]
fn a_thousand_switchovers_keep_every_flow() {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
    };

    let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
    let mut reader = Reader::new(&kernel, &switchover);
    let is_done = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let senders = [0_u8, 1].map(|cpu| {
            let (kernel, is_done) = (&kernel, &is_done);
            scope.spawn(move || {
                let mut number = 0;
                while !is_done.load(Relaxed) {
                    // CPUs wait for the reader, so that the queues of the model stay short.
                    if kernel.queues.iter().all(|queue| queue.lock().unwrap().len() < 100) {
                        kernel.deliver(cpu.into(), frame(cpu, number));
                        number += 1;
                    } else {
                        thread::yield_now();
                    }
                }
                number
            })
        });
        scope.spawn(|| {
            for _ in 0..500 {
                kernel.switch_to_ring(&switchover);
                while !switchover.is_settled() {
                    thread::yield_now();
                }
                kernel.switch_to_socket(&switchover);
                while !switchover.has_ring() {
                    thread::yield_now();
                }
                drop(switchover.take());
            }
            is_done.store(true, Relaxed);
        });
        let mut calls = 0;
        while !is_done.load(Relaxed) {
            calls += 1;
            reader.receive(1 + calls % 32);
        }
        senders.map(|sender| sender.join().unwrap())
    });
    reader.finish(&counts);
}

/// The reader sleeps during a part of the switchover, or during all of it.
#[cfg(not(loom))]
#[test]
fn a_late_reader_finds_all_frames_in_order() {
    for receives in 0..6 {
        let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
        let mut reader = Reader::new(&kernel, &switchover);
        let mut count = 0;
        let mut deliver = |kernel: &Kernel| {
            kernel.deliver(0, frame(0, count));
            kernel.deliver(1, frame(0, count + 1));
            count += 2;
        };
        deliver(&kernel);
        kernel.switch_to_ring(&switchover);
        deliver(&kernel);
        for _ in 0..receives {
            reader.receive(1);
        }
        // Two receives take the first frames, and a third receive finds the socket empty.
        assert_eq!(switchover.is_settled(), receives > 2, "{receives}");
        if switchover.is_settled() {
            kernel.switch_to_socket(&switchover);
            deliver(&kernel);
        }
        reader.finish(&[count]);
        assert_eq!(switchover.has_ring(), receives > 2, "the reader returns it");
    }
}

/// A switchover also ends if the thread does not receive from the idle queue.
#[cfg(not(loom))]
#[test]
fn a_switchover_ends_without_receiving() {
    let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
    let mut reader = Reader::new(&kernel, &switchover);
    kernel.deliver(0, frame(0, 0));
    kernel.switch_to_ring(&switchover);
    reader.reader.settle_idle();
    assert!(!switchover.has_ring() && !switchover.is_settled(), "a frame is left");
    reader.receive(1);
    reader.reader.settle_idle();
    assert!(switchover.is_settled());
    kernel.deliver(0, frame(0, 1));
    kernel.switch_to_socket(&switchover);
    reader.reader.settle_idle();
    assert!(!switchover.has_ring(), "a frame is left");
    reader.receive(1);
    reader.reader.settle_idle();
    assert!(switchover.has_ring());
}

/// The reader finds a frame in the wrong source, as while a device goes up.
#[cfg(not(loom))]
#[test]
fn a_misdirected_frame_is_received() {
    let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
    let mut reader = Reader::new(&kernel, &switchover);
    kernel.switch_to_ring(&switchover);
    reader.receive(1);
    kernel.queues[0].lock().unwrap().push_back(frame(0, 0));
    reader.finish(&[1]);
}

/// A switchover begins while the reader checks the socket for misdirected frames.
#[cfg(not(loom))]
#[test]
fn reading_the_socket_reorders_no_frame() {
    let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
    let mut reader = Reader::new(&kernel, &switchover);
    kernel.switch_to_ring(&switchover);
    reader.receive(1);
    assert!(switchover.is_settled());
    reader.reader.socket.interruption = Some(Box::new(move || {
        kernel.deliver(0, frame(0, 0));
        kernel.switch_to_socket(&switchover);
        kernel.deliver(0, frame(0, 1));
    }));
    for _ in 0..EMPTY_MAX {
        reader.receive(2);
    }
    assert!(!reader.received.is_empty(), "the reader looked at the socket");
    reader.finish(&[2]);
}

/// A slot that is still being filled hides the frames of later slots.
#[cfg(not(loom))]
#[test]
fn frames_behind_an_unfilled_slot_come_first() {
    let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
    let mut reader = Reader::new(&kernel, &switchover);
    kernel.switch_to_ring(&switchover);
    reader.receive(1);
    switchover.set(RxMode::ToSocket);
    kernel.queues[0].lock().unwrap().push_back(frame(0, 1));
    for _ in 0..4 {
        reader.receive(2);
    }
    assert!(reader.received.is_empty());
    kernel.queues[1].lock().unwrap().push_back(frame(0, 0));
    switchover.set(RxMode::Socket);
    reader.finish(&[2]);
}

/// Another CPU delivers the second frame of the flow, after the first frame.
#[cfg(loom)]
#[test]
fn every_interleaving_of_a_switchover_keeps_a_flow() {
    for is_to_ring in [true, false] {
        loom::model(move || {
            let (kernel, switchover) = (Kernel::new(), Arc::new(Switchover::new()));
            let mut reader = Reader::new(&kernel, &switchover);
            if !is_to_ring {
                kernel.switch_to_ring(&switchover);
                reader.receive(1);
            }
            let sender = {
                let kernel = Arc::clone(&kernel);
                loom::thread::spawn(move || {
                    kernel.deliver(0, frame(0, 0));
                    kernel.deliver(1, frame(0, 1));
                })
            };
            let control = {
                let (kernel, switchover) = (Arc::clone(&kernel), Arc::clone(&switchover));
                loom::thread::spawn(move || {
                    if is_to_ring {
                        kernel.switch_to_ring(&switchover);
                    } else {
                        kernel.switch_to_socket(&switchover);
                    }
                })
            };
            reader.receive(2);
            reader.receive(2);
            sender.join().unwrap();
            control.join().unwrap();
            reader.finish(&[2]);
        });
    }
}
