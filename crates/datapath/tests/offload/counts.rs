//! Tests hits that the offload device counts, and dropped candidates.

use std::{sync::mpsc, time::Duration};

use shunt_datapath::offload::StaleReason;
use shunt_pipeline::{FlowModCommand, RuleFilter, testing::visible};
use shunt_testkit::offload::SoftwareDevice;

use crate::harness::{BRIDGE, Rig, START, config, packet, request};

/// Returns the sum of the packet counters of all rules.
fn counted(rig: &Rig<SoftwareDevice>) -> u64 {
    let rules = rig.checked.pipeline.rules(BRIDGE, &RuleFilter::all());
    rules.iter().map(|rule| rule.stats.totals().packets).sum()
}

fn send(rig: &mut Rig<SoftwareDevice>, source: u8, device: u8) {
    assert!(rig.device().send(START, &visible(&packet(source, device)), 60));
}

/// Pulls counters from the device; the receiver gets a message at the end.
fn pull(rig: &Rig<SoftwareDevice>) -> mpsc::Receiver<()> {
    let (sender, answer) = mpsc::channel();
    rig.handle.pull(Box::new(move |()| sender.send(()).unwrap()));
    answer
}

#[test]
fn hits_are_credited_to_the_rules_of_every_ltm_entry_once() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9), (2, 8)]);
    send(&mut rig, 1, 9);
    send(&mut rig, 1, 8);
    let answer = pull(&rig);
    rig.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!((counted(&rig), rig.status().packets, rig.status().bytes), (4, 4, 240));
    let answer = pull(&rig);
    rig.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(counted(&rig), 4);
    // The agent credits hits periodically, even without a pull.
    send(&mut rig, 2, 8);
    rig.wait(config().count_every);
    rig.settle();
    assert_eq!(counted(&rig), 6);
}

#[test]
fn a_pull_waits_for_a_reading_that_began_after_it() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    rig.wait(config().count_every);
    rig.settle();
    let answer = pull(&rig);
    rig.settle();
    assert!(answer.try_recv().is_err());
    rig.device().is_silent = false;
    send(&mut rig, 1, 9);
    rig.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(counted(&rig), 2);
}

#[test]
fn a_pull_includes_the_last_counts_of_removed_entries() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    send(&mut rig, 1, 9);
    rig.change(&request(FlowModCommand::Delete, "ip"));
    rig.device().is_silent = true;
    rig.settle();
    let answer = pull(&rig);
    rig.settle();
    assert!(answer.try_recv().is_err());
    rig.device().is_silent = false;
    rig.settle();
    assert!(answer.try_recv().is_ok());
    assert_eq!(rig.status().packets, 2);
}

#[test]
fn pulls_do_not_wait_for_a_late_or_lost_device() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    let answer = pull(&rig);
    rig.settle();
    assert!(answer.try_recv().is_err());
    rig.wait(config().confirm_within + Duration::from_millis(1));
    rig.settle();
    assert!(answer.try_recv().is_ok());
    assert!(rig.status().counts_late);
    rig.device().is_silent = false;
    rig.settle();
    assert!(!rig.status().counts_late);
    rig.device().lose();
    rig.settle();
    let answer = pull(&rig);
    rig.settle();
    assert!(answer.try_recv().is_ok());
    let state = format!("{:?}", rig.status().state);
    assert!(state.contains(&format!("{:?}", StaleReason::Lost)), "{state}");
}

#[test]
fn a_version_waits_for_its_removals_while_counts_are_slow() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    let answer = pull(&rig);
    rig.settle();
    rig.wait(config().confirm_within + Duration::from_millis(1));
    rig.settle();
    let version = rig.change(&request(FlowModCommand::Delete, "ip"));
    rig.settle();
    assert!(answer.try_recv().is_ok() && rig.status().counts_late);
    assert!(!rig.status().state.is_stale() && rig.acked_version() < version);
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.acked_version(), rig.held().len()), (version, 0));
}

#[test]
fn a_device_that_resets_counters_loses_only_those_counts() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    let read = |rig: &mut Rig<SoftwareDevice>| {
        rig.wait(config().count_every);
        rig.settle();
        counted(rig)
    };
    send(&mut rig, 1, 9);
    send(&mut rig, 1, 9);
    assert_eq!(read(&mut rig), 4);
    rig.device().restart();
    send(&mut rig, 1, 9);
    assert_eq!(read(&mut rig), 6);
    let (sender, dump) = mpsc::channel();
    rig.handle.dump(Box::new(move |entries| sender.send(entries).unwrap()));
    rig.settle();
    let entries = dump.try_recv().unwrap();
    assert_eq!(entries.iter().map(|entry| entry.packets).collect::<Vec<_>>(), [3, 3]);
    assert!(entries.iter().all(|entry| entry.link.is_some()));
}

#[test]
fn ltm_entries_without_hits_age_out() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9), (2, 8)]);
    let seconds = config().max_idle.as_secs();
    for _ in 0..=seconds {
        send(&mut rig, 1, 9);
        rig.wait(Duration::from_secs(1));
        rig.settle();
    }
    assert!(rig.hits(&packet(1, 9)) && !rig.hits(&packet(2, 8)));
    assert_eq!((rig.held().len(), rig.coordinator.watched()), (2, 2));
    assert_eq!(rig.held(), rig.intended());
}

#[test]
fn the_time_to_confirmation_is_counted_once_per_traversal() {
    let mut rig = Rig::two_tables();
    rig.offer(&packet(1, 9));
    rig.run_iteration();
    rig.wait(Duration::from_millis(3));
    rig.settle();
    let latency = rig.status().latency;
    assert_eq!((latency.count(), latency.sum), (1, Duration::from_millis(3)));
    assert_eq!(latency.quantile(1.0), Duration::from_micros(4096));
    assert_eq!(rig.status().operations.done, 2);
}

#[test]
fn a_candidate_without_room_is_dropped_and_counted() {
    let mut rig = Rig::two_tables();
    for _ in 0..2000 {
        rig.offer(&packet(1, 9));
    }
    let status = rig.status();
    assert_eq!((status.candidates_offered, status.candidates_dropped), (2000, 2000 - 1024));
    rig.settle();
    assert_eq!(rig.status().candidates_known, 1023);
}
