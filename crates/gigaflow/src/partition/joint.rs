//! The default policy: chooses the partition and the stages together.
//!
//! A chain requires only that the stages of the sub-traversals increase. So a sub-traversal may go
//! to any later stage that holds it or has room for it. One dynamic program searches all complete
//! partitions with all increasing stages. The program finds the partition with the highest sum of
//! [`Score`]s, then the fewest new entries, then the fewest sub-traversals. A full stage still
//! shares its entries, and a new entry that has no room in one stage goes to another stage.

use super::{
    contract::{PartitionPolicy, Placement, StageSet, StageView},
    dp_table::{CONTENDED, DpTable, FIRST, Preference, Problem, SECOND, SkippedStages},
    score::Score,
};
use crate::outline::{SubTraversalOutline, TraversalOutline};

/// Chooses partition and stages together, by score and number of new entries.
#[derive(Clone, Debug, Default)]
pub struct JointPolicy {
    score: Score,
    table: DpTable,
    /// The chosen partition, reused for the next one.
    placements: Vec<Placement>,
}

impl JointPolicy {
    /// Creates the policy that partitions by this score.
    #[must_use]
    pub fn new(score: Score) -> Self {
        Self { score, ..Self::default() }
    }

    /// Partitions by the gain of each candidate, instead of its score.
    ///
    /// The arguments of `gain` are the segment after the candidate, and the candidate. `gain` is
    /// called from the last segment backwards, and for each segment with the shortest candidate
    /// first.
    pub(in crate::partition) fn weigh(
        &mut self,
        outline: &TraversalOutline,
        stages: &impl StageView,
        gain: impl FnMut(usize, &SubTraversalOutline) -> i64,
    ) -> &[Placement] {
        self.table.solve(&problem(outline, stages), gain, &mut self.placements);
        &self.placements
    }
}

impl PartitionPolicy for JointPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        self.table.solve_scored(&problem(outline, stages), self.score, &mut self.placements);
        &self.placements
    }
}

/// Returns the problem to solve: first of all, add few entries.
fn problem<'a, S: StageView>(outline: &'a TraversalOutline, stages: &'a S) -> Problem<'a, S> {
    let usable = StageSet::first_of(stages.count());
    let preference = Preference {
        new_entry: FIRST,
        contended: CONTENDED,
        sub_traversal: SECOND,
        skipped: SkippedStages::Anywhere,
    };
    Problem { outline, stages, usable, preference }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        outline::{Coupling, FieldSet, OutlineStep, StateId},
        partition::StageId,
    };

    /// Number of stages in the tests.
    const STAGES_COUNT: u8 = 4;

    /// Random stages that hold about one in `every` sub-traversals.
    #[derive(Clone, Copy, Debug)]
    struct SparseStages {
        every: u64,
        room: u64,
        contended: u64,
    }

    impl StageView for SparseStages {
        fn count(&self) -> u8 {
            STAGES_COUNT
        }

        fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
            let is_held = sub_traversal.identity.is_multiple_of(self.every);
            if is_held { set_of(sub_traversal.identity >> 32) } else { StageSet::EMPTY }
        }

        fn room(&self) -> StageSet {
            set_of(self.room)
        }

        fn contended(&self) -> StageSet {
            set_of(self.contended)
        }
    }

    fn set_of(bits: u64) -> StageSet {
        let stages = (0..STAGES_COUNT).filter(|stage| bits >> stage & 1 != 0);
        stages.filter_map(StageId::new).fold(StageSet::EMPTY, StageSet::with)
    }

    /// Returns an outline of one of a few shapes.
    ///
    /// Some generated outlines are too long for the shape cache.
    fn outline(shape: u64, seed: u64) -> TraversalOutline {
        let mut outline = TraversalOutline::new();
        outline.begin(StateId::new(0));
        for step in 0..2 + 7 * shape {
            let number = u32::try_from(step).unwrap();
            if !(step + shape).is_multiple_of(5) {
                outline.partition_point(StateId::new(number));
            }
            let at = usize::try_from((step * step + shape) % 11).unwrap();
            let fields = Coupling::ALL.get(at).map_or(FieldSet::EMPTY, |own| FieldSet::of(&[*own]));
            outline.step(OutlineStep {
                fields,
                identity: (seed >> (step % 4)).wrapping_mul(step + 1),
            });
        }
        outline
    }

    /// Generates stages from few values, so that equal stages occur again.
    fn stages() -> impl Strategy<Value = SparseStages> {
        let every = prop_oneof![Just(1_u64), 2..4_u64, 4..200_u64, Just(u64::MAX)];
        let set = || prop_oneof![Just(15_u64), Just(6), 0..16_u64];
        (every, set(), set()).prop_map(|(every, room, contended)| SparseStages {
            every,
            room,
            contended,
        })
    }

    /// Generates the seed of a random workload.
    fn seed() -> impl Strategy<Value = u64> {
        prop_oneof![0..4_u64, any::<u64>()]
    }

    proptest! {
        #[test]
        fn the_shape_cache_changes_no_partition(
            asked in prop::collection::vec((0..9_u64, seed(), stages()), 1..200),
        ) {
            let (mut joint, score) = (JointPolicy::default(), Score::default());
            for (shape, seed, stages) in asked {
                let outline = outline(shape, seed);
                let known = joint.partition(&outline, &stages).to_vec();
                let mut recomputed = JointPolicy::default();
                let recomputed = recomputed.weigh(&outline, &stages, |_, sub_traversal| score.of(sub_traversal));
                prop_assert_eq!(&known[..], recomputed);
            }
        }
    }
}
