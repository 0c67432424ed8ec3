//! Disjoint partitioning, the policy of the paper: partition by score, then align to the last stage.
//!
//! It considers all complete partitions into at most as many sub-traversals as stages have room. It
//! takes the one with the highest sum of [`Score`]s, then with the fewest sub-traversals. The last
//! sub-traversal goes to the last stage with room, the one before it to the stage with room before that
//! (Gigaflow, 3.4.3.2).
//!
//! Fixing the stages like this has a price. A full stage is not used at all, not even for entries that
//! it holds. And the stage of a sub-traversal depends on the number of sub-traversals after it.
//! [`JointPolicy`](crate::partition::JointPolicy) chooses partition and stages together.

use crate::{
    outline::TraversalOutline,
    partition::{
        contract::{PartitionPolicy, Placement, StageSet, StageView},
        dp_table::{DpTable, FIRST, Preference, Problem, SECOND, SkippedStages},
        score::Score,
    },
};

/// The choice of [`DisjointPolicy`] among equally good partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The partition of which most entries exist already, then the canonical one.
    #[default]
    Cached,
    /// The canonical one: longest first sub-traversal, then longest second one.
    ///
    /// So the partition points are a function of the traversal, as in the paper.
    Canonical,
}

/// Partitions by score only, aligned to the last stage, as in the paper.
#[derive(Clone, Debug, Default)]
pub struct DisjointPolicy {
    score: Score,
    ties: Ties,
    table: DpTable,
    placements: Vec<Placement>,
}

impl DisjointPolicy {
    /// Creates the policy with this score and these ties.
    #[must_use]
    pub fn new(score: Score, ties: Ties) -> Self {
        Self { score, ties, ..Self::default() }
    }
}

impl PartitionPolicy for DisjointPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        let new_entry = match self.ties {
            Ties::Cached => SECOND,
            Ties::Canonical => 0,
        };
        let preference = Preference {
            new_entry,
            contended: 0,
            sub_traversal: FIRST,
            skipped: SkippedStages::Front,
        };
        // Contended stages are used only if the others do not suffice.
        for usable in [stages.room().without(stages.contended()), stages.room()] {
            let problem = Problem { outline, stages, usable, preference };
            self.table.solve(
                &problem,
                |_, sub_traversal| self.score.of(sub_traversal),
                &mut self.placements,
            );
            if !self.placements.is_empty() || stages.contended() == StageSet::EMPTY {
                break;
            }
        }
        &self.placements
    }
}
