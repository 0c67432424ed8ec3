//! Pieces put together from what their whole has met, without going their way once more.
//!
//! Most ways begin with visits whose rules only lead to another table, and end with a *tail*: the first
//! visit that does more, and what follows from it. In front of the tail a translation does nothing but
//! look up, so that a piece of it is known from the visits of the whole:
//!
//! ```text
//! whole      visit   visit   visit   visit | visit ..      | is where the tail begins
//! cut              ^               ^                        plain: see `PlainCuts`
//! pieces     -----   -------------   --------------------
//! ```
//!
//! * Its **visits** are those of the whole: there are no hidden bits, so that the key is the same.
//! * Its **mask** is what the lookups consulted, and the tail where it has it. From a cut on no hidden
//!   bit counts, as all are constants of the state; in front of the first cut those count that are live.
//! * Its **reads** are the bridge, where it begins, where it is cut, and those of the tail.
//! * What is **done** is done by the tail, which is in the last piece.
//! * The **state** where it is cut is a plain one. It is not made here: the first piece that ends there
//!   is translated, and its end is kept.
//!
//! What does not begin like that is translated. What is put together is what would be translated:
//! `piece_tests` compares them.

use std::{ops::Range, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::{
    FieldId, FlowKey, Match, SparseKey, SparseMask,
    layout::{HEADER_START, word},
};

use super::{
    bits::Bits,
    conjunction::is_fragment,
    context::Tables,
    reads::TailReads,
    recorder::{CONJ_ID, CONJ_ID_BITS, mask_of, words},
};
use crate::{
    bridges::bridge::Bridge,
    continuations::{
        continuation::{Continuation, FrozenStep},
        live_fields::Need,
        plain_continuations::PlainCuts,
    },
    id::BridgeId,
    traversals::{
        datapath_action::DatapathAction,
        sub_traversal::{NotedTraversal, Spending, SubTraversal},
        traversal::{Traversal, Visit},
    },
    versions::delta::Object,
};

/// What a traversal that begins plainly did from its first visit on that does more than lead to another
/// table.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The number of that visit.
    pub(super) visit: usize,
    /// What was consulted of the packet from there on.
    pub(super) mask: SparseMask,
    pub(super) reads: TailReads,
}

/// Whether a packet begins its way in a plain state, so that its pieces may be put together.
pub(super) fn begins_plainly(
    tables: Tables<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
) -> bool {
    let id = u16::try_from(key.bridge()).ok().map(BridgeId::new);
    let bridge = id.and_then(|id| tables.bridges.get(&id));
    let Some((bridge, cuts)) = bridge.and_then(|own| Some((own, plain_cuts(own, tables.version)?)))
    else {
        return false;
    };
    let begins = match start {
        None => {
            let filters = bridge.ports(tables.version).is_none_or(|ports| ports.filters_ingress);
            !filters && key.words()[..BRIDGE].iter().all(|word| *word == 0)
        }
        Some(start) => match start.frozen().steps.last() {
            Some(FrozenStep::LookUp { table, .. }) => cuts.has(*table, start),
            _ => false,
        },
    };
    begins && !is_fragment(key)
}

/// The piece of these visits of a traversal, which begins at `start`; `None`: it has to be translated.
pub(super) fn composed(
    tables: Tables<'_>,
    start: Option<&Arc<Continuation>>,
    noted: &NotedTraversal,
    range: Range<usize>,
) -> Option<SubTraversal> {
    let (whole, tail) = (&*noted.traversal, noted.tail.as_ref()?);
    let Range { start: first, end } = range;
    let visits = whole.visits.get(first..end)?;
    let cuts = plain_cuts(tables.bridges.get(&visits.first()?.bridge)?, tables.version)?;
    let is_within = first <= tail.visit && (first == 0 || cuts.has(visits.first()?.table, start?));
    let next = match whole.visits.get(end) {
        Some(behind) if is_within && end <= tail.visit => Some(cuts.find(behind.table)?),
        None if is_within && tail_is_anybodys(whole) => None,
        _ => return None,
    };
    let composer = Composer { whole, tail, visits, first, start, next };
    Some(composer.piece(&noted.spending))
}

