//! Conditions that keep a thread awake: a packet, a count, a queue that could not wake it.

use std::sync::Arc;

use shunt_datapath::{
    Command, ThreadConfig,
    command::{Repair, ThreadPort, Tuning},
    port::{Port as _, pair::pair},
};
use shunt_flow::{Match, PortNo};
use shunt_pipeline::{DatapathPort, RuleFilter};

use super::waiting::{flow, per_flow};
use crate::harness::{BRIDGE, Switch, output, rule};

/// A switch of one thread that sends everything to port 2.
fn switch(config: ThreadConfig) -> Switch {
    let mut switch = Switch::new(1, 2, config);
    switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
    switch
}

#[test]
fn a_thread_that_holds_a_packet_does_not_sleep() {
    if !super::HAS_CACHE {
        return;
    }
    // Without translations left, the packet waits, and there is no other work.
    let config = ThreadConfig { translations_per_iteration: 0, ..super::thread_config() };
    let mut switch = switch(config);
    assert!(switch.sleep(0));
    assert!(switch.send(0, 1, &[0x22; 60]));
    for _ in 0..10 {
        switch.run_iteration(0);
        assert_eq!(switch.threads[0].held(), 1);
        assert!(!switch.sleep(0), "nothing would wake it for the packet");
    }
    let ThreadConfig { max_idle, verify_one_in, .. } = config;
    let wildcard = config.caches.wildcard;
    let tuning = Tuning {
        max_idle,
        translations_per_iteration: 1,
        verify_one_in,
        repair: Repair::Off,
        wildcard,
    };
    switch.controls[0].send(Command::Tune(tuning)).unwrap();
    switch.settle();
    assert_eq!(switch.receive(0, 2).len(), 1);
    assert!(switch.sleep(0));
}

#[test]
fn a_sleeping_thread_has_reported_its_counts() {
    let mut switch = switch(super::thread_config());
    let counted = |switch: &Switch| {
        let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
        rules[0].stats.totals().packets
    };
    assert!(switch.send(0, 1, &[0x22; 60]));
    switch.settle();
    for sent in 2..=5 {
        assert!(switch.send(0, 1, &[0x22; 60]));
        switch.run_iteration(0);
        // An iteration in which packets arrive reports no counts unasked.
        assert_eq!(counted(&switch), sent - 1);
        assert!(!switch.sleep(0));
        switch.run_iteration(0);
        assert!(switch.sleep(0));
        assert_eq!(counted(&switch), sent);
    }
}

#[test]
fn a_sleeping_thread_has_reported_counts_of_dead_entries() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[per_flow(1, 2)]);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let flows = 200;
    for number in 0..flows {
        assert!(switch.send(0, 1, &flow(number)));
        switch.run_iteration(0);
        switch.receive(0, 2);
    }
    let change = switch.pipeline.apply(BRIDGE, &[rule(2, Match::any(), vec![])], switch.now);
    switch.change(&change.unwrap());
    // They are dropped at once, and reclaimed a few per iteration.
    switch.run_iteration(0);
    assert_eq!(switch.counters(0).entries.get(), 0);
    assert!(!switch.sleep(0));
    while !switch.sleep(0) {
        switch.run_iteration(0);
    }
    assert_eq!(rules[0].stats.totals().packets, u64::from(flows));
}

#[test]
fn a_thread_with_a_queue_that_cannot_wake_it_does_not_sleep() {
    let mut switch = Switch::new(1, 0, super::thread_config());
    assert!(switch.sleep(0));
    let (mut near, _far) = pair(1, 2);
    let number = DatapathPort::new(1);
    let port = ThreadPort {
        port: number,
        bridge: BRIDGE,
        number: PortNo::new(1),
        capabilities: near.capabilities(),
        queues: near.split(1).unwrap().remove(0),
        traffic: Arc::default(),
    };
    assert!(port.queues.rx.as_ref().is_some_and(|rx| rx.wait_fd().is_none()));
    switch.controls[0].send(Command::AddPort(Box::new(port))).unwrap();
    switch.run_iteration(0);
    assert!(!switch.sleep(0), "nothing would wake it for a packet");
    switch.controls[0].send(Command::RemovePort(number, Box::new(drop))).unwrap();
    switch.run_iteration(0);
    assert!(switch.sleep(0));
}
