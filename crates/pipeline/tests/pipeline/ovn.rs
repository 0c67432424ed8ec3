//! Tests of the tables of OVN, with packets.
//!
//! `data/ovn/README.md` describes how the recordings were made. Each packet is made from a rule: it
//! matches the rule, and has random other fields.

use std::collections::BTreeMap;

use shunt_flow::{FieldId, FlowKey, FlowMask, layout::FLOW_WORDS, text::NoPortNames};
use shunt_pipeline::{
    Action, FlowMod, FlowModCommand, FlowModError, GroupCommand, Instructions, MeterCommand,
    Modification, ModificationError, Rule, RuleFilter, TableId, TableSelector, Traversal, Visit,
    text::{parse_group_mod, parse_meter_mod, parse_rule},
};

use crate::{
    pause::punts,
    switch::{BRIDGE, Switch},
};

/// Returns the bridge of the recordings, and the number of refused requests by
/// reason.
fn bridge() -> (Switch, BTreeMap<String, usize>) {
    let switch = Switch::new(&[]);
    let mut refused = BTreeMap::new();
    for request in meters().chain(groups()).chain(rules()) {
        match switch.modify([request]) {
            Ok(_) => {}
            Err(ModificationError::Flow(FlowModError::NoSuchGroup(_))) => {
                *refused.entry("a group that is refused".to_owned()).or_default() += 1;
            }
            Err(error) => *refused.entry(error.to_string()).or_default() += 1,
        }
    }
    (switch, refused)
}

fn meters() -> impl Iterator<Item = Modification> {
    let (_, dump) = include_str!("../data/ovn/small.meters").split_once('\n').expect("a title");
    let texts = dump.trim_end().split("\n\n");
    texts.map(|text| parse_meter_mod(MeterCommand::Add, text).expect("a meter").into())
}

fn groups() -> impl Iterator<Item = Modification> {
    let texts = include_str!("../data/ovn/small.groups").lines().skip(1);
    let parsed = |text: &str| parse_group_mod(GroupCommand::Add, text, &NoPortNames);
    texts.map(move |text| parsed(text).expect("a group").into())
}

/// Returns the recorded rules, except rules that write a tunnel option.
/// No text can express such an action.
fn rules() -> impl Iterator<Item = Modification> {
    let texts = include_str!("../data/ovn/small.flows").lines();
    let texts = texts.filter(|text| !text.contains("->tun_metadata0"));
    let parsed = |text: &str| parse_rule(FlowModCommand::Add, text.trim(), &NoPortNames);
    texts.map(move |text| parsed(text).expect("a rule").into())
}

/// A generator of random numbers, which are the same in every run.
///
/// See Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators".
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Returns a packet with the bits of `kept` under `mask`, and random other bits.
///
/// The fields may be inconsistent, like those of hostile packets.
fn random(numbers: &mut Numbers, kept: &FlowKey, mask: &FlowMask) -> FlowKey {
    let mut key = FlowKey::ZERO;
    for index in 0..FLOW_WORDS {
        // Few bits differ, because many rules of OVN are similar.
        let noise = numbers.next() & numbers.next() & numbers.next();
        key.words_mut()[index] = kept.words()[index] ^ (noise & !mask.words()[index]);
    }
    key.set_bridge(BRIDGE.number().into());
    key.set_field(FieldId::RecircId, 0);
    key
}

/// Sends a packet through the tables, beginning with `table`.
fn run_from(switch: &Switch, table: TableId, key: &FlowKey) -> Traversal {
    let start = [Action::Resubmit { port: None, table: Some(table) }];
    switch.pipeline.translate_actions(key, &start, switch.pipeline.version())
}

/// Returns the best rule of a visit by a linear search.
///
/// `None` if a conjunction may decide.
fn best<'a>(rules: &'a [std::sync::Arc<Rule>], visit: &Visit) -> Option<Option<&'a Rule>> {
    let key = FlowKey::from(&visit.key);
    let matching =
        rules.iter().filter(|rule| rule.table == visit.table && rule.matching.matches(&key));
    let matching: Vec<_> = matching.collect();
    let is_clause = |rule: &Rule| {
        rule.instructions.apply.iter().any(|action| matches!(action, Action::Conjunction { .. }))
    };
    if matching.iter().any(|rule| is_clause(rule)) {
        return None;
    }
    let rank = |rule: &Rule| (rule.priority, std::cmp::Reverse(rule.id));
    Some(matching.into_iter().max_by_key(|rule| rank(rule)).map(|rule| &**rule))
}

