//! Tests of idle and hard timeouts.

use std::time::Duration;

use shunt_pipeline::{Change, Delta, FlowModCommand, RemovedReason, RuleChange, Time};

use crate::switch::{BRIDGE, Switch, request};

fn at(seconds: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(seconds))
}

/// Returns a switch with rules that were added at 10 s.
fn switch(rules: &[&str]) -> Switch {
    let switch = Switch::new(&[]);
    let mods: Vec<_> = rules.iter().map(|rule| request(FlowModCommand::Add, rule)).collect();
    switch.pipeline.apply(BRIDGE, &mods, at(10)).expect("the rules are legal");
    switch
}

fn removed_rules(change: &Change) -> Vec<(u64, RemovedReason)> {
    let removed = |delta: &Delta| match delta {
        Delta::Rule(delta) => match delta.change {
            RuleChange::Removed(reason) => Some((delta.rule.cookie.number(), reason)),
            RuleChange::Added | RuleChange::Modified(_) => None,
        },
        Delta::Changed(_) => None,
    };
    change.deltas.iter().filter_map(removed).collect()
}

#[test]
fn rules_expire_exactly_at_their_timeout() {
    let switch = switch(&[
        "cookie=1,tcp,idle_timeout=5,actions=drop",
        "cookie=2,udp,hard_timeout=7,actions=drop",
        "cookie=3,arp,actions=drop",
    ]);
    let version = switch.pipeline.version();
    let early = switch.pipeline.expire(at(14));
    assert!(early.deltas.is_empty() && switch.pipeline.version() == version);
    assert_eq!(removed_rules(&switch.pipeline.expire(at(15))), [(1, RemovedReason::IdleTimeout)]);
    assert_eq!(removed_rules(&switch.pipeline.expire(at(99))), [(2, RemovedReason::HardTimeout)]);
    assert_eq!(switch.cookies(), [3]);
}

#[test]
fn a_hit_restarts_only_the_idle_timeout() {
    let switch = switch(&["cookie=1,tcp,idle_timeout=5,hard_timeout=9,actions=drop"]);
    let traversal = switch.translate("tcp,in_port=1");
    switch.pipeline.credit(&traversal, 1, 60, at(14));
    assert!(switch.pipeline.expire(at(18)).deltas.is_empty());
    switch.pipeline.credit(&traversal, 1, 60, at(18));
    assert_eq!(removed_rules(&switch.pipeline.expire(at(19))), [(1, RemovedReason::HardTimeout)]);
}

#[test]
fn a_modification_restarts_the_hard_timeout() {
    let switch = switch(&["cookie=1,tcp,hard_timeout=5,actions=drop"]);
    let request = request(FlowModCommand::Modify, "tcp,actions=output:1");
    switch.pipeline.apply(BRIDGE, &[request], at(13)).expect("legal");
    assert!(switch.pipeline.expire(at(17)).deltas.is_empty());
    assert_eq!(removed_rules(&switch.pipeline.expire(at(18))).len(), 1);
}

#[test]
fn a_rule_that_was_deleted_does_not_expire() {
    let switch = switch(&["cookie=1,tcp,idle_timeout=5,actions=drop"]);
    switch.send(FlowModCommand::Delete, "").expect("legal");
    assert!(switch.pipeline.expire(at(99)).deltas.is_empty());
}
