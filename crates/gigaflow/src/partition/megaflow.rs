//! The policy that never partitions: a whole traversal is one entry, a megaflow.
//!
//! With one stage, a cache with this policy is a megaflow cache, the baseline for other policies.
//! With more stages, the policy is the fallback of every other policy: the stages together hold as
//! many megaflows as one large stage.

use super::contract::{PartitionPolicy, Placement, StageSet, StageView};
use crate::outline::TraversalOutline;

/// Never partitions: the whole traversal is one entry.
#[derive(Clone, Debug, Default)]
pub struct MegaflowPolicy {
    /// The chosen partition, reused for the next one.
    placements: Vec<Placement>,
}

impl PartitionPolicy for MegaflowPolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        self.placements.clear();
        place_megaflow(outline, stages, &mut self.placements);
        &self.placements
    }
}

/// Writes the whole traversal as one placement to `out`, if a stage has room.
pub(in crate::partition) fn place_megaflow(
    outline: &TraversalOutline,
    stages: &impl StageView,
    out: &mut Vec<Placement>,
) {
    out.clear();
    out.extend(outline.whole().and_then(|whole| {
        let all = StageSet::first_of(stages.count());
        let stage = stages.holders(&whole).first().or_else(|| stages.best(all))?;
        Some(Placement { steps: whole.steps, stage })
    }));
}
