//! Tests with OS threads, which sleep, wake, acknowledge versions and stop.

use std::{
    sync::{Arc, mpsc},
    thread::sleep,
    time::{Duration, Instant},
};

use shunt_datapath::{
    ChangeSender, Command, CoordinatorHandle, EvictionCoordinator, PacketThread, ThreadConfig,
    Waker,
    thread::{
        ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_coordinator,
        spawn_packet_thread, thread_ends,
    },
};
use shunt_pipeline::{
    BridgeId, BridgeSettings, Delta, EntryId, Evictor, Installed, Iterative, OwnerId, Pipeline,
    Traversal, Version,
};

use crate::faulty_port::faulty_port;

/// Time limit for work that usually takes microseconds.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// OS threads of two packet threads and the eviction thread, for an empty pipeline.
struct Threads {
    pipeline: Arc<Pipeline>,
    running: Vec<Running<PacketThread>>,
    controls: Vec<ControlEnds>,
    coordinator: Running<Option<EvictionCoordinator>>,
    changes: ChangeSender,
    acked: mpsc::Receiver<Version>,
}

/// An engine that reports every change as quick, and panics at the version `doom`.
struct Quick {
    inner: Iterative,
    doom: u64,
}

impl Evictor for Quick {
    fn installed(&mut self, entry: EntryId, traversal: &Arc<Traversal>) -> Installed {
        self.inner.installed(entry, traversal)
    }

    fn removed(&mut self, entry: EntryId) {
        self.inner.removed(entry);
    }

    fn apply(&mut self, deltas: &[Delta], version: Version) -> Vec<EntryId> {
        assert!(version.number() < self.doom, "the test requests this panic");
        self.inner.apply(deltas, version)
    }

    fn forget(&mut self, owner: OwnerId) {
        self.inner.forget(owner);
    }

    fn is_quick(&self, _deltas: &[Delta]) -> bool {
        true
    }

    fn len(&self) -> usize {
        self.inner.len()
    }
}

fn start() -> Threads {
    start_with(|pipeline| Box::new(Iterative::new(pipeline)))
}

#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn start_with(engine: impl FnOnce(Arc<Pipeline>) -> Box<dyn Evictor>) -> Threads {
    let pipeline = Arc::new(Pipeline::new(1));
    let waker = || Arc::new(Waker::new().unwrap());
    let wakers = Wakers { coordinator: waker(), control: waker(), learner: waker() };
    let epoch = Instant::now();
    let (mut running, mut controls, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..2 {
        let sizes = QueueSizes::default();
        let made = thread_ends(OwnerId(index), Version::ZERO, sizes, wakers.clone()).unwrap();
        let thread = PacketThread::new(ThreadConfig::default(), Arc::clone(&pipeline), made.0);
        let config = RunnerConfig { index, cpu: Some(0), epoch };
        running.push(spawn_packet_thread(thread, config).unwrap());
        controls.push(made.1);
        ends.push(made.2);
    }
    let engine = engine(Arc::clone(&pipeline));
    let (coordinator, changes) =
        EvictionCoordinator::new(engine, Version::ZERO, ends, wakers.coordinator);
    let (sender, acked) = mpsc::channel();
    let handle = CoordinatorHandle::new(coordinator, move |version| sender.send(version).unwrap());
    let changes = changes.helping(&handle);
    let coordinator = spawn_coordinator(handle).unwrap();
    Threads { pipeline, running, controls, coordinator, changes, acked }
}

