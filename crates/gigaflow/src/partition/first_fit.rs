//! Cut by score alone, then each piece into the first stage that will do.
//!
//! The cuts are those of [`Disjoint`](super::Disjoint) with canonical ties, and do not depend on what
//! the stages hold. Where [`Joint`](super::Joint) looks ahead, this takes for each piece the first
//! stage that holds it, else the first with room. If the pieces find no stages like that, the best
//! partition into fewer pieces is tried, down to the whole way as one.

use super::{
    board::{Board, FIRST, Preference, Problem, Slack},
    contract::{Piece, Policy, STAGES_MAX, StageSet, Stages},
    place::place_first_fit,
    score::Score,
    whole::put_whole,
};
use crate::outline::{Candidate, TraversalOutline};

/// Cuts as [`Disjoint`](super::Disjoint) and places each piece in the first stage that will do.
#[derive(Clone, Debug, Default)]
pub struct FirstFit {
    score: Score,
    board: Board,
    pieces: Vec<Piece>,
    ends: Vec<usize>,
}

impl FirstFit {
    /// The policy with this score.
    #[must_use]
    pub fn new(score: Score) -> Self {
        Self { score, ..Self::default() }
    }

    /// Cuts into at most `limit` pieces, into `ends`.
    fn cut(&mut self, way: &TraversalOutline, limit: u8) {
        let preference = Preference { fresh: 0, pressed: 0, piece: FIRST, slack: Slack::Front };
        let stages = Empty(limit);
        let problem = Problem { way, stages: &stages, usable: stages.room(), preference };
        self.board.solve(&problem, |_, piece| self.score.of(piece), &mut self.pieces);
        self.ends.clear();
        let ends = (1..=way.legs_count())
            .filter(|leg| self.pieces.iter().any(|piece| piece.steps.end == way.step_before(*leg)));
        self.ends.extend(ends);
    }
}

impl Policy for FirstFit {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        let mut limit = stages.count();
        while limit > 1 {
            self.cut(way, limit);
            if place_first_fit(way, &self.ends, stages, &mut self.pieces) {
                return &self.pieces;
            }
            limit = u8::try_from(self.ends.len()).unwrap_or(STAGES_MAX).min(limit) - 1;
        }
        put_whole(way, stages, &mut self.pieces);
        &self.pieces
    }
}

/// Stages that hold nothing yet: what a partition is made for before anybody asks where it goes.
struct Empty(u8);

impl Stages for Empty {
    fn count(&self) -> u8 {
        self.0
    }

    fn holders(&self, _: &Candidate) -> StageSet {
        StageSet::EMPTY
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(self.0)
    }
}
