//! Tests that threads adopt versions between bursts, acknowledge them, and have no stale hits
//! afterwards.

use shunt_datapath::ThreadConfig;
use shunt_flow::{Match, testing::packet::PacketBuilder};
use shunt_pipeline::Version;

use super::waiting::{flow, per_flow};
use crate::harness::{BRIDGE, Switch, output, rule};

fn frame() -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build()
}

#[test]
fn a_barrier_waits_for_every_thread() {
    let mut switch = Switch::new(2, 3, super::thread_config());
    let mods = [rule(1, Match::any(), vec![output(2)])];
    let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
    let before = switch.coordinator.acked_version();
    switch.change(&change);
    switch.run_iteration(0);
    assert_eq!(switch.coordinator.acked_version(), before, "the other has not answered");
    switch.run_iteration(1);
    assert_eq!(switch.coordinator.acked_version(), change.version);
    assert_eq!(switch.controls[0].acked_version(), change.version);
}

#[test]
fn a_version_is_acknowledged_in_the_next_iteration() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 1, ..super::thread_config() };
    let mut switch = Switch::new(1, 4, config);
    switch.apply(&[per_flow(1, 4)]);
    for number in 0..20 {
        assert!((1..=3).all(|port| switch.send(0, port, &flow(number))));
    }
    switch.run_iteration(0);
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 4)], switch.now).unwrap();
    switch.change(&change);
    assert_ne!(switch.coordinator.acked_version(), change.version);
    switch.run_iteration(0);
    assert_eq!(switch.coordinator.acked_version(), change.version);
    assert!(switch.threads[0].held() > 0, "and packets still wait");
    let counts = switch.counters(0);
    let by_iterations = counts.acks.each_ref().map(|counter| counter.get());
    assert_eq!(by_iterations[2..], [0, 0], "{by_iterations:?}");
    assert!(by_iterations[1] > 0, "one iteration began after the post: {by_iterations:?}");
}

#[test]
fn engine_tracks_no_entries_of_ended_thread() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(2, 3, super::thread_config());
    switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
    for thread in 0..2 {
        assert!(switch.send(thread, 1, &frame()));
    }
    switch.settle();
    assert_eq!(switch.coordinator.watched(), 2);
    // One report is still in the ring when its thread ends.
    assert!(switch.send(1, 2, &frame()));
    switch.run_iteration(1);
    drop(switch.threads.pop());
    assert!(switch.coordinator.run_iteration());
    assert_eq!(switch.coordinator.watched(), 1);
    switch.settle();
    switch.apply(&[rule(2, Match::any(), vec![output(3)])]);
    assert_eq!(switch.coordinator.acked_version(), switch.pipeline.version());
    assert_eq!(switch.counters(0).evicted.get(), 1);
}

#[test]
fn a_packet_uses_the_version_of_its_thread() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(2, 3, super::thread_config());
    switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
    let send = |switch: &mut Switch| {
        for thread in 0..2 {
            assert!(switch.send(thread, 1, &frame()));
        }
    };
    send(&mut switch);
    switch.settle();
    assert_eq!((switch.receive(0, 2).len(), switch.receive(1, 2).len()), (1, 1));

    let mods = [rule(2, Match::any(), vec![output(3)])];
    let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
    // The version is published, but no thread has adopted it, so forwarding is unchanged.
    send(&mut switch);
    switch.run_iteration(0);
    switch.run_iteration(1);
    assert_eq!((switch.receive(0, 2).len(), switch.receive(1, 2).len()), (1, 1));
    // One thread adopts the version.
    switch.change(&change);
    send(&mut switch);
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (0, 1));
    switch.run_iteration(1);
    assert_eq!((switch.receive(1, 2).len(), switch.receive(1, 3).len()), (0, 1));
    assert_eq!(switch.counters(0).evicted.get(), 1);
}

#[test]
fn woken_thread_adopts_its_version_before_packet() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 3, super::thread_config());
    switch.apply(&[rule(1, Match::any(), vec![output(2)])]);
    assert!(switch.send(0, 1, &frame()));
    switch.settle();
    assert_eq!(switch.receive(0, 2).len(), 1);
    assert!(switch.sleep(0));
    let before = switch.threads[0].version();
    for (priority, port) in [(2, 2), (3, 3)] {
        let mods = [rule(priority, Match::any(), vec![output(port)])];
        let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
        switch.change(&change);
        assert_eq!(switch.coordinator.acked_version(), change.version);
    }
    assert_eq!(switch.threads[0].version(), before);
    switch.pipeline.reclaim(switch.coordinator.acked_version());
    assert!(switch.send(0, 1, &frame()));
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (0, 1));
    assert_eq!(switch.counters(0).evicted.get(), 1);
    assert_eq!(switch.threads[0].version(), switch.pipeline.version());
}

