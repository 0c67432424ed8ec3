//! The partition of the paper: cut by score alone, then align to the last stage.
//!
//! Of all complete partitions into at most as many pieces as stages have room, this takes the one
//! with the highest sum of [`Score`]s, then with the fewest pieces. Its last piece goes into the last
//! stage with room, the one before it into the stage with room before that (Gigaflow, 3.4.3.2).
//!
//! The price of fixing the stages like this: a full stage leaves the game, also for pieces that it
//! holds already, and a piece has another stage when another number of pieces follows it.
//! [`Joint`](super::Joint) chooses both together.

use super::{
    board::{Board, FIRST, Preference, Problem, SECOND, Slack},
    contract::{Piece, Policy, StageSet, Stages},
    score::Score,
};
use crate::outline::TraversalOutline;

/// How [`Disjoint`] chooses among partitions that score alike and have equally many pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The one of which most pieces are there already, then the canonical one.
    #[default]
    Cached,
    /// The canonical one: the longest first piece, then the longest second one, and so on. So the
    /// cuts are a function of the way, as in the paper.
    Canonical,
}

/// The paper's partition: by score alone, aligned to the last stage with room.
#[derive(Clone, Debug, Default)]
pub struct Disjoint {
    score: Score,
    ties: Ties,
    board: Board,
    pieces: Vec<Piece>,
}

impl Disjoint {
    /// The policy with this score and these ties.
    #[must_use]
    pub fn new(score: Score, ties: Ties) -> Self {
        Self { score, ties, ..Self::default() }
    }
}

impl Policy for Disjoint {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        let fresh = match self.ties {
            Ties::Cached => SECOND,
            Ties::Canonical => 0,
        };
        let preference = Preference { fresh, pressed: 0, piece: FIRST, slack: Slack::Front };
        // What presses is used where there is nothing else.
        for usable in [stages.room().without(stages.pressed()), stages.room()] {
            let problem = Problem { way, stages, usable, preference };
            self.board.solve(&problem, |_, piece| self.score.of(piece), &mut self.pieces);
            if !self.pieces.is_empty() || stages.pressed() == StageSet::EMPTY {
                break;
            }
        }
        &self.pieces
    }
}
