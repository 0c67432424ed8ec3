//! Tests each rule of the agent of an offload device.

use std::time::Duration;

use rtrb::RingBuffer;
use shunt_classifier::Version;
use shunt_datapath::{
    CoordinatorEndpoint, EvictionCoordinator, Link, Waker,
    offload::{OffloadConfig, OffloadState, StaleReason},
};
use shunt_flow::FieldId;
use shunt_gigaflow::offload::Operation;
use shunt_pipeline::{FlowModCommand, Iterative, OwnerId, Pipeline};
use shunt_testkit::offload::SoftwareDevice;
use std::sync::Arc;

use crate::harness::{OffloadSwitch, TWO_TABLES, config, network, packet, request};

/// A rule that changes the output port of host 9.
const MODIFY: &str = "table=1,priority=1,ip,nw_dst=10.0.0.9,actions=output:2";

fn modify(switch: &mut OffloadSwitch<SoftwareDevice>) -> Version {
    switch.change(&request(FlowModCommand::ModifyStrict, MODIFY))
}

fn state(switch: &OffloadSwitch<SoftwareDevice>) -> OffloadState {
    switch.status().state
}

fn stale_reason(switch: &OffloadSwitch<SoftwareDevice>) -> Option<StaleReason> {
    match state(switch) {
        OffloadState::Connected => None,
        OffloadState::Stale { reason, .. } => Some(reason),
    }
}

#[test]
fn unseen_flows_hit_in_the_device_too() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 8), (2, 9)]);
    for (source, device) in [(1, 8), (2, 9), (1, 9), (2, 8)] {
        assert!(switch.hits(&packet(source, device)), "{source} to {device}");
    }
    assert!(!switch.hits(&packet(3, 9)));
    assert_eq!(switch.held(), switch.intended());
    assert_eq!(
        (switch.held().len(), switch.coordinator.watched(), state(&switch)),
        (4, 4, OffloadState::Connected)
    );
    switch.fill(&[(2, 8)]);
    assert_eq!((switch.status().candidates_known, switch.status().operations.inserts), (1, 4));
}

#[test]
fn joining_agent_starts_current_and_empty() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    let gone = modify(&mut switch);
    switch.fill(&[(1, 8)]);
    assert!(switch.coordinator.watched() > 0);
    let evicted: Vec<_> = switch.coordinator.record().recent().map(|own| own.entry).collect();
    assert!(!evicted.is_empty());
    let mut switch = switch.succeed(config(), SoftwareDevice::new(2, 100));
    assert_eq!(
        (switch.acked_version(), switch.coordinator.watched(), switch.held().len()),
        (gone, 0, 0)
    );
    let record = switch.coordinator.record();
    assert!(
        evicted.iter().all(|entry| record.find(*entry).is_none()),
        "the new agent has no evictions of its predecessor"
    );
    switch.fill(&[(1, 9)]);
    assert!(switch.hits(&packet(1, 9)));
    assert_eq!(switch.coordinator.watched(), 2);
    switch.device().is_silent = true;
    let back = "table=1,priority=1,ip,nw_dst=10.0.0.9,actions=output:3";
    let version = switch.change(&request(FlowModCommand::ModifyStrict, back));
    switch.settle();
    assert!(switch.acked_version() < version, "the version waits for the device");
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.acked_version(), switch.held().len()), (version, 1));
}

#[test]
fn the_idle_timeout_changes_at_run_time() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    let OffloadConfig { max_idle, drain, .. } = config();
    switch.handle.tune(max_idle * 3, drain);
    switch.settle();
    switch.wait(max_idle * 2);
    switch.settle();
    assert_eq!(switch.held().len(), 2);
    switch.handle.tune(max_idle, drain);
    switch.settle();
    switch.wait(max_idle);
    switch.settle();
    assert_eq!(switch.held().len(), 0);
}

