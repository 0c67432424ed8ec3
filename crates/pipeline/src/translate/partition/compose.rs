//! Composition of sub-traversals from a noted traversal, without a translation.
//!
//! Most traversals begin with visits that only lead to another table, and end with a *tail*: the
//! first visit that does more, and all after it. Before the tail a translation only looks up.
//! So the sub-traversals before the tail are known from the visits of the whole traversal:
//!
//! ```text
//! traversal         visit   visit   visit   visit | visit ..      | is where the tail begins
//! partition points        ^               ^                        plain: see `PlainContinuations`
//! sub-traversals    -----   -------------   --------------------
//! ```
//!
//! * The **visits** come from the whole traversal: no hidden bit is set, so the keys are the
//!   same.
//! * The **mask** contains the bits that the lookups consulted, and those of the tail in the last
//!   sub-traversal. After a partition point the mask has no hidden bits, because all are constants
//!   of the state. Before the first partition point it has the live hidden bits.
//! * The **reads** are the bridge, its live fields at each end, and the reads of the tail in the
//!   last sub-traversal.
//! * The **actions** belong to the tail, in the last sub-traversal.
//! * The **state** at a partition point is plain. The first sub-traversal that ends there is
//!   translated, and its continuation is stored for later compositions.
//!
//! The sub-traversals of other traversals are translated. A composed sub-traversal equals a
//! translated sub-traversal: the tests `sub_traversals` compare them.

