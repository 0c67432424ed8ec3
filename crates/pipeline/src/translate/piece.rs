//! Pieces: a translation that is cut where its cache likes it, so that flows share its parts.
//!
//! A cut as `cut` makes them ends an entry because the packet has to be parsed again. A cut as made
//! here ends it because a cache wants to keep what follows apart. The state at both is a
//! [`Continuation`], all by value; here the packet's headers go on as the key has them, and nothing
//! happens to the frame. So each piece is a traversal by itself, with its own visits, mask and reads,
//! from a continuation to a continuation, and is judged and evicted like any other.
//!
//! # Where
//!
//! In front of a lookup by `goto` or `resubmit`, where all that is left concerns the packet as it is
//! now: not inside a clone, a bucket or a peer bridge, after which it is put back; and not behind a
//! meter that may have changed the packet, which the key does not tell. [`noting`] tells where that
//! is along a whole translation, and what each lookup of it found; [`noted_piece`] puts a piece together from
//! that, where the whole did nothing in front of it (see `compose`), or goes its way once more and looks
//! up nothing, as a piece meets what the whole has met.
//!
//! # What a piece may not know
//!
//! How many lookups the pieces before it made: names that counted them would be as many as ways. So
//! each piece begins to count anew, and [`Spending`] says how much of each bound it needs, for
//! whoever chains pieces to stay within them.
//!
//! # What is left out of a name
//!
//! [`normalised`] drops what nothing reads any more: ends of visits that lie before the cut, the
//! rules that tail calls would come back to, and cookies that no packet-in will show.

use std::{
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    ops::Range,
    sync::Arc,
};

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    layout::{HEADER_START, word},
};

use super::{
    compose::{Tail, begins_plainly, composed, keep_end},
    context::{Known, RESUBMITS_MAX, Step, Tables, Translation, translate},
    cut::Spent,
    recorder::LOOKUPS_EXPECTED,
    scope::Scope,
};
use crate::{
    continuations::{
        continuation::{Continuation, Frozen, FrozenStep},
        live_fields::{Need, Needs},
        liveness::Readable,
    },
    id::TableId,
    tables::rule::Instructions,
    traversals::{
        sub_traversal::{NotedTraversal, PartitionPoint, Spending, SubTraversal},
        traversal::{Traversal, TraversalError},
    },
    versions::delta::Object,
};

/// What a translation does where it could be cut.
#[derive(Default)]
pub(crate) enum Cutter {
    /// Nothing.
    #[default]
    Off,
    /// It takes a note.
    Notes(Vec<PartitionPoint>),
    /// It ends in front of this visit.
    Before(usize),
    /// It has ended.
    Ended(Box<End>),
}

/// How a packet goes on behind a piece.
pub(crate) struct End {
    continuation: Arc<Continuation>,
    /// The packet as it is then.
    key: FlowKey,
    /// The header bits that the piece wrote.
    rewrite: Match,
}

/// Translates a packet from its beginning or from where it was cut, and tells where else it could be
/// cut. One that ended at a bound, or is parsed again, is not cut.
pub(crate) fn noting(
    tables: Tables<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
) -> NotedTraversal {
    let (mut points, mut lookups, mut spending) = (Vec::new(), Vec::new(), Spending::default());
    let (is_plain, mut tail) = (begins_plainly(tables, key, start), None);
    let traversal = translate(tables, key, |translation| {
        translation.cutter = Cutter::Notes(Vec::with_capacity(LOOKUPS_EXPECTED));
        translation.recorder.note_lookups();
        if is_plain {
            translation.recorder.await_tail();
        }
        translation.begin(start)?;
        tail = translation.recorder.take_tail();
        lookups = translation.recorder.take_lookups();
        if let Cutter::Notes(noted) = std::mem::take(&mut translation.cutter) {
            points = noted;
        }
        spending = translation.spending();
        Ok(())
    });
    let traversal = Traversal { continuation: start.map(Arc::clone), ..traversal };
    if traversal.actions.iter().any(crate::DatapathAction::recirculates) {
        points.clear();
    }
    let tail = tail.map(|(visit, mask, reads)| Tail { visit, mask, reads });
    NotedTraversal { traversal: Arc::new(traversal), lookups, tail, points, spending }
}

