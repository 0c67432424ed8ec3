//! The real threads: they sleep, wake, answer and stop.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use shunt_datapath::{
    Command, EvictionDesk, PacketThread, ThreadConfig, Waker,
    thread::{QueueSizes, RunnerConfig, Wakers, spawn_desk, spawn_packet_thread, thread_ends},
};
use shunt_pipeline::{BridgeId, BridgeSettings, Iterative, OwnerId, Pipeline, Version};

/// How long a thread may take for what takes it microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn sleeping_threads_answer_versions_and_commands_and_stop() {
    let pipeline = Arc::new(Pipeline::new(1));
    let waker = || Arc::new(Waker::new().unwrap());
    let wakers = Wakers { desk: waker(), control: waker() };
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

    for bridge in 1..=50 {
        // Some find the threads asleep, some awake.
        let asleep = bridge % 5 == 0;
        let slept = |control: &shunt_datapath::thread::ControlEnds| control.is_asleep();
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
