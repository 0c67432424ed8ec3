//! Tests of flow-mods.

use shunt_flow::PortNo;
use shunt_pipeline::{
    BridgeId, BridgeSettings, Cookie, Delta, FlowFlags, FlowMod, FlowModCommand, FlowModError,
    ModificationError, OverflowPolicy, RejectedMod, RemovedReason, Rule, RuleChange, RuleFilter,
    TableId, TableSelector, Time,
};

use crate::switch::{BRIDGE, Switch, request};

fn add(rule: &str) -> FlowMod {
    request(FlowModCommand::Add, rule)
}

fn only_rule(switch: &Switch) -> std::sync::Arc<Rule> {
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let [rule] = &rules[..] else { panic!("one rule, not {}", rules.len()) };
    rule.clone()
}

fn credit_rule(switch: &Switch, packets: u64) {
    let traversal = switch.translate("tcp,in_port=1");
    switch.pipeline.credit(&traversal, packets, packets * 60, Time::from_nanoseconds(5));
}

#[test]
fn adding_the_same_match_and_priority_replaces() {
    let switch = Switch::new(&["cookie=1,tcp,actions=output:1"]);
    let old = only_rule(&switch);
    let change = switch.add(&["cookie=2,tcp,actions=output:2"]);
    let new = only_rule(&switch);
    assert!(new.id > old.id && new.revision == 0);
    let reasons: Vec<_> = change.deltas.iter().map(|delta| format!("{delta:?}")).collect();
    assert!(reasons[0].contains("Removed(Replaced)") && reasons[1].contains("Added"));
    assert_eq!(switch.run("tcp,in_port=3"), "2");
}

#[test]
fn replacement_keeps_counts_without_reset_counts() {
    let switch = Switch::new(&["tcp,actions=output:1"]);
    credit_rule(&switch, 3);
    switch.add(&["tcp,actions=output:2"]);
    assert_eq!(only_rule(&switch).stats.totals().packets, 3);
    let flags = FlowFlags { reset_counts: true, ..FlowFlags::default() };
    let reset = FlowMod { flags, ..add("tcp,actions=output:3") };
    switch.pipeline.apply(BRIDGE, &[reset], Time::ZERO).expect("a legal rule");
    assert_eq!(only_rule(&switch).stats.totals().packets, 0);
}

#[test]
fn a_modification_keeps_identity_age_counts_and_timeouts() {
    let switch = Switch::new(&["cookie=1,idle_timeout=9,tcp,actions=output:1"]);
    credit_rule(&switch, 3);
    let old = only_rule(&switch);
    switch.send(FlowModCommand::Modify, "tcp,idle_timeout=4,actions=output:2").expect("legal");
    let new = only_rule(&switch);
    assert_eq!((new.id, new.revision, new.idle_timeout), (old.id, 1, old.idle_timeout));
    assert_eq!((new.created, new.stats.totals().packets), (old.created, 3));
    assert_eq!(switch.run("tcp,in_port=3"), "2");
    credit_rule(&switch, 1);
    assert_eq!(old.stats.totals().packets, 4, "counters belong to the rule, not to its revision");
}

#[test]
fn a_modification_resets_counts_if_asked() {
    let switch = Switch::new(&["tcp,actions=output:1"]);
    credit_rule(&switch, 3);
    let flags = FlowFlags { reset_counts: true, ..FlowFlags::default() };
    let request = FlowMod { flags, ..request(FlowModCommand::Modify, "tcp,actions=output:2") };
    let illegal = add("table=3,actions=goto_table:4");
    let illegal = FlowMod { table: TableSelector::All, ..illegal };
    let rejected = switch.pipeline.apply(BRIDGE, &[request.clone(), illegal], Time::ZERO);
    assert!(rejected.is_err());
    assert_eq!(only_rule(&switch).stats.totals().packets, 3, "nothing happened");
    switch.pipeline.apply(BRIDGE, &[request], Time::ZERO).expect("legal");
    assert_eq!(only_rule(&switch).stats.totals().packets, 0);
}

