//! Tests repair: stale entries are translated again before their next packet arrives.

use std::{
    cell::Cell,
    sync::{Arc, mpsc},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use shunt_datapath::{
    BURST, Command, Repair, ThreadConfig, command::DumpedEntry, thread::QueueSizes,
};
use shunt_flow::{FlowKey, Match, PortNo, testing::PacketBuilder, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, FlowModCommand, PortKind, RuleFilter,
    testing::{CheckedPipeline, generate},
    text::parse_rule,
};

use super::waiting::{flow, per_flow};
use crate::{
    frames::frame_of,
    harness::{BRIDGE, ENGINES, Switch, output, rule},
};

fn config(repair: Repair) -> ThreadConfig {
    ThreadConfig { repair, translations_per_iteration: 16, ..super::thread_config() }
}

/// Returns a switch with an entry for each of `flows` flows, which leave by port 2.
fn switch(repair: Repair, flows: u16) -> Switch {
    let mut switch = Switch::new(1, 3, config(repair));
    switch.apply(&[per_flow(1, 2)]);
    for number in 0..flows {
        assert!(switch.send(0, 1, &flow(number)));
        switch.settle();
    }
    assert_eq!(switch.receive(0, 2).len(), usize::from(flows));
    switch
}

fn entries(switch: &mut Switch) -> Vec<DumpedEntry> {
    let (sender, receiver) = mpsc::channel();
    let dump = Command::Dump(Box::new(move |entries| sender.send(entries).unwrap()));
    switch.controls[0].send(dump).unwrap();
    switch.settle();
    receiver.try_recv().unwrap()
}

/// Returns the counters of repairs: unchanged, changed, covered, and dropped.
fn repair_counts(switch: &Switch) -> [u64; 4] {
    let own = switch.counters(0);
    [&own.repaired_same, &own.repaired_changed, &own.repair_covered, &own.repair_dropped]
        .map(|counter| counter.get())
}

#[test]
fn packet_after_change_hits_repaired_entry() {
    let mut switch = switch(Repair::On, 5);
    let upcalls = switch.counters(0).upcalls.get();
    switch.apply(&[per_flow(2, 3)]);
    assert_eq!((repair_counts(&switch), switch.counters(0).evicted.get()), ([0, 5, 0, 0], 5));
    for number in 0..5 {
        assert!(switch.send(0, 1, &flow(number)));
    }
    switch.settle();
    assert_eq!((switch.receive(0, 2).len(), switch.receive(0, 3).len()), (0, 5));
    assert_eq!(switch.counters(0).upcalls.get(), upcalls, "no packet caused a translation");
    assert_eq!(switch.coordinator.watched(), 5);
}

#[test]
fn dropped_entry_is_repaired_before_receiving() {
    let mut switch = switch(Repair::On, 1);
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    assert!(switch.send(0, 1, &flow(0)));
    let upcalls = switch.counters(0).upcalls.get();
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 3).len(), switch.counters(0).upcalls.get()), (1, upcalls));
}

#[test]
fn unchanged_and_changed_repairs_are_counted_apart() {
    let mut switch = switch(Repair::On, 1);
    switch.apply(&[per_flow(2, 2)]);
    assert_eq!(repair_counts(&switch), [1, 0, 0, 0]);
    switch.apply(&[per_flow(3, 3)]);
    assert_eq!(repair_counts(&switch), [1, 1, 0, 0]);
}

#[test]
fn without_repair_the_next_packet_misses() {
    let mut switch = switch(Repair::Off, 3);
    switch.apply(&[per_flow(2, 3)]);
    assert_eq!((repair_counts(&switch), switch.coordinator.watched()), ([0; 4], 0));
}

#[test]
fn an_idle_entry_is_not_repaired() {
    let mut switch = switch(Repair::On, 1);
    switch.wait(Duration::from_secs(2));
    switch.apply(&[per_flow(2, 3)]);
    assert_eq!((repair_counts(&switch), switch.coordinator.watched()), ([0; 4], 0));
}

/// A repaired entry keeps the time of its last packet, and rules keep their counts.
#[test]
fn repair_prolongs_nothing_and_counts_nothing() {
    let mut switch = switch(Repair::On, 1);
    switch.wait(Duration::from_millis(900));
    switch.apply(&[per_flow(2, 3)]);
    let [made] = &entries(&mut switch)[..] else { panic!("one entry") };
    assert_eq!((made.packets, switch.now.since(made.used)), (0, Duration::from_millis(900)));
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let packets: Vec<u64> = rules.iter().map(|rule| rule.stats.totals().packets).collect();
    assert_eq!(packets.iter().sum::<u64>(), 1);
    switch.wait(Duration::from_millis(9500));
    switch.settle();
    assert_eq!(switch.coordinator.watched(), 0, "ten seconds after its last packet it is gone");
}

