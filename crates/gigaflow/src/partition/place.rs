//! Stages for pieces that are cut already: the first that will do.

use super::contract::{Piece, StageSet, Stages};
use crate::outline::TraversalOutline;

/// Gives the pieces between these cuts stages, first fit; says whether all of them have one.
///
/// `ends` are the legs behind each piece. A piece goes into the first stage behind its predecessor's
/// that holds it, else into the first with room, as long as enough stages remain for those behind it.
pub(super) fn place_first_fit(
    way: &TraversalOutline,
    ends: &[usize],
    stages: &impl Stages,
    out: &mut Vec<Piece>,
) -> bool {
    out.clear();
    let (mut first, mut next_stage) = (0, 0);
    for (at, end) in ends.iter().enumerate() {
        let following = u8::try_from(ends.len() - at - 1).unwrap_or(u8::MAX);
        let last = stages.count().saturating_sub(following);
        let open = StageSet::first_of(last).since(next_stage);
        let found = way.candidate(first, *end).and_then(|piece| {
            let holder = stages.holders(&piece).intersection(open).first();
            let stage = holder.or_else(|| stages.best(open))?;
            Some(Piece { steps: piece.steps, stage })
        });
        let Some(piece) = found else {
            out.clear();
            return false;
        };
        next_stage = piece.stage.number() + 1;
        first = *end;
        out.push(piece);
    }
    true
}