#[test]
fn a_modification_of_nothing_does_nothing() {
    let switch = Switch::new(&["tcp,actions=output:1"]);
    let version = switch.pipeline.version();
    let change = switch.send(FlowModCommand::Modify, "udp,actions=output:2").expect("legal");
    assert!(change.deltas.is_empty() && change.version == version);
    assert_eq!(switch.pipeline.version(), version);
}

/// In OpenFlow 1.0, a modify command adds a missing rule, and sets the cookie.
#[test]
fn a_modification_of_openflow_10_adds_the_rule() {
    let switch = Switch::new(&["table=1,cookie=1,tcp,actions=output:1"]);
    let flags = FlowFlags { modify_or_add: true, ..FlowFlags::default() };
    let modify = |rule: &str, table: TableSelector| {
        let request = FlowMod { flags, table, ..request(FlowModCommand::Modify, rule) };
        switch.pipeline.apply(BRIDGE, &[request], Time::ZERO).expect("a legal rule")
    };
    modify("cookie=2,tcp,actions=output:2", TableSelector::All);
    assert_eq!(only_rule(&switch).cookie.number(), 2);
    modify("cookie=3,udp,actions=output:3", TableSelector::All);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    assert_eq!(rules.len(), 2);
    let added = rules.iter().find(|rule| rule.cookie.number() == 3).expect("the new rule");
    assert_eq!((added.table, added.flags), (TableId::FIRST, FlowFlags::default()));
    let sctp = |rule: &str| FlowMod { flags, ..request(FlowModCommand::Modify, rule) };
    // The second command modifies the rule that the first one adds.
    let requests = [sctp("cookie=4,sctp,actions=output:1"), sctp("cookie=5,sctp,actions=output:2")];
    switch.pipeline.apply(BRIDGE, &requests, Time::ZERO).expect("legal rules");
    assert_eq!(switch.cookies(), [3, 5, 2]);
    let requests = [sctp("cookie=6,sctp,actions=output:1"), sctp("icmp,actions=group:7")];
    let refused = switch.pipeline.apply(BRIDGE, &requests, Time::ZERO).expect_err("no group");
    assert_eq!(refused.index, 1);
    assert_eq!(switch.cookies(), [3, 5, 2]);
}

#[test]
fn strict_deletion_needs_equal_match_and_priority() {
    let switch = Switch::new(&[
        "cookie=1,priority=5,tcp,actions=output:1",
        "cookie=2,priority=6,tcp,actions=output:1",
        "cookie=3,priority=5,tcp,tp_dst=80,actions=output:1",
    ]);
    switch.send(FlowModCommand::DeleteStrict, "priority=5,tcp").expect("legal");
    assert_eq!(switch.cookies(), [2, 3]);
    switch.send(FlowModCommand::Delete, "tcp,tp_dst=80").expect("legal");
    assert_eq!(switch.cookies(), [2]);
    switch.send(FlowModCommand::Delete, "ip").expect("legal");
    assert!(switch.cookies().is_empty());
}

#[test]
fn the_cookie_of_a_modification_only_selects_rules() {
    let switch = Switch::new(&["cookie=1,tcp,actions=output:1", "cookie=2,udp,actions=output:1"]);
    let modify = |cookie, cookie_mask| FlowMod {
        cookie: Cookie::new(cookie),
        cookie_mask,
        ..request(FlowModCommand::Modify, "ip,actions=output:2")
    };
    switch.pipeline.apply(BRIDGE, &[modify(1, u64::MAX)], Time::ZERO).expect("legal");
    assert_eq!(switch.cookies(), [1, 2]);
    assert_eq!((&*switch.run("tcp"), &*switch.run("udp")), ("2", "1"));
    switch.pipeline.apply(BRIDGE, &[modify(9, 0)], Time::ZERO).expect("legal");
    assert_eq!(switch.cookies(), [1, 2]);
    assert_eq!((&*switch.run("tcp"), &*switch.run("udp")), ("2", "2"));
}

