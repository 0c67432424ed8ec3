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
    /// The translation begins at the ingress port like [`Self::translate`], or at `start` like
    /// [`Self::resume`].
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
    /// `ends` are the indexes of visits in ascending order, from partition points of
    /// [`Self::translate_noted`].
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
    /// The sub-traversal ends before the next visit if there is a partition point. The packet
    /// begins there with the continuation `start` and with `headers`; the first sub-traversal
    /// begins like the traversal. The lookups are known from `noted`. If the traversal begins in a
    /// plain state, no translation is needed.
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
    /// The translation begins where the traversal began, with the same key. If the traversal is a
    /// sub-traversal, the translation ends after the visits of the sub-traversal.
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
