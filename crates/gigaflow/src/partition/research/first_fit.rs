//! First fit: partition by score only, then put each sub-traversal into the first suitable stage.
//!
//! The partition is the canonical one of [`DisjointPolicy`](super::DisjointPolicy), and does not
//! depend on the entries of the stages. Each sub-traversal goes to the first stage that holds it,
//! else to the best stage with room. Later sub-traversals are not considered. If the sub-traversals
//! do not fit, the policy tries the best partition with fewer sub-traversals, down to one megaflow.

use super::first_fit_placement::place_first_fit;
use crate::{
    outline::TraversalOutline,
    partition::{
        contract::{EmptyStages, PartitionPolicy, Placement, STAGES_MAX, StageView},
        dp_table::{DpTable, FIRST, Preference, Problem, SkippedStages},
        megaflow::place_megaflow,
        score::Score,
    },
};

/// Partitions by score, and puts each sub-traversal into the first suitable stage.
#[derive(Clone, Debug, Default)]
pub struct FirstFitPolicy {
    score: Score,
    table: DpTable,
    /// The chosen partition, reused for the next one.
    placements: Vec<Placement>,
    /// The segment after each sub-traversal.
    ends: Vec<usize>,
}

impl FirstFitPolicy {
    /// Creates the policy that partitions by this score.
    #[must_use]
    pub fn new(score: Score) -> Self {
        Self { score, ..Self::default() }
    }

    /// Partitions into at most `limit` sub-traversals, and writes their ends to `ends`.
    fn partition_into(&mut self, outline: &TraversalOutline, limit: u8) {
        let preference = Preference {
            new_entry: 0,
            contended: 0,
            sub_traversal: FIRST,
            skipped: SkippedStages::Front,
        };
        let stages = EmptyStages(limit);
        let problem = Problem { outline, stages: &stages, usable: stages.room(), preference };
        self.table.solve(
            &problem,
            |_, sub_traversal| self.score.of(sub_traversal),
            &mut self.placements,
        );
        self.ends.clear();
        let ends = (1..=outline.segments_count()).filter(|segment| {
            self.placements
                .iter()
                .any(|placement| placement.steps.end == outline.step_before(*segment))
        });
        self.ends.extend(ends);
    }
}

impl PartitionPolicy for FirstFitPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        let mut limit = stages.count();
        while limit > 1 {
            self.partition_into(outline, limit);
            if place_first_fit(outline, &self.ends, stages, &mut self.placements) {
                return &self.placements;
            }
            limit = u8::try_from(self.ends.len()).unwrap_or(STAGES_MAX).min(limit) - 1;
        }
        place_megaflow(outline, stages, &mut self.placements);
        &self.placements
    }
}
