//! Tests hits that the offload device counts, and dropped candidates.

use std::{sync::mpsc, time::Duration};

use shunt_datapath::offload::StaleReason;
use shunt_pipeline::{FlowModCommand, RuleFilter, testing::visible};
use shunt_testkit::offload::SoftwareDevice;

use crate::harness::{BRIDGE, OffloadSwitch, START, config, packet, request};

/// Returns the sum of the packet counters of all rules.
fn total_packets(switch: &OffloadSwitch<SoftwareDevice>) -> u64 {
    let rules = switch.checked.pipeline.rules(BRIDGE, &RuleFilter::all());
    rules.iter().map(|rule| rule.stats.totals().packets).sum()
}

fn send(switch: &mut OffloadSwitch<SoftwareDevice>, source: u8, device: u8) {
    assert!(switch.device().send(START, &visible(&packet(source, device)), 60));
}

/// Pulls counters from the device; the receiver gets a message at the end.
fn pull(switch: &OffloadSwitch<SoftwareDevice>) -> mpsc::Receiver<()> {
    let (sender, answer) = mpsc::channel();
    switch.handle.pull(Box::new(move |()| sender.send(()).unwrap()));
    answer
}

#[test]
fn rules_of_each_ltm_entry_count_hits_once() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9), (2, 8)]);
    send(&mut switch, 1, 9);
    send(&mut switch, 1, 8);
    let answer = pull(&switch);
    switch.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(
        (total_packets(&switch), switch.status().packets, switch.status().bytes),
        (4, 4, 240)
    );
    let answer = pull(&switch);
    switch.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(total_packets(&switch), 4);
    // The agent credits hits periodically, even without a pull.
    send(&mut switch, 2, 8);
    switch.wait(config().count_every);
    switch.settle();
    assert_eq!(total_packets(&switch), 6);
}

/// An earlier reading may lack packets that the device has forwarded since.
#[test]
fn pull_waits_for_reading_begun_later() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    switch.wait(config().count_every);
    switch.settle();
    let answer = pull(&switch);
    switch.settle();
    assert!(answer.try_recv().is_err());
    switch.device().is_silent = false;
    send(&mut switch, 1, 9);
    switch.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(total_packets(&switch), 2);
}

#[test]
fn pull_includes_last_counts_of_removed_entries() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    send(&mut switch, 1, 9);
    switch.change(&request(FlowModCommand::Delete, "ip"));
    switch.device().is_silent = true;
    switch.settle();
    let answer = pull(&switch);
    switch.settle();
    assert!(answer.try_recv().is_err());
    switch.device().is_silent = false;
    switch.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(switch.status().packets, 2);
}

#[test]
fn pulls_ignore_late_or_lost_devices() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    let answer = pull(&switch);
    switch.settle();
    assert!(answer.try_recv().is_err());
    switch.wait(config().confirm_within + Duration::from_millis(1));
    switch.settle();
    assert!(answer.try_recv().is_ok());
    assert!(switch.status().counts_late);
    switch.device().is_silent = false;
    switch.settle();
    assert!(!switch.status().counts_late);
    switch.device().lose();
    switch.settle();
    let answer = pull(&switch);
    switch.settle();
    assert!(answer.try_recv().is_ok());
    let state = format!("{:?}", switch.status().state);
    assert!(state.contains(&format!("{:?}", StaleReason::Lost)), "{state}");
}

/// A device that is late with counters is not stale, but its removals count.
#[test]
fn slow_counts_delay_no_removals_of_version() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    let answer = pull(&switch);
    switch.settle();
    switch.wait(config().confirm_within + Duration::from_millis(1));
    switch.settle();
    let version = switch.change(&request(FlowModCommand::Delete, "ip"));
    switch.settle();
    assert!(answer.try_recv().is_ok() && switch.status().counts_late);
    assert!(!switch.status().state.is_stale() && switch.acked_version() < version);
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.acked_version(), switch.held().len()), (version, 0));
}

#[test]
fn counter_reset_loses_only_those_counts() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    let read = |switch: &mut OffloadSwitch<SoftwareDevice>| {
        switch.wait(config().count_every);
        switch.settle();
        total_packets(switch)
    };
    send(&mut switch, 1, 9);
    send(&mut switch, 1, 9);
    assert_eq!(read(&mut switch), 4);
    switch.device().restart();
    send(&mut switch, 1, 9);
    assert_eq!(read(&mut switch), 6);
    let (sender, dump) = mpsc::channel();
    switch.handle.dump(Box::new(move |entries| sender.send(entries).unwrap()));
    switch.settle();
    let entries = dump.try_recv().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.packets).collect::<Vec<_>>(), [3, 3]);
    assert!(entries.iter().all(|entry| entry.link.is_some()));
}

#[test]
fn ltm_entries_without_hits_age_out() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9), (2, 8)]);
    let seconds = config().max_idle.as_secs();
    for _ in 0..=seconds {
        send(&mut switch, 1, 9);
        switch.wait(Duration::from_secs(1));
        switch.settle();
    }
    assert!(switch.hits(&packet(1, 9)) && !switch.hits(&packet(2, 8)));
    assert_eq!((switch.held().len(), switch.coordinator.watched()), (2, 2));
    assert_eq!(switch.held(), switch.intended());
}

#[test]
fn confirmation_time_is_counted_per_traversal() {
    let mut switch = OffloadSwitch::two_tables();
    switch.offer(&packet(1, 9));
    switch.run_iteration();
    switch.wait(Duration::from_millis(3));
    switch.settle();
    let latency = switch.status().latency;
    assert_eq!((latency.count(), latency.sum), (1, Duration::from_millis(3)));
    assert_eq!(latency.quantile(1.0), Duration::from_micros(4096));
    assert_eq!(switch.status().operations.done, 2);
}

#[test]
fn a_candidate_without_room_is_dropped_and_counted() {
    let mut switch = OffloadSwitch::two_tables();
    for _ in 0..2000 {
        switch.offer(&packet(1, 9));
    }
    let status = switch.status();
    assert_eq!((status.candidates_offered, status.candidates_dropped), (2000, 2000 - 1024));
    switch.settle();
    assert_eq!(switch.status().candidates_known, 1023);
}
