//! Tests learn requests: packets after a learning packet of their queue use the learned rules.

use std::time::Duration;

use shunt_datapath::{DropReason, ThreadConfig, thread::QueueSizes};
use shunt_flow::{FieldId, Match, testing::packet::PacketBuilder};
use shunt_pipeline::{
    Action, Cookie, FlowMod, LearnAction, LearnSource, LearnSpec, LearnTarget, Priority,
    RuleFilter, Subfield, TableId, TableSelector,
};

use crate::harness::{BRIDGE, Switch, output, rule};

/// Returns a frame from one host to another.
fn frame(from: u8, to: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, from], [10, 0, 0, to])
        .macs([2, 0, 0, 0, 0, from], [2, 0, 0, 0, 0, to])
        .udp(1, 2)
        .build()
}

/// Returns rules by which each packet learns a rule for its destination.
///
/// Packets from a learned host leave by port 3, other packets by port 2.
fn learn_rules() -> Vec<FlowMod> {
    let matched = LearnSpec {
        source: LearnSource::Field(Subfield::whole(FieldId::EthDst)),
        target: LearnTarget::Match(Subfield::whole(FieldId::EthSrc)),
        width: 48,
    };
    let sent = LearnSpec { source: LearnSource::Value(3), target: LearnTarget::Output, width: 16 };
    let table = TableId::new(1).unwrap();
    let learn = Action::Learn(Box::new(LearnAction {
        idle_timeout: 0,
        hard_timeout: 0,
        priority: Priority::new(7),
        cookie: Cookie::new(5),
        table,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        send_flow_removed: false,
        delete_learned: false,
        limit: 0,
        result: None,
        specs: Box::new([matched, sent]),
    }));
    let resubmit = Action::Resubmit { port: None, table: Some(table) };
    let other = rule(1, Match::any(), vec![output(2)]);
    vec![
        rule(1, Match::any(), vec![learn, resubmit]),
        FlowMod { table: TableSelector::One(table), ..other },
    ]
}

fn switch(threads: u16, config: ThreadConfig, sizes: QueueSizes) -> Switch {
    let mut switch = Switch::with_sizes(threads, 4, config, sizes);
    switch.apply(&learn_rules());
    switch
}

fn default_switch() -> Switch {
    switch(1, super::thread_config(), QueueSizes::default())
}

#[test]
fn second_packet_of_burst_uses_learned_rule() {
    let mut switch = default_switch();
    assert!(switch.send(0, 1, &frame(1, 2)) && switch.send(0, 1, &frame(2, 9)));
    switch.run_iteration(0);
    // The first packet does not use the rule that it learns; the second packet waits.
    assert_eq!((switch.receive(0, 2), switch.threads[0].held()), (vec![frame(1, 2)], 1));
    switch.run_iteration(0);
    assert_eq!(switch.threads[0].held(), 1);
    switch.settle();
    assert_eq!((switch.receive(0, 2), switch.receive(0, 3)), (vec![], vec![frame(2, 9)]));
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn sleeping_thread_wakes_for_acknowledgement_of_queue() {
    let mut switch = default_switch();
    assert!(switch.send(0, 1, &frame(1, 2)));
    while switch.run_iteration(0) {}
    assert!(switch.sleep(0) && !switch.is_woken(0));
    assert!(switch.learn() && switch.is_woken(0));
}

#[test]
fn packets_after_a_learning_one_ignore_stale_entries() {
    let mut switch = default_switch();
    // The second packet of the flow learns nothing new, so it creates a cache entry.
    for _ in 0..2 {
        assert!(switch.send(0, 1, &frame(2, 9)));
        switch.settle();
    }
    assert_eq!(
        (switch.receive(0, 2).len(), switch.counters(0).entries.get()),
        (2, super::entries(2))
    );
    assert!(switch.send(0, 1, &frame(1, 2)) && switch.send(0, 1, &frame(2, 9)));
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 2), switch.threads[0].held()), (vec![frame(1, 2)], 1));
    switch.settle();
    assert_eq!(switch.receive(0, 3), [frame(2, 9)]);
}

#[test]
fn packets_after_a_recirculated_learner_use_its_rule() {
    if !super::HAS_CACHE {
        return;
    }
    let mut rules = learn_rules();
    let target = Subfield { field: FieldId::Reg0, offset: 0, width: 1 };
    let check = Action::CheckPktLarger { length: 9, target };
    let actions = std::mem::take(&mut rules[0].instructions.apply);
    rules[0].instructions.apply = std::iter::once(check).chain(actions).collect();
    let mut switch = Switch::new(1, 4, super::thread_config());
    switch.apply(&rules);
    for _ in 0..2 {
        assert!(switch.send(0, 1, &frame(2, 9)));
        switch.settle();
    }
    assert_eq!((switch.receive(0, 2).len(), switch.counters(0).entries.get()), (2, 2));
    assert!(switch.send(0, 1, &frame(1, 2)) && switch.send(0, 1, &frame(2, 9)));
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 2), switch.threads[0].held()), (vec![frame(1, 2)], 1));
    switch.settle();
    assert_eq!(switch.receive(0, 3), [frame(2, 9)]);
}

