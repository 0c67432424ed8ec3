//! One visit of one entry, as a group holds it.

use shunt_pipeline::{Priority, Rank, RuleId};

/// A visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// The slot of its entry.
    pub(super) entry: u32,
    /// Its number among the visits of the entry's traversal.
    pub(super) visit: u32,
    /// What a rule must outrank to decide it. Of a table miss: [`MISS`].
    pub(super) rank: Rank,
    /// The rule that decided it, or one of the clauses that did.
    pub(super) rule: Option<RuleId>,
}

/// Below every rule: no rule is as young.
pub(super) const MISS: Rank = Rank { priority: Priority::new(0), age: u64::MAX };