#[test]
fn deletions_select_by_cookie_port_and_table() {
    let switch = Switch::new(&[
        "cookie=1,tcp,actions=output:1",
        "cookie=2,udp,actions=clone(output:2)",
        "cookie=3,table=1,udp,actions=write_actions(output:2)",
        "cookie=4,table=1,tcp,actions=output:3",
    ]);
    let delete =
        |out_port, table| FlowMod { out_port, table, ..request(FlowModCommand::Delete, "") };
    let first = TableSelector::One(TableId::FIRST);
    let apply = |request| switch.pipeline.apply(BRIDGE, &[request], Time::ZERO).expect("legal");
    apply(delete(PortNo::new(2), first));
    assert_eq!(switch.cookies(), [1, 3, 4]);
    apply(delete(PortNo::new(2), TableSelector::All));
    assert_eq!(switch.cookies(), [1, 4]);
    switch.send(FlowModCommand::Delete, "cookie=4/-1").expect("legal");
    assert_eq!(switch.cookies(), [1]);
    apply(FlowMod { out_group: 7, ..delete(PortNo::ANY, TableSelector::All) });
    assert_eq!(switch.cookies(), [1], "no rule uses a group");
}

#[test]
fn a_deletion_reports_its_reason() {
    let switch = Switch::new(&["tcp,actions=output:1"]);
    let change = switch.send(FlowModCommand::Delete, "").expect("legal");
    let [Delta::Rule(delta)] = &change.deltas[..] else { panic!("one delta") };
    assert!(matches!(delta.change, RuleChange::Removed(RemovedReason::Delete)));
}

#[test]
fn an_overlap_is_refused_if_asked() {
    let switch = Switch::new(&["priority=5,tcp,actions=output:1"]);
    let flags = FlowFlags { check_overlap: true, ..FlowFlags::default() };
    let checked = |rule| FlowMod { flags, ..add(rule) };
    let apply = |request| switch.pipeline.apply(BRIDGE, &[request], Time::ZERO);
    let refused = apply(checked("priority=5,in_port=2,actions=output:2"));
    let priority = shunt_pipeline::Priority::new(5);
    assert_eq!(refused.unwrap_err().error, FlowModError::Overlap(priority).into());
    assert!(apply(checked("priority=6,in_port=2,actions=output:2")).is_ok());
    assert!(apply(checked("priority=5,udp,actions=output:2")).is_ok());
    assert!(
        apply(checked("priority=5,tcp,actions=output:2")).is_ok(),
        "the rule replaces an equal one"
    );
}

#[test]
fn goto_leads_to_higher_tables() {
    let switch = Switch::new(&[]);
    let mut request = add("table=3,actions=goto_table:4");
    request.instructions.goto = TableId::new(3);
    let refused = switch.pipeline.apply(BRIDGE, &[request], Time::ZERO).unwrap_err();
    assert!(matches!(refused.error, ModificationError::Flow(FlowModError::GotoNotUp { .. })));
}

#[test]
fn a_rule_is_added_to_one_table() {
    let switch = Switch::new(&[]);
    let request = FlowMod { table: TableSelector::All, ..add("actions=output:1") };
    let refused = switch.pipeline.apply(BRIDGE, &[request], Time::ZERO).unwrap_err();
    assert_eq!(refused.error, FlowModError::TableAll.into());
}

