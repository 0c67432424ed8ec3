//! Sub-traversals: translations that end at a partition point, as a cache requests.
//!
//! A recirculation ends a cache entry because the packet must be parsed again. A partition point
//! ends an entry because a cache stores the following sub-traversal separately, so that flows share
//! it. The state at both ends is a [`Continuation`], by value. At a partition point the packet
//! keeps its headers, and its frame is not changed. So each sub-traversal is a traversal by itself,
//! with its own visits, mask and reads, from a continuation to a continuation. The entry of a
//! sub-traversal is checked and evicted like every other entry.
//!
//! [`translate_noted`] finds the partition points of a whole translation (see [`Partitioner`]), and
//! notes the result of each lookup. [`noted_sub_traversal`] composes a sub-traversal from these
//! results, if only lookups precede it (see `compose`). Otherwise the function translates the
//! packet once more, and skips the lookups with known results.
//!
//! # Limits
//!
//! A name does not contain the number of earlier lookups, which would split one state into many. So
//! each sub-traversal counts its lookups from zero, and [`LimitUse`] gives its share of each limit.
//! The cache that chains sub-traversals stays within the limits.

use std::{ops::Range, sync::Arc};

use shunt_flow::{FlowKey, Match};

use super::{
    compose::{TraversalTail, begins_plain, compose, keep_continuation},
    partitioner::{Partitioner, SubTraversalEnd},
};
use crate::{
    continuations::continuation::Continuation,
    translate::{
        bridge_view::TablesAtVersion, entry::translate, lookup::KnownVisits,
        record::recorder::LOOKUPS_EXPECTED,
    },
    traversals::{
        datapath_action::DatapathAction,
        drop_cause::DropCause,
        sub_traversal::{LimitUse, NotedTraversal, SubTraversal},
        traversal::Traversal,
    },
};

/// Translates a packet from its arrival or `start`, and notes the partition points.
///
/// A traversal that ended at a limit, or that recirculates, has no partition points.
pub(crate) fn translate_noted(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
) -> NotedTraversal {
    let (mut points, mut lookups, mut limit_use) = (Vec::new(), Vec::new(), LimitUse::default());
    let (is_plain, mut tail) = (begins_plain(tables, key, start), None);
    let traversal = translate(tables, key, |translation| {
        let noted = Partitioner::Record(Vec::with_capacity(LOOKUPS_EXPECTED));
        translation.partition(noted, KnownVisits::default());
        translation.recorder().note_lookups();
        if is_plain {
            translation.recorder().await_tail();
        }
        translation.begin(start)?;
        tail = translation.recorder().take_tail();
        lookups = translation.recorder().take_lookups();
        if let Partitioner::Record(noted) = translation.take_partitioner() {
            points = noted;
        }
        limit_use = translation.limit_use();
        Ok(())
    });
    let traversal = Traversal { continuation: start.map(Arc::clone), ..traversal };
    if traversal.actions.iter().any(DatapathAction::recirculates) {
        points.clear();
    }
    let tail = tail.map(|(visit, mask, reads)| TraversalTail { visit, mask, reads });
    NotedTraversal { traversal: Arc::new(traversal), lookups, tail, points, limit_use }
}

/// Translates a packet, and partitions its traversal before the visits `ends`.
pub(crate) fn sub_traversals(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
    ends: &[usize],
) -> Vec<SubTraversal> {
    let mut sub_traversals: Vec<SubTraversal> = Vec::with_capacity(ends.len() + 1);
    let (mut key, mut start) = (key.clone(), start.map(Arc::clone));
    let mut visits_before = 0;
    for before in ends.iter().map(Some).chain([None]) {
        let count = before.map(|before| before.saturating_sub(visits_before));
        let (sub_traversal, next) =
            sub_traversal(tables, &key, start.as_ref(), count, KnownVisits::default());
        visits_before += sub_traversal.traversal.visits.len();
        sub_traversals.push(sub_traversal);
        let Some(next) = next else { break };
        let SubTraversalEnd { continuation, key: then, .. } = *next;
        key = continuation.entering(&then);
        start = Some(continuation);
    }
    sub_traversals
}

/// Returns the sub-traversal that ends before visit `count`.
/// With `None`, the sub-traversal ends with the traversal.
pub(crate) fn sub_traversal_until(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
    count: Option<usize>,
) -> SubTraversal {
    sub_traversal(tables, key, start, count, KnownVisits::default()).0
}

/// Returns the sub-traversal of a range of the visits of a traversal.
///
/// The packet begins the sub-traversal with `headers`. The sub-traversal is composed from the noted
/// lookups if possible.
pub(crate) fn noted_sub_traversal(
    tables: TablesAtVersion<'_>,
    headers: &FlowKey,
    start: Option<&Arc<Continuation>>,
    noted: &NotedTraversal,
    range: Range<usize>,
) -> SubTraversal {
    if let Some(sub_traversal) = compose(tables, start, noted, range.clone()) {
        return sub_traversal;
    }
    let Range { start: first, end } = range;
    let is_inner = end < noted.traversal.visits.len();
    let count = is_inner.then_some(end.saturating_sub(first));
    let known = KnownVisits::behind(noted, first);
    let entered = start.filter(|_| first > 0).map(|start| start.entering(headers));
    let key = entered.as_ref().unwrap_or(headers);
    let (sub_traversal, _) = sub_traversal(tables, key, start, count, known);
    if let Some(next) = &sub_traversal.traversal.next {
        keep_continuation(tables, start, noted, first..end, next);
    }
    sub_traversal
}

/// Translates one sub-traversal, which ends before visit `count`.
fn sub_traversal<'a>(
    tables: TablesAtVersion<'a>,
    key: &FlowKey,
    start: Option<&'a Arc<Continuation>>,
    count: Option<usize>,
    known: KnownVisits<'a>,
) -> (SubTraversal, Option<Box<SubTraversalEnd>>) {
    let (mut end, mut limit_use) = (None, LimitUse::default());
    let traversal = translate(tables, key, |translation| {
        let partitioner = count.map_or(Partitioner::Off, Partitioner::EndBefore);
        translation.partition(partitioner, known);
        translation.begin(start)?;
        if let Partitioner::Ended(reached) = translation.take_partitioner() {
            end = Some(reached);
        }
        limit_use = translation.limit_use();
        Ok(())
    });
    let sub_traversal = SubTraversal {
        traversal: Traversal {
            continuation: start.map(Arc::clone),
            next: end.as_ref().map(|end| Arc::clone(&end.continuation)),
            drop_cause: if end.is_some() { DropCause::default() } else { traversal.drop_cause },
            ..traversal
        },
        rewrite: end.as_ref().map_or_else(Match::any, |end| end.rewrite.clone()),
        limit_use,
    };
    (sub_traversal, end)
}
