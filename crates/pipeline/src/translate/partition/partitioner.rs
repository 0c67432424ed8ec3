//! Partitioning: a translation ends where a cache wants a sub-traversal to end.
//!
//! A recirculation ends an entry because the packet must be parsed again. A partition point ends it
//! because a cache wants to store the rest apart, so that flows share it. The state at both is a
//! [`Continuation`], all by value. At a partition point the headers continue as the key has them,
//! and nothing happens to the frame. So each sub-traversal is a traversal by itself, with its own
//! visits, mask and reads, from a continuation to a continuation. It is checked and evicted like
//! any other.
//!
//! # Partition points
//!
//! A partition point lies in front of a lookup by `goto` or `resubmit` where all remaining steps
//! concern the packet as it is now. So there is none inside a clone, a bucket or a peer bridge,
//! after which the packet is put back. There is none behind a meter that may have changed the
//! packet, which the key does not show. [`translate_noted`] finds the points of a whole
//! translation, and notes the result of each lookup. [`noted_sub_traversal`] composes a
//! sub-traversal from that where only lookups precede it (see `compose`). Otherwise it runs the
//! translation once more and skips the lookups with known results.
//!
//! # Limits
//!
//! A sub-traversal does not know the number of lookups before it: a name that contained it would
//! split one state into many. So each sub-traversal counts from zero, and [`LimitUse`] gives its
//! share of each limit. The cache that chains sub-traversals stays within the limits.
//!
//! # Names
//!
//! [`normalised`] drops the parts of a state that nothing reads. These are ends of visits in front
//! of the partition point, rules that tail calls would return to, and cookies that no packet-in
//! will show.

use std::{
    hash::{BuildHasher as _, Hash as _, Hasher as _},
    ops::Range,
    sync::Arc,
};

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    layout::{HEADER_START, word},
};

use super::compose::{TraversalTail, begins_plain, compose, keep_continuation};
use crate::{
    continuations::{
        continuation::{Continuation, FrozenState, FrozenStep},
        live_fields::{LiveFields, RuleInfo},
        liveness::ReadableFields,
    },
    id::TableId,
    tables::rule::Instructions,
    translate::{
        agenda::AgendaStep,
        bridge_view::TablesAtVersion,
        lookup::KnownVisits,
        record::recorder::LOOKUPS_EXPECTED,
        rule_context::RuleContext,
        translation::{Translation, translate},
    },
    traversals::{
        sub_traversal::{LimitUse, NotedTraversal, PartitionPoint, SubTraversal},
        traversal::{Traversal, TraversalError},
    },
    versions::delta::Object,
};

/// The task of a translation at its partition points.
#[derive(Default)]
pub(crate) enum Partitioner {
    /// Nothing.
    #[default]
    Off,
    /// Record them.
    Record(Vec<PartitionPoint>),
    /// End in front of the visit with this index.
    EndBefore(usize),
    /// The translation has ended at one.
    Ended(Box<SubTraversalEnd>),
}

/// The end of a sub-traversal.
pub(crate) struct SubTraversalEnd {
    continuation: Arc<Continuation>,
    /// The packet at the end.
    key: FlowKey,
    /// The header bits that the sub-traversal wrote.
    rewrite: Match,
}

/// Translates a packet from its arrival or from `start`, and notes the partition
/// points.
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
        translation.partitioner = Partitioner::Record(Vec::with_capacity(LOOKUPS_EXPECTED));
        translation.packet.recorder.note_lookups();
        if is_plain {
            translation.packet.recorder.await_tail();
        }
        translation.begin(start)?;
        tail = translation.packet.recorder.take_tail();
        lookups = translation.packet.recorder.take_lookups();
        if let Partitioner::Record(noted) = std::mem::take(&mut translation.partitioner) {
            points = noted;
        }
        limit_use = translation.limit_use();
        Ok(())
    });
    let traversal = Traversal { continuation: start.map(Arc::clone), ..traversal };
    if traversal.actions.iter().any(crate::DatapathAction::recirculates) {
        points.clear();
    }
    let tail = tail.map(|(visit, mask, reads)| TraversalTail { visit, mask, reads });
    NotedTraversal { traversal: Arc::new(traversal), lookups, tail, points, limit_use }
}