/// Translates a packet as [`noting`] does, and cuts in front of these visits.
pub(crate) fn pieces(
    tables: Tables<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
    cuts: &[usize],
) -> Vec<SubTraversal> {
    let mut pieces: Vec<SubTraversal> = Vec::with_capacity(cuts.len() + 1);
    let (mut key, mut start) = (key.clone(), start.map(Arc::clone));
    let mut visits_before = 0;
    for before in cuts.iter().map(Some).chain([None]) {
        let count = before.map(|before| before.saturating_sub(visits_before));
        let (piece, next) = piece(tables, (&key, start.as_ref()), count, Known::default());
        visits_before += piece.traversal.visits.len();
        pieces.push(piece);
        let Some(next) = next else { break };
        let End { continuation, key: then, .. } = *next;
        key = continuation.entering(&then);
        start = Some(continuation);
    }
    pieces
}

/// The piece of a packet that ends in front of its `count`th visit; `None`: at its end.
pub(crate) fn one_piece(
    tables: Tables<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
    count: Option<usize>,
) -> SubTraversal {
    piece(tables, (key, start), count, Known::default()).0
}

/// The piece of these visits of a traversal, for a packet with these headers that has come to where it
/// begins: put together, where that can be done.
pub(crate) fn noted_piece(
    tables: Tables<'_>,
    (headers, start): (&FlowKey, Option<&Arc<Continuation>>),
    noted: &NotedTraversal,
    range: Range<usize>,
) -> SubTraversal {
    if let Some(piece) = composed(tables, start, noted, range.clone()) {
        return piece;
    }
    let (whole, lookups) = (&noted.traversal.visits, &noted.lookups);
    let Range { start: first, end } = range;
    let count = (end < whole.len()).then_some(end.saturating_sub(first));
    let known = Known {
        visits: whole.get(first..).unwrap_or_default(),
        lookups: lookups.get(first..).unwrap_or_default(),
    };
    let entered = start.filter(|_| first > 0).map(|start| start.entering(headers));
    let key = entered.as_ref().unwrap_or(headers);
    let (piece, _) = piece(tables, (key, start), count, known);
    if let Some(next) = &piece.traversal.next {
        keep_end(tables, start, noted, first..end, next);
    }
    piece
}

/// One piece, which ends in front of its `count`th visit.
fn piece<'a>(
    tables: Tables<'a>,
    (key, start): (&FlowKey, Option<&'a Arc<Continuation>>),
    count: Option<usize>,
    known: Known<'a>,
) -> (SubTraversal, Option<Box<End>>) {
    let (mut end, mut spending) = (None, Spending::default());
    let traversal = translate(tables, key, |translation| {
        translation.known = known;
        translation.cutter = count.map_or(Cutter::Off, Cutter::Before);
        translation.begin(start)?;
        if let Cutter::Ended(reached) = std::mem::take(&mut translation.cutter) {
            end = Some(reached);
        }
        spending = translation.spending();
        Ok(())
    });
    let piece = SubTraversal {
        traversal: Traversal {
            continuation: start.map(Arc::clone),
            next: end.as_ref().map(|end| Arc::clone(&end.continuation)),
            ..traversal
        },
        rewrite: end.as_ref().map_or_else(Match::any, |end| end.rewrite.clone()),
        spending,
    };
    (piece, end)
}

impl<'a> Translation<'a> {
    fn begin(&mut self, start: Option<&'a Arc<Continuation>>) -> Result<(), TraversalError> {
        match start {
            None => self.come_in(),
            Some(continuation) => {
                self.thaw(continuation);
                // The bounds of a chain of pieces are kept by who chains them.
                self.run()
            }
        }
    }

    /// Looks up, unless the translation is cut here; and goes on at once through tables where it is known
    /// that they only lead to another.
    pub(super) fn enter_table(
        &mut self,
        mut table: TableId,
        mut port: Option<PortNo>,
    ) -> Result<(), TraversalError> {
        loop {
            if self.is_cut_before(table, port) {
                return Ok(());
            }
            let Some(next) = self.pass_known(table, port)? else { break };
            (table, port) = (next, None);
        }
        let rule = self.look_up(table, port)?;
        self.enter(rule)
    }