/// Packets before the repair count for the old rule, later ones for the new rule.
#[test]
fn hits_are_credited_to_rules_of_time() {
    let mut switch = switch(Repair::On, 1);
    switch.apply(&[per_flow(2, 3)]);
    for _ in 0..3 {
        assert!(switch.send(0, 1, &flow(0)));
    }
    switch.settle();
    let counted = |port: u32| {
        let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
        let own = rules.iter().find(|own| own.instructions.apply.contains(&output(port)));
        own.unwrap().stats.totals().packets
    };
    assert_eq!((counted(2), counted(3)), (1, 3));
}

#[test]
fn repair_takes_at_most_half_of_the_translations() {
    let mut switch = switch(Repair::On, 40);
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    for made in [8, 16, 24, 32, 40] {
        switch.run_iteration(0);
        assert_eq!(switch.counters(0).repaired_changed.get(), made);
    }
}

#[test]
fn repair_takes_an_eighth_while_packets_wait() {
    let mut switch = switch(Repair::On, 40);
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    (0..40).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    let seen_to = |switch: &Switch| repair_counts(switch).iter().sum::<u64>();
    // Of 16 translations per iteration, repairs may use half if no packet waits, and otherwise an
    // eighth.
    switch.run_iteration(0);
    assert_eq!(seen_to(&switch), 8);
    let mut iterations = 0;
    while switch.threads[0].held() > 0 {
        let before = seen_to(&switch);
        switch.run_iteration(0);
        iterations += 1;
        assert!((1..=2).contains(&(seen_to(&switch) - before)), "{:?}", repair_counts(&switch));
    }
    assert!(iterations > 0, "no packet waited");
}

#[test]
fn repair_takes_an_eighth_while_bursts_are_full() {
    let mut switch = switch(Repair::On, 40);
    // The bursts belong to a flow that does not change, so no packet waits for a translation.
    let text = "priority=9,udp,tp_dst=99,actions=output:2";
    switch.apply(&[parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap()]);
    let beside = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 99).build();
    assert!(switch.send(0, 1, &beside));
    switch.settle();
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    (0..2 * BURST).for_each(|_| assert!(switch.send(0, 1, &beside)));
    let mut made = Vec::new();
    for _ in 0..4 {
        let before = switch.counters(0).repaired_changed.get();
        switch.run_iteration(0);
        made.push(switch.counters(0).repaired_changed.get() - before);
    }
    assert_eq!(made, [8, 2, 2, 8]);
}

#[test]
fn entry_that_packet_recreated_is_not_repaired() {
    let mut switch = switch(Repair::On, 40);
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    (0..40).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    switch.settle();
    assert_eq!((switch.receive(0, 3).len(), switch.coordinator.watched()), (40, 40));
    let [same, changed, covered, dropped] = repair_counts(&switch);
    assert_eq!((same + changed + covered, dropped), (40, 0));
    assert!(changed > 0 && covered > 0, "{changed} {covered}");
}

#[test]
fn repair_by_rate_gives_up_after_a_second() {
    let mut switch = switch(Repair::Rate(10), 40);
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    for _ in 0..1500 {
        switch.run_iteration(0);
        switch.wait(Duration::from_millis(1));
    }
    let [_, changed, _, dropped] = repair_counts(&switch);
    assert!((9..=12).contains(&changed), "{changed}");
    assert_eq!(changed + dropped, 40);
    assert!(switch.sleep(0), "nothing waits any more");
}

#[test]
fn each_entry_waits_a_second_despite_later_evictions() {
    let mut switch = switch(Repair::Rate(1), 40);
    for change in 2..6 {
        switch.apply(&[per_flow(change, 3 - u32::from(change % 2))]);
        switch.wait(Duration::from_millis(400));
        assert!(switch.send(0, 1, &flow(0)));
        switch.settle();
    }
    let [_, _, covered, dropped] = repair_counts(&switch);
    assert!(covered + dropped >= 38, "{:?}", repair_counts(&switch));
}

