//! Conjunctions in the oracle, which tries each of them at every priority.

use std::sync::Arc;

use shunt_classifier::Priority;
use shunt_flow::{FieldId, FlowKey};

use crate::{
    action::Action,
    id::{BridgeId, TableId},
    tables::rule::Rule,
    testing::NetworkModel,
};

/// The result of the next step of a lookup.
#[derive(Clone, Copy, Debug)]
pub enum LookupStep<'w> {
    /// The rule that matches, or none.
    Rule(Option<&'w Arc<Rule>>),
    /// A satisfied conjunction: the packet matches all of its clauses.
    Conjunction(Conjunction),
}

/// The identity of a conjunction: its priority, its id, and its number of clauses.
pub type Conjunction = (Priority, u32, u8);

impl NetworkModel {
    /// Returns the matching rule of a table.
    /// The function also returns the number of extra lookups, by `conj_id`.
    pub(super) fn look_up(
        &self,
        bridge: BridgeId,
        table: TableId,
        key: &FlowKey,
    ) -> (Option<&Arc<Rule>>, u16) {
        let mut passed = Vec::new();
        loop {
            let met = match self.decide(bridge, table, key, &passed) {
                LookupStep::Rule(rule) => return (rule, count_tried(&passed)),
                LookupStep::Conjunction(met) => met,
            };
            passed.push(met);
            let rule = self.second(bridge, table, key, met.1);
            if rule.is_some() {
                return (rule, count_tried(&passed));
            }
        }
    }

    /// Returns the next step of a lookup; conjunctions in `passed` led to no rule.
    #[must_use]
    pub fn decide(
        &self,
        bridge: BridgeId,
        table: TableId,
        key: &FlowKey,
        passed: &[Conjunction],
    ) -> LookupStep<'_> {
        let matching = self.matching(bridge, table, &with_conj_id(key, 0));
        let mut priorities: Vec<_> = matching.iter().map(|rule| rule.priority).collect();
        priorities.dedup();
        for priority in priorities {
            let here: Vec<_> =
                matching.iter().filter(|rule| rule.priority == priority).copied().collect();
            if let Some(rule) = here.iter().find(|rule| clauses(rule).is_empty()) {
                return LookupStep::Rule(Some(rule));
            }
            let all: Vec<(u32, u8, u8)> = here.iter().flat_map(|rule| clauses(rule)).collect();
            let mut ids: Vec<(u32, u8)> = all.iter().map(|(id, count, _)| (*id, *count)).collect();
            ids.sort_unstable();
            for (id, count) in ids {
                let is_met = (0..count).all(|clause| all.contains(&(id, count, clause)));
                let own = (priority, id, count);
                if is_met && !passed.contains(&own) {
                    return LookupStep::Conjunction(own);
                }
            }
        }
        LookupStep::Rule(None)
    }

    /// Returns the matching rule for a `conj_id`, among those that are not clauses.
    #[must_use]
    pub fn second(
        &self,
        bridge: BridgeId,
        table: TableId,
        key: &FlowKey,
        id: u32,
    ) -> Option<&Arc<Rule>> {
        let matching = self.matching(bridge, table, &with_conj_id(key, id));
        matching.into_iter().find(|rule| clauses(rule).is_empty())
    }
}

/// Returns the number of conjunctions, at most `u16::MAX`.
fn count_tried(passed: &[Conjunction]) -> u16 {
    u16::try_from(passed.len()).unwrap_or(u16::MAX)
}

/// Returns the key with `conj_id` set to `id`.
fn with_conj_id(key: &FlowKey, id: u32) -> FlowKey {
    let mut key = key.clone();
    key.set_field(FieldId::ConjId, u128::from(id));
    key
}

/// Returns the conjunctions that a rule is part of.
/// Each conjunction has its id, its number of clauses, and the rule's clause.
fn clauses(rule: &Rule) -> Vec<(u32, u8, u8)> {
    let clause = |action: &Action| match action {
        Action::Conjunction { id, clause, clauses_count } => Some((*id, *clauses_count, *clause)),
        _ => None,
    };
    rule.instructions.apply.iter().filter_map(clause).collect()
}