use std::{ops::Range, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::{
    FieldId, FlowKey, Match, SparseKey, SparseMask,
    layout::{HEADER_START, word},
};

use crate::{
    bridges::bridge::VersionedBridge,
    continuations::{
        continuation::{Continuation, FrozenStep},
        live_fields::RuleInfo,
        plain_continuations::PlainContinuations,
    },
    id::BridgeId,
    translate::{
        bridge_view::TablesAtVersion,
        lookup::is_fragment,
        record::{
            foreign_bits::{CONJ_ID, CONJ_ID_BITS},
            growing_mask::GrowingMask,
            reads::TailReads,
            recorder::words,
            scratch::mask_of,
        },
    },
    traversals::{
        datapath_action::DatapathAction,
        drop_cause::DropCause,
        sub_traversal::{LimitUse, NotedTraversal, SubTraversal},
        traversal::{Traversal, Visit},
    },
    versions::delta::Object,
};

/// The tail of a traversal that began in a plain state.
///
/// In a plain state, a table lookup is the only remaining step.
/// The tail begins with the first visit that does more than lead to another table.
#[derive(Clone, Debug)]
pub(crate) struct TraversalTail {
    /// Index of the first visit of the tail.
    pub(in crate::translate) visit: usize,
    /// The bits of the packet that the tail consulted.
    pub(in crate::translate) mask: SparseMask,
    /// The objects that the tail read.
    pub(in crate::translate) reads: TailReads,
}

/// Returns whether a packet begins in a plain state, as a composition requires.
pub(in crate::translate) fn begins_plain(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
) -> bool {
    let id = u16::try_from(key.bridge()).ok().map(BridgeId::new);
    let bridge = id.and_then(|id| tables.bridges.get(&id));
    let Some((bridge, plain)) =
        bridge.and_then(|own| Some((own, plain_continuations(own, tables.version)?)))
    else {
        return false;
    };
    let ports = bridge.ports(tables.version);
    let fails_open = bridge.settings(tables.version).is_some_and(|own| own.fails_open);
    let begins = match start {
        // A packet of a bridge that fails open has no lookup.
        None if fails_open => false,
        None => {
            ports.is_some_and(|own| own.has_plain_ingress() && !own.protocols.any())
                && key.words()[..BRIDGE].iter().all(|word| *word == 0)
        }
        Some(start) => match start.frozen().steps.last() {
            Some(FrozenStep::LookUp { table, .. }) => plain.has(*table, start),
            _ => false,
        },
    };
    // The mirrors that have copied a packet are a part of its state.
    let has_mirrors = ports.is_none_or(|ports| !ports.mirrors.is_empty());
    begins && !has_mirrors && !is_fragment(key)
}

/// Composes the sub-traversal of a range of visits, which begins at `start`.
///
/// Returns `None` if the sub-traversal must be translated.
pub(in crate::translate) fn compose(
    tables: TablesAtVersion<'_>,
    start: Option<&Arc<Continuation>>,
    noted: &NotedTraversal,
    range: Range<usize>,
) -> Option<SubTraversal> {
    let (whole, tail) = (&*noted.traversal, noted.tail.as_ref()?);
    let Range { start: first, end } = range;
    let visits = whole.visits.get(first..end)?;
    let plain = plain_continuations(tables.bridges.get(&visits.first()?.bridge)?, tables.version)?;
    let is_within = first <= tail.visit && (first == 0 || plain.has(visits.first()?.table, start?));
    let next = match whole.visits.get(end) {
        Some(next_visit) if is_within && end <= tail.visit => Some(plain.find(next_visit.table)?),
        None if is_within && tail_is_independent(whole) => None,
        _ => return None,
    };
    let composer = Composer { whole, tail, visits, first, start, next };
    Some(composer.sub_traversal(&noted.limit_use))
}

/// Stores `next`, the continuation after a range of visits, if its state is plain.
pub(in crate::translate) fn keep_continuation(
    tables: TablesAtVersion<'_>,
    start: Option<&Arc<Continuation>>,
    noted: &NotedTraversal,
    Range { start: first, end }: Range<usize>,
    next: &Arc<Continuation>,
) -> Option<()> {
    let (tail, visits) = (noted.tail.as_ref()?, &noted.traversal.visits);
    let (begin, next_visit) = (visits.get(first)?, visits.get(end)?);
    let plain = plain_continuations(tables.bridges.get(&begin.bridge)?, tables.version)?;
    if end <= tail.visit && (first == 0 || plain.has(begin.table, start?)) {
        plain.insert(next_visit.table, next);
    }
    Some(())
}

/// Returns the continuations of plain states of a bridge.
///
/// `None` if action sets use more information on their rule than the depth. The state then includes
/// the rule, so it is never plain.
fn plain_continuations(bridge: &VersionedBridge, version: Version) -> Option<&PlainContinuations> {
    let readable = bridge.liveness.at(version);
    (readable.action_set_info() <= RuleInfo::Depth).then(|| readable.plain_continuations())
}

/// Returns whether the tail is independent of the number of earlier lookups.
///
/// A continuation that the tail has made contains that number.
fn tail_is_independent(whole: &Traversal) -> bool {
    let freezes = |action: &DatapathAction| match action {
        DatapathAction::Punt(punt) => punt.continuation.is_some(),
        DatapathAction::Copy(_)
        | DatapathAction::Recirculate(_)
        | DatapathAction::CheckLength { .. } => true,
        _ => false,
    };
    whole.learnings.is_empty() && whole.error.is_none() && !whole.actions.iter().any(freezes)
}

/// The inputs of a composition.
struct Composer<'a> {
    /// The traversal that is partitioned.
    whole: &'a Traversal,
    tail: &'a TraversalTail,
    /// The visits before the tail.
    visits: &'a [Visit],
    /// Index of the first visit of the sub-traversal.
    first: usize,
    /// The continuation at the start of the sub-traversal.
    start: Option<&'a Arc<Continuation>>,
    /// The continuation at the end of the sub-traversal.
    /// `None` for the last sub-traversal, which has the tail.
    next: Option<&'a Arc<Continuation>>,
}