#[test]
fn entries_hit_last_are_repaired_first() {
    let mut switch = switch(Repair::On, 40);
    switch.wait(Duration::from_millis(500));
    for number in 30..38 {
        assert!(switch.send(0, 1, &flow(number)));
    }
    switch.settle();
    let change = switch.pipeline.apply(BRIDGE, &[per_flow(2, 3)], switch.now).unwrap();
    switch.change(&change);
    switch.run_iteration(0);
    let upcalls = switch.counters(0).upcalls.get();
    switch.receive(0, 2);
    for number in 30..38 {
        assert!(switch.send(0, 1, &flow(number)));
    }
    switch.run_iteration(0);
    assert_eq!((switch.receive(0, 3).len(), switch.counters(0).upcalls.get()), (8, upcalls));
}

#[test]
fn entries_that_would_learn_are_not_repaired() {
    let mut switch = switch(Repair::On, 1);
    let text = "priority=9,actions=learn(table=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:3";
    switch.apply(&[parse_rule(FlowModCommand::Add, text, &NoPortNames).unwrap()]);
    assert_eq!((repair_counts(&switch), switch.coordinator.watched()), ([0, 0, 0, 1], 0));
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert!(rules.iter().all(|own| own.table.number() == 0), "no rule was learned");
}

#[test]
fn a_match_all_rule_gives_one_entry() {
    let mut switch = switch(Repair::On, 10);
    switch.apply(&[rule(9, Match::any(), vec![output(3)])]);
    assert_eq!((repair_counts(&switch), switch.coordinator.watched()), ([0, 1, 9, 0], 1));
}

#[test]
fn a_repaired_entry_equals_a_translation() {
    let networks = (
        generate::network(),
        prop::collection::vec(generate::packet(), 12),
        prop::collection::vec(generate::op(), 1..4),
    );
    let repaired_count = Cell::new(0);
    let result = TestRunner::new(ProptestConfig::with_cases(100)).run(&networks, |case| {
        let (network, packets, ops) = case;
        let mut checked = CheckedPipeline::new(&network);
        let pipeline = Arc::clone(&checked.pipeline);
        let (config, sizes) = (config(Repair::On), QueueSizes::default());
        let mut switch = Switch::with_pipeline(pipeline, 1, config, sizes, ENGINES[1]);
        for (port, bridge, number) in ports(&checked) {
            switch.add_port(port, bridge, number);
        }
        for key in &packets {
            let port = u32::try_from(key.bridge()).unwrap() * 100 + key.in_port().number();
            switch.send(0, port, &frame_of(key));
        }
        settle(&mut switch, &mut checked);
        for op in &ops {
            let before = checked.pipeline.version();
            let Some(change) = checked.apply(op) else { continue };
            switch.change(&change);
            settle(&mut switch, &mut checked);
            let version = switch.threads[0].version();
            let all = entries(&mut switch);
            prop_assert_eq!(switch.coordinator.watched(), all.len());
            for DumpedEntry { traversal, .. } in all {
                let again = checked.pipeline.translate_again(&traversal, version);
                prop_assert!(traversal.decides_like(&again), "{:?}", FlowKey::from(&traversal.key));
                // The mask of an older entry may have bits for rules that were deleted at its
                // version and are reclaimed now.
                if traversal.version == version && version > before {
                    prop_assert_eq!(&traversal.mask, &again.mask);
                }
            }
        }
        let [same, changed, _, _] = repair_counts(&switch);
        repaired_count.set(repaired_count.get() + same + changed);
        Ok(())
    });
    result.unwrap();
    assert!(repaired_count.get() > 10, "{}", repaired_count.get());
}

/// Returns the ports of all bridges, with bridge and OpenFlow number.
fn ports(checked: &CheckedPipeline) -> Vec<(u32, BridgeId, PortNo)> {
    let mut ports = Vec::new();
    for (bridge, own) in &checked.model.bridges {
        for info in &own.ports {
            if let PortKind::Datapath(port) = info.kind {
                ports.push((port.number(), *bridge, info.number));
            }
        }
    }
    ports
}

/// Runs the switch until no work is left; switch and oracle apply learn requests.
fn settle(switch: &mut Switch, checked: &mut CheckedPipeline) {
    let mut worked = true;
    while worked {
        worked = switch.coordinator.run_iteration() | switch.run_iteration(0);
        let (learnings, learn_requests) = switch.take_learn_requests();
        if !learn_requests.is_empty() {
            let change = checked.learn(&learnings, switch.now);
            switch.coordinator.take_reports();
            switch.send_change(&change, &learn_requests);
            worked = true;
        }
    }
}
