//! Disjoint partitioning, the policy of the paper: partitions by score, aligned to the last stage.
//!
//! The policy considers all partitions with at most as many sub-traversals as stages have room. The
//! policy chooses the partition with the highest sum of [`Score`]s, then with the fewest
//! sub-traversals. The last sub-traversal goes to the last stage with room, the sub-traversal
//! before it to the previous stage with room, and so on (Gigaflow, 3.4.3.2).
//!
//! The alignment of partitions has two costs. The policy does not use a full stage at all, not even
//! for entries that the stage holds. The stage of a sub-traversal depends on the number of
//! sub-traversals after it. [`JointPolicy`](crate::partition::JointPolicy) chooses partition and
//! stages together.

use crate::{
    outline::TraversalOutline,
    partition::{
        contract::{PartitionPolicy, Placement, StageSet, StageView},
        dp_table::{DpTable, FIRST, Preference, Problem, SECOND, SkippedStages},
        score::Score,
    },
};

/// The choice of [`DisjointPolicy`] among partitions with equal scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// Chooses the partition with the fewest new entries, then the canonical one.
    #[default]
    Cached,
    /// Chooses the longest first sub-traversal, then the longest second one, and so on.
    ///
    /// The partition points then depend only on the traversal, as in the paper.
    Canonical,
}

/// Partitions by score only, aligned to the last stage, as in the paper.
#[derive(Clone, Debug, Default)]
pub struct DisjointPolicy {
    score: Score,
    ties: Ties,
    table: DpTable,
    /// The chosen partition, reused for the next one.
    placements: Vec<Placement>,
}

impl DisjointPolicy {
    /// Creates the policy with this score and this choice among equal scores.
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
        // The traversal is put into contended stages only if it does not fit into the other stages.
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
