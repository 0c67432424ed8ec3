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

use crate::harness::{Rig, TWO_TABLES, config, network, packet, request};

/// A rule that changes the output port of host 9.
const MODIFY: &str = "table=1,priority=1,ip,nw_dst=10.0.0.9,actions=output:2";

fn modify(rig: &mut Rig<SoftwareDevice>) -> Version {
    rig.change(&request(FlowModCommand::ModifyStrict, MODIFY))
}

fn state(rig: &Rig<SoftwareDevice>) -> OffloadState {
    rig.status().state
}

fn stale_reason(rig: &Rig<SoftwareDevice>) -> Option<StaleReason> {
    match state(rig) {
        OffloadState::Connected => None,
        OffloadState::Stale { reason, .. } => Some(reason),
    }
}

#[test]
fn unseen_flows_hit_in_the_device_too() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 8), (2, 9)]);
    for (source, device) in [(1, 8), (2, 9), (1, 9), (2, 8)] {
        assert!(rig.hits(&packet(source, device)), "{source} to {device}");
    }
    assert!(!rig.hits(&packet(3, 9)));
    assert_eq!(rig.held(), rig.intended());
    assert_eq!(
        (rig.held().len(), rig.coordinator.watched(), state(&rig)),
        (4, 4, OffloadState::Connected)
    );
    rig.fill(&[(2, 8)]);
    assert_eq!((rig.status().candidates_known, rig.status().operations.inserts), (1, 4));
}

#[test]
fn a_joining_agent_starts_at_the_current_version_without_entries() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    let gone = modify(&mut rig);
    rig.fill(&[(1, 8)]);
    assert!(rig.coordinator.watched() > 0);
    let evicted: Vec<_> = rig.coordinator.record().recent().map(|own| own.entry).collect();
    assert!(!evicted.is_empty());
    let mut rig = rig.succeed(config(), SoftwareDevice::new(2, 100));
    assert_eq!((rig.acked_version(), rig.coordinator.watched(), rig.held().len()), (gone, 0, 0));
    let record = rig.coordinator.record();
    assert!(evicted.iter().all(|entry| record.find(*entry).is_none()), "they are not its own");
    rig.fill(&[(1, 9)]);
    assert!(rig.hits(&packet(1, 9)));
    assert_eq!(rig.coordinator.watched(), 2);
    rig.device().is_silent = true;
    let back = "table=1,priority=1,ip,nw_dst=10.0.0.9,actions=output:3";
    let version = rig.change(&request(FlowModCommand::ModifyStrict, back));
    rig.settle();
    assert!(rig.acked_version() < version, "it is waited for like any other");
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.acked_version(), rig.held().len()), (version, 1));
}

#[test]
fn settings_of_an_owner_change_at_run_time() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    let OffloadConfig { max_idle, drain, .. } = config();
    rig.handle.tune(max_idle * 3, drain);
    rig.settle();
    rig.wait(max_idle * 2);
    rig.settle();
    assert_eq!(rig.held().len(), 2);
    rig.handle.tune(max_idle, drain);
    rig.settle();
    rig.wait(max_idle);
    rig.settle();
    assert_eq!(rig.held().len(), 0);
}

#[test]
fn a_removal_waits_for_the_confirmation_of_its_insertion() {
    let mut rig = Rig::two_tables();
    rig.device().is_silent = true;
    rig.fill(&[(1, 9)]);
    assert_eq!(rig.log(), (vec![1, 0], 0));
    let version = modify(&mut rig);
    rig.settle();
    assert_eq!(rig.log(), (vec![], 0), "one write at a time");
    assert!(rig.acked_version() < version, "and the insertion in transit is waited for");
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.log(), rig.acked_version()), ((vec![], 1), version));
    assert_eq!(rig.held(), rig.intended());
}

#[test]
fn a_barrier_waits_until_stale_entries_are_confirmed_removed() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    let before = rig.acked_version();
    let version = modify(&mut rig);
    rig.settle();
    assert_eq!((rig.acked_version(), rig.status().stale), (before, 1));
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.acked_version(), rig.status().stale), (version, 0));
    assert!(!rig.hits(&packet(1, 9)));
}

#[test]
fn stale_entries_are_removed_before_any_insertion() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    modify(&mut rig);
    rig.log();
    // The new traversal has no stale entry, and its slots are free; still, it must wait.
    rig.fill(&[(2, 8)]);
    assert_eq!((rig.log(), rig.status().waiting), ((vec![], 1), 2));
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!(rig.log().0, [1, 0]);
    assert!(rig.hits(&packet(2, 8)));
}

