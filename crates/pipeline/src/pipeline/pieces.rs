//! Traversals in pieces: see [`crate::SubTraversal`].

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
    /// Translates a packet as [`Self::translate`] does, or as [`Self::resume`] from `start` on, and
    /// tells where its traversal can be cut.
    #[must_use]
    pub fn translate_noting(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
    ) -> NotedTraversal {
        translate::noting(self.tables(&self.bridges.read(), version), key, start)
    }

    /// Translates a packet as [`Self::translate_noting`] does, and cuts it in front of these visits,
    /// which are some of those that it told, in order.
    #[must_use]
    pub fn translate_sub_traversals(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
        cuts: &[usize],
    ) -> Vec<SubTraversal> {
        translate::pieces(self.tables(&self.bridges.read(), version), key, start, cuts)
    }

    /// The piece of a traversal that makes these of its visits, and ends in front of the next if it can be
    /// cut there. `start` is where the piece begins, and `headers` are those that the packet has there; of
    /// the first piece both are those of the traversal. What it finds in the tables is known from the
    /// traversal, and where that begins plainly, all of the piece.
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
        translate::noted_piece(tables, (headers, start), noted, visits)
    }

    /// What a traversal, or a piece of one, is as `version` sees the tables: from where it began, with
    /// its key, and if it was cut off behind some visits, cut off behind as many.
    #[must_use]
    pub fn translate_again(&self, traversal: &Traversal, version: Version) -> Traversal {
        let (key, start) = (&FlowKey::from(&traversal.key), traversal.continuation.as_ref());
        let cut = traversal.next.as_ref().map(|_| traversal.visits.len());
        let tables = self.bridges.read();
        match (cut, start) {
            (Some(cut), _) => {
                translate::one_piece(self.tables(&tables, version), key, start, Some(cut)).traversal
            }
            (None, Some(start)) => translate::resume(self.tables(&tables, version), key, start),
            (None, None) => translate::packet(self.tables(&tables, version), key),
        }
    }
}
