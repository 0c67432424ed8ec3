//! Conjunctive matches: rules that match together (`conjunction`, `conj_id`).
//!
//! A rule with `conjunction(ID,K/N)` is a *clause*: it decides nothing alone. Where a packet
//! matches rules of one priority for all N clauses of ID, the conjunction is *met*, and the packet is
//! looked up once more, with `conj_id` set to ID, among the rules that are no clauses. If that finds
//! nothing, the search goes on as if the conjunction had not been met.
//!
//! So a lookup makes [`Decision`]s, one after another:
//!
//! * of all priorities from the highest down, the first with a rule that is no clause, or with a
//!   conjunction that is met, decides; of the two the rule;
//! * of several conjunctions of one priority the one with the lowest id decides, where Open vSwitch
//!   leaves it open.
//!
//! Rules and clauses are asked for in turns, a priority at a time: what ranks below a decision adds
//! nothing to its mask. Open vSwitch looks for the rule first, and its mask has both.
//!
//! Rules of one ID with different N, or of different priorities, belong to different conjunctions.
//! What a conjunction decides depends on all clauses of its priority and above: its visit ranks
//! below every rule of that priority, so that each that is added there evicts it.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::{Matches, Priority};
use shunt_flow::FlowMask;

use super::rule::{Instructions, Rule};
use crate::action::Action;

/// What one step of a lookup found.
pub(crate) enum Decision<'a> {
    /// The rule that wins, or none.
    Rule(Option<&'a Arc<Rule>>),
    /// Conjunctions of one priority are met, at least one, in the order in which they are tried.
    Conjunctions(Vec<Met>),
}

/// The decisions of one lookup, the first first.
pub(crate) struct Decisions<M> {
    rules: M,
    clauses: M,
}

/// A conjunction that a packet meets: it is looked up with this `conj_id` among the rules that are
/// no clauses.
pub(crate) struct Met {
    pub(crate) id: u32,
    /// The rules that are its clauses for this packet.
    pub(crate) clauses: Vec<Arc<Rule>>,
}

impl Instructions {
    /// Whether a rule with these is a clause of conjunctions.
    pub(crate) fn is_clause(&self) -> bool {
        self.conjunctions().next().is_some()
    }

    /// Id, number of clauses, and the clause, as a bit.
    fn conjunctions(&self) -> impl Iterator<Item = (u32, u8, u64)> {
        self.apply.iter().filter_map(|action| match action {
            Action::Conjunction { id, clause, clauses_count } => {
                Some((*id, *clauses_count, 1_u64.checked_shl(u32::from(*clause)).unwrap_or(0)))
            }
            _ => None,
        })
    }
}

impl<M> Decisions<M> {
    /// The decisions between these rules and clauses that match a packet.
    pub(crate) const fn new(rules: M, clauses: M) -> Self {
        Self { rules, clauses }
    }

    /// What decides if the decisions so far came to nothing; adds to `mask` the bits that this
    /// depended on beside those that the decisions so far did.
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
            let met = met(&clauses);
            if !met.is_empty() {
                return Decision::Conjunctions(met);
            }
        }
        Decision::Rule(self.rules.next_masked(Priority::default(), mask).map(|(_, rule)| rule))
    }
}

/// The conjunctions that clauses of one priority meet, in the order of their ids.
fn met(clauses: &[&Arc<Rule>]) -> Vec<Met> {
    let mut seen: BTreeMap<(u32, u8), Seen> = BTreeMap::new();
    for rule in clauses {
        for (id, count, clause) in rule.instructions.conjunctions() {
            let seen = seen.entry((id, count)).or_default();
            seen.bits |= clause;
            seen.clauses.push(Arc::clone(rule));
        }
    }
    let met = seen.into_iter().filter(|((_, count), seen)| seen.bits == all(*count));
    met.map(|((id, _), seen)| Met { id, clauses: seen.clauses }).collect()
}

/// What matches of a conjunction.
#[derive(Default)]
struct Seen {
    /// The clauses, as bits.
    bits: u64,
    /// The rules that are clauses of it; one that is so twice is there twice.
    clauses: Vec<Arc<Rule>>,
}

/// The bits of so many clauses.
const fn all(count: u8) -> u64 {
    match u64::MAX.checked_shr(64_u32.saturating_sub(count as u32)) {
        Some(bits) => bits,
        None => 0,
    }
}
