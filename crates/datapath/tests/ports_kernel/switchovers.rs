//! Tests that a change between sockets and rings loses, repeats or reorders no frame.

use std::{
    collections::HashMap,
    env,
    sync::{
        Condvar, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::{Duration, Instant},
};

use shunt_datapath::{
    Pool,
    port::{Port, PortSpec, PortWork, Queues, open},
};
use shunt_pipeline::Time;

use crate::{
    frames::{
        LOST, QUIET, await_packet, datagram, frame, packets, receive, receive_all, ring_bytes,
        settles,
    },
    in_namespace, ip, packet_port, put_all_back, split_one,
};

/// Time over which maintenance measures the load of a port.
pub(crate) const MEASURED: Duration = Duration::from_millis(100);
/// A time so long that the frames of a test are a small load.
const LONG: Duration = Duration::from_secs(1000);

/// Makes a port change to rings, by many frames in a short time.
///
/// `sender` is the other end of the veth pair.
pub(crate) fn make_busy(port: &mut dyn Port, queues: &mut Queues, sender: &mut Queues) {
    let mut pool = Pool::new();
    assert!(port.maintenance(Time::ZERO).is_none());
    let sent = packets(&mut pool, &[const { [7; 60] }; 25].map(|frame| frame.to_vec()));
    for _ in 0..200 {
        assert_eq!(sender.tx.tx(&sent), sent.len());
        assert_eq!(receive(queues, &mut pool, sent.len()).len(), sent.len());
    }
    put_all_back(&mut pool, sent);
    port.maintenance(Time::ZERO.after(MEASURED)).unwrap()();
    assert!(has_rings(port));
}

pub(crate) fn has_rings(port: &dyn Port) -> bool {
    let stored = port.stored_descriptors();
    stored.iter().any(|own| !own.name.ends_with("/socket"))
}

/// Number of flows of the test.
pub(crate) const FLOWS: u8 = 16;
/// Maximum number of frames in transit.
const WINDOW: u64 = 200;

/// The progress of a test, which its threads share.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    is_done: AtomicBool,
    /// Notified after frames were received, and at the end of the test.
    changed: Condvar,
    lock: Mutex<()>,
}

/// Longest time between two looks at the progress, and at a queue.
const PAUSE: Duration = Duration::from_millis(5);

impl Progress {
    /// Counts frames that were received.
    pub(crate) fn add_received(&self, count: u64) {
        self.received.fetch_add(count, SeqCst);
        self.changed.notify_all();
    }

    /// Waits until frames are received, at most for [`PAUSE`].
    pub(crate) fn wait(&self) {
        // A notification before the wait is lost, which the time limit makes up for.
        drop(self.changed.wait_timeout(self.lock.lock().unwrap(), PAUSE).unwrap());
    }
}

/// A guard that ends the threads of a test, also when the test panics.
pub(crate) struct Done<'a>(pub(crate) &'a Progress);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, SeqCst);
        self.0.changed.notify_all();
    }
}

/// Sends numbered frames of all flows until the test is done.
pub(crate) fn send_until_done(mut queues: Queues, progress: &Progress) -> u64 {
    let mut pool = Pool::new();
    let mut number = 0_u64;
    while !progress.is_done.load(Relaxed) {
        if progress.sent.load(SeqCst) - progress.received.load(SeqCst) > WINDOW {
            progress.wait();
            continue;
        }
        let mut burst: Vec<_> = (0..FLOWS).map(|flow| datagram(flow, 0)).collect();
        burst.iter_mut().for_each(|frame| frame[50..58].copy_from_slice(&number.to_be_bytes()));
        let burst = packets(&mut pool, &burst);
        // Counted before the send, so that `received` never exceeds `sent`.
        progress.sent.fetch_add(burst.len() as u64, SeqCst);
        assert_eq!(queues.tx.tx(&burst), burst.len());
        put_all_back(&mut pool, burst);
        number += 1;
    }
    number
}

/// Receives all frames of the test, in order; returns the next number of each flow.
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
fn receive_in_order(queues: &mut Queues, progress: &Progress) -> HashMap<u8, u64> {
    let mut pool = Pool::new();
    let mut next: HashMap<u8, u64> = HashMap::new();
    let is_done = || {
        progress.is_done.load(SeqCst)
            && progress.sent.load(SeqCst) == progress.received.load(SeqCst)
    };
    let mut end = Instant::now() + LOST;
    while !is_done() && Instant::now() < end {
        let mut burst = Vec::new();
        let rx = queues.rx.as_mut().unwrap();
        let report = rx.rx(&mut pool, &mut burst).unwrap();
        assert_eq!(report.refused, 0);
        if burst.is_empty() {
            rx.check().unwrap();
            await_packet(queues, &report, PAUSE);
        } else {
            end = Instant::now() + LOST;
        }
        for packet in &burst {
            let frame = packet.frame();
            let expected = next.entry(frame[29]).or_default();
            let number = u64::from_be_bytes(frame[50..58].try_into().unwrap());
            assert_eq!(number, *expected, "flow {}", frame[29]);
            *expected += 1;
        }
        progress.add_received(burst.len() as u64);
        put_all_back(&mut pool, burst);
    }
    next
}

