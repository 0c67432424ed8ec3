//! Random partition: the baseline for comparison with other policies.

use super::first_fit_placement::place_first_fit;
use crate::{
    outline::TraversalOutline,
    partition::{
        contract::{PartitionPolicy, Placement, StageView},
        megaflow::place_megaflow,
    },
};

/// Partitions at random points, each in the first stage with room.
///
/// If the sub-traversals do not fit, the traversal becomes one megaflow.
#[derive(Clone, Debug)]
pub struct RandomPolicy {
    /// The state of the random numbers.
    state: u64,
    /// The segment after each sub-traversal.
    ends: Vec<usize>,
    /// The chosen partition, reused for the next one.
    placements: Vec<Placement>,
}

impl RandomPolicy {
    /// Creates the policy with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, ends: Vec::new(), placements: Vec::new() }
    }

    /// Returns a random number below `bound`, by splitmix64 (Steele et al., 2014).
    #[expect(clippy::cast_possible_truncation, reason = "the result is below `bound`")]
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        ((u128::from(word) * bound as u128) >> 64) as usize
    }

    /// Chooses random partition points.
    /// All sets of `parts_count - 1` points are equally likely.
    ///
    /// The source is Knuth, "The Art of Computer Programming", volume 2, algorithm S.
    fn choose_ends(&mut self, segments_count: usize, parts_count: usize) {
        self.ends.clear();
        let mut wanted = parts_count - 1;
        for boundary in 1..segments_count {
            if self.below(segments_count - boundary) < wanted {
                self.ends.push(boundary);
                wanted -= 1;
            }
        }
        self.ends.push(segments_count);
    }
}

impl PartitionPolicy for RandomPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        let most = outline.segments_count().min(stages.count().into());
        if most > 0 {
            let parts_count = 1 + self.below(most);
            self.choose_ends(outline.segments_count(), parts_count);
            if place_first_fit(outline, &self.ends, stages, &mut self.placements) {
                return &self.placements;
            }
        }
        place_megaflow(outline, stages, &mut self.placements);
        &self.placements
    }
}
