//! Tests offload candidates that packet threads send to the agent of a device, with each cache.

use shunt_datapath::{
    Command,
    offload::{OffloadAgent, OffloadConfig},
};
use shunt_flow::{Match, testing::packet::PacketBuilder};
use shunt_testkit::offload::SoftwareDevice;

use super::thread_config;
use crate::harness::{BRIDGE, Switch, output, rule};

fn frame(target: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, target]).udp(1, 2).build()
}

#[test]
fn a_missed_packet_gets_a_device_entry() {
    let mut switch = Switch::behind_device(2, 2, thread_config());
    let (handle, ends) = switch.device.take().unwrap();
    let pipeline = switch.pipeline.clone();
    let device = SoftwareDevice::new(4, 100);
    let mut owner = OffloadAgent::new(OffloadConfig::new(BRIDGE), pipeline, device, ends);
    let change =
        switch.pipeline.apply(BRIDGE, &[rule(1, Match::any(), vec![output(2)])], switch.now);
    switch.change(&change.unwrap());
    switch.settle();
    assert!(
        switch.coordinator.acked_version() < switch.pipeline.version(),
        "the barrier waits for the device"
    );
    owner.run_iteration(switch.now);
    assert_eq!(switch.coordinator.acked_version(), switch.pipeline.version());
    for thread in 0..2 {
        assert!(switch.send(thread, 1, &frame(1)));
        switch.settle();
        assert_eq!(switch.receive(thread, 2).len(), 1);
    }
    while owner.run_iteration(switch.now) {}
    let status = handle.status();
    assert_eq!((status.candidates_offered, status.candidates_known), (2, 1));
    assert_eq!((owner.device().entries().len(), status.operations.done), (1, 1));
}

#[test]
fn software_hits_become_candidates_by_sampling() {
    let mut switch = Switch::behind_device(1, 2, thread_config());
    let (handle, ends) = switch.device.take().unwrap();
    let change =
        switch.pipeline.apply(BRIDGE, &[rule(1, Match::any(), vec![output(2)])], switch.now);
    switch.change(&change.unwrap());
    for _ in 0..300 {
        assert!(switch.send(0, 1, &frame(1)));
        switch.settle();
        switch.receive(0, 2);
    }
    let early = handle.status().candidates_offered;
    assert!(early > 1, "what hits is offered too, not only what missed");
    // The ring of a slow agent overflows: candidates are lost, and no thread waits.
    for _ in 0..2 * 1024 * 128 / 32 {
        for _ in 0..32 {
            assert!(switch.send(0, 1, &frame(1)));
        }
        switch.run_iteration(0);
        switch.receive(0, 2);
    }
    let sampled = handle.status().candidates_offered - early;
    assert!((1950..2150).contains(&sampled), "one in 128: {sampled} of 262,144");
    assert!(handle.status().candidates_dropped > 0);
    assert_eq!(switch.counters(0).unaccounted(), 0);
    drop(ends);
}

#[test]
fn a_thread_without_a_device_sends_no_candidates() {
    let mut switch = Switch::behind_device(1, 2, thread_config());
    let (handle, _ends) = switch.device.take().unwrap();
    let made = |switch: &mut Switch, host| {
        let before = handle.status().candidates_offered;
        assert!(switch.send(0, 1, &frame(host)));
        switch.settle();
        handle.status().candidates_offered - before
    };
    assert_eq!(made(&mut switch, 1), 1, "a miss");
    switch.controls[0].send(Command::OffloadCandidate(None)).unwrap();
    assert_eq!(made(&mut switch, 2), 0);
}
