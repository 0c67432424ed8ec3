//! Tests how many visits the direct engine examines for a change, and which changes are quick.

use shunt_flow::FieldId;
use shunt_kairo::Direct;
#[cfg(feature = "dbsp")]
use shunt_kairo::Visits;
#[cfg(feature = "dbsp")]
use shunt_pipeline::Version;
use shunt_pipeline::{
    Cause, CauseRun, Change, Delta, Evictor, FlowModCommand, PortConfig, PortInfo, TableId,
};

use crate::cases::{BRIDGE, SPREAD, Switch, direct, packet};

/// Number of entries, more than a quick change may examine.
const MANY: u32 = 5000;

/// Creates an engine with many entries, one per destination, and no deferred work.
fn switch_with_entries(rule: &str) -> Switch<Direct> {
    let mut switch = Switch::with(direct, &[rule]);
    for destination in 0..MANY {
        switch.install(0x0a00_0000 | destination);
    }
    run_maintenance(&mut switch);
    switch
}

fn run_maintenance(switch: &mut Switch<Direct>) {
    while switch.engine.run_maintenance() {}
}

/// Applies a change of one rule with a known mask.
///
/// Returns whether the engine called the change quick, and the number of evicted entries.
fn change(switch: &mut Switch<Direct>, command: FlowModCommand, rule: &str) -> (bool, usize) {
    let change = switch.publish(command, &[rule]);
    apply_change(switch, &change)
}

fn apply_change(switch: &mut Switch<Direct>, change: &Change) -> (bool, usize) {
    let is_quick = switch.engine.is_quick(&change.deltas);
    (is_quick, switch.apply(change).len())
}

/// Returns the ports of the bridge, one of them with flooding disabled.
fn without_flood() -> Vec<PortInfo> {
    let mut ports: Vec<_> = (1..=4).map(PortInfo::datapath).collect();
    ports[1].config = PortConfig { no_flood: true, ..PortConfig::default() };
    ports
}

/// The flow-mod command that adds a rule.
const ADD: FlowModCommand = FlowModCommand::Add;
/// Deletes the rule with the same match and priority.
const DELETE: FlowModCommand = FlowModCommand::DeleteStrict;

#[test]
fn a_rule_for_one_destination_is_quick() {
    let mut switch = switch_with_entries(SPREAD);
    // The first rule of a mask is not quick, because the engine scans all visits and adds a
    // projection.
    change(&mut switch, ADD, "priority=9,ip,nw_dst=10.0.0.1,actions=output:3");
    run_maintenance(&mut switch);
    let rule = "priority=9,ip,nw_dst=10.0.0.2";
    assert_eq!(change(&mut switch, ADD, &format!("{rule},actions=output:3")), (true, 1));
    assert_eq!(change(&mut switch, DELETE, rule), (true, 0));
}

#[test]
fn first_rule_of_mask_sorts_no_visits() {
    let projections = |switch: &Switch<Direct>| switch.engine.size().projections;
    let rule = |last| format!("priority=9,ip,nw_dst=10.0.0.{last},actions=output:3");
    let mut switch = switch_with_entries(SPREAD);
    // For a single rule, the projection is deferred to maintenance.
    assert_eq!(change(&mut switch, ADD, &rule(1)).1, 1);
    assert_eq!((projections(&switch), switch.engine.has_backlog()), (0, true));
    run_maintenance(&mut switch);
    assert_eq!((projections(&switch), switch.engine.has_backlog()), (1, false));
    // For the second rule of the mask, the projection is added before the search.
    let mut switch = switch_with_entries(SPREAD);
    (1..=2).for_each(|last| assert_eq!(change(&mut switch, ADD, &rule(last)).1, 1));
    assert_eq!(projections(&switch), 1);
    // For two rules in one change, the projection is not deferred.
    let mut switch = switch_with_entries(SPREAD);
    let together = switch.publish(ADD, &[&rule(1), &rule(2)]);
    assert_eq!((apply_change(&mut switch, &together).1, projections(&switch)), (2, 1));
}