/// Translates a packet, and partitions its traversal in front of the visits `ends`.
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
            sub_traversal(tables, (&key, start.as_ref()), count, KnownVisits::default());
        visits_before += sub_traversal.traversal.visits.len();
        sub_traversals.push(sub_traversal);
        let Some(next) = next else { break };
        let SubTraversalEnd { continuation, key: then, .. } = *next;
        key = continuation.entering(&then);
        start = Some(continuation);
    }
    sub_traversals
}

/// Returns the sub-traversal that ends in front of visit `count`; `None`: at the
/// end.
pub(crate) fn sub_traversal_until(
    tables: TablesAtVersion<'_>,
    key: &FlowKey,
    start: Option<&Arc<Continuation>>,
    count: Option<usize>,
) -> SubTraversal {
    sub_traversal(tables, (key, start), count, KnownVisits::default()).0
}

/// Returns the sub-traversal of a range of the visits of a traversal.
///
/// The packet has these headers at its beginning. The result is composed if possible.
pub(crate) fn noted_sub_traversal(
    tables: TablesAtVersion<'_>,
    (headers, start): (&FlowKey, Option<&Arc<Continuation>>),
    noted: &NotedTraversal,
    range: Range<usize>,
) -> SubTraversal {
    if let Some(sub_traversal) = compose(tables, start, noted, range.clone()) {
        return sub_traversal;
    }
    let (whole, lookups) = (&noted.traversal.visits, &noted.lookups);
    let Range { start: first, end } = range;
    let count = (end < whole.len()).then_some(end.saturating_sub(first));
    let known = KnownVisits {
        visits: whole.get(first..).unwrap_or_default(),
        lookups: lookups.get(first..).unwrap_or_default(),
    };
    let entered = start.filter(|_| first > 0).map(|start| start.entering(headers));
    let key = entered.as_ref().unwrap_or(headers);
    let (sub_traversal, _) = sub_traversal(tables, (key, start), count, known);
    if let Some(next) = &sub_traversal.traversal.next {
        keep_continuation(tables, start, noted, first..end, next);
    }
    sub_traversal
}

/// Translates one sub-traversal, which ends in front of visit `count`.
fn sub_traversal<'a>(
    tables: TablesAtVersion<'a>,
    (key, start): (&FlowKey, Option<&'a Arc<Continuation>>),
    count: Option<usize>,
    known: KnownVisits<'a>,
) -> (SubTraversal, Option<Box<SubTraversalEnd>>) {
    let (mut end, mut limit_use) = (None, LimitUse::default());
    let traversal = translate(tables, key, |translation| {
        translation.known_visits = known;
        translation.partitioner = count.map_or(Partitioner::Off, Partitioner::EndBefore);
        translation.begin(start)?;
        if let Partitioner::Ended(reached) = std::mem::take(&mut translation.partitioner) {
            end = Some(reached);
        }
        limit_use = translation.limit_use();
        Ok(())
    });
    let sub_traversal = SubTraversal {
        traversal: Traversal {
            continuation: start.map(Arc::clone),
            next: end.as_ref().map(|end| Arc::clone(&end.continuation)),
            ..traversal
        },
        rewrite: end.as_ref().map_or_else(Match::any, |end| end.rewrite.clone()),
        limit_use,
    };
    (sub_traversal, end)
}

impl<'a> Translation<'a> {
    fn begin(&mut self, start: Option<&'a Arc<Continuation>>) -> Result<(), TraversalError> {
        match start {
            None => self.receive(),
            Some(continuation) => {
                self.thaw(continuation);
                // The cache that chains sub-traversals keeps the limits.
                self.run()
            }
        }
    }

    /// Looks up in a table, unless the translation ends here.
    ///
    /// Known visits that only lead to another table are skipped at once.
    pub(in crate::translate) fn enter_table(
        &mut self,
        mut table: TableId,
        mut port: Option<PortNo>,
    ) -> Result<(), TraversalError> {
        loop {
            if self.ends_before(table, port) {
                return Ok(());
            }
            let Some(next) = self.skip_known_table(table, port)? else { break };
            (table, port) = (next, None);
        }
        let rule = self.look_up(table, port)?;
        self.enter(rule)
    }

