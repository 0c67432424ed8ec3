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
use crate::outline::{Candidate, TraversalOutline};

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
        way: &TraversalOutline,
        stages: &impl Stages,
        gain: impl FnMut(usize, &Candidate) -> i64,
    ) -> &[Piece] {
        self.board.solve(&problem(way, stages), gain, &mut self.pieces);
        &self.pieces
    }
}

impl Policy for Joint {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        self.board.solve_scored(&problem(way, stages), self.score, &mut self.pieces);
        &self.pieces
    }
}

fn problem<'a, S: Stages>(way: &'a TraversalOutline, stages: &'a S) -> Problem<'a, S> {
    let usable = StageSet::first_of(stages.count());
    let preference =
        Preference { fresh: FIRST, pressed: PRESSED, piece: SECOND, slack: Slack::Anywhere };
    Problem { way, stages, usable, preference }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        outline::{Coupling, FieldSet, StateId, Step},
        partition::StageId,
    };

    const STAGES_COUNT: u8 = 4;

    /// Stages that hold about one piece in `every`.
    #[derive(Clone, Copy, Debug)]
    struct Sparse {
        every: u64,
        room: u64,
        pressed: u64,
    }

    impl Stages for Sparse {
        fn count(&self) -> u8 {
            STAGES_COUNT
        }

        fn holders(&self, piece: &Candidate) -> StageSet {
            let is_held = piece.identity.is_multiple_of(self.every);
            if is_held { set_of(piece.identity >> 32) } else { StageSet::EMPTY }
        }

        fn room(&self) -> StageSet {
            set_of(self.room)
        }

        fn pressed(&self) -> StageSet {
            set_of(self.pressed)
        }
    }

    fn set_of(bits: u64) -> StageSet {
        let stages = (0..STAGES_COUNT).filter(|stage| bits >> stage & 1 != 0);
        stages.filter_map(StageId::new).fold(StageSet::EMPTY, StageSet::with)
    }

    /// A way of one of a few shapes, some of them longer than what is kept.
    fn way(shape: u64, seed: u64) -> TraversalOutline {
        let mut way = TraversalOutline::new();
        way.begin(StateId::new(0));
        for step in 0..2 + 7 * shape {
            let number = u32::try_from(step).unwrap();
            if !(step + shape).is_multiple_of(5) {
                way.cut(StateId::new(number));
            }
            let at = usize::try_from((step * step + shape) % 11).unwrap();
            let fields = Coupling::ALL.get(at).map_or(FieldSet::EMPTY, |own| FieldSet::of(&[*own]));
            way.step(Step { fields, identity: (seed >> (step % 4)).wrapping_mul(step + 1) });
        }
        way
    }

    /// Some that come again, and any.
    fn stages() -> impl Strategy<Value = Sparse> {
        let every = prop_oneof![Just(1_u64), 2..4_u64, 4..200_u64, Just(u64::MAX)];
        let set = || prop_oneof![Just(15_u64), Just(6), 0..16_u64];
        (every, set(), set()).prop_map(|(every, room, pressed)| Sparse { every, room, pressed })
    }

    fn seed() -> impl Strategy<Value = u64> {
        prop_oneof![0..4_u64, any::<u64>()]
    }

    proptest! {
        #[test]
        fn what_is_known_of_a_shape_changes_no_partition(
            asked in prop::collection::vec((0..9_u64, seed(), stages()), 1..200),
        ) {
            let (mut joint, score) = (Joint::default(), Score::default());
            for (shape, seed, stages) in asked {
                let way = way(shape, seed);
                let known = joint.partition(&way, &stages).to_vec();
                let mut anew = Joint::default();
                let anew = anew.weigh(&way, &stages, |_, piece| score.of(piece));
                prop_assert_eq!(&known[..], anew);
            }
        }
    }
}