#[test]
fn a_waiting_queue_receives_nothing_and_others_continue() {
    let mut switch = default_switch();
    for _ in 0..2 {
        assert!(switch.send(0, 4, &frame(4, 5)));
        switch.settle();
    }
    switch.receive(0, 2);
    assert!(switch.send(0, 1, &frame(1, 2)));
    switch.run_iteration(0);
    for _ in 0..10 {
        assert!(switch.send(0, 1, &frame(2, 9)) && switch.send(0, 4, &frame(4, 5)));
        switch.run_iteration(0);
    }
    assert_eq!((switch.receive(0, 2).len(), switch.threads[0].held()), (11, 0));
    switch.settle();
    assert_eq!(switch.receive(0, 3).len(), 10);
}

/// The first packet learns a rule and is not cached; later ones refresh the rule.
#[test]
fn learning_packet_makes_no_entry() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = default_switch();
    for entries in [0, super::entries(2), super::entries(2)] {
        assert!(switch.send(0, 1, &frame(1, 2)));
        switch.settle();
        assert_eq!(switch.counters(0).entries.get(), entries);
    }
    assert_eq!(switch.counters(0).upcalls.get(), 2);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(rules[0].stats.totals().packets, 3, "each is counted once");
}

#[test]
fn a_deleted_learned_rule_is_learned_again() {
    let mut switch = default_switch();
    for _ in 0..2 {
        assert!(switch.send(0, 1, &frame(1, 2)));
        switch.settle();
    }
    let learned = |switch: &Switch| {
        let filter =
            RuleFilter { cookie: Cookie::new(5), cookie_mask: u64::MAX, ..RuleFilter::all() };
        switch.pipeline.rules(BRIDGE, &filter).len()
    };
    assert_eq!(learned(&switch), 1);
    let mut delete = rule(1, Match::any(), vec![]);
    delete.command = shunt_pipeline::FlowModCommand::Delete;
    delete.table = TableSelector::All;
    (delete.cookie, delete.cookie_mask) = (Cookie::new(5), u64::MAX);
    switch.apply(&[delete]);
    assert_eq!(learned(&switch), 0);
    assert!(switch.send(0, 1, &frame(1, 2)));
    switch.settle();
    assert_eq!(learned(&switch), 1);
}

#[test]
fn known_learn_request_evicts_nothing() {
    let mut switch = switch(2, super::thread_config(), QueueSizes::default());
    for thread in [0, 1] {
        assert!(switch.send(thread, 1, &frame(1, 2)));
        switch.run_iteration(thread);
    }
    // The first learn request is applied before the second reaches the control plane.
    let (learnings, learn_requests) = switch.take_learn_requests();
    let change = switch.pipeline.learn(&learnings[..1], switch.now);
    switch.send_change(&change, &learn_requests[..1]);
    switch.settle();
    let version = switch.threads[1].version();
    assert!(switch.send(1, 4, &frame(1, 2)));
    switch.run_iteration(1);
    assert_eq!(switch.counters(1).entries.get(), super::entries(2));
    assert!(switch.send(1, 1, &frame(2, 9)));
    switch.run_iteration(1);
    assert!(switch.receive(1, 3).is_empty(), "the learn request of the packet is not acknowledged");
    let change = switch.pipeline.learn(&learnings[1..], switch.now);
    assert!(change.deltas.is_empty());
    switch.send_change(&change, &learn_requests[1..]);
    switch.run_iteration(1);
    assert_eq!(switch.receive(1, 3), [frame(2, 9)]);
    assert_eq!(switch.threads[1].version(), version);
    let entries = super::entries(2);
    assert_eq!(
        (switch.counters(1).entries.get(), switch.counters(1).install_conflicts.get()),
        (entries, 0)
    );
}

#[test]
fn full_learn_queue_drops_learning_packet() {
    let sizes = QueueSizes { learn_requests: 1, ..QueueSizes::default() };
    let mut switch = switch(1, super::thread_config(), sizes);
    assert!(switch.send(0, 1, &frame(1, 2)) && switch.send(0, 4, &frame(4, 5)));
    switch.run_iteration(0);
    let counters = switch.counters(0);
    assert_eq!(counters.dropped[DropReason::LearnQueueFull as usize].get(), 1);
    assert_eq!((counters.sent.get(), counters.unaccounted()), (1, 0));
    switch.settle();
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(rules[0].stats.totals().packets, 1, "as if the other had never come");
}

#[test]
fn an_address_at_two_ports_stalls_no_queue() {
    let mut switch = default_switch();
    for _ in 0..2 {
        assert!(switch.send(0, 1, &frame(7, 8)));
        switch.settle();
    }
    switch.receive(0, 2);
    let mut passed = 0;
    for round in 0..200_u8 {
        // Every packet of the first host causes a learn request, and the control plane is slow.
        assert!(switch.send(0, 1, &frame(1, round)) && switch.send(0, 1, &frame(7, 8)));
        switch.run_iteration(0);
        switch.wait(Duration::from_millis(20));
        switch.settle();
        let came = [2, 3].map(|port| switch.receive(0, port)).concat();
        passed += came.iter().filter(|own| **own == frame(7, 8)).count();
    }
    let counters = switch.counters(0);
    let refused = counters.dropped[DropReason::LearnRateLimited as usize].get();
    assert!((80..120).contains(&refused), "{refused}");
    assert_eq!((passed, counters.unaccounted()), (200, 0));
}
