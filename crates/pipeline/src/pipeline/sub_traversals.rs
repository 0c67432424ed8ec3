//! Translation of sub-traversals: see [`crate::SubTraversal`].

use std::{ops::Range, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::FlowKey;

use super::Pipeline;
use crate::{
    continuations::continuation::Continuation,
    translate,
    traversals::{
        sub_traversal::{NotedTraversal, SubTraversal},
        traversal::Traversal,
    },
};

impl Pipeline {
    /// Translates a packet, and notes the partition points of its traversal.
    ///
    /// It does so from the ingress port as [`Self::translate`] does, or from `start` on as
    /// [`Self::resume`] does.
    #[must_use]
    pub fn translate_noted(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
    ) -> NotedTraversal {
        translate::translate_noted(self.tables(&self.bridges.read(), version), key, start)
    }

    /// Translates a packet, and partitions its traversal before the visits `ends`.
    ///
    /// `ends` are visits of partition points that [`Self::translate_noted`] returned, in order.
    #[must_use]
    pub fn translate_sub_traversals(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
        ends: &[usize],
    ) -> Vec<SubTraversal> {
        translate::sub_traversals(self.tables(&self.bridges.read(), version), key, start, ends)
    }

    /// Returns the sub-traversal of a range of the visits of a traversal.
    ///
    /// It ends before the next visit if that is a partition point. `start` is the continuation
    /// at its beginning, and `headers` are those that the packet has there; for the first
    /// sub-traversal both are those of the traversal. The lookups are known from `noted`. If the
    /// traversal begins in a plain state, the whole sub-traversal is.
    #[must_use]
    pub fn translate_sub_traversal(
        &self,
        headers: &FlowKey,
        start: Option<&Arc<Continuation>>,
        noted: &NotedTraversal,
        visits: Range<usize>,
    ) -> SubTraversal {
        let tables = self.bridges.read();
        let tables = self.tables(&tables, noted.traversal.version);
        translate::noted_sub_traversal(tables, headers, start, noted, visits)
    }

    /// Translates the packet of a traversal again, by `version`.
    ///
    /// It begins where the traversal began, with its key. If the traversal is a sub-traversal, the
    /// new one ends after as many visits.
    #[must_use]
    pub fn translate_again(&self, traversal: &Traversal, version: Version) -> Traversal {
        let (key, start) = (&FlowKey::from(&traversal.key), traversal.continuation.as_ref());
        let end = traversal.next.as_ref().map(|_| traversal.visits.len());
        let tables = self.bridges.read();
        match (end, start) {
            (Some(end), _) => {
                translate::sub_traversal_until(self.tables(&tables, version), key, start, Some(end))
                    .traversal
            }
            (None, Some(start)) => translate::resume(self.tables(&tables, version), key, start),
            (None, None) => translate::packet(self.tables(&tables, version), key),
        }
    }
}