/// Calls `maintenance` at each `time` until it returns work.
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
fn await_work(
    port: &mut dyn Port,
    progress: &Progress,
    mut time: impl FnMut() -> Time,
) -> PortWork {
    let start = Instant::now();
    loop {
        if let Some(work) = port.maintenance(time()) {
            return work;
        }
        assert!(start.elapsed() < LOST, "no work: a receiver has ended");
        progress.wait();
    }
}

/// Changes a port to rings and back to sockets, `count` times.
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
fn change(port: &mut dyn Port, progress: &Progress, count: u32) {
    let mut now = Time::ZERO;
    for _ in 0..count {
        now = now.after(LONG);
        assert!(port.maintenance(now).is_none());
        let (before, start) = (progress.received.load(SeqCst), Instant::now());
        while progress.received.load(SeqCst) < before + 5_000 && start.elapsed() < LOST {
            progress.wait();
        }
        now = now.after(MEASURED);
        port.maintenance(now).unwrap()();
        assert!(has_rings(port));
        let mut later = || {
            now = now.after(LONG);
            now
        };
        await_work(port, progress, &mut later)();
        await_work(port, progress, &mut later)();
        assert!(!has_rings(port));
    }
}

/// The variable `SHUNT_SWITCHOVERS` sets the number of changes to rings and back.
fn every_flow_survives(threads: u16) {
    let count = env::var("SHUNT_SWITCHOVERS").ok().and_then(|text| text.parse().ok());
    in_namespace(move || {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 up");
        ip("link set b0 up");
        let (mut sender, mut port) = (packet_port("a0"), packet_port("b0"));
        assert!(settles(|| sender.link_up() && port.link_up()));
        let (sending, mut queues) = (split_one(&mut *sender), port.split(threads).unwrap());
        let progress = Progress::default();
        let (rounds, flows) = thread::scope(|scope| {
            let sender = scope.spawn(|| send_until_done(sending, &progress));
            let receivers: Vec<_> = queues
                .iter_mut()
                .map(|queues| scope.spawn(|| receive_in_order(queues, &progress)))
                .collect();
            let done = Done(&progress);
            change(&mut *port, &progress, count.unwrap_or(10));
            drop(done);
            let rounds = sender.join().unwrap();
            let flows = receivers.into_iter().map(|receiver| receiver.join().unwrap());
            (rounds, flows.collect::<Vec<_>>())
        });
        assert_eq!(port.counters().rx_dropped, 0);
        for flow in 0..FLOWS {
            let owners: Vec<_> = flows.iter().filter_map(|own| own.get(&flow)).collect();
            assert_eq!(owners, [&rounds], "flow {flow} has one thread, and all its frames");
        }
    });
}

#[test]
fn switchovers_of_one_thread_keep_every_flow() {
    every_flow_survives(1);
}

#[test]
fn switchovers_of_three_threads_keep_every_flow() {
    every_flow_survives(3);
}

#[test]
fn a_busy_port_has_the_configured_slots() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 up");
        ip("link set b0 up");
        let mut sender = packet_port("a0");
        let spec = PortSpec::AfPacket { device: "b0".to_owned(), mtu: None, rx_slots: Some(1999) };
        let mut port = open(&spec, 0).unwrap();
        let (mut sending, mut queues) = (split_one(&mut *sender), split_one(&mut *port));
        assert!(!has_rings(&*port), "an idle port has no ring");
        make_busy(&mut *port, &mut queues, &mut sending);
        // The ring has whole blocks of 32 slots.
        assert!(ring_bytes().contains(&(63 * 32 * 2048)), "{:?}", ring_bytes());
    });
}

/// Sockets leave the fan-out group when the device goes down, and join it again.
#[test]
fn busy_port_continues_after_device_was_down() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 up");
        ip("link set b0 up");
        let (mut sender, mut port) = (packet_port("a0"), packet_port("b0"));
        let (mut sending, mut queues) = (split_one(&mut *sender), split_one(&mut *port));
        make_busy(&mut *port, &mut queues, &mut sending);
        let mut pool = Pool::new();
        for number in 0..3 {
            ip("link set b0 down");
            assert!(settles(|| !port.link_up()));
            receive_all(&mut queues, &mut pool, QUIET);
            // An idle queue checks its device at every 64th receive.
            for _ in 0..100 {
                queues.rx.as_mut().unwrap().rx(&mut pool, &mut Vec::new()).unwrap();
            }
            ip("link set b0 up");
            assert!(settles(|| port.link_up() && sender.link_up()));
            let sent = packets(&mut pool, &[frame(number, 60)]);
            assert_eq!(sending.tx.tx(&sent), 1);
            assert_eq!(receive(&mut queues, &mut pool, 1), [frame(number, 60)]);
            put_all_back(&mut pool, sent);
        }
    });
}
