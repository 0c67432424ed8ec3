//! Tests the OS thread that runs the agent of an offload device.

use std::{
    sync::mpsc,
    thread::sleep,
    time::{Duration, Instant},
};

use shunt_datapath::offload::{OffloadState, spawn_offload_thread};
use shunt_pipeline::FlowModCommand;

use crate::harness::{OffloadSwitch, packet, request};

/// Waits until a condition holds, for 20 seconds at most.
#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn wait_until(is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(20), "the thread does not do its work");
        sleep(Duration::from_millis(1));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a real thread reads a real clock")]
fn a_sleeping_agent_takes_candidates_versions_and_commands() {
    let OffloadSwitch { checked, mut coordinator, handle, mut offers, owner, now } =
        OffloadSwitch::two_tables();
    let running = spawn_offload_thread(owner, Instant::now()).unwrap();
    offers.offer(&shunt_pipeline::testing::visible(&packet(1, 9)), now);
    offers.notify();
    wait_until(|| handle.status().operations.done >= 2);
    let mut checked = checked;
    let delete = request(FlowModCommand::Delete, "table=1,ip,nw_dst=10.0.0.9");
    let change = checked.apply(&delete).unwrap();
    coordinator.take_reports();
    coordinator.apply(change.version, &change.deltas);
    wait_until(|| coordinator.acked_version() >= change.version);
    let (sender, answer) = mpsc::channel();
    handle.pull(Box::new(move |()| sender.send(()).unwrap()));
    answer.recv().unwrap();
    assert_eq!(handle.status().state, OffloadState::Connected);
    let mut owner = running.stop().unwrap();
    assert_eq!(owner.device().entries().len(), 1);
}
