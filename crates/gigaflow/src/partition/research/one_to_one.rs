//! One-to-one mapping: each segment has its own entry. Flows share the most entries, but a
//! traversal needs the most stages.

use super::first_fit_placement::place_first_fit;
use crate::{
    outline::TraversalOutline,
    partition::{
        contract::{PartitionPolicy, Placement, StageView},
        megaflow::place_megaflow,
    },
};

/// Partitions at every partition point, each in the first stage with room.
///
/// If a traversal has more segments than there are stages, the last entry covers all remaining
/// segments. If the sub-traversals do not fit, the traversal becomes one megaflow.
#[derive(Clone, Debug, Default)]
pub struct OneToOnePolicy {
    /// The segment after each sub-traversal.
    ends: Vec<usize>,
    /// The chosen partition, reused for the next one.
    placements: Vec<Placement>,
}

impl PartitionPolicy for OneToOnePolicy {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        let segments_count = outline.segments_count();
        let most = segments_count.min(stages.count().into());
        self.ends.clear();
        self.ends.extend(1..most);
        self.ends.push(segments_count);
        if most == 0 || !place_first_fit(outline, &self.ends, stages, &mut self.placements) {
            place_megaflow(outline, stages, &mut self.placements);
        }
        &self.placements
    }
}
