//! Conjunctive matches: rules that match together (`conjunction`, `conj_id`).
//!
//! A rule with `conjunction(ID,K/N)` is a *clause*: a packet that matches it alone does not match
//! the conjunction. A conjunction is *satisfied* if a packet matches clauses of one priority for
//! all N dimensions of ID. For a satisfied conjunction, the packet is looked up once more, with
//! `conj_id` set to ID, among the rules that are not clauses. If no rule matches, the search
//! continues as if the conjunction were not satisfied.
//!
//! So a lookup makes [`Decision`]s, one after another:
//!
//! * The highest priority with an ordinary rule or a satisfied conjunction decides. At a priority
//!   with both, the rule decides.
//! * Of several conjunctions of one priority, the one with the lowest id decides. Open vSwitch
//!   leaves this open.
//!
//! The search visits rules and clauses together, one priority at a time. So rules and clauses of
//! lower priority than the decision add no bits to its mask. Open vSwitch searches the rules first,
//! and its mask has both.
//!
//! Clauses of one ID with different N, or of different priorities, belong to different
//! conjunctions. The decision of a conjunction depends on all clauses of its priority and above. So
//! the visit of the conjunction ranks below every rule of that priority, and the addition of a rule
//! with this priority evicts it.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::{Matches, Priority};
use shunt_flow::FlowMask;

use super::rule::{Instructions, Rule};
use crate::action::Action;

/// The result of one step of a lookup.
pub(crate) enum Decision<'a> {
    /// The rule that wins; `None` for a table miss.
    Rule(Option<&'a Arc<Rule>>),
    /// Satisfied conjunctions of one priority, at least one, in the order of their
    /// trial.
    Conjunctions(Vec<ConjunctionMatch>),
}

/// The decisions of one lookup, in order.
pub(crate) struct LookupDecisions<M> {
    /// The matches among the rules that are not clauses.
    rules: M,
    /// The matches among the clauses.
    clauses: M,
}

/// A satisfied conjunction of a packet.
///
/// The next lookup has this `conj_id`, and searches the rules that are not clauses.
pub(crate) struct ConjunctionMatch {
    /// The `conj_id` that the clauses have in common.
    pub(crate) id: u32,
    /// The rules that matched the packet as clauses of the conjunction.
    pub(crate) clauses: Vec<Arc<Rule>>,
}

impl Instructions {
    /// Returns whether a rule with these instructions is a clause.
    pub(crate) fn is_clause(&self) -> bool {
        self.conjunctions().next().is_some()
    }

    /// Returns each `conjunction`:
    /// its id, its number of clauses, and its clause as a bit.
    fn conjunctions(&self) -> impl Iterator<Item = (u32, u8, u64)> {
        self.apply.iter().filter_map(|action| match action {
            Action::Conjunction { id, clause, clauses_count } => {
                Some((*id, *clauses_count, 1_u64.checked_shl(u32::from(*clause)).unwrap_or(0)))
            }
            _ => None,
        })
    }
}

impl<M> LookupDecisions<M> {
    /// Creates the decisions from the rules and clauses that match a packet.
    pub(crate) const fn new(rules: M, clauses: M) -> Self {
        Self { rules, clauses }
    }

    /// Returns the next decision, if the decisions before have found no rule.
    ///
    /// Adds to `mask` the bits that this decision depends on.
    pub(crate) fn next_masked<'a>(&mut self, mask: &mut FlowMask) -> Decision<'a>
    where
        M: Matches<'a, Arc<Rule>>,
    {
        while let Some(priority) = self.clauses.priority_max() {
            if let Some((_, rule)) = self.rules.next_masked(priority, mask) {
                return Decision::Rule(Some(rule));
            }
            let mut clauses = Vec::new();
            while let Some((_, clause)) = self.clauses.next_masked(priority, mask) {
                clauses.push(clause);
            }
            let complete_conjunctions = complete_conjunctions(&clauses);
            if !complete_conjunctions.is_empty() {
                return Decision::Conjunctions(complete_conjunctions);
            }
        }
        Decision::Rule(self.rules.next_masked(Priority::default(), mask).map(|(_, rule)| rule))
    }
}

/// Returns the conjunctions that clauses of one priority satisfy, ordered by id.
fn complete_conjunctions(clauses: &[&Arc<Rule>]) -> Vec<ConjunctionMatch> {
    let mut matched: BTreeMap<(u32, u8), MatchedClauses> = BTreeMap::new();
    for rule in clauses {
        for (id, count, clause) in rule.instructions.conjunctions() {
            let matched = matched.entry((id, count)).or_default();
            matched.bits |= clause;
            matched.clauses.push(Arc::clone(rule));
        }
    }
    let complete_conjunctions =
        matched.into_iter().filter(|((_, count), matched)| matched.bits == all(*count));
    complete_conjunctions
        .map(|((id, _), matched)| ConjunctionMatch { id, clauses: matched.clauses })
        .collect()
}

/// The matched clauses of one conjunction.
#[derive(Default)]
struct MatchedClauses {
    /// The clauses that matched, one bit each.
    bits: u64,
    /// The rules that are clauses of the conjunction.
    /// A rule that is two clauses is listed twice.
    clauses: Vec<Arc<Rule>>,
}

/// Returns a word in which the lowest `count` bits are set.
const fn all(count: u8) -> u64 {
    match u64::MAX.checked_shr(64_u32.saturating_sub(count as u32)) {
        Some(bits) => bits,
        None => 0,
    }
}