#[test]
fn a_full_table_refuses_additions_but_not_replacements() {
    let switch = Switch::new(&[]);
    let rules_max = [(TableId::FIRST, 2)].into();
    let settings = BridgeSettings { rules_max, ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
    let mods = ["tcp", "udp", "arp"].map(|name| add(&format!("{name},actions=output:1")));
    let rejected = switch.pipeline.apply(BRIDGE, &mods, Time::ZERO).unwrap_err();
    assert_eq!(rejected, RejectedMod { index: 2, error: FlowModError::TableFull(2).into() });
    assert!(switch.cookies().is_empty(), "all or nothing");
    switch.pipeline.apply(BRIDGE, &mods[..2], Time::ZERO).expect("the table has room");
    switch.pipeline.apply(BRIDGE, &mods[..1], Time::ZERO).expect("the rule replaces an equal one");
    let elsewhere = add("table=1,arp,actions=output:1");
    switch.pipeline.apply(BRIDGE, &[elsewhere], Time::ZERO).expect("another table");
}

#[test]
fn a_full_table_evicts_by_importance_then_expiry() {
    let switch = Switch::new(&[]);
    let rules_max = [(TableId::FIRST, 4)].into();
    let overflow = OverflowPolicy::Evict;
    let settings = BridgeSettings { rules_max, overflow, ..BridgeSettings::default() };
    switch.pipeline.set_settings(BRIDGE, settings).expect("the bridge exists");
    let timed = |cookie, seconds, importance| {
        let rule =
            format!("cookie={cookie},idle_timeout={seconds},tcp,tp_dst={cookie},actions=drop");
        FlowMod { importance, ..add(&rule) }
    };
    let mods = [timed(1, 9, 5), timed(2, 20, 0), timed(3, 7, 0), add("cookie=4,udp,actions=drop")];
    switch.pipeline.apply(BRIDGE, &mods, Time::ZERO).expect("the table has room");
    let crowd = |cookie: u32| {
        switch.pipeline.apply(
            BRIDGE,
            &[add(&format!("cookie={cookie},arp,nw_dst=0.0.0.{cookie},actions=drop"))],
            Time::ZERO,
        )
    };
    let change = crowd(5).expect("a rule is evicted");
    let [Delta::Rule(evicted), _] = &change.deltas[..] else { panic!("two rules") };
    assert!(matches!(evicted.change, RuleChange::Removed(RemovedReason::Eviction)));
    assert_eq!(switch.cookies(), [1, 2, 4, 5]);
    crowd(6).expect("a rule is evicted");
    assert_eq!(switch.cookies(), [1, 4, 5, 6]);
    crowd(7).expect("a rule is evicted");
    let full: ModificationError = FlowModError::TableFull(4).into();
    assert_eq!(crowd(8).unwrap_err().error, full, "a rule without a timeout stays");
    assert_eq!(switch.cookies(), [4, 5, 6, 7]);
}

#[test]
fn a_refused_long_batch_changes_nothing() {
    let switch = Switch::new(&["cookie=1,tcp,actions=output:1"]);
    let version = switch.pipeline.version();
    let mut mods: Vec<_> =
        (0..200).map(|port| add(&format!("cookie=2,tcp,tp_dst={port},actions=output:1"))).collect();
    mods.push(request(FlowModCommand::Delete, ""));
    mods.push(FlowMod { table: TableSelector::All, ..add("actions=output:1") });
    let rejected = switch.pipeline.apply(BRIDGE, &mods, Time::ZERO).unwrap_err();
    assert_eq!(rejected.index, 201);
    assert_eq!((switch.cookies(), switch.pipeline.version()), (vec![1], version));
    assert_eq!(switch.run("tcp,in_port=2"), "1");
    let later = switch.add(&["cookie=3,udp,actions=output:1"]);
    assert_eq!((later.version, switch.cookies()), (version.next(), vec![1, 3]));
}

#[test]
fn requests_to_a_missing_bridge_are_refused() {
    let switch = Switch::new(&[]);
    let nowhere = BridgeId::new(9);
    let rejected = switch.pipeline.apply(nowhere, &[add("actions=drop")], Time::ZERO);
    assert_eq!(rejected.unwrap_err().error, ModificationError::NoSuchBridge(nowhere));
    assert!(switch.pipeline.set_ports(nowhere, Vec::new()).is_err());
}

#[test]
fn tables_count_lookups_and_matches() {
    let switch =
        Switch::new(&["tcp,actions=resubmit(,1),resubmit(,1)", "table=1,udp,actions=drop"]);
    credit_rule(&switch, 5);
    let stats = switch.pipeline.table_stats(BRIDGE);
    let counted = |table: usize| (stats[table].lookups, stats[table].matches);
    assert_eq!((stats.len(), counted(0), counted(1)), (254, (5, 5), (10, 0)));
    assert_eq!((stats[0].rules_count, stats[1].rules_count, stats[2].rules_count), (1, 1, 0));
}

#[test]
fn every_visit_credits_its_rule() {
    let switch =
        Switch::new(&["cookie=1,tcp,actions=goto_table:1", "cookie=2,table=1,actions=drop"]);
    credit_rule(&switch, 5);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    for rule in rules {
        let totals = rule.stats.totals();
        assert_eq!((totals.packets, totals.bytes, totals.used.nanoseconds()), (5, 300, 5));
    }
}