    /// Ends the translation or notes a partition point, if either is due in front of
    /// this lookup.
    ///
    /// Returns whether the translation has ended.
    fn ends_before(&mut self, table: TableId, port: Option<PortNo>) -> bool {
        let visit = self.packet.recorder.visits_count();
        match self.partitioner {
            Partitioner::Off | Partitioner::Ended(_) => {}
            Partitioner::Record(_) => {
                let name = self.point_name(table, port).filter(|_| visit > 0);
                if let (Some(name), Partitioner::Record(points)) = (name, &mut self.partitioner) {
                    points.push(PartitionPoint { visit, name });
                }
            }
            Partitioner::EndBefore(before) => {
                if visit == before && self.can_partition() {
                    let name = self.name(table, port);
                    self.agenda.push(AgendaStep::LookUp { table, port });
                    self.end_sub_traversal(table, name);
                    return true;
                }
            }
        }
        false
    }

    /// Returns the name of the state in front of a lookup, if it is a partition point.
    fn point_name(&self, table: TableId, port: Option<PortNo>) -> Option<u64> {
        if self.packet.recorder.awaits_tail() {
            let plain = self.readable().plain_continuations();
            return Some(plain.name(table, || self.name(table, port)));
        }
        self.can_partition().then(|| self.name(table, port))
    }

    fn limit_use(&self) -> LimitUse {
        LimitUse {
            lookups: usize::from(self.limits.resubmits),
            actions: self.packet.builder.count(),
            refreshes: self.learn_requests.refreshes_count(),
        }
    }

    /// Returns whether all remaining steps concern the packet as it is now.
    fn can_partition(&self) -> bool {
        self.agenda.nearest_boundary() == 0
            && self.limits.recirculations == 0
            && self.packet.builder.is_known_from_key()
    }

    /// Freezes the remaining steps, in front of a lookup in this table.
    fn end_sub_traversal(&mut self, table: TableId, name: u64) {
        self.packet.builder.commit(&self.packet.key, &mut self.packet.recorder);
        let limits = self.limits.restarted();
        self.packet.recorder.read(Object::Live(self.bridge.id));
        let (live, set_info) = (self.live(table), self.readable().set_info());
        self.packet.recorder.consult_mask(&live);
        let frozen = self.frozen_with_hidden(Match::new(&self.packet.key, &live), None, limits);
        let frozen = FrozenState {
            is_live_only: true,
            steps: normalised(frozen.steps, set_info),
            context: RuleContext { in_set: self.context.in_set, ..NAMELESS },
            // The lookup finds another rule.
            rule: None,
            ..frozen
        };
        self.agenda.clear();
        let end = SubTraversalEnd {
            continuation: self.tables.continuations.intern(frozen, Some(name)),
            key: self.packet.key.clone(),
            rewrite: Match::new(&self.packet.key, &self.packet.recorder.written_headers()),
        };
        self.partitioner = Partitioner::Ended(Box::new(end));
    }

    /// Returns the hidden bits that a lookup in this table, and the steps behind it,
    /// can read.
    fn live(&self, table: TableId) -> FlowMask {
        let mut needs = LiveFields::of_table(table);
        for step in self.agenda.steps() {
            match step {
                AgendaStep::Actions(rest) => needs.add_actions(rest.as_slice(), None),
                AgendaStep::Set(rest) => needs.add_actions(rest.as_slice().iter().copied(), None),
                AgendaStep::Instructions(rest) => {
                    needs.add_actions(&rest.write, None);
                    needs.add_table(rest.goto);
                }
                AgendaStep::ActionSet(_)
                | AgendaStep::LookUp { .. }
                | AgendaStep::EndVisit
                | AgendaStep::Return { .. } => {}
                _ => needs.add_everything(),
            }
        }
        needs.add_actions(self.action_set.actions(), None);
        self.readable().live(&needs)
    }

