//! The behaviour of a translation at its partition points.
//!
//! A partition point lies before a lookup by `goto` or `resubmit`, if no remaining step restores an
//! earlier packet. So there is no partition point inside a clone, a bucket or a peer bridge. No
//! partition point follows a meter that may remark the packet, because the key does not show the
//! new DSCP.
//!
//! A translation asks its [`Partitioner`] before each such lookup. If the translation ends there,
//! [`freeze_live`](super::live_state::freeze_live) stores the remaining steps.

use std::sync::Arc;

use shunt_flow::{FlowKey, Match};

use super::live_state::LookupState;
use crate::{
    continuations::continuation::Continuation, translate::working_packet::WorkingPacket,
    traversals::sub_traversal::PartitionPoint,
};

/// The behaviour of a translation at its partition points.
#[derive(Default)]
pub(in crate::translate) enum Partitioner {
    /// Translate without partition points.
    #[default]
    Off,
    /// Record the partition points of the traversal.
    Record(Vec<PartitionPoint>),
    /// End before the visit with this index.
    EndBefore(usize),
    /// The translation has ended at a partition point.
    Ended(Box<SubTraversalEnd>),
}

/// The packet, its rewrite and its continuation at the end of a sub-traversal.
pub(in crate::translate) struct SubTraversalEnd {
    /// The state with which the next sub-traversal starts.
    pub(super) continuation: Arc<Continuation>,
    /// The packet at the end.
    pub(super) key: FlowKey,
    /// The header bits that the sub-traversal wrote.
    pub(super) rewrite: Match,
}

impl Partitioner {
    /// Returns whether the translation ignores partition points.
    #[inline]
    pub(in crate::translate) const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Records a partition point before this lookup, if the translation records them.
    ///
    /// Returns the name of the state if the translation ends here.
    pub(in crate::translate) fn ends_before(&mut self, here: &LookupState<'_, '_>) -> Option<u64> {
        match self {
            Self::Off | Self::Ended(_) => None,
            Self::Record(points) => {
                let visit = here.visits_count();
                let name = here.point_name().filter(|_| visit > 0);
                points.extend(name.map(|name| PartitionPoint { visit, name }));
                None
            }
            Self::EndBefore(before) => {
                let is_end = here.visits_count() == *before && here.is_partition_point();
                is_end.then(|| here.name())
            }
        }
    }
}

impl SubTraversalEnd {
    /// Creates the end of a sub-traversal that continues with `next`.
    pub(in crate::translate) fn new(
        continuation: Arc<Continuation>,
        packet: &WorkingPacket,
    ) -> Self {
        let key = packet.key().clone();
        let rewrite = Match::new(&key, &packet.recorder.written_headers());
        Self { continuation, key, rewrite }
    }
}