impl Composer<'_> {
    /// Returns the sub-traversal between the two partition points.
    fn sub_traversal(&self, whole_use: &LimitUse) -> SubTraversal {
        let whole = self.whole;
        let own = Traversal {
            version: whole.version,
            key: self.key(),
            continuation: self.start.cloned(),
            next: self.next.cloned(),
            mask: mask_of(|mask| self.consult(mask)),
            visits: self.visits.into(),
            reads: self.reads(),
            group_hits: Box::default(),
            output_hits: Box::default(),
            learnings: Vec::new(),
            refreshes: Box::default(),
            actions: Arc::default(),
            error: None,
            drop_cause: DropCause::default(),
        };
        let (rewrite, lookups) = (Match::any(), self.visits.len());
        if self.next.is_some() {
            let limit_use = LimitUse { lookups, ..LimitUse::default() };
            return SubTraversal { traversal: own, rewrite, limit_use };
        }
        let traversal = Traversal {
            group_hits: whole.group_hits.clone(),
            output_hits: whole.output_hits.clone(),
            refreshes: whole.refreshes.clone(),
            actions: Arc::clone(&whole.actions),
            drop_cause: whole.drop_cause,
            ..own
        };
        let limit_use =
            LimitUse { lookups: whole_use.lookups.saturating_sub(self.first), ..*whole_use };
        SubTraversal { traversal, rewrite, limit_use }
    }

    /// Returns the lookup key of the packet at the beginning of the sub-traversal.
    fn key(&self) -> SparseKey {
        match (self.start, self.visits.first()) {
            (Some(start), Some(visit)) if self.first > 0 => {
                let id = u64::from(start.id()) << FieldId::RecircId.slot().shift;
                visit.key.with_bits(usize::from(word::RECIRC), id)
            }
            _ => self.whole.key.clone(),
        }
    }

    /// Adds the bits that the visits of the sub-traversal consulted.
    fn consult(&self, mask: &mut GrowingMask) {
        // After a partition point all hidden words are constants, except those that locate
        // the packet.
        let from = if self.start.is_some() { BRIDGE } else { 0 };
        // Visits of the tail may consult bits that the tail wrote; the mask of the tail leaves
        // these bits out.
        let in_front = self.tail.visit.saturating_sub(self.first);
        for visit in self.visits.iter().take(in_front) {
            visit.mask.iter().filter(|(index, _)| *index >= from).for_each(|(index, bits)| {
                let foreign = if index == CONJ_ID { CONJ_ID_BITS } else { 0 };
                mask.add(index, bits & !foreign);
            });
        }
        match self.next {
            Some(next) if self.start.is_none() => {
                next.frozen().hidden.mask().iter().for_each(|(index, bits)| mask.add(index, bits));
            }
            Some(_) => {}
            None => {
                let own = self.tail.mask.iter().filter(|(index, _)| *index >= from);
                own.for_each(|(index, bits)| mask.add(index, bits));
            }
        }
        mask.add(BRIDGE, u64::MAX);
        words(FieldId::RecircId, u128::MAX).for_each(|(index, bits)| mask.add(index, bits));
    }

    /// Returns the objects that the sub-traversal consulted.
    fn reads(&self) -> Box<[Object]> {
        let Self { whole, tail, visits, .. } = self;
        let bridges = visits.first().map(|visit| visit.bridge);
        let live = bridges.map(Object::Live);
        let head = tail.reads.head(&whole.reads);
        let here = bridges.map(Object::Bridge).into_iter().chain(live);
        let mut reads: Vec<Object> = if self.first == 0 { head.to_vec() } else { here.collect() };
        let mut add = |read: Object| {
            if !reads.contains(&read) {
                reads.push(read);
            }
        };
        match self.next {
            Some(_) => live.into_iter().for_each(&mut add),
            None => tail.reads.own(&whole.reads).copied().for_each(&mut add),
        }
        reads.into()
    }
}

/// Index of the word with the bridge.
const BRIDGE: usize = word::BRIDGE as usize;

const _: () = assert!(BRIDGE + 1 == HEADER_START, "the bridge is the last hidden word");