#[test]
fn removal_waits_for_confirmation_of_its_insertion() {
    let mut switch = OffloadSwitch::two_tables();
    switch.device().is_silent = true;
    switch.fill(&[(1, 9)]);
    assert_eq!(switch.log(), (vec![1, 0], 0));
    let version = modify(&mut switch);
    switch.settle();
    assert_eq!(switch.log(), (vec![], 0), "one write at a time");
    assert!(switch.acked_version() < version, "and the insertion in transit is waited for");
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.log(), switch.acked_version()), ((vec![], 1), version));
    assert_eq!(switch.held(), switch.intended());
}

#[test]
fn barrier_waits_for_confirmed_removals() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    let before = switch.acked_version();
    let version = modify(&mut switch);
    switch.settle();
    assert_eq!((switch.acked_version(), switch.status().stale), (before, 1));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.acked_version(), switch.status().stale), (version, 0));
    assert!(!switch.hits(&packet(1, 9)));
}

#[test]
fn stale_entries_are_removed_before_any_insertion() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    modify(&mut switch);
    switch.log();
    // The new traversal has no stale entry, and its slots are free; still, it must wait.
    switch.fill(&[(2, 8)]);
    assert_eq!((switch.log(), switch.status().waiting), ((vec![], 1), 2));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!(switch.log().0, [1, 0]);
    assert!(switch.hits(&packet(2, 8)));
}

/// A version also waits for removals of entries that expired before the change.
#[test]
fn earlier_removals_are_waited_for_too() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    // All entries expire. The engine forgets them at once, but the device does not confirm their
    // removal.
    let config = config();
    switch.wait(config.max_idle);
    switch.run_iteration();
    switch.run_iteration();
    switch.device().is_silent = true;
    switch.settle();
    assert_eq!((switch.coordinator.watched(), switch.held().len()), (0, 2));
    let before = switch.acked_version();
    let version = modify(&mut switch);
    switch.settle();
    assert_eq!((switch.acked_version(), switch.status().stale), (before, 2));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.acked_version(), switch.held().len()), (version, 0));
}

#[test]
fn slot_is_reused_after_removal_is_confirmed() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.wait(config().max_idle);
    switch.run_iteration();
    switch.run_iteration();
    switch.device().is_silent = true;
    switch.settle();
    switch.log();
    switch.fill(&[(1, 9)]);
    assert_eq!((switch.log(), switch.status().waiting), ((vec![], 0), 2));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.log().0, switch.status().refused.len()), (vec![1, 0], 0));
    assert!(switch.hits(&packet(1, 9)));
}

#[test]
fn a_late_device_is_stale_and_delays_nobody() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    let version = modify(&mut switch);
    switch.settle();
    switch.wait(config().confirm_within);
    switch.settle();
    assert!(switch.acked_version() < version);
    switch.wait(Duration::from_millis(1));
    switch.settle();
    assert_eq!(
        (switch.acked_version(), stale_reason(&switch)),
        (version, Some(StaleReason::Unconfirmed))
    );
    assert_eq!(
        switch.status().unconfirmed,
        1,
        "an acknowledgement proves nothing about the device"
    );
    // The agent also acknowledges later versions, and inserts no entry.
    let version = switch.change(&request(FlowModCommand::Delete, "ip,nw_src=10.0.0.3"));
    switch.log();
    switch.fill(&[(1, 9)]);
    assert_eq!((switch.acked_version(), switch.log().0), (version, vec![]));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((stale_reason(&switch), switch.status().stale_count), (None, 1));
    assert_eq!(switch.held(), switch.intended());
    assert!(switch.hits(&packet(1, 9)));
}

#[test]
fn a_lost_device_is_stale_until_synchronised() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().lose();
    switch.settle();
    assert_eq!(stale_reason(&switch), Some(StaleReason::Lost));
    let version = modify(&mut switch);
    switch.fill(&[(2, 8)]);
    assert_eq!(switch.acked_version(), version);
    switch.device().is_silent = true;
    switch.device().restore();
    switch.device().is_silent = false;
    switch.run_iteration();
    assert_eq!(stale_reason(&switch), Some(StaleReason::Repairing), "what is stale is still there");
    switch.settle();
    let status = switch.status();
    assert_eq!((stale_reason(&switch), status.repairs, status.stale_count), (None, 1, 1));
    assert_eq!(switch.held(), switch.intended());
    assert!(switch.hits(&packet(2, 8)) && !switch.hits(&packet(1, 9)));
}