    /// Ends the translation or takes a note, if that is what is to be done in front of a lookup. Answers
    /// whether it has ended.
    fn is_cut_before(&mut self, table: TableId, port: Option<PortNo>) -> bool {
        let visit = self.recorder.visits_count();
        match self.cutter {
            Cutter::Off | Cutter::Ended(_) => {}
            Cutter::Notes(_) => {
                let name = self.name_to_note(table, port).filter(|_| visit > 0);
                if let (Some(name), Cutter::Notes(points)) = (name, &mut self.cutter) {
                    points.push(PartitionPoint { visit, name });
                }
            }
            Cutter::Before(before) => {
                if visit == before && self.may_be_cut() {
                    let name = self.name(table, port);
                    self.agenda.push(Step::LookUp { table, port });
                    self.end_piece(table, name);
                    return true;
                }
            }
        }
        false
    }

    /// What the state in front of a lookup is called, if it can be cut there.
    fn name_to_note(&self, table: TableId, port: Option<PortNo>) -> Option<u64> {
        if self.recorder.awaits_tail() {
            let cuts = self.readable().plain_cuts();
            return Some(cuts.name(table, || self.name(table, port)));
        }
        self.may_be_cut().then(|| self.name(table, port))
    }

    fn spending(&self) -> Spending {
        Spending {
            lookups: usize::from(self.spent.resubmits),
            actions: self.wire.count(),
            refreshes: self.refreshes.len(),
        }
    }

    /// Whether all that is left concerns the packet as it is now.
    fn may_be_cut(&self) -> bool {
        self.nearest_boundary() == 0 && self.spent.recirculations == 0 && self.wire.is_told_by_key()
    }

    /// Freezes all that is left, in front of a lookup in this table.
    fn end_piece(&mut self, table: TableId, name: u64) {
        self.wire.commit(&self.key, &mut self.recorder);
        let spent = Spent { depth: self.spent.depth, ..Spent::default() };
        self.recorder.read(Object::Live(self.here.id));
        let (live, set_need) = (self.live(table), self.readable().set_need());
        self.recorder.consult_mask(&live);
        let frozen = self.frozen_with(Match::new(&self.key, &live), None, spent);
        let frozen = Frozen {
            is_live_only: true,
            steps: normalised(frozen.steps, set_need),
            scope: Scope { in_set: self.scope.in_set, ..NAMELESS },
            // The lookup finds another.
            rule: None,
            ..frozen
        };
        self.agenda.clear();
        let end = End {
            continuation: self.continuations.intern(frozen, Some(name)),
            key: self.key.clone(),
            rewrite: Match::new(&self.key, &self.recorder.written_headers()),
        };
        self.cutter = Cutter::Ended(Box::new(end));
    }

    /// The hidden bits that a lookup in this table, and what is left behind it, can read.
    fn live(&self, table: TableId) -> FlowMask {
        let mut needs = Needs::of_table(table);
        for step in &self.agenda {
            match step {
                Step::Actions(rest) => needs.add_actions(rest.as_slice(), None),
                Step::Set(rest) => needs.add_actions(rest.as_slice().iter().copied(), None),
                Step::Instructions(rest) => {
                    needs.add_actions(&rest.write, None);
                    needs.add_table(rest.goto);
                }
                Step::ActionSet(_) | Step::LookUp { .. } | Step::EndVisit | Step::Return { .. } => {
                }
                _ => needs.add_everything(),
            }
        }
        needs.add_actions(self.action_set.actions(), None);
        self.readable().live(&needs)
    }