    /// Returns the hidden fields that the tables of this bridge can read.
    fn readable(&self) -> &'a ReadableFields {
        self.bridge.state.liveness.at(self.tables.version)
    }

    /// Returns whether a hidden word is set, except those that name the place of the
    /// packet.
    fn has_hidden_state(&self) -> bool {
        let hidden = &self.packet.key.words()[..HEADER_START];
        let (before, behind) = (&hidden[..RECIRC], &hidden[RECIRC + 1..BRIDGE]);
        before.iter().chain(behind).fold(0, |all, word| all | word) != 0
    }

    /// Returns a name of the state that costs less than the state, equal for equal
    /// states.
    ///
    /// For predictions only, never for decisions.
    fn name(&self, table: TableId, port: Option<PortNo>) -> u64 {
        let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
        (table, port, self.bridge.id, self.limits.depth).hash(&mut hasher);
        // Mostly no hidden word is set, and finding the live bits costs as much as everything else.
        if self.has_hidden_state() {
            let live = self.live(table);
            let hidden =
                self.packet.key.words()[..HEADER_START].iter().zip(live.words()).enumerate();
            for (index, (word, live)) in hidden.filter(|(_, (word, live))| **word & **live != 0) {
                (index, word & live).hash(&mut hasher);
            }
        }
        if self.packet.recorder.is_rewritten(FieldId::InPort) {
            self.packet.key.in_port().hash(&mut hasher);
        }
        for step in self.agenda.steps() {
            match step {
                // Executed actions are not part of the continuation. Of a set that is being
                // executed, only the resubmit remains, which is its last action.
                AgendaStep::Actions(rest) if rest.as_slice().is_empty() => {}
                AgendaStep::Actions(rest) => rest.as_slice().hash(&mut hasher),
                AgendaStep::Instructions(rest) if !is_idle(rest) => {
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

/// Returns the steps without what nothing reads; the next step is the last of the
/// list.
///
/// Action sets use no more than `set_info` of their rule.
fn normalised(steps: Vec<FrozenStep>, set_info: RuleInfo) -> Vec<FrozenStep> {
    // The visit of the next lookup needs its end; those of visits in front of the partition point
    // do not.
    let end = steps.iter().rposition(|step| *step == FrozenStep::EndVisit);
    let mut need = RuleInfo::Nothing;
    let mut kept = Vec::with_capacity(steps.len());
    for (index, step) in steps.into_iter().enumerate() {
        let step = match step {
            FrozenStep::EndVisit if Some(index) != end => continue,
            FrozenStep::Instructions(rest) if is_idle(&rest) => continue,
            FrozenStep::Return { .. } if need == RuleInfo::Nothing => continue,
            FrozenStep::Return { context, rule, depth } => {
                let context = used_part(context, need);
                need = RuleInfo::Nothing;
                FrozenStep::Return { context, rule, depth }
            }
            FrozenStep::ActionSet(context) => FrozenStep::ActionSet(used_part(context, set_info)),
            step => step,
        };
        need = match &step {
            FrozenStep::Actions(actions) => need.max(RuleInfo::of(actions)),
            FrozenStep::ActionSet(_) => RuleInfo::Depth,
            FrozenStep::Instructions(rest) if rest.goto.is_some() => need.max(RuleInfo::Depth),
            FrozenStep::Instructions(_) | FrozenStep::EndVisit | FrozenStep::Return { .. } => need,
            FrozenStep::Set(_) | FrozenStep::Walk | FrozenStep::LookUp { .. } => RuleInfo::All,
        };
        kept.push(step);
    }
    kept
}

/// Returns the part of a context that is used.
const fn used_part(context: RuleContext, need: RuleInfo) -> RuleContext {
    match need {
        RuleInfo::All => context,
        RuleInfo::Table => RuleContext { table: context.table, in_set: context.in_set, ..NAMELESS },
        RuleInfo::Depth | RuleInfo::Nothing => RuleContext { in_set: context.in_set, ..NAMELESS },
    }
}

/// The hidden words that name the place of the packet.
const RECIRC: usize = word::RECIRC as usize;
const BRIDGE: usize = word::BRIDGE as usize;

const _: () = assert!(RECIRC < BRIDGE && BRIDGE + 1 == HEADER_START);

/// A context without information.
const NAMELESS: RuleContext = RuleContext::PACKET_OUT;

/// Returns whether executed instructions have no further effect.
fn is_idle(rest: &Instructions) -> bool {
    !rest.clear && rest.write.is_empty() && rest.metadata.is_none() && rest.goto.is_none()
}
