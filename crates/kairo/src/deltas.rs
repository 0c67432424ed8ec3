//! What several engines ask of the deltas of a change.

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use shunt_pipeline::{Delta, RuleChange, RuleDelta, RuleId};

/// The rules that a change removes: one that it adds as well decides nothing.
pub(crate) fn removed_rules(deltas: &[Delta]) -> HashSet<RuleId, RandomState> {
    let removed = deltas.iter().filter_map(|delta| match delta {
        Delta::Rule(RuleDelta { rule, change: RuleChange::Removed(_) }) => Some(rule.id),
        Delta::Rule(_) | Delta::Changed(_) => None,
    });
    removed.collect()
}