/// Keeps the state behind the piece of these visits, if it is a plain one.
pub(super) fn keep_end(
    tables: Tables<'_>,
    start: Option<&Arc<Continuation>>,
    noted: &NotedTraversal,
    Range { start: first, end }: Range<usize>,
    next: &Arc<Continuation>,
) -> Option<()> {
    let (tail, visits) = (noted.tail.as_ref()?, &noted.traversal.visits);
    let (begin, behind) = (visits.get(first)?, visits.get(end)?);
    let cuts = plain_cuts(tables.bridges.get(&begin.bridge)?, tables.version)?;
    if end <= tail.visit && (first == 0 || cuts.has(begin.table, start?)) {
        cuts.keep(behind.table, next);
    }
    Some(())
}

/// The plain cuts of a bridge, unless it is a part of the state of which rule an action set is executed.
fn plain_cuts(bridge: &Bridge, version: Version) -> Option<&PlainCuts> {
    let readable = bridge.liveness.at(version);
    (readable.set_need() <= Need::Depth).then(|| readable.plain_cuts())
}

/// Whether what a whole translation does says nothing of how many lookups it made before: states that it
/// froze would.
fn tail_is_anybodys(whole: &Traversal) -> bool {
    let freezes = |action: &DatapathAction| match action {
        DatapathAction::Punt(punt) => punt.continuation.is_some(),
        DatapathAction::Copy(_)
        | DatapathAction::Recirculate(_)
        | DatapathAction::CheckLength { .. } => true,
        _ => false,
    };
    whole.learnings.is_empty() && whole.error.is_none() && !whole.actions.iter().any(freezes)
}

/// What a piece is put together from.
struct Composer<'a> {
    whole: &'a Traversal,
    tail: &'a Tail,
    visits: &'a [Visit],
    /// The number of its first visit.
    first: usize,
    start: Option<&'a Arc<Continuation>>,
    /// `None`: it is the last one, and has the tail.
    next: Option<&'a Arc<Continuation>>,
}

impl Composer<'_> {
    fn piece(&self, spent: &Spending) -> SubTraversal {
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
            learnings: Vec::new(),
            refreshes: Box::default(),
            actions: Arc::default(),
            error: None,
        };
        let (rewrite, lookups) = (Match::any(), self.visits.len());
        if self.next.is_some() {
            let spending = Spending { lookups, ..Spending::default() };
            return SubTraversal { traversal: own, rewrite, spending };
        }
        let traversal = Traversal {
            group_hits: whole.group_hits.clone(),
            refreshes: whole.refreshes.clone(),
            actions: Arc::clone(&whole.actions),
            ..own
        };
        let spending = Spending { lookups: spent.lookups.saturating_sub(self.first), ..*spent };
        SubTraversal { traversal, rewrite, spending }
    }

    /// The key that the packet is looked up by where the piece begins.
    fn key(&self) -> SparseKey {
        match (self.start, self.visits.first()) {
            (Some(start), Some(visit)) if self.first > 0 => {
                let id = u64::from(start.id()) << FieldId::RecircId.slot().shift;
                visit.key.with_bits(usize::from(word::RECIRC), id)
            }
            _ => self.whole.key.clone(),
        }
    }

    fn consult(&self, mask: &mut Bits) {
        // Where it goes on, all that is hidden was written but for the names of the place.
        let from = if self.start.is_some() { BRIDGE } else { 0 };
        // Those of the tail consult what the tail has written as well, and its own mask leaves that out.
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

const BRIDGE: usize = word::BRIDGE as usize;

const _: () = assert!(BRIDGE + 1 == HEADER_START, "what names the place is behind what is hidden");