#[test]
fn earlier_removals_are_waited_for_too() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    // All entries expire. The engine forgets them at once, but the device does not confirm their
    // removal.
    let config = config();
    rig.wait(config.max_idle);
    rig.run_iteration();
    rig.run_iteration();
    rig.device().is_silent = true;
    rig.settle();
    assert_eq!((rig.coordinator.watched(), rig.held().len()), (0, 2));
    let before = rig.acked_version();
    let version = modify(&mut rig);
    rig.settle();
    assert_eq!((rig.acked_version(), rig.status().stale), (before, 2));
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.acked_version(), rig.held().len()), (version, 0));
}

#[test]
fn a_slot_is_reused_after_its_removal_is_confirmed() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.wait(config().max_idle);
    rig.run_iteration();
    rig.run_iteration();
    rig.device().is_silent = true;
    rig.settle();
    rig.log();
    rig.fill(&[(1, 9)]);
    assert_eq!((rig.log(), rig.status().waiting), ((vec![], 0), 2));
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.log().0, rig.status().refused.len()), (vec![1, 0], 0));
    assert!(rig.hits(&packet(1, 9)));
}

#[test]
fn a_device_that_confirms_late_is_stale_and_not_waited_for() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    let version = modify(&mut rig);
    rig.settle();
    rig.wait(config().confirm_within);
    rig.settle();
    assert!(rig.acked_version() < version);
    rig.wait(Duration::from_millis(1));
    rig.settle();
    assert_eq!(
        (rig.acked_version(), stale_reason(&rig)),
        (version, Some(StaleReason::Unconfirmed))
    );
    assert_eq!(rig.status().unconfirmed, 1, "an acknowledgement proves nothing about the device");
    // The agent also acknowledges later versions, and inserts no entry.
    let version = rig.change(&request(FlowModCommand::Delete, "ip,nw_src=10.0.0.3"));
    rig.log();
    rig.fill(&[(1, 9)]);
    assert_eq!((rig.acked_version(), rig.log().0), (version, vec![]));
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((stale_reason(&rig), rig.status().stale_count), (None, 1));
    assert_eq!(rig.held(), rig.intended());
    assert!(rig.hits(&packet(1, 9)));
}

#[test]
fn a_lost_device_is_stale_until_it_holds_the_intended_entries() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().lose();
    rig.settle();
    assert_eq!(stale_reason(&rig), Some(StaleReason::Lost));
    let version = modify(&mut rig);
    rig.fill(&[(2, 8)]);
    assert_eq!(rig.acked_version(), version);
    rig.device().is_silent = true;
    rig.device().restore();
    rig.device().is_silent = false;
    rig.run_iteration();
    assert_eq!(stale_reason(&rig), Some(StaleReason::Repairing), "what is stale is still there");
    rig.settle();
    let status = rig.status();
    assert_eq!((stale_reason(&rig), status.repairs, status.stale_count), (None, 1, 1));
    assert_eq!(rig.held(), rig.intended());
    assert!(rig.hits(&packet(2, 8)) && !rig.hits(&packet(1, 9)));
}

#[test]
fn operations_in_transit_at_a_disconnect_are_repeated() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.offer(&packet(2, 8));
    let version = modify(&mut rig);
    rig.device().is_silent = true;
    rig.settle();
    rig.device().is_silent = false;
    rig.device().lose();
    rig.settle();
    assert_eq!(rig.acked_version(), version);
    assert!(rig.status().operations.lost > 0);
    rig.device().restore();
    rig.settle();
    assert_eq!(rig.held(), rig.intended());
    assert!(rig.hits(&packet(2, 8)) && stale_reason(&rig).is_none());
}

#[test]
fn insertions_in_transit_at_a_disconnect_are_repeated() {
    let mut rig = Rig::two_tables();
    rig.device().is_silent = true;
    rig.fill(&[(1, 9), (2, 8)]);
    assert_eq!(rig.log().0.len(), 4);
    let version = modify(&mut rig);
    rig.settle();
    rig.device().is_silent = false;
    rig.device().lose();
    rig.settle();
    assert_eq!((rig.acked_version(), rig.status().operations.lost), (version, 4));
    assert_eq!(rig.status().stale, 1, "whether it is there nobody knows");
    rig.device().restore();
    rig.settle();
    assert_eq!((rig.held().len(), rig.status().stale), (3, 0));
    assert_eq!(rig.held(), rig.intended());
    assert!(rig.hits(&packet(2, 8)) && stale_reason(&rig).is_none());
}

