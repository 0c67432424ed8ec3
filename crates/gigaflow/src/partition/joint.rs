//! The default: pieces and their stages chosen together.
//!
//! A chain needs only that the stages of its pieces increase. So a piece may go into any later stage
//! that holds it or has room for it, and one dynamic program finds, of all complete partitions and all
//! increasing stages for them, the one with the highest sum of [`Score`]s, then with the fewest new
//! entries, then with the fewest pieces. A full stage goes on sharing what it holds, and what does
//! not fit in one stage spills into another.

use super::{
    board::{Board, FIRST, PRESSED, Preference, Problem, SECOND, Slack},
    contract::{Piece, Policy, StageSet, Stages},
    score::Score,
};
use crate::way::{Candidate, Way};

/// Chooses pieces and stages together, by score, new entries and number of pieces.
#[derive(Clone, Debug, Default)]
pub struct Joint {
    score: Score,
    board: Board,
    pieces: Vec<Piece>,
}

impl Joint {
    /// The policy with this score.
    #[must_use]
    pub fn new(score: Score) -> Self {
        Self { score, ..Self::default() }
    }

    /// The same choice, where the piece of legs up to `end` is worth `gain(end, piece)`. It is asked
    /// from the last leg backwards, and for each leg from the shortest piece on.
    pub(super) fn weigh(
        &mut self,
        way: &Way,
        stages: &impl Stages,
        gain: impl FnMut(usize, &Candidate) -> i64,
    ) -> &[Piece] {
        let usable = StageSet::first_of(stages.count());
        let preference =
            Preference { fresh: FIRST, pressed: PRESSED, piece: SECOND, slack: Slack::Anywhere };
        let problem = Problem { way, stages, usable, preference };
        self.board.solve(&problem, gain, &mut self.pieces);
        &self.pieces
    }
}

impl Policy for Joint {
    fn partition(&mut self, way: &Way, stages: &impl Stages) -> &[Piece] {
        let score = self.score;
        self.weigh(way, stages, |_, piece| score.of(piece))
    }
}
