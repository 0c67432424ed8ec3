//! From traversals to rules: what a policy sees of a whole one, and what a stage holds of a piece.

use std::sync::Arc;

use shunt_flow::{Match, layout::HEADER_START};
use shunt_pipeline::{Continuation, NotedTraversal, Rule, Traversal, Visit};

use crate::{
    ltm::{LtmRule, Next, Tag},
    way::{Cut, FieldSet, Step, Way, fold},
};

/// Shows a traversal to policies. `seed` goes into what they compare.
pub fn way_of(noted: &NotedTraversal, seed: u64, way: &mut Way) {
    let traversal = &noted.traversal;
    way.begin(start_of(traversal.key.bridge(), traversal.continuation.as_ref()));
    let mut points = noted.points.iter().peekable();
    for (number, visit) in traversal.visits.iter().enumerate() {
        if let Some(point) = points.next_if(|point| point.visit == number) {
            way.cut(cut(point.name));
        }
        way.step(Step {
            fields: FieldSet::consulted(&visit.mask),
            identity: identity_of(visit, seed),
        });
    }
}

/// The name of where a way begins: in a bridge, or where it goes on, as whoever cut it there calls it.
#[must_use]
pub fn start_of(bridge: u64, start: Option<&Arc<Continuation>>) -> Cut {
    cut(start.map_or_else(|| fold(fold(0, bridge), 0), |start| start.name()))
}

/// The rule of a piece that rewrites headers like this, between these tags.
///
/// Hidden words are no part of its match: those that the piece consulted are constants of its tag. A
/// bit that it consulted after it had written it is not in the mask of the traversal.
#[must_use]
pub fn rule_of(traversal: &Traversal, rewrite: Match, tag: Tag, next: Next) -> LtmRule {
    LtmRule {
        tag,
        matching: Match::of(&traversal.key, &traversal.mask.without_hidden()),
        length: u16::try_from(traversal.visits.len()).unwrap_or(u16::MAX),
        actions: Arc::clone(&traversal.actions),
        rewrite,
        next,
    }
}

/// A hash of what a visit saw of the headers, and of what it found.
fn identity_of(visit: &Visit, seed: u64) -> u64 {
    let place = u64::from(visit.bridge.number()) << 8 | u64::from(visit.table.number());
    let found =
        |identity, rule: &Arc<Rule>| fold(fold(identity, rule.id.number()), rule.revision.into());
    let identity = visit.rule.iter().chain(&visit.clauses).fold(fold(seed, place), found);
    let headers = visit.mask.over(&visit.key).filter(|(index, _, _)| *index >= HEADER_START);
    headers.fold(identity, |identity, (index, mask, value)| {
        fold(fold(fold(identity, index as u64), mask), value)
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are folded together")]
const fn cut(name: u64) -> Cut {
    let folded = (name ^ name >> 32) as u32;
    // The last number is that of the end.
    Cut::new(if folded == Cut::END.number() { 0 } else { folded })
}