#[test]
fn beyond_the_bound_the_remaining_tables_are_flushed() {
    let rules = [SPREAD, "table=1,ip,actions=output:2", "ipv6,actions=goto_table:1"];
    let switch = |examined_max| {
        let engine = |version| direct(version).with_examined_max(examined_max);
        let mut switch = Switch::with(engine, &rules);
        for n in 0..100 {
            switch.install(0x0a00_0000 | n);
        }
        switch.install_key(&packet(&[(FieldId::EthType, 0x86dd)]));
        switch
    };
    let rules = [
        "priority=9,ip,nw_dst=10.0.0.0/26,actions=output:3",
        "priority=8,ip,nw_dst=11.0.0.0/26,actions=output:3",
    ];
    let met = |switch: &mut Switch<Direct>| {
        let change = switch.publish(ADD, &rules);
        let ended = switch.apply(&change).len();
        let causes = switch.engine.causes().iter().map(|run| (run.cause, run.count));
        (ended, causes.collect::<Vec<_>>(), switch.engine.overflows())
    };
    let first = (Cause::Delta(0), 64);
    assert_eq!(met(&mut switch(1000)), (64, vec![first], 0));
    let all = (Cause::Bound(BRIDGE, TableId::FIRST), 37);
    assert_eq!(met(&mut switch(20)), (101, vec![first, all], 1));
}

#[test]
fn objects_are_examined_beyond_the_bound() {
    let engine = |version| direct(version).with_examined_max(0);
    let mut switch = Switch::with(engine, &[SPREAD]);
    let all: Vec<_> = (0..10).map(|n| switch.install(0x0a00_0000 | n)).collect();
    let rule = |text: &str| switch.publish(ADD, &[text]).deltas;
    let mut deltas = rule("priority=9,ip,nw_dst=1.2.3.4,actions=drop");
    deltas.extend(rule("table=1,priority=9,ip,actions=drop"));
    let port = switch.pipeline.set_ports(BRIDGE, without_flood()).unwrap();
    deltas.extend(port.deltas);
    let change = Change { version: port.version, deltas: deltas.clone() };
    assert_eq!(switch.apply(&change), all);
    let is_port = |delta: &Delta| matches!(delta, Delta::Changed(_));
    let cause = Cause::Delta(deltas.iter().rposition(is_port).unwrap());
    assert_eq!(switch.engine.causes(), [CauseRun { cause, count: 10 }]);
    assert_eq!(switch.engine.overflows(), 1);
}

#[test]
fn the_seed_determines_the_order_of_evictions() {
    let order = |seed| {
        let mut switch = Switch::with(|version| Direct::new(version, seed), &[SPREAD]);
        for n in 0..100 {
            switch.install(0x0a00_0000 | n);
        }
        let change = switch.pipeline.set_ports(BRIDGE, without_flood()).unwrap();
        let ended = switch.engine.apply(&change.deltas, change.version);
        ended.iter().map(|id| id.slot).collect::<Vec<_>>()
    };
    assert_eq!((order(7).len(), order(7)), (100, order(7)));
    assert_ne!(order(7), order(8));
}

#[test]
fn a_change_that_evicts_many_is_not_quick() {
    let all = MANY as usize;
    assert_eq!(
        change(&mut switch_with_entries(SPREAD), ADD, "priority=9,actions=drop"),
        (false, all)
    );
    assert_eq!(change(&mut switch_with_entries(SPREAD), DELETE, "priority=1,ip"), (false, all));
    let mut switch = switch_with_entries(SPREAD);
    let change = switch.pipeline.set_ports(BRIDGE, without_flood()).unwrap();
    assert_eq!(apply_change(&mut switch, &change), (false, all));
}