#[test]
fn an_absent_device_is_stale_and_is_filled_when_it_appears() {
    let mut device = SoftwareDevice::new(4, 100);
    device.is_connected = false;
    let mut rig = Rig::new(&network(TWO_TABLES), config(), device);
    rig.fill(&[(1, 9)]);
    let version = modify(&mut rig);
    rig.fill(&[(1, 9)]);
    assert_eq!((rig.acked_version(), stale_reason(&rig)), (version, Some(StaleReason::NotYet)));
    rig.device().restore();
    rig.settle();
    assert_eq!((stale_reason(&rig), rig.status().repairs), (None, 0));
    assert!(rig.hits(&packet(1, 9)));
}

#[test]
fn insertions_run_from_last_stage_removals_from_first() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9), (2, 8), (3, 9)]);
    assert_eq!(rig.log(), (vec![1, 1, 1, 0, 0, 0], 0));
    rig.change(&request(FlowModCommand::Delete, "ip"));
    rig.run_iteration();
    let stage = |operation: &Operation, rig: &mut Rig<SoftwareDevice>| match operation {
        Operation::Remove { entry } => rig.device().entries()[entry].stage.number(),
        other => panic!("{other:?}"),
    };
    let log = std::mem::take(&mut rig.device().log);
    let stages: Vec<u8> = log.iter().map(|operation| stage(operation, &mut rig)).collect();
    assert_eq!(stages, [0, 0, 0, 1, 1, 1]);
}

#[test]
fn no_entry_leads_to_a_waiting_ltm_entry() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.wait(config().max_idle / 2);
    // The packet hits the entry of table 0, so only the entry of table 1 for host 9 becomes idle.
    let first = packet(1, 8);
    rig.fill(&[(1, 8)]);
    assert!(rig.device().send(crate::harness::START, &first, 60));
    rig.settle();
    rig.wait(config().max_idle / 2);
    rig.run_iteration();
    rig.run_iteration();
    rig.device().is_silent = true;
    rig.settle();
    rig.log();
    // The entry of table 1 for host 9 is not yet removed, so no entry may lead to its successor.
    rig.fill(&[(2, 9)]);
    assert_eq!((rig.log().0, rig.status().waiting), (vec![], 2));
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!(rig.log().0, [1, 0]);
    assert!(rig.hits(&packet(2, 9)));
}

