//! Tests of the data plane.

use shunt_pipeline::Iterative;

use super::*;
use crate::threads::worker::SLEEP_MAX_MS;

/// Returns a data plane, and a worker thread that panics immediately.
fn plane() -> (DataPlane, WorkerThread) {
    let engine: EngineMaker = Box::new(|pipeline| Box::new(Iterative::new(pipeline)));
    let plane = DataPlane::start(&Config::default(), 1, engine).unwrap().plane;
    let waker = Arc::new(Waker::new().unwrap());
    let doomed = WorkerThread::start("doomed", waker, SLEEP_MAX_MS, || -> bool {
        panic!("the test requests this panic")
    })
    .unwrap();
    (plane, doomed)
}

#[test]
fn default_configuration_has_defaults_of_packet_thread() {
    assert_eq!(thread_config(&Config::default(), 0), ThreadConfig::default());
}

/// Repeats the check for ended threads until one has ended.
fn wait_until_stopped(plane: &DataPlane) -> StoppedThreads {
    loop {
        let stopped = plane.reclaim();
        if stopped.vital.is_some() || stopped.listener {
            return stopped;
        }
        thread::yield_now();
    }
}

#[tokio::test]
async fn without_the_learner_packet_threads_stop() {
    let (mut plane, doomed) = plane();
    std::mem::replace(&mut plane.learner, doomed).stop();
    let stopped = wait_until_stopped(&plane);
    assert_eq!((stopped.vital, stopped.packet), (Some(LEARNER), vec![0]));
    assert!(plane.living().is_empty());
    plane.wait_until_learned().await;
    let states = plane.thread_states();
    let panicked = states.iter().filter(|own| own.state == ThreadState::Panicked);
    assert_eq!(panicked.map(|own| &*own.name).collect::<Vec<_>>(), [LEARNER]);
}

#[tokio::test]
async fn a_new_offload_agent_replaces_one_that_ended() {
    let (plane, doomed) = plane();
    doomed.stop();
    let (config, bridge) = (Config::default(), BridgeId::new(1));
    for _ in 0..2 {
        plane.start_offload(config.clone(), bridge, 1).await.unwrap();
        let states = plane.thread_states();
        let offload = states.iter().find(|own| own.name == OFFLOAD).unwrap();
        assert_eq!((offload.state, states.len()), (ThreadState::Running, 6));
        let lanes =
            plane.inspect_coordinator(|coordinator| coordinator.owner_statuses().len()).await;
        assert_eq!(lanes, Some(2));
        if let Some(offload) = &mut plane.running.lock().offload {
            offload.slot.stop();
            offload.slot = ThreadSlot::Panicked;
        }
        plane.pull().await;
    }
}

/// A packet thread publishes that it has lost its trainer.
///
/// The test has stopped the packet thread, so that the count stays.
#[tokio::test]
async fn a_lost_trainer_is_reported_once() {
    let (plane, doomed) = plane();
    doomed.stop();
    assert!(plane.running.lock().packet.iter_mut().all(ThreadSlot::stop));
    assert_eq!(plane.thread_states().len(), 5);
    plane.counters[0].trainer_lost.set(1);
    assert_eq!(plane.reclaim().trainers, [0]);
    assert!(plane.reclaim().trainers.is_empty());
    let states = plane.thread_states();
    assert_eq!(states[5].name, "trainer of packet thread 0");
    assert_eq!(plane.living(), [0]);
}

#[tokio::test]
async fn packets_flow_without_the_listener_thread() {
    let (mut plane, doomed) = plane();
    std::mem::replace(&mut plane.listener.worker, doomed).stop();
    let stopped = wait_until_stopped(&plane);
    assert!(stopped.listener && stopped.vital.is_none() && stopped.packet.is_empty());
    assert_eq!(plane.living(), [0]);
    plane.pull().await;
}
