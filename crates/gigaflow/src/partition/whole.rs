//! The whole way as one entry: a megaflow.
//!
//! With one stage this is a megaflow cache, the rival of every other policy. With more it is what
//! every other policy falls back to: all stages together hold as many megaflows as one of their size.

use super::contract::{Piece, Policy, StageSet, Stages};
use crate::outline::TraversalOutline;

/// Never cuts: one piece, in the first stage that holds it, else in the first with room.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    pieces: Vec<Piece>,
}

impl Policy for Whole {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        self.pieces.clear();
        put_whole(way, stages, &mut self.pieces);
        &self.pieces
    }
}

/// Makes the whole way one piece in `out`, if there is a place for it.
pub(super) fn put_whole(way: &TraversalOutline, stages: &impl Stages, out: &mut Vec<Piece>) {
    out.clear();
    out.extend(way.whole().and_then(|whole| {
        let all = StageSet::first_of(stages.count());
        let stage = stages.holders(&whole).first().or_else(|| stages.best(all))?;
        Some(Piece { steps: whole.steps, stage })
    }));
}