#[test]
fn operations_in_transit_at_a_disconnect_are_repeated() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.offer(&packet(2, 8));
    let version = modify(&mut switch);
    switch.device().is_silent = true;
    switch.settle();
    switch.device().is_silent = false;
    switch.device().lose();
    switch.settle();
    assert_eq!(switch.acked_version(), version);
    assert!(switch.status().operations.lost > 0);
    switch.device().restore();
    switch.settle();
    assert_eq!(switch.held(), switch.intended());
    assert!(switch.hits(&packet(2, 8)) && stale_reason(&switch).is_none());
}

#[test]
fn insertions_in_transit_at_a_disconnect_are_repeated() {
    let mut switch = OffloadSwitch::two_tables();
    switch.device().is_silent = true;
    switch.fill(&[(1, 9), (2, 8)]);
    assert_eq!(switch.log().0.len(), 4);
    let version = modify(&mut switch);
    switch.settle();
    switch.device().is_silent = false;
    switch.device().lose();
    switch.settle();
    assert_eq!((switch.acked_version(), switch.status().operations.lost), (version, 4));
    assert_eq!(switch.status().stale, 1, "whether it is there nobody knows");
    switch.device().restore();
    switch.settle();
    assert_eq!((switch.held().len(), switch.status().stale), (3, 0));
    assert_eq!(switch.held(), switch.intended());
    assert!(switch.hits(&packet(2, 8)) && stale_reason(&switch).is_none());
}

#[test]
fn an_absent_device_is_filled_when_it_appears() {
    let mut device = SoftwareDevice::new(4, 100);
    device.is_connected = false;
    let mut switch = OffloadSwitch::new(&network(TWO_TABLES), config(), device);
    switch.fill(&[(1, 9)]);
    let version = modify(&mut switch);
    switch.fill(&[(1, 9)]);
    assert_eq!(
        (switch.acked_version(), stale_reason(&switch)),
        (version, Some(StaleReason::NotYet))
    );
    switch.device().restore();
    switch.settle();
    assert_eq!((stale_reason(&switch), switch.status().repairs), (None, 0));
    assert!(switch.hits(&packet(1, 9)));
}

#[test]
fn insertions_run_from_last_stage_removals_from_first() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9), (2, 8), (3, 9)]);
    assert_eq!(switch.log(), (vec![1, 1, 1, 0, 0, 0], 0));
    switch.change(&request(FlowModCommand::Delete, "ip"));
    switch.run_iteration();
    let stage = |operation: &Operation, switch: &mut OffloadSwitch<SoftwareDevice>| match operation
    {
        Operation::Remove { entry } => switch.device().entries()[entry].stage.number(),
        other => panic!("{other:?}"),
    };
    let log = std::mem::take(&mut switch.device().log);
    let stages: Vec<u8> = log.iter().map(|operation| stage(operation, &mut switch)).collect();
    assert_eq!(stages, [0, 0, 0, 1, 1, 1]);
}

/// No entry is inserted with a next tag of an entry with an unconfirmed removal.
#[test]
fn no_entry_leads_to_a_waiting_ltm_entry() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.wait(config().max_idle / 2);
    // The packet hits the entry of table 0, so only the entry of table 1 for host 9 becomes idle.
    let first = packet(1, 8);
    switch.fill(&[(1, 8)]);
    assert!(switch.device().send(crate::harness::START, &first, 60));
    switch.settle();
    switch.wait(config().max_idle / 2);
    switch.run_iteration();
    switch.run_iteration();
    switch.device().is_silent = true;
    switch.settle();
    switch.log();
    // The entry of table 1 for host 9 is not yet removed, so no entry may lead to its successor.
    switch.fill(&[(2, 9)]);
    assert_eq!((switch.log().0, switch.status().waiting), (vec![], 2));
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!(switch.log().0, [1, 0]);
    assert!(switch.hits(&packet(2, 9)));
}

