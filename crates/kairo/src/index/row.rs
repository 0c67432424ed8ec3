//! One visit of one entry, as a group holds it.

use shunt_pipeline::{Priority, Rank, Rule, RuleId, Visit};

/// A visit, by one of the rules that decided it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupRow {
    /// The slot of its entry.
    pub(super) entry: u32,
    /// Its number among the visits of the entry's traversal.
    pub(super) visit: u32,
    /// The number of the rule; of a table miss: [`NO_RULE`].
    rule: u64,
    priority: Priority,
    /// The rule is one of the clauses of a conjunction.
    is_clause: bool,
}

/// Which visit a row is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitRef {
    /// The slot of its entry.
    pub(super) entry: u32,
    /// Its number among the visits of the entry's traversal.
    pub(super) visit: u32,
}

/// No rule is as young.
const NO_RULE: u64 = u64::MAX;

const _: () = assert!(size_of::<Option<GroupRow>>() == 24, "there is one for each visit");

impl GroupRow {
    /// The rows of a visit: one for each rule that decided it, or one for a miss.
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

    /// The visit.
    pub(super) const fn visit_ref(&self) -> VisitRef {
        VisitRef { entry: self.entry, visit: self.visit }
    }

    /// A row of a visit that this rule decided.
    #[cfg(test)]
    pub(super) const fn decided(priority: Priority, rule: RuleId) -> Self {
        Self { entry: 0, visit: 0, rule: rule.number(), priority, is_clause: false }
    }

    /// What a rule must outrank to decide the visit: [`Visit::rank`]; of a miss, the lowest.
    pub(super) const fn rank(&self) -> Rank {
        Rank { priority: self.priority, age: if self.is_clause { u64::MAX } else { self.rule } }
    }

    /// The rule that decided it, or the clause; `None`: it is a miss.
    pub(super) fn rule(&self) -> Option<RuleId> {
        (self.rule != NO_RULE).then_some(RuleId::new(self.rule))
    }
}