#[test]
fn many_quick_changes_together_are_not_quick() {
    let mut switch = switch_with_entries(SPREAD);
    let rules = |from: u32| -> Vec<String> {
        let rule = |last| format!("priority=9,ip,nw_dst=10.0.{}.0/24,actions=drop", from + last);
        (0..8).map(rule).collect()
    };
    let publish = |switch: &Switch<Direct>, rules: &[String]| {
        switch.publish(ADD, &rules.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let first = publish(&switch, &rules(0));
    apply_change(&mut switch, &first);
    run_maintenance(&mut switch);
    let second = publish(&switch, &rules(8));
    assert!(switch.engine.is_quick(&second.deltas[..1]));
    assert!(!switch.engine.is_quick(&second.deltas));
}

#[test]
fn a_rule_that_outranks_nothing_is_quick() {
    let rule = SPREAD.replace("priority=1,", "priority=100,");
    let mut switch = switch_with_entries(&rule);
    change(&mut switch, ADD, "priority=40,ip,actions=drop");
    run_maintenance(&mut switch);
    assert_eq!(change(&mut switch, ADD, "priority=50,ip,actions=drop"), (true, 0));
    assert_eq!(change(&mut switch, ADD, "priority=100,ip,nw_src=1.2.3.4,actions=drop"), (true, 0));
}

#[test]
fn a_rule_added_again_keeps_the_visit_order() {
    let many: Vec<String> = (0..8)
        .map(|net| format!("priority=5,ip,nw_dst=10.0.{net}.0/24,actions=output:2"))
        .collect();
    let mut rules: Vec<&str> = many.iter().map(String::as_str).collect();
    rules.push(SPREAD);
    let mut switch = Switch::with(direct, &rules);
    for destination in 0..MANY / 4 {
        switch.install(0x0a00_0000 | destination);
    }
    run_maintenance(&mut switch);
    let (rule, away) = (&many[3], "priority=5,ip,nw_dst=10.0.3.0/24");
    let (_, ended) = change(&mut switch, DELETE, away);
    assert_eq!(ended, 256);
    // Some entries are installed again after the removal of the rule.
    for destination in 0x0a00_0300..0x0a00_0310 {
        switch.install(destination);
    }
    let (is_quick, ended) = change(&mut switch, ADD, rule);
    assert_eq!((is_quick, ended), (true, 16));
    assert_eq!(switch.engine.size().projections, 0, "of its own mask, which is new");
}

/// Applies changes, and returns which of them the engine called quick.
/// After each change, also returns whether work was deferred.
#[cfg(feature = "dbsp")]
fn quick_changes<E: Evictor>(engine: impl FnOnce(Version) -> E) -> [(bool, bool); 4] {
    let mut switch = Switch::with(engine, &[SPREAD]);
    for destination in 0..MANY {
        switch.install(0x0a00_0000 | destination);
    }
    [
        "priority=9,ip,nw_dst=10.0.0.1,actions=output:3",
        "priority=9,ip,nw_dst=10.0.0.2,actions=output:3",
        "priority=9,ip,actions=output:3",
        "priority=9,arp,actions=output:3",
    ]
    .map(|rule| {
        while switch.engine.run_maintenance() {}
        // An entry that waits for a step does not make a change slow.
        switch.install(0x0a80_0001);
        let change = switch.publish(ADD, &[rule]);
        let is_quick = switch.engine.is_quick(&change.deltas);
        switch.apply(&change);
        (is_quick, switch.engine.has_backlog())
    })
}

#[cfg(feature = "dbsp")]
#[test]
fn engine_in_circuit_has_same_quick_changes() {
    // The first rule of a mask defers a projection. The third rule evicts all entries.
    let expected = [(true, true), (true, false), (false, true), (true, true)];
    assert_eq!(quick_changes(direct), expected);
    assert_eq!(quick_changes(|version| Visits::new(version, 1)), expected);
}
