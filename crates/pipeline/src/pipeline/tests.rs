//! Tests that compare a pipeline with a model of plain lists.

mod holds;

use std::time::Duration;

use proptest::prelude::*;
use shunt_flow::{FlowKey, text::NoPortNames};

use super::*;
use crate::{
    tables::{
        flow_mod::{FlowModCommand, TableSelector},
        rule_filter::RuleFilter,
    },
    testing::{
        CheckedPipeline, cases,
        generate::{self, BRIDGES},
    },
    text::parse_rule,
    versions::delta::RuleChange,
};

/// Returns the properties of a rule that the test compares.
fn compared_properties(rule: &Rule) -> impl Eq + std::fmt::Debug + use<> {
    let instructions = Arc::clone(&rule.instructions);
    (rule.table, rule.id, rule.revision, rule.matching.clone(), rule.cookie, instructions)
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn flow_mods_have_the_effect_of_list_operations(
        network in generate::network(),
        ops in prop::collection::vec(generate::change(), 0..16),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        for op in &ops {
            checked.apply(op);
            for id in BRIDGES {
                let mut expected = checked.model.bridges[&id].rules.clone();
                expected.sort_by_key(|rule| (rule.table, rule.id));
                let rules = checked.pipeline.rules(id, &RuleFilter::all());
                prop_assert_eq!(
                    rules.iter().map(|rule| compared_properties(rule)).collect::<Vec<_>>(),
                    expected.iter().map(|rule| compared_properties(rule)).collect::<Vec<_>>()
                );
                let counted = checked.pipeline.table_stats(id);
                prop_assert_eq!(
                    counted.iter().map(|table| table.rules_count).sum::<usize>(),
                    expected.len()
                );
            }
        }
    }

    #[test]
    fn deltas_lead_from_one_version_to_the_next(
        network in generate::network(),
        ops in prop::collection::vec(generate::change(), 0..16),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        let rules = |pipeline: &Pipeline| -> BTreeMap<_, _> {
            let rules = BRIDGES.map(|id| pipeline.rules(id, &RuleFilter::all()));
            rules.iter().flatten().map(|rule| (rule.id, compared_properties(rule))).collect()
        };
        let mut followed = rules(&checked.pipeline);
        for op in &ops {
            let Some(change) = checked.apply(op) else { continue };
            for delta in change.deltas {
                let Delta::Rule(delta) = delta else { continue };
                let (id, now) = (delta.rule.id, compared_properties(&delta.rule));
                match delta.change {
                    RuleChange::Added => prop_assert!(followed.insert(id, now).is_none()),
                    RuleChange::Removed(_) => {
                        prop_assert_eq!(followed.remove(&id), Some(now));
                    }
                    RuleChange::Modified(old) => {
                        prop_assert_eq!(followed.insert(id, now), Some(compared_properties(&old)));
                    }
                }
            }
            prop_assert_eq!(&followed, &rules(&checked.pipeline));
        }
    }

    #[test]
    fn an_old_version_still_sees_its_rules(
        network in generate::network(),
        packets in prop::collection::vec(generate::packet(), 4),
        ops in prop::collection::vec(generate::change(), 1..8),
    ) {
        let mut checked = CheckedPipeline::new(&network);
        let mut known = Vec::new();
        for op in &ops {
            let version = checked.pipeline.version();
            known.extend(packets.iter().map(|key| checked.pipeline.translate(key, version)));
            if checked.apply(op).is_none() && matches!(op, generate::Op::Reclaim) {
                known.retain(|traversal| traversal.version == checked.pipeline.version());
            }
            for old in &known {
                let again = checked.pipeline.translate(&FlowKey::from(&old.key), old.version);
                prop_assert_eq!(&again.actions, &old.actions);
                prop_assert_eq!(again.error, old.error);
            }
        }
    }
}

/// A long change releases the lock after a bounded number of requests or rules.
#[test]
fn long_changes_release_the_table_lock() {
    /// Number of rules that the test changes.
    const RULES: u64 = 1000;
    let (pipeline, id) = (Pipeline::new(1), BridgeId::new(1));
    pipeline.add_bridge(id, BridgeSettings::default());
    let request = |command, text: &str| parse_rule(command, text, &NoPortNames).unwrap();
    let add = |number| {
        let text = format!("hard_timeout=1,tcp,tp_dst={number},actions=drop");
        request(FlowModCommand::Add, &text)
    };
    let adds: Vec<_> = (0..RULES).map(add).collect();
    // Does some work, and checks the number of rules and of lock releases.
    let check = |work: &dyn Fn(), rules_count: u64| {
        let before = pipeline.releases.load(Ordering::Relaxed);
        work();
        let releases = pipeline.releases.load(Ordering::Relaxed) - before;
        assert!(releases >= RULES / 64, "{releases}");
        assert_eq!(pipeline.rules(id, &RuleFilter::all()).len() as u64, rules_count);
    };
    let apply = |mods: &[FlowMod]| drop(pipeline.apply(id, mods, Time::ZERO).unwrap());
    let reclaim = || pipeline.reclaim(pipeline.version());
    check(&|| apply(&adds), RULES);
    check(&|| apply(&[request(FlowModCommand::Modify, "tcp,actions=output:1")]), RULES);
    check(&reclaim, RULES);
    check(&|| apply(&[request(FlowModCommand::Delete, "tcp")]), 0);
    check(&reclaim, 0);
    check(&|| apply(&adds), RULES);
    check(&|| drop(pipeline.expire(Time::ZERO.after(Duration::from_secs(2)))), 0);
    check(&reclaim, 0);
    let mut refused = adds.clone();
    refused.push(FlowMod { table: TableSelector::All, ..add(RULES) });
    let refuse = || {
        let rejected = pipeline.apply(id, &refused, Time::ZERO).unwrap_err();
        assert_eq!(rejected.index as u64, RULES);
    };
    check(&refuse, 0);
    check(&|| apply(&adds), RULES);
    check(&|| drop(pipeline.remove_bridge(id)), 0);
    check(&reclaim, 0);
    assert!(pipeline.bridges.read().is_empty());
}
