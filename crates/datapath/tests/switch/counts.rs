//! Tests counters: every packet is counted once at its end, every hit is credited once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use shunt_datapath::{
    Command, DropReason, ThreadConfig,
    cache::{CacheConfig, ExactConfig, Training},
    metrics::PortTraffic,
    thread::QueueSizes,
};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match, testing::packet::PacketBuilder};
use shunt_pipeline::{
    Action, ControllerAction, FlowFlags, FlowMod, FlowModCommand, MeterId, PacketInReason,
    RuleFilter,
};

use crate::harness::{BRIDGE, Switch, output, rule};

fn frame_to(host: u8) -> Vec<u8> {
    PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, host]).udp(1, 2).build()
}

fn matching(host: u8) -> Match {
    let mut key = FlowKey::ZERO;
    let mut mask = FlowMask::EMPTY;
    for (field, value) in
        [(FieldId::EthType, 0x0800), (FieldId::Ipv4Dst, 0x0a00_0000 | u128::from(host))]
    {
        key.set_field(field, value);
        mask.add_field(field);
    }
    Match::new(&key, &mask)
}

pub(crate) fn controller(meter: Option<MeterId>) -> Action {
    Action::Controller(Box::new(ControllerAction {
        meter,
        pause: false,
        max_len: 0xffff,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::new([]),
    }))
}

#[test]
fn emptied_caches_keep_counts_and_no_entry() {
    let config = ThreadConfig {
        caches: CacheConfig { wildcard: super::tiny(), ..CacheConfig::default() },
        ..ThreadConfig::default()
    };
    let mut switch = Switch::new(1, 3, config);
    switch.apply(&[rule(1, matching(2), vec![output(2)])]);
    for sent in 1..=4 {
        assert!(switch.send(0, 1, &frame_to(2)));
        switch.settle();
        assert_eq!(switch.receive(0, 2), [frame_to(2)]);
        if sent % 2 == 0 {
            switch.controls[0].send(Command::EmptyCaches).unwrap();
            switch.settle();
            assert_eq!(switch.counters(0).entries.get(), 0);
        }
    }
    assert_eq!(switch.counters(0).upcalls.get(), 2);
    assert_eq!(switch.coordinator.watched(), 0);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(rules.iter().map(|rule| rule.stats.totals().packets).sum::<u64>(), 4);
}

#[test]
fn every_received_packet_is_accounted_for() {
    let config = ThreadConfig {
        translations_per_iteration: 1,
        waiting_per_port: 4,
        caches: CacheConfig {
            entries_max: 4,
            exact: ExactConfig { lines: 16, insert_inverse: 2 },
            wildcard: super::tiny(),
            training: Training::Inline,
        },
        ..super::thread_config()
    };
    let sizes = QueueSizes { packet_ins: 8, reports: 16, ..QueueSizes::default() };
    let mut switch = Switch::with_sizes(1, 3, config, sizes);
    switch.apply(&[
        rule(1, matching(1), vec![output(2), output(3)]),
        rule(1, matching(2), vec![controller(None), output(2)]),
        rule(1, matching(3), vec![]),
        rule(1, matching(4), vec![output(1)]),
        rule(1, matching(5), vec![output(3)]),
        rule(0, Match::any(), vec![Action::Output { port: shunt_flow::PortNo::FLOOD, max_len: 0 }]),
    ]);
    let mut held_most = 0;
    for round in 0..400_u32 {
        for index in 0..40 {
            switch.send(0, 1, &frame_to(u8::try_from((round * 7 + index * 3) % 40).unwrap()));
        }
        switch.run_iteration(0);
        let counters = switch.counters(0);
        assert_eq!(counters.unaccounted(), 0, "after round {round}");
        held_most = held_most.max(counters.held.get());
        if round % 100 == 99 {
            switch.receive(0, 2);
        }
    }
    switch.settle();
    let counters = switch.counters(0);
    assert!(held_most > 0 && counters.held.get() == 0);
    for reason in [
        DropReason::RuleWithoutOutput,
        DropReason::Hairpin,
        DropReason::UpcallQueueFull,
        DropReason::TxQueueFull,
        DropReason::PacketInQueueFull,
    ] {
        assert!(counters.dropped[reason as usize].get() > 0, "{reason:?}");
    }
    let refused = counters.refused_full.get() + counters.refused_ring.get();
    assert!(refused + counters.chain.without_room.get() > 0);
    let traffic = &switch.traffic;
    let sent: u64 = traffic.values().map(|port| port[0].tx_packets.get()).sum();
    let received: u64 = traffic.values().map(|port| port[0].rx_packets.get()).sum();
    assert_eq!((sent, received), (counters.sent.get(), counters.received.get()));
    // Each dropped packet is counted at exactly one port.
    for reason in DropReason::ALL {
        let at = |port: &[Arc<PortTraffic>]| {
            port[0].forward_dropped.get(*reason) + port[0].tx_dropped.get(*reason)
        };
        let dropped: u64 = traffic.values().map(|port| at(port)).sum();
        assert_eq!(dropped, counters.dropped[*reason as usize].get(), "{reason:?}");
    }
}

