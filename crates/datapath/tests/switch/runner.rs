//! The real threads: they sleep, wake, answer and stop.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use shunt_datapath::{
    ChangeSender, Command, EvictionDesk, PacketThread, ThreadConfig, Waker,
    thread::{
        ControlEnds, QueueSizes, RunnerConfig, Running, Wakers, spawn_desk, spawn_packet_thread,
        thread_ends,
    },
};
use shunt_pipeline::{BridgeId, BridgeSettings, Iterative, OwnerId, Pipeline, Version};

use crate::rigged::rigged;

/// How long a thread may take for what takes it microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two packet threads and the eviction thread of an empty pipeline.
struct Threads {
    pipeline: Arc<Pipeline>,
    running: Vec<Running<PacketThread>>,
    controls: Vec<ControlEnds>,
    desk: Running<EvictionDesk>,
    changes: ChangeSender,
    answered: mpsc::Receiver<Version>,
}

#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn start() -> Threads {
    let pipeline = Arc::new(Pipeline::new(1));
    let waker = || Arc::new(Waker::new().unwrap());
    let wakers = Wakers { desk: waker(), control: waker(), learner: waker() };
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
    let engine = Box::new(Iterative::new(Arc::clone(&pipeline)));
    let (desk, changes) = EvictionDesk::new(engine, Version::ZERO, ends, wakers.desk);
    let (sender, answered) = mpsc::channel();
    let desk = spawn_desk(desk, move |version| sender.send(version).unwrap()).unwrap();
    Threads { pipeline, running, controls, desk, changes, answered }
}

impl Threads {
    /// Makes a version, and waits until all threads that are there have answered it.
    fn change(&self, bridge: u16) {
        let change = self.pipeline.add_bridge(BridgeId::new(bridge), BridgeSettings::default());
        let version = change.version;
        self.changes.send(change).unwrap();
        while self.answered.recv_timeout(PATIENCE).unwrap() < version {}
    }
}

#[test]
fn a_thread_that_panics_holds_up_no_version() {
    let mut threads = start();
    threads.change(1);
    for (left, dead) in [(1, 0), (0, 1)] {
        let port = rigged(1, || panic!("as the test wants it"));
        threads.controls[dead].send(Command::AddPort(Box::new(port))).unwrap();
        for bridge in 2..20 {
            threads.change(u16::try_from(dead * 20).unwrap() + bridge);
        }
        let ended = threads.running.remove(0);
        assert!(ended.stop().is_none(), "it has panicked");
        assert_eq!(threads.running.len(), left);
    }
    assert_eq!(threads.desk.stop().unwrap().answered(), threads.pipeline.version());
}

#[test]
fn changes_do_not_wait_for_an_eviction_thread_that_is_gone() {
    let threads = start();
    drop(threads.desk.stop());
    for bridge in 1..=2 * u16::try_from(shunt_datapath::desk::CHANGES_MAX).unwrap() {
        let settings = BridgeSettings::default();
        threads.changes.send(threads.pipeline.add_bridge(BridgeId::new(bridge), settings)).unwrap();
    }
    threads.running.into_iter().for_each(|thread| drop(thread.stop()));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn sleeping_threads_answer_versions_and_commands_and_stop() {
    let Threads { pipeline, running, mut controls, desk, changes, answered } = start();

    for bridge in 1..=50 {
        // Some find the threads asleep, some awake.
        let asleep = bridge % 5 == 0;
        let slept = |control: &ControlEnds| control.is_asleep();
        let start = Instant::now();
        while asleep && !controls.iter().all(slept) && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let change = pipeline.add_bridge(BridgeId::new(bridge), BridgeSettings::default());
        let version = change.version;
        changes.send(change).unwrap();
        while answered.recv_timeout(PATIENCE).unwrap() < version {}
        let (sender, pulled) = mpsc::channel();
        let pull = Command::Pull(Box::new(move |()| sender.send(()).unwrap()));
        controls[usize::from(bridge) % 2].send(pull).unwrap();
        pulled.recv_timeout(PATIENCE).unwrap();
    }
    assert!(controls.iter().all(|control| control.answered() == pipeline.version()));
    for thread in running {
        assert_eq!(thread.stop().unwrap().version(), pipeline.version());
    }
    assert_eq!(desk.stop().unwrap().totals().changes, 50);
}