#[test]
fn only_version_that_evicts_entries_wakes_thread() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 3, super::thread_config());
    switch.apply(&[rule(9, Match::any(), vec![output(2)])]);
    assert!(switch.send(0, 1, &frame()));
    switch.settle();
    assert!(switch.sleep(0) && !switch.is_woken(0));
    for (priority, is_met) in [(1, false), (2, false), (10, true)] {
        let mods = [rule(priority, Match::any(), vec![output(3)])];
        let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
        switch.change(&change);
        assert_eq!(switch.is_woken(0), is_met, "priority {priority}");
    }
}

#[test]
fn an_update_keeps_unaffected_entries() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 3, super::thread_config());
    switch.apply(&[rule(9, Match::any(), vec![output(2)])]);
    assert!(switch.send(0, 1, &frame()));
    switch.settle();
    // The new rule has a lower priority than the rule that decided the packets.
    switch.apply(&[rule(1, Match::any(), vec![output(3)])]);
    assert!(switch.send(0, 1, &frame()));
    switch.settle();
    let counters = switch.counters(0);
    assert_eq!((counters.evicted.get(), counters.upcalls.get()), (0, 1));
}

/// Evictions that are computed before an install report is read end its entry.
#[test]
fn unread_install_is_evicted_by_next_version() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 3, super::thread_config());
    switch.apply(&[rule(9, Match::any(), vec![output(2)])]);
    assert!(switch.send(0, 1, &frame()));
    switch.run_iteration(0);
    assert_eq!(switch.counters(0).entries.get(), 1);
    // The coordinator computes evictions before it takes the install report: this test breaks rule
    // 6.
    let mods = [rule(10, Match::any(), vec![output(3)])];
    let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
    switch.coordinator.apply(change.version, &change.deltas);
    switch.run_iteration(0);
    assert_eq!(
        (switch.counters(0).install_conflicts.get(), switch.counters(0).evicted.get()),
        (1, 0)
    );
    assert!(switch.send(0, 1, &frame()));
    switch.settle();
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (1, 1));
    assert_eq!(switch.coordinator.totals().late, 1);
    assert_eq!(switch.coordinator.watched(), 1);
}

#[test]
fn queued_install_reports_are_read_before_a_change() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 3, super::thread_config());
    switch.apply(&[rule(9, Match::any(), vec![output(2)])]);
    assert!(switch.send(0, 1, &frame()));
    switch.run_iteration(0);
    assert_eq!(switch.coordinator.watched(), 0, "its report waits");
    let mods = [rule(10, Match::any(), vec![output(3)])];
    let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
    switch.send_changes([shunt_datapath::LearnedChange { change, learn_requests: Vec::new() }]);
    switch.run_iteration(0);
    assert_eq!(
        (switch.counters(0).install_conflicts.get(), switch.counters(0).evicted.get()),
        (0, 1)
    );
    assert_eq!(switch.coordinator.totals().late, 0);
}

#[test]
fn waiting_packet_uses_version_that_serves_it() {
    if !super::HAS_CACHE {
        return;
    }
    let config = ThreadConfig { translations_per_iteration: 1, ..super::thread_config() };
    let mut switch = Switch::new(1, 3, config);
    switch.apply(&[per_flow(1, 2)]);
    assert!(switch.send(0, 1, &flow(1)) && switch.send(0, 1, &flow(2)));
    switch.run_iteration(0);
    assert_eq!((switch.threads[0].held(), switch.receive(0, 2)), (1, vec![flow(1)]));
    switch.apply(&[per_flow(2, 3)]);
    assert_eq!((switch.receive(0, 2), switch.receive(0, 3)), (vec![], vec![flow(2)]));
}

#[test]
fn evicted_entries_are_reclaimed_gradually() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[per_flow(1, 2)]);
    for number in 0..2000_u16 {
        assert!(switch.send(0, 1, &flow(number)));
        if number % 16 == 15 {
            switch.run_iteration(0);
            switch.receive(0, 2);
        }
    }
    switch.settle();
    assert_eq!(switch.counters(0).entries.get(), 2000);
    let mods = [rule(2, Match::any(), vec![])];
    let change = switch.pipeline.apply(BRIDGE, &mods, switch.now).unwrap();
    switch.change(&change);
    switch.run_iteration(0);
    assert_eq!(switch.counters(0).entries.get(), 0, "no entry can be hit");
    assert_eq!(switch.controls[0].acked_version(), change.version);
    assert!(switch.run_iteration(0), "and there is still work to do");
    assert_ne!(switch.threads[0].version(), Version::ZERO);
    switch.settle();
}