#[test]
fn tag_number_is_reused_after_drain() {
    // One tag bit gives two tags: one for arriving packets, and one between the two tables.
    let device = SoftwareDevice::new(4, 100).with(|own| own.tag_bits = 1);
    let mut switch = OffloadSwitch::new(&network(TWO_TABLES), config(), device);
    let OffloadConfig { max_idle, drain: shorter, .. } = config();
    let drain = shorter * 5;
    switch.handle.tune(max_idle, drain);
    switch.fill(&[(1, 9)]);
    assert_eq!((switch.held().len(), switch.status().tags), (2, 2));
    switch.device().is_silent = true;
    switch.change(&request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.1"));
    switch.change(&request(FlowModCommand::DeleteStrict, "table=1,priority=1,ip,nw_dst=10.0.0.9"));
    switch.settle();
    switch.wait(drain);
    switch.settle();
    let is_partitioned = |switch: &mut OffloadSwitch<SoftwareDevice>| {
        let before = switch.status().partitioned.without_tags;
        switch.fill(&[(3, 9)]);
        switch.status().partitioned.without_tags == before
    };
    assert!(!is_partitioned(&mut switch), "the removal of its entries is not confirmed");
    switch.device().is_silent = false;
    switch.settle();
    // Removes the single entry of the traversal, so that the traversal may be partitioned.
    switch.change(&request(
        FlowModCommand::ModifyStrict,
        "table=1,priority=2,metadata=2,ip,nw_dst=10.0.0.9,actions=output:1",
    ));
    switch.settle();
    switch.wait(shorter);
    switch.settle();
    assert!(!is_partitioned(&mut switch), "packets with the tag are in transit");
    switch.wait(drain);
    switch.settle();
    switch.change(&request(
        FlowModCommand::ModifyStrict,
        "table=1,priority=2,metadata=2,ip,nw_dst=10.0.0.9,actions=output:4",
    ));
    switch.settle();
    assert!(is_partitioned(&mut switch));
    assert!(switch.hits(&packet(3, 9)));
}

#[test]
fn candidate_is_translated_under_version_of_agent() {
    let mut switch = OffloadSwitch::two_tables();
    switch.offer(&packet(1, 9));
    modify(&mut switch);
    switch.settle();
    assert!(switch.hits(&packet(1, 9)), "and not under that which it missed under");
    // The tables have a newer version than the engine and the agent.
    let delete = request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.2");
    let change = switch.checked.apply(&delete).unwrap();
    switch.offer(&packet(2, 9));
    switch.run_iteration();
    switch.run_iteration();
    assert_eq!(switch.held().len(), 3);
    switch.send_change(&change);
    switch.settle();
    assert_eq!((switch.held().len(), switch.acked_version()), (2, change.version));
}

#[test]
fn entries_unknown_to_the_engine_are_removed() {
    let mut switch = OffloadSwitch::two_tables();
    switch.offer(&packet(1, 9));
    switch.run_iteration();
    switch.run_iteration();
    assert_eq!(switch.held().len(), 2);
    // The engine adopts the new version before it receives the reports of the entries.
    let change = switch.checked.apply(&request(FlowModCommand::ModifyStrict, MODIFY)).unwrap();
    switch.coordinator.apply(change.version, &change.deltas);
    switch.settle();
    assert_eq!((switch.acked_version(), switch.held().len()), (change.version, 0));
    assert_eq!(switch.held(), switch.intended());
}

#[test]
fn a_device_forwards_while_its_agent_sleeps() {
    let acked_while_parked = |ends: fn(_, _, _) -> CoordinatorEndpoint| {
        let pipeline = Arc::new(Pipeline::new(1));
        let (_reports, receiver) = RingBuffer::new(1);
        let link = Arc::new(Link::new(Version::ZERO).unwrap());
        link.waker().prepare_park();
        let ends = ends(OwnerId(0), receiver, Arc::clone(&link));
        let waker = Arc::new(Waker::new().unwrap());
        let engine = Box::new(Iterative::new(pipeline));
        let (mut coordinator, _) =
            EvictionCoordinator::new(engine, Version::ZERO, vec![ends], waker);
        coordinator.apply(Version::new(1), &[]);
        coordinator.acked_version() == Version::new(1)
    };
    assert!(
        acked_while_parked(CoordinatorEndpoint::new),
        "no packet matches its entries (rule 10)"
    );
    assert!(!acked_while_parked(CoordinatorEndpoint::of_device));
}

#[test]
fn failed_removal_is_retried_and_holds_version() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().fails_removals = true;
    let version = modify(&mut switch);
    switch.settle();
    assert!(switch.acked_version() < version);
    switch.device().fails_removals = false;
    let OffloadConfig { count_every, .. } = config();
    switch.wait(count_every);
    switch.settle();
    assert_eq!((switch.acked_version(), stale_reason(&switch)), (version, None));
    assert_eq!(switch.held(), switch.intended());
}

