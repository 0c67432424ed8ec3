//! Clauses, and rules that match conjunctions, with few ids so that conjunctions are satisfied.

use proptest::{collection::vec, prelude::*, sample::select};
use shunt_classifier::Priority;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

use super::{MACS, rule};
use crate::{
    action::Action,
    id::TableId,
    tables::{
        flow_mod::{FlowMod, TableSelector},
        rule::Instructions,
    },
};

/// The ids of conjunctions.
const IDS: std::ops::Range<u32> = 0..3;

/// A rule that is a clause of one or two conjunctions.
pub(super) fn clause() -> impl Strategy<Value = FlowMod> {
    (rule(), vec(conjunction(2..4), 1..3))
        .prop_map(|(request, clauses)| clause_of(request, clauses))
}

/// A rule that matches a `conj_id`, and possibly other fields.
pub(super) fn answer() -> impl Strategy<Value = FlowMod> {
    (rule(), IDS).prop_map(|(request, id)| rule_of_conjunction(request, id))
}

/// Clauses of one table and priority that some packets match.
/// The rule of the conjunction is included.
///
/// One of the clauses may be missing.
pub(super) fn family() -> impl Strategy<Value = Vec<FlowMod>> {
    let clauses = vec((rule(), 0u8..2), 2..6);
    let place = (0u8..2, 1u16..4, IDS);
    (clauses, rule(), place).prop_map(|(clauses, answer, (table, priority, id))| {
        let at = |request: FlowMod| FlowMod {
            table: TableSelector::One(TableId::new(table).unwrap_or_default()),
            instructions: Instructions {
                goto: request.instructions.goto.filter(|goto| goto.number() > table),
                ..request.instructions
            },
            ..request
        };
        let clause = |(request, clause): (FlowMod, u8)| {
            let action = Action::Conjunction { id, clause, clauses_count: 2 };
            let own = clause_of(at(request), vec![action]);
            FlowMod { priority: Priority::new(priority), ..own }
        };
        let answer = at(rule_of_conjunction(FlowMod { matching: Match::any(), ..answer }, id));
        clauses.into_iter().map(clause).chain([answer]).collect()
    })
}

/// A conjunction in table 1 that many packets match.
pub(super) fn common_conjunction() -> impl Strategy<Value = Vec<FlowMod>> {
    (rule(), rule(), select(MACS)).prop_map(|(request, answer, address)| {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
        key.set_field(FieldId::EthDst, address);
        mask.add_field(FieldId::EthDst);
        let to_one = Match::new(&key, &mask);
        let table = TableSelector::One(TableId::new(1).unwrap_or_default());
        let clause = |(clause, matching)| {
            let action = Action::Conjunction { id: 0, clause, clauses_count: 2 };
            let own = FlowMod { table, matching, ..request.clone() };
            FlowMod { priority: Priority::new(3), ..clause_of(own, vec![action]) }
        };
        let goto = answer.instructions.goto.filter(|goto| goto.number() > 1);
        let instructions = Instructions { goto, ..answer.instructions };
        let answer = FlowMod { table, matching: Match::any(), instructions, ..answer };
        let clauses = [(0, Match::any()), (1, to_one)].map(clause);
        clauses.into_iter().chain([rule_of_conjunction(answer, 0)]).collect()
    })
}

/// Generates a `conjunction` action.
fn conjunction(counts: std::ops::Range<u8>) -> impl Strategy<Value = Action> {
    (IDS, counts).prop_flat_map(|(id, clauses_count)| {
        (0..clauses_count).prop_map(move |clause| Action::Conjunction { id, clause, clauses_count })
    })
}

/// Returns the request with the `conjunction` actions as its only instructions.
fn clause_of(request: FlowMod, clauses: Vec<Action>) -> FlowMod {
    let instructions = Instructions { apply: clauses.into(), ..Instructions::default() };
    FlowMod { instructions, ..request }
}

/// Returns the request with a match on `conj_id` in addition to its fields.
fn rule_of_conjunction(request: FlowMod, id: u32) -> FlowMod {
    let mut key = request.matching.key();
    let mut mask = FlowMask::from(request.matching.mask());
    key.set_field(FieldId::ConjId, u128::from(id));
    mask.add_field(FieldId::ConjId);
    FlowMod { matching: Match::new(&key, &mask), ..request }
}