#[test]
fn pull_credits_every_hit_to_rule_once() {
    let mut switch = Switch::new(2, 2, super::thread_config());
    switch.apply(&[rule(1, matching(1), vec![output(2)]), rule(1, matching(2), vec![])]);
    let frames = [frame_to(1), frame_to(2), frame_to(3)];
    for index in 0..300 {
        assert!(switch.send(index % 2, 1, &frames[index % 3]));
        if index % 10 == 0 {
            switch.settle();
            switch.receive(index % 2, 2);
        }
    }
    switch.settle();
    let (sender, answers) = mpsc::channel();
    for control in &mut switch.controls {
        let sender = sender.clone();
        control.send(Command::Pull(Box::new(move |()| sender.send(()).unwrap()))).unwrap();
    }
    switch.settle();
    assert_eq!(answers.try_iter().count(), 2);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(rules.len(), 2);
    for (rule, frame) in rules.iter().zip(&frames) {
        let totals = rule.stats.totals();
        assert_eq!((totals.packets, totals.bytes), (100, 100 * frame.len() as u64));
    }
    let table = &switch.pipeline.table_stats(BRIDGE)[0];
    assert_eq!((table.lookups, table.matches), (300, 200));
}

#[test]
fn a_pull_waits_for_earlier_counts() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    let rules: Vec<_> = (0..200).map(|host| rule(1, matching(host), vec![output(2)])).collect();
    switch.apply(&rules);
    for host in 0..200 {
        assert!(switch.send(0, 1, &frame_to(host)));
        switch.run_iteration(0);
    }
    // Packets arrive all the time, so the busy thread credits hits only for a pull.
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    let pull = Command::Pull(Box::new(move |()| flag.store(true, Ordering::Relaxed)));
    switch.controls[0].send(pull).unwrap();
    while !done.load(Ordering::Relaxed) {
        assert!(switch.send(0, 1, &frame_to(0)));
        switch.run_iteration(0);
        switch.receive(0, 2);
    }
    for rule in switch.pipeline.rules(BRIDGE, &RuleFilter::all()) {
        assert!(rule.stats.totals().packets >= 1);
    }
}

#[test]
fn counts_of_expired_and_evicted_entries_are_credited() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[rule(1, matching(1), vec![output(2)]), rule(1, matching(2), vec![output(2)])]);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert!(switch.send(0, 1, &frame_to(1)) && switch.send(0, 1, &frame_to(2)));
    // Without an idle iteration, no hit is credited before the entries are evicted.
    switch.run_iteration(0);
    switch.coordinator.run_iteration();
    switch.wait(Duration::from_secs(20));
    assert_eq!(switch.counters(0).entries.get(), 2);
    switch.settle();
    assert_eq!(switch.counters(0).expired.get(), 2);
    assert_eq!((switch.counters(0).entries.get(), switch.coordinator.watched()), (0, 0));
    assert!(rules.iter().all(|rule| rule.stats.totals().packets == 1));
}

#[test]
fn reset_discards_earlier_hits() {
    let mut switch = Switch::new(2, 2, super::thread_config());
    switch.apply(&[rule(1, matching(1), vec![output(2)])]);
    let reset = FlowMod {
        command: FlowModCommand::Modify,
        flags: FlowFlags { reset_counts: true, ..FlowFlags::default() },
        ..rule(1, matching(1), vec![output(2)])
    };
    for _ in 0..3 {
        for thread in [0, 0, 1] {
            assert!(switch.send(thread, 1, &frame_to(1)));
        }
        // Without an idle iteration, the hits are not credited when the rule is modified. One
        // thread forwards another packet before it receives the invalidation.
        switch.run_iteration(0);
        let change = switch.pipeline.apply(BRIDGE, std::slice::from_ref(&reset), switch.now);
        switch.run_iteration(1);
        switch.change(&change.unwrap());
        switch.settle();
        let totals = || switch.pipeline.rules(BRIDGE, &RuleFilter::all())[0].stats.totals();
        assert_eq!((totals().packets, totals().bytes, totals().used), (0, 0, switch.now));
        assert!(switch.send(0, 1, &frame_to(1)) && switch.send(1, 1, &frame_to(1)));
        switch.settle();
        let totals = switch.pipeline.rules(BRIDGE, &RuleFilter::all())[0].stats.totals();
        assert_eq!((totals.packets, totals.bytes), (2, 2 * frame_to(1).len() as u64));
        switch.wait(Duration::from_secs(1));
    }
}

#[test]
fn dump_shows_every_entry_with_its_counts() {
    if !super::HAS_CACHE {
        return;
    }
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[rule(1, matching(1), vec![output(2)])]);
    for _ in 0..5 {
        assert!(switch.send(0, 1, &frame_to(1)) && switch.send(0, 1, &frame_to(9)));
        switch.settle();
    }
    let (sender, answer) = mpsc::channel();
    let dump = Command::Dump(Box::new(move |entries| sender.send(entries).unwrap()));
    switch.controls[0].send(dump).unwrap();
    switch.settle();
    let mut packets: Vec<u64> = answer.recv().unwrap().iter().map(|entry| entry.packets).collect();
    packets.sort_unstable();
    // The packet that creates LTM entries is credited to rules at once, not as a hit of an entry.
    let first = u64::from(switch.counters(0).chain.made.get() > 0);
    assert_eq!(packets, [5 - first; 2]);
}
