//! What several engines ask of the deltas of a change, and say of what these ended.

use std::collections::BTreeSet;

use shunt_pipeline::{Cause, CauseRun, Delta, RuleChange, RuleDelta, RuleId};

/// Rules that a change removes.
pub(crate) type RemovedRules = BTreeSet<RuleId>;

/// The rules that a change removes: one that it adds as well decides nothing.
pub(crate) fn removed_rules(deltas: &[Delta]) -> RemovedRules {
    let removed = deltas.iter().filter_map(|delta| match delta {
        Delta::Rule(RuleDelta { rule, change: RuleChange::Removed(_) }) => Some(rule.id),
        Delta::Rule(_) | Delta::Changed(_) => None,
    });
    removed.collect()
}

/// Notes why the next so many entries go.
pub(crate) fn record_cause(causes: &mut Vec<CauseRun>, cause: Cause, count: usize) {
    match causes.last_mut() {
        _ if count == 0 => {}
        Some(last) if last.cause == cause => last.count += count,
        _ => causes.push(CauseRun { cause, count }),
    }
}
