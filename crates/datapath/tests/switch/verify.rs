//! Tests verification, which compares hits with the tables and evicts wrong entries.

use std::sync::Arc;

use shunt_datapath::{ThreadConfig, cache::CacheConfig, cache::ExactConfig, thread::QueueSizes};
use shunt_flow::{Match, testing::packet::PacketBuilder};
use shunt_pipeline::{Action, FlowMod, RuleFilter};

use crate::harness::{BRIDGE, NeverStale, Switch, output, rule};

fn config(verify_one_in: u32, insert_inverse: u32) -> ThreadConfig {
    let exact = ExactConfig { lines: 64, insert_inverse };
    let caches = CacheConfig { entries_max: 64, exact, ..super::caches() };
    ThreadConfig { caches, verify_one_in, ..super::thread_config() }
}

fn switch_that_evicts_nothing(config: ThreadConfig) -> Switch {
    Switch::with_engine(1, 3, config, QueueSizes::default(), |_| Box::new(NeverStale))
}

fn rule_for_all(actions: Vec<Action>) -> FlowMod {
    rule(1, Match::any(), actions)
}

/// Sends packets of one flow in a burst; returns the numbers sent on ports 2 and 3.
fn send(switch: &mut Switch, packets: usize) -> (usize, usize) {
    let frame = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
    for _ in 0..packets {
        assert!(switch.send(0, 1, &frame));
    }
    switch.settle();
    (switch.receive(0, 2).len(), switch.receive(0, 3).len())
}

#[test]
fn a_wrong_entry_is_detected_evicted_and_reported() {
    for insert_inverse in [0, 1] {
        let mut switch = switch_that_evicts_nothing(config(1, insert_inverse));
        switch.apply(&[rule_for_all(vec![output(2)])]);
        // The exact-match cache can decide packets from the second burst on.
        assert_eq!((send(&mut switch, 3), send(&mut switch, 3)), ((3, 0), (3, 0)));
        let right = switch.counters(0).verified.get();
        assert!(right > 0 && switch.counters(0).differences.get() == 0);

        switch.apply(&[rule_for_all(vec![output(3)])]);
        assert_eq!(send(&mut switch, 3), (0, 3), "packets follow the tables");
        assert_eq!(switch.counters(0).differences.get(), 1);
        assert_eq!(switch.counters(0).entries.get(), 1, "the wrong one is gone");
        let difference = switch.controls[0].differences.pop().unwrap();
        assert_ne!(difference.cached[0].actions, difference.fresh.actions);
        assert_eq!(difference.fresh.key.in_port().number(), 1);
        assert!(switch.controls[0].differences.is_empty());

        assert_eq!(send(&mut switch, 3), (0, 3));
        assert_eq!(switch.counters(0).differences.get(), 1, "its successor is right");
        assert_eq!(switch.counters(0).unaccounted(), 0);
    }
}

#[test]
fn entry_that_credits_wrong_rule_is_detected() {
    let mut switch = switch_that_evicts_nothing(config(1, 0));
    switch.apply(&[rule_for_all(vec![output(2)])]);
    send(&mut switch, 1);
    switch.apply(&[rule(2, Match::any(), vec![output(2)])]);
    assert_eq!(send(&mut switch, 1), (1, 0));
    assert_eq!(switch.counters(0).differences.get(), 1);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let packets = |rule: &Arc<shunt_pipeline::Rule>| rule.stats.totals().packets;
    assert_eq!(rules.iter().map(packets).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn one_hit_in_n_is_compared() {
    for (one_in, range) in [(0, 0..1), (8, 300..700)] {
        let mut switch = switch_that_evicts_nothing(config(one_in, 0));
        switch.apply(&[rule_for_all(vec![output(2)])]);
        for _ in 0..200 {
            assert_eq!(send(&mut switch, 20), (20, 0));
        }
        let verified = switch.counters(0).verified.get();
        assert!(range.contains(&verified), "{verified}");
    }
}
