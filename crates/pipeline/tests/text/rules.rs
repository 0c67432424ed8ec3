//! Compares the text of rules with the output of Open vSwitch 3.1 for the same text.
//!
//! `data/rule-texts.json` describes its recording.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    BridgeId, FlowMod, FlowModCommand, Rule, RuleId, RuleStats, SharedTimers, TableSelector, Time,
    text::{RuleFormat, format_rule, parse_rule},
};

fn recorded_cases(list: &str) -> Vec<Value> {
    super::recorded_texts(include_str!("../data/rule-texts.json"), list)
}

fn rule(request: FlowMod) -> Rule {
    let TableSelector::One(table) = request.table else { panic!("a rule has a table") };
    Rule {
        id: RuleId::new(1),
        revision: 0,
        bridge: BridgeId::new(1),
        table,
        matching: request.matching,
        priority: request.priority,
        cookie: request.cookie,
        idle_timeout: request.idle_timeout,
        hard_timeout: request.hard_timeout,
        importance: request.importance,
        flags: request.flags,
        instructions: Arc::new(request.instructions),
        modified: Time::ZERO,
        created: Time::ZERO,
        stats: Arc::new(RuleStats::default()),
        timers: SharedTimers::default(),
    }
}

/// Parses a rule, which must be valid.
pub(crate) fn parsed(text: &str) -> Rule {
    let request = parse_rule(FlowModCommand::Add, text, &NoPortNames);
    rule(request.unwrap_or_else(|error| panic!("{text}: {error} at {:?}", error.span)))
}

/// Returns the text of a rule in a dump.
pub(crate) fn printed(rule: &Rule) -> String {
    format_rule(rule, RuleFormat { ports: &NoPortNames, stats_at: None })
}

fn check(input: &str, expected: &str) {
    let rule = parsed(input);
    assert_eq!(printed(&rule), expected, "{input}");
    let again = parsed(expected);
    assert_eq!(again.matching, rule.matching, "{expected}");
    assert_eq!(again.instructions, rule.instructions, "{expected}");
    assert_eq!(printed(&again), expected);
}

#[test]
fn rules_are_printed_as_open_vswitch_prints_them() {
    for pair in recorded_cases("same") {
        check(pair["input"].as_str().unwrap(), pair["canonical"].as_str().unwrap());
    }
}

#[test]
fn rules_printed_differently_are_listed() {
    for pair in recorded_cases("different") {
        assert_ne!(pair["canonical"], pair["ours"], "a difference is one");
        check(pair["input"].as_str().unwrap(), pair["ours"].as_str().unwrap());
    }
}

#[test]
fn rules_that_only_open_vswitch_refuses_are_listed() {
    for pair in recorded_cases("looser") {
        check(pair["input"].as_str().unwrap(), pair["ours"].as_str().unwrap());
    }
}

fn check_refused(list: &str) {
    for pair in recorded_cases(list) {
        let input = pair["input"].as_str().unwrap();
        let error = parse_rule(FlowModCommand::Add, input, &NoPortNames).unwrap_err();
        assert_eq!(error.to_string(), pair["reason"].as_str().unwrap(), "{input}");
        assert_eq!(&input[error.span], pair["at"].as_str().unwrap(), "{input}");
    }
}

#[test]
fn unsupported_actions_are_refused_by_name() {
    check_refused("refused");
}

#[test]
fn rules_that_open_vswitch_refuses_have_a_position() {
    check_refused("wrong");
}

#[test]
fn errors_that_open_vswitch_ignores_are_refused() {
    check_refused("stricter");
}

#[test]
fn a_dumped_line_shows_age_and_counters() {
    let input = "cookie=0x2a,table=3,idle_timeout=5,send_flow_rem,priority=7,actions=output:2";
    let rule = parsed(input);
    rule.stats.credit(3, 180, Time::ZERO);
    let at = |age| {
        let stats_at = Some(Time::ZERO.after(age));
        format_rule(&rule, RuleFormat { ports: &NoPortNames, stats_at })
    };
    let line = |age: &str| {
        format!(
            "cookie=0x2a, duration={age}, table=3, n_packets=3, n_bytes=180, idle_timeout=5, \
             send_flow_rem priority=7 actions=output:2"
        )
    };
    assert_eq!(at(Duration::from_secs(12)), line("12s"));
    assert_eq!(at(Duration::from_millis(12_034)), line("12.034s"));
    assert_eq!(at(Duration::from_nanos(1_000_000_001)), line("1.000000001s"));
    assert_eq!(parsed(&line("12s")).instructions, rule.instructions);
}
