//! First-fit placement: gives each sub-traversal of a partition the first suitable stage.

use crate::{
    outline::TraversalOutline,
    partition::contract::{Placement, StageSet, StageView},
};

/// Gives each sub-traversal of a partition the first suitable stage.
///
/// Returns whether all sub-traversals have a stage.
///
/// `ends` has the segment after each sub-traversal. A sub-traversal goes to the first stage that
/// holds it, else to the best stage with room. The stage is after the stage of the previous
/// sub-traversal, and enough stages remain for the following sub-traversals.
pub(super) fn place_first_fit(
    outline: &TraversalOutline,
    ends: &[usize],
    stages: &impl StageView,
    out: &mut Vec<Placement>,
) -> bool {
    out.clear();
    let (mut first, mut next_stage) = (0, 0);
    for (at, end) in ends.iter().enumerate() {
        // With more than 255 following sub-traversals no stage is possible: a chain has fewer
        // stages.
        let following = u8::try_from(ends.len() - at - 1).unwrap_or(u8::MAX);
        let last = stages.count().saturating_sub(following);
        let open = StageSet::first_of(last).since(next_stage);
        let found = outline.candidate(first, *end).and_then(|sub_traversal| {
            let holder = stages.holders(&sub_traversal).intersection(open).first();
            let stage = holder.or_else(|| stages.best(open))?;
            Some(Placement { steps: sub_traversal.steps, stage })
        });
        let Some(placement) = found else {
            out.clear();
            return false;
        };
        next_stage = placement.stage.number() + 1;
        first = *end;
        out.push(placement);
    }
    true
}