#[test]
fn a_failed_removal_delays_only_dependent_entries() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.wait(config().max_idle);
    switch.run_iteration();
    switch.run_iteration();
    switch.device().fails_removals = true;
    switch.settle();
    switch.log();
    switch.fill(&[(1, 9), (2, 9), (3, 9)]);
    assert_eq!(switch.log().0, [1, 0], "of the third source, which has another tag");
    assert!(switch.hits(&packet(3, 9)));
    assert_eq!((switch.hits(&packet(2, 9)), switch.status().waiting), (false, 3));
    switch.device().fails_removals = false;
    let OffloadConfig { count_every, .. } = config();
    switch.wait(count_every);
    switch.settle();
    assert!([1, 2, 3].iter().all(|source| switch.hits(&packet(*source, 9))));
    assert_eq!(switch.held(), switch.intended());
}

#[test]
fn versions_that_wait_are_acknowledged_together() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9), (2, 8)]);
    switch.device().is_silent = true;
    modify(&mut switch);
    switch.settle();
    switch.change(&request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.1"));
    let last = switch.change(&request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.2"));
    switch.settle();
    assert_eq!(switch.log().1, 1);
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.acked_version(), switch.log().1), (last, 2));
    assert_eq!(switch.held(), switch.intended());
}

#[test]
fn an_ended_agent_delays_no_version() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().is_silent = true;
    let version = modify(&mut switch);
    switch.settle();
    let OffloadSwitch { coordinator, handle, owner, .. } = switch;
    drop(owner);
    assert_eq!(coordinator.acked_version(), version);
    let ended =
        matches!(handle.status().state, OffloadState::Stale { reason: StaleReason::Ended, .. });
    assert!(ended);
    let (sender, answer) = std::sync::mpsc::channel();
    handle.pull(Box::new(move |()| sender.send(()).unwrap()));
    assert!(answer.recv().is_ok());
}

#[test]
fn removal_waits_for_one_insertion_batch() {
    let rule =
        |host| format!("priority=1,ip,nw_src=10.0.{}.{},actions=output:2", host / 200, host % 200);
    let rules: Vec<String> = (0..600).map(rule).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut switch = OffloadSwitch::new(&network(&rules), config(), SoftwareDevice::new(4, 1000));
    switch.device().is_silent = true;
    for host in 0..600_u32 {
        let mut key = packet(1, 9);
        key.set_field(FieldId::Ipv4Src, u128::from(0x0a00_0000 + ((host / 200) << 8) + host % 200));
        switch.offer(&key);
        switch.settle();
    }
    let inserted = switch.log().0.len();
    assert!((1..=256).contains(&inserted), "{inserted}");
    switch.device().is_silent = false;
    switch.settle();
    assert_eq!((switch.held().len(), switch.held()), (600, switch.intended()));
}

#[test]
fn absent_device_gets_no_evicted_entries_back() {
    let mut switch = OffloadSwitch::two_tables();
    switch.fill(&[(1, 9)]);
    switch.device().lose();
    switch.settle();
    assert_eq!(switch.held().len(), 2);
    modify(&mut switch);
    switch.settle();
    assert_eq!(switch.held().len(), 1, "the device will return without the evicted entry");
    switch.device().restore();
    switch.settle();
    assert_eq!((switch.held(), stale_reason(&switch)), (switch.intended(), None));
}