#[test]
fn a_tag_number_is_reused_after_its_entries_are_drained() {
    // One tag bit gives two tags: one for arriving packets, and one between the two tables.
    let device = SoftwareDevice::new(4, 100).with(|own| own.tag_bits = 1);
    let mut rig = Rig::new(&network(TWO_TABLES), config(), device);
    let OffloadConfig { max_idle, drain: shorter, .. } = config();
    let drain = shorter * 5;
    rig.handle.tune(max_idle, drain);
    rig.fill(&[(1, 9)]);
    assert_eq!((rig.held().len(), rig.status().tags), (2, 2));
    rig.device().is_silent = true;
    rig.change(&request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.1"));
    rig.change(&request(FlowModCommand::DeleteStrict, "table=1,priority=1,ip,nw_dst=10.0.0.9"));
    rig.settle();
    rig.wait(drain);
    rig.settle();
    let is_partitioned = |rig: &mut Rig<SoftwareDevice>| {
        let before = rig.status().partitioned.without_tags;
        rig.fill(&[(3, 9)]);
        rig.status().partitioned.without_tags == before
    };
    assert!(!is_partitioned(&mut rig), "the removal of its entries is not confirmed");
    rig.device().is_silent = false;
    rig.settle();
    // Removes the single entry of the traversal, so that the traversal may be partitioned.
    rig.change(&request(
        FlowModCommand::ModifyStrict,
        "table=1,priority=2,metadata=2,ip,nw_dst=10.0.0.9,actions=output:1",
    ));
    rig.settle();
    rig.wait(shorter);
    rig.settle();
    assert!(!is_partitioned(&mut rig), "packets with the tag are in transit");
    rig.wait(drain);
    rig.settle();
    rig.change(&request(
        FlowModCommand::ModifyStrict,
        "table=1,priority=2,metadata=2,ip,nw_dst=10.0.0.9,actions=output:4",
    ));
    rig.settle();
    assert!(is_partitioned(&mut rig));
    assert!(rig.hits(&packet(3, 9)));
}

#[test]
fn a_candidate_is_translated_under_the_version_of_the_agent() {
    let mut rig = Rig::two_tables();
    rig.offer(&packet(1, 9));
    modify(&mut rig);
    rig.settle();
    assert!(rig.hits(&packet(1, 9)), "and not under that which it missed under");
    // The tables have a newer version than the engine and the agent.
    let delete = request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.2");
    let change = rig.checked.apply(&delete).unwrap();
    rig.offer(&packet(2, 9));
    rig.run_iteration();
    rig.run_iteration();
    assert_eq!(rig.held().len(), 3);
    rig.send_change(&change);
    rig.settle();
    assert_eq!((rig.held().len(), rig.acked_version()), (2, change.version));
}

#[test]
fn entries_unknown_to_the_engine_are_removed() {
    let mut rig = Rig::two_tables();
    rig.offer(&packet(1, 9));
    rig.run_iteration();
    rig.run_iteration();
    assert_eq!(rig.held().len(), 2);
    // The engine adopts the new version before it receives the reports of the entries.
    let change = rig.checked.apply(&request(FlowModCommand::ModifyStrict, MODIFY)).unwrap();
    rig.coordinator.apply(change.version, &change.deltas);
    rig.settle();
    assert_eq!((rig.acked_version(), rig.held().len()), (change.version, 0));
    assert_eq!(rig.held(), rig.intended());
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
fn a_failed_removal_is_retried_and_holds_its_version() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().fails_removals = true;
    let version = modify(&mut rig);
    rig.settle();
    assert!(rig.acked_version() < version);
    rig.device().fails_removals = false;
    let OffloadConfig { count_every, .. } = config();
    rig.wait(count_every);
    rig.settle();
    assert_eq!((rig.acked_version(), stale_reason(&rig)), (version, None));
    assert_eq!(rig.held(), rig.intended());
}

#[test]
fn a_failed_removal_delays_only_dependent_entries() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.wait(config().max_idle);
    rig.run_iteration();
    rig.run_iteration();
    rig.device().fails_removals = true;
    rig.settle();
    rig.log();
    rig.fill(&[(1, 9), (2, 9), (3, 9)]);
    assert_eq!(rig.log().0, [1, 0], "of the third source, which has another tag");
    assert!(rig.hits(&packet(3, 9)));
    assert_eq!((rig.hits(&packet(2, 9)), rig.status().waiting), (false, 3));
    rig.device().fails_removals = false;
    let OffloadConfig { count_every, .. } = config();
    rig.wait(count_every);
    rig.settle();
    assert!([1, 2, 3].iter().all(|source| rig.hits(&packet(*source, 9))));
    assert_eq!(rig.held(), rig.intended());
}

#[test]
fn versions_that_wait_are_acknowledged_together() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9), (2, 8)]);
    rig.device().is_silent = true;
    modify(&mut rig);
    rig.settle();
    rig.change(&request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.1"));
    let last = rig.change(&request(FlowModCommand::Delete, "table=0,ip,nw_src=10.0.0.2"));
    rig.settle();
    assert_eq!(rig.log().1, 1);
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.acked_version(), rig.log().1), (last, 2));
    assert_eq!(rig.held(), rig.intended());
}

#[test]
fn an_ended_agent_delays_no_version() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().is_silent = true;
    let version = modify(&mut rig);
    rig.settle();
    let Rig { coordinator, handle, owner, .. } = rig;
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
fn a_removal_waits_for_at_most_one_batch_of_insertions() {
    let rule =
        |host| format!("priority=1,ip,nw_src=10.0.{}.{},actions=output:2", host / 200, host % 200);
    let rules: Vec<String> = (0..600).map(rule).collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let mut rig = Rig::new(&network(&rules), config(), SoftwareDevice::new(4, 1000));
    rig.device().is_silent = true;
    for host in 0..600_u32 {
        let mut key = packet(1, 9);
        key.set_field(FieldId::Ipv4Src, u128::from(0x0a00_0000 + ((host / 200) << 8) + host % 200));
        rig.offer(&key);
        rig.settle();
    }
    let inserted = rig.log().0.len();
    assert!((1..=256).contains(&inserted), "{inserted}");
    rig.device().is_silent = false;
    rig.settle();
    assert_eq!((rig.held().len(), rig.held()), (600, rig.intended()));
}

#[test]
fn entries_evicted_while_the_device_is_away_are_not_restored() {
    let mut rig = Rig::two_tables();
    rig.fill(&[(1, 9)]);
    rig.device().lose();
    rig.settle();
    assert_eq!(rig.held().len(), 2);
    modify(&mut rig);
    rig.settle();
    assert_eq!(rig.held().len(), 1, "it will be back without what went");
    rig.device().restore();
    rig.settle();
    assert_eq!((rig.held(), stale_reason(&rig)), (rig.intended(), None));
}