    /// What the tables of this bridge can read.
    fn readable(&self) -> &'a Readable {
        self.here.bridge.liveness.at(self.version)
    }

    /// Whether a hidden word says anything but where the packet is.
    fn has_hidden_state(&self) -> bool {
        let hidden = &self.key.words()[..HEADER_START];
        let (before, behind) = (&hidden[..RECIRC], &hidden[RECIRC + 1..BRIDGE]);
        before.iter().chain(behind).fold(0, |all, word| all | word) != 0
    }

    /// A name for the state that costs less than the state itself, equal for equal states: for
    /// guesses, never for decisions.
    fn name(&self, table: TableId, port: Option<PortNo>) -> u64 {
        let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
        (table, port, self.here.id, self.spent.depth).hash(&mut hasher);
        // Mostly there is none, and what is live takes as long to find as all else together.
        if self.has_hidden_state() {
            let live = self.live(table);
            let hidden = self.key.words()[..HEADER_START].iter().zip(live.words()).enumerate();
            for (index, (word, live)) in hidden.filter(|(_, (word, live))| **word & **live != 0) {
                (index, word & live).hash(&mut hasher);
            }
        }
        if self.recorder.is_rewritten(FieldId::InPort) {
            self.key.in_port().hash(&mut hasher);
        }
        for step in &self.agenda {
            match step {
                // What is done is not kept where the packet goes on; of a set that is executed, all
                // is done but the resubmit that is its last.
                Step::Actions(rest) if rest.as_slice().is_empty() => {}
                Step::Actions(rest) => rest.as_slice().hash(&mut hasher),
                Step::Instructions(rest) if !is_idle(rest) => {
                    (&rest.write, rest.goto, rest.metadata, rest.clear).hash(&mut hasher);
                }
                _ => {}
            }
        }
        self.action_set.actions().for_each(|action| action.hash(&mut hasher));
        self.stack.hash(&mut hasher);
        hasher.finish()
    }
}

/// The steps without what nothing reads; the last to be done is the first in the list. Action sets look
/// at no more than `set_need` of the rule that they are executed for.
fn normalised(steps: Vec<FrozenStep>, set_need: Need) -> Vec<FrozenStep> {
    // The visit that the lookup begins has an end; those of visits before the cut end nothing.
    let end = steps.iter().rposition(|step| *step == FrozenStep::EndVisit);
    let mut need = Need::Nothing;
    let mut kept = Vec::with_capacity(steps.len());
    for (place, step) in steps.into_iter().enumerate() {
        let step = match step {
            FrozenStep::EndVisit if Some(place) != end => continue,
            FrozenStep::Instructions(rest) if is_idle(&rest) => continue,
            FrozenStep::Return { .. } if need == Need::Nothing => continue,
            FrozenStep::Return { scope, rule, depth } => {
                let scope = seen(scope, need);
                need = Need::Nothing;
                FrozenStep::Return { scope, rule, depth }
            }
            FrozenStep::ActionSet(scope) => FrozenStep::ActionSet(seen(scope, set_need)),
            step => step,
        };
        need = match &step {
            FrozenStep::Actions(actions) => need.max(Need::of(actions)),
            FrozenStep::ActionSet(_) => Need::Depth,
            FrozenStep::Instructions(rest) if rest.goto.is_some() => need.max(Need::Depth),
            FrozenStep::Instructions(_) | FrozenStep::EndVisit | FrozenStep::Return { .. } => need,
            FrozenStep::Set(_) | FrozenStep::Walk | FrozenStep::LookUp { .. } => Need::All,
        };
        kept.push(step);
    }
    kept
}

/// What is seen of a rule by whoever looks at no more than this of it.
const fn seen(scope: Scope, need: Need) -> Scope {
    match need {
        Need::All => scope,
        Need::Table => Scope { table: scope.table, in_set: scope.in_set, ..NAMELESS },
        Need::Depth | Need::Nothing => Scope { in_set: scope.in_set, ..NAMELESS },
    }
}

/// The hidden words that name where the packet is.
const RECIRC: usize = word::RECIRC as usize;
const BRIDGE: usize = word::BRIDGE as usize;

const _: () = assert!(RECIRC < BRIDGE && BRIDGE + 1 == HEADER_START);

/// Says nothing.
const NAMELESS: Scope = Scope::PACKET_OUT;

/// Whether instructions whose actions are done do nothing more.
fn is_idle(rest: &Instructions) -> bool {
    !rest.clear && rest.write.is_empty() && rest.metadata.is_none() && rest.goto.is_none()
}

impl Spending {
    /// Whether as many pieces as this, each of which spends no more than this one, stay within the
    /// bounds of one translation.
    #[must_use]
    pub const fn fits(&self, parts: usize) -> bool {
        self.lookups.saturating_add(1).saturating_mul(parts) <= RESUBMITS_MAX as usize
            && self.actions.saturating_mul(parts) <= super::commit::ACTIONS_MAX
            && self.refreshes.saturating_mul(parts) <= super::learn::LEARNINGS_MAX
    }
}
