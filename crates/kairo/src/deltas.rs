//! Helpers for the deltas of a change and the causes of evictions.

use std::collections::BTreeSet;

use shunt_pipeline::{Cause, CauseRun, Delta, RuleChange, RuleDelta, RuleId};

/// The rules that a change removes.
pub(crate) type RemovedRules = BTreeSet<RuleId>;

/// Returns the rules that a change removes.
/// If the change also adds a removed rule, that rule decides no lookup of a later version.
pub(crate) fn removed_rules(deltas: &[Delta]) -> RemovedRules {
    let removed = deltas.iter().filter_map(|delta| match delta {
        Delta::Rule(RuleDelta { rule, change: RuleChange::Removed(_) }) => Some(rule.id),
        Delta::Rule(_) | Delta::Changed(_) => None,
    });
    removed.collect()
}

/// Records `cause` for the next `count` evicted entries.
pub(crate) fn record_cause(causes: &mut Vec<CauseRun>, cause: Cause, count: usize) {
    match causes.last_mut() {
        _ if count == 0 => {}
        Some(last) if last.cause == cause => last.count += count,
        _ => causes.push(CauseRun { cause, count }),
    }
}