/// Waits until a condition holds; returns whether it held in time.
#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn holds_in_time(is_true: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_true() {
        if start.elapsed() > TIME_LIMIT {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

impl Threads {
    /// Waits until all packet threads sleep, or the time limit is over.
    fn await_sleep(&self) {
        holds_in_time(|| self.controls.iter().all(ControlEnds::is_asleep));
    }

    /// Publishes a version, and waits until all threads have acknowledged it.
    fn change(&self, bridge: u16) {
        let change = self.pipeline.add_bridge(BridgeId::new(bridge), BridgeSettings::default());
        let version = change.version;
        self.changes.send(change).unwrap();
        while self.acked.recv_timeout(TIME_LIMIT).unwrap() < version {}
    }
}

#[test]
fn a_panicked_thread_delays_no_version() {
    let mut threads = start();
    threads.change(1);
    for (left, dead) in [(1, 0), (0, 1)] {
        let port = faulty_port(1, || panic!("the test requests this panic"));
        threads.controls[dead].send(Command::AddPort(Box::new(port))).unwrap();
        for bridge in 2..20 {
            threads.change(u16::try_from(dead * 20).unwrap() + bridge);
        }
        assert!(holds_in_time(|| threads.running[0].is_finished()), "the thread runs on");
        let ended = threads.running.remove(0);
        assert!(ended.stop().is_none(), "the thread has panicked");
        assert_eq!(threads.running.len(), left);
    }
    assert_eq!(
        threads.coordinator.stop().flatten().unwrap().acked_version(),
        threads.pipeline.version()
    );
}

#[test]
fn sleeping_threads_acknowledge_quick_changes_at_once() {
    let threads =
        start_with(|pipeline| Box::new(Quick { inner: Iterative::new(pipeline), doom: u64::MAX }));
    let mut at_once = 0;
    for bridge in 1..=100 {
        threads.await_sleep();
        let change = threads.pipeline.add_bridge(BridgeId::new(bridge), BridgeSettings::default());
        let version = change.version;
        threads.changes.send(change).unwrap();
        let mut acked = threads.acked.try_iter().last();
        at_once += usize::from(acked == Some(version));
        while acked < Some(version) {
            acked = Some(threads.acked.recv_timeout(TIME_LIMIT).unwrap());
        }
    }
    // The scheduler decides how often the coordinator is busy or a thread is awake. So the test
    // needs only one change that was acknowledged at once.
    assert!(at_once > 0, "no change was answered before its sender went on");
    assert_eq!(threads.coordinator.stop().flatten().unwrap().totals().changes, 100);
}

#[test]
fn panic_of_engine_ends_eviction_thread() {
    let threads =
        start_with(|pipeline| Box::new(Quick { inner: Iterative::new(pipeline), doom: 1 }));
    threads.await_sleep();
    let change = threads.pipeline.add_bridge(BridgeId::new(1), BridgeSettings::default());
    threads.changes.send(change).unwrap();
    assert!(holds_in_time(|| threads.coordinator.is_finished()), "the thread runs on");
    assert!(threads.coordinator.stop().is_none(), "the thread has panicked");
    assert!(threads.acked.recv().is_err(), "nobody says that the version is answered");
    let change = threads.pipeline.add_bridge(BridgeId::new(2), BridgeSettings::default());
    threads.changes.send(change).unwrap();
}

#[test]
fn changes_do_not_wait_for_an_ended_thread() {
    let threads = start();
    drop(threads.coordinator.stop());
    for bridge in 1..=2 * u16::try_from(shunt_datapath::evict::coordinator::CHANGES_MAX).unwrap() {
        let settings = BridgeSettings::default();
        threads.changes.send(threads.pipeline.add_bridge(BridgeId::new(bridge), settings)).unwrap();
    }
    threads.running.into_iter().for_each(|thread| drop(thread.stop()));
}

#[test]
fn a_sleeping_thread_answers_a_ping() {
    let mut threads = start();
    threads.await_sleep();
    for control in &mut threads.controls {
        let (sender, answered) = mpsc::channel();
        control.send(Command::Ping(Box::new(move |()| sender.send(()).unwrap()))).unwrap();
        answered.recv_timeout(TIME_LIMIT).unwrap();
    }
    threads.running.into_iter().for_each(|thread| drop(thread.stop()));
}

#[test]
fn sleeping_threads_acknowledge_versions_run_commands_and_stop() {
    let mut threads = start();
    for bridge in 1..=50 {
        // At some changes the threads are asleep, at others awake.
        if bridge % 5 == 0 {
            threads.await_sleep();
        }
        threads.change(bridge);
        let (sender, pulled) = mpsc::channel();
        let pull = Command::Pull(Box::new(move |()| sender.send(()).unwrap()));
        threads.controls[usize::from(bridge) % 2].send(pull).unwrap();
        pulled.recv_timeout(TIME_LIMIT).unwrap();
    }
    for thread in threads.running {
        assert!(thread.stop().is_some());
    }
    let coordinator = threads.coordinator.stop().flatten().unwrap();
    assert_eq!(
        (coordinator.totals().changes, coordinator.acked_version()),
        (50, threads.pipeline.version())
    );
}