#[test]
fn every_supported_rule_of_ovn_loads() {
    let (switch, refused) = bridge();
    let reasons: Vec<_> =
        refused.iter().map(|(reason, count)| format!("{count}: {reason}")).collect();
    let expected = [
        "15: a group that is refused",
        "218: action ct: connection tracking is not supported: remove the action",
        "11: action ct_clear: connection tracking is not supported: remove the action",
    ];
    assert_eq!(reasons, expected);
    let (rules, groups) =
        (switch.pipeline.rules(BRIDGE, &RuleFilter::all()), switch.group_numbers());
    let loaded = rules.len() + groups.len() + switch.meter_numbers().len();
    assert_eq!(loaded + refused.values().sum::<usize>(), 3542 + 10 + 3);
}

#[test]
fn ovn_packets_match_linear_search() {
    let (switch, _) = bridge();
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let mut numbers = Numbers(7);
    let (mut decided, mut errors) = (0, 0);
    for rule in &rules {
        let mask = FlowMask::from(rule.matching.mask());
        let packet = random(&mut numbers, &rule.matching.key(), &mask);
        let traversal = run_from(&switch, rule.table, &packet);
        errors += usize::from(traversal.error.is_some());
        for visit in traversal.lookups() {
            let Some(expected) = best(&rules, visit) else { continue };
            decided += 1;
            let found = visit.rule.as_ref().map(|rule| rule.id);
            assert_eq!(found, expected.map(|rule| rule.id), "in table {}", visit.table);
        }
        let mut other = random(&mut numbers, &(&traversal.key).into(), &(&traversal.mask).into());
        // The ingress port of a packet-out is a parameter of its translation, so the mask lacks it.
        other.set_in_port(packet.in_port());
        let again = run_from(&switch, rule.table, &other);
        assert_eq!(again.actions, traversal.actions, "of {rule:?}");
        let runs = [&traversal, &again].map(|own| {
            own.lookups().map(|visit| visit.rule.as_ref().map(|rule| rule.id)).collect::<Vec<_>>()
        });
        assert_eq!(runs[0], runs[1]);
    }
    assert!(decided > rules.len() && errors == 0, "{decided} lookups, {errors} errors");
}

#[test]
fn a_pause_changes_no_result_of_ovn_rules() {
    let (switch, _) = bridge();
    let mut numbers = Numbers(8);
    let rules = switch.pipeline.rules(BRIDGE, &RuleFilter::all());
    let pauses = |action: &Action| matches!(action, Action::Controller(own) if own.pause);
    let mut count = 0;
    for rule in rules.iter().filter(|rule| rule.instructions.apply.iter().any(pauses)) {
        let mask = FlowMask::from(rule.matching.mask());
        let packet = random(&mut numbers, &rule.matching.key(), &mask);
        let paused = run_from(&switch, rule.table, &packet);
        let Some(punt) = punts(&paused).into_iter().find(|punt| punt.continuation.is_some()) else {
            continue;
        };
        let continuation = punt.continuation.as_ref().expect("the lookup was recorded");
        let resumed = switch.pipeline.resume_paused(&packet, continuation, &punt.metadata);
        // A later version with the same rule without `pause` gives the expected result.
        let mut apply = rule.instructions.apply.to_vec();
        apply.retain(|action| !pauses(action));
        let instructions = Instructions { apply: apply.into(), ..(*rule.instructions).clone() };
        switch.make([flow_mod(rule, instructions).into()]);
        let straight = run_from(&switch, rule.table, &packet);
        switch.make([flow_mod(rule, (*rule.instructions).clone()).into()]);
        let mut runs = [&straight, &resumed].map(|own| {
            let found = |visit: &Visit| Some((visit.table, visit.rule.as_ref()?.priority));
            own.lookups().map(found).collect::<Vec<_>>()
        });
        let rest = runs[0].split_off(1);
        assert_eq!(rest, runs[1], "behind {rule:?}");
        count += 1;
    }
    assert!(count > 30, "{count} packets paused");
}

fn flow_mod(rule: &Rule, instructions: Instructions) -> FlowMod {
    FlowMod {
        command: FlowModCommand::ModifyStrict,
        table: TableSelector::One(rule.table),
        matching: rule.matching.clone(),
        priority: rule.priority,
        cookie: rule.cookie,
        cookie_mask: 0,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        importance: rule.importance,
        flags: rule.flags,
        out_port: shunt_flow::PortNo::ANY,
        out_group: RuleFilter::GROUP_ANY,
        instructions,
    }
}
