//! The rows of a visit group: one visit of one entry each.

use shunt_pipeline::{Priority, Rank, Rule, RuleId, Visit};

/// A visit and one of the rules that decided it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupRow {
    /// Slot of the entry.
    pub(super) entry: u32,
    /// Number of the visit in the traversal of the entry.
    pub(super) visit: u32,
    /// Number of the rule, or [`NO_RULE`] for a table miss.
    rule: u64,
    /// The priority of the rule; 0 for a table miss.
    priority: Priority,
    /// True if the rule is a clause of a conjunction.
    is_clause: bool,
}

/// A reference to a visit: the slot of an entry, and the number of the visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitRef {
    /// Slot of the entry.
    pub(super) entry: u32,
    /// Number of the visit in the traversal of the entry.
    pub(super) visit: u32,
}

/// The rule number that marks a table miss; no rule has this number.
const NO_RULE: u64 = u64::MAX;

const _: () =
    assert!(size_of::<Option<GroupRow>>() == 24, "each visit has a row, so a row is small");

impl GroupRow {
    /// Returns the rows of a visit: one per rule that decided it, or one for a miss.
    pub(super) fn all(entry: u32, number: u32, visit: &Visit) -> impl Iterator<Item = Self> {
        let of_rule = move |rule: &Rule, is_clause| Self {
            entry,
            visit: number,
            rule: rule.id.number(),
            priority: rule.priority,
            is_clause,
        };
        let of_miss = Self {
            entry,
            visit: number,
            rule: NO_RULE,
            priority: Priority::new(0),
            is_clause: false,
        };
        let is_miss = visit.rule.is_none() && visit.clauses.is_empty();
        let rules = visit.rule.iter().map(move |rule| of_rule(rule, false));
        let clauses = visit.clauses.iter().map(move |rule| of_rule(rule, true));
        rules.chain(clauses).chain(is_miss.then_some(of_miss))
    }

    /// Returns the reference to the visit.
    pub(super) const fn visit_ref(&self) -> VisitRef {
        VisitRef { entry: self.entry, visit: self.visit }
    }

    /// Creates a row of a visit that `rule` decided.
    #[cfg(test)]
    pub(super) const fn decided(priority: Priority, rule: RuleId) -> Self {
        Self { entry: 0, visit: 0, rule: rule.number(), priority, is_clause: false }
    }

    /// Returns the rank that an added rule must exceed to outrank the visit.
    /// The result is [`Visit::rank`], or the lowest rank for a table miss.
    pub(super) const fn rank(&self) -> Rank {
        Rank { priority: self.priority, age: if self.is_clause { u64::MAX } else { self.rule } }
    }

    /// Returns the rule or clause that decided the visit, or `None` for a table miss.
    pub(super) fn rule(&self) -> Option<RuleId> {
        (self.rule != NO_RULE).then_some(RuleId::new(self.rule))
    }
}
