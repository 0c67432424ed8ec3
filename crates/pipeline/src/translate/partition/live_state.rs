//! The state of a translation before a lookup, reduced to its live part.
//!
//! [`freeze_live`] drops what no later step reads. These are dead hidden bits, the ends of visits
//! before the partition point, returns to rules without further actions, and cookies that no
//! packet-in will report.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use shunt_flow::{FieldId, FlowMask, Match, PortNo, layout::HEADER_START};

use crate::{
    continuations::{
        continuation::{FrozenState, FrozenStep},
        hidden_state::has_hidden_state,
        live_fields::{LiveFields, RuleInfo},
    },
    id::TableId,
    tables::rule::Instructions,
    translate::{
        action_state::ActionState,
        agenda::{Agenda, AgendaStep},
        limits::LimitCounters,
        recirculation::freeze_with_hidden,
        rule_context::RuleContext,
        working_packet::WorkingPacket,
    },
    versions::delta::Object,
};

/// The state of a translation before a lookup.
pub(in crate::translate) struct LookupState<'t, 'a> {
    pub(in crate::translate) packet: &'t WorkingPacket,
    pub(in crate::translate) state: &'t ActionState<'a>,
    pub(in crate::translate) agenda: &'t Agenda<'a>,
    pub(in crate::translate) limits: LimitCounters,
    pub(in crate::translate) table: TableId,
    /// The port that replaces the ingress port in the lookup.
    pub(in crate::translate) port: Option<PortNo>,
}

impl LookupState<'_, '_> {
    /// Returns the number of visits so far.
    pub(super) const fn visits_count(&self) -> usize {
        self.packet.recorder.visits_count()
    }

    /// Returns the name of the state, if it is a partition point.
    pub(super) fn point_name(&self) -> Option<u64> {
        if self.packet.recorder.awaits_tail() {
            let plain = self.state.bridge.readable().plain_continuations();
            return Some(plain.name(self.table, || self.name()));
        }
        self.is_partition_point().then(|| self.name())
    }

    /// Returns whether the traversal may be partitioned before the lookup.
    pub(super) fn is_partition_point(&self) -> bool {
        self.agenda.is_freezable()
            && !self.limits.has_recirculated()
            && self.packet.is_known_from_key()
    }

    /// Returns a hash of the state, which costs less than the frozen state.
    ///
    /// Only predictions use the hash, because two states may have equal hashes.
    pub(super) fn name(&self) -> u64 {
        let Self { packet, state, agenda, limits, table, port } = self;
        let mut hasher = foldhash::fast::FixedState::with_seed(0).build_hasher();
        (table, port, state.bridge.id(), limits.depth()).hash(&mut hasher);
        // The search for live bits takes half of the time, and mostly no hidden word is set.
        if has_hidden_state(packet.key()) {
            let live = live_bits(state, agenda, *table);
            let hidden = packet.key().words()[..HEADER_START].iter().zip(live.words()).enumerate();
            for (index, (word, live)) in hidden.filter(|(_, (word, live))| **word & **live != 0) {
                (index, word & live).hash(&mut hasher);
            }
        }
        if packet.recorder.is_rewritten(FieldId::InPort) {
            packet.key().in_port().hash(&mut hasher);
        }
        for step in agenda.steps() {
            match step {
                // Executed actions are not part of the continuation. An action set in execution has
                // no remaining action: its last action is the resubmit to this lookup.
                AgendaStep::Actions(rest) if rest.as_slice().is_empty() => {}
                AgendaStep::Actions(rest) => rest.as_slice().hash(&mut hasher),
                AgendaStep::Instructions(rest) if !is_idle(rest) => {
                    (&rest.write, rest.goto, rest.metadata, rest.clear).hash(&mut hasher);
                }
                _ => {}
            }
        }
        state.action_set.actions().for_each(|action| action.hash(&mut hasher));
        state.stack.hash(&mut hasher);
        packet.mirror.done.hash(&mut hasher);
        hasher.finish()
    }
}

/// Returns the remaining steps and their live state, before a lookup in `table`.
pub(in crate::translate) fn freeze_live(
    packet: &mut WorkingPacket,
    state: &ActionState<'_>,
    agenda: &Agenda<'_>,
    limits: LimitCounters,
    table: TableId,
) -> FrozenState {
    packet.commit();
    packet.recorder.read(Object::Live(state.bridge.id()));
    let (live, action_set_info) =
        (live_bits(state, agenda, table), state.bridge.readable().action_set_info());
    packet.recorder.consult_mask(&live);
    let hidden = Match::new(packet.key(), &live);
    let frozen = freeze_with_hidden(packet, state, agenda.freezable(), hidden, limits);
    FrozenState {
        is_live_only: true,
        steps: normalise(frozen.steps, action_set_info),
        context: RuleContext { in_set: state.rule.context.in_set, ..NO_RULE_CONTEXT },
        // The lookup finds the next rule, so the current rule is not needed.
        rule: None,
        ..frozen
    }
}

/// Returns the hidden bits that a lookup, and the steps after it, can read.
fn live_bits(state: &ActionState<'_>, agenda: &Agenda<'_>, table: TableId) -> FlowMask {
    let mut needs = LiveFields::of_table(table);
    for step in agenda.steps() {
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
            AgendaStep::Buckets(_)
            | AgendaStep::Flood(_)
            | AgendaStep::NormalFlood(_)
            | AgendaStep::Multicast(_)
            | AgendaStep::Mirror(_)
            | AgendaStep::MirrorFlood(_)
            | AgendaStep::Walk
            | AgendaStep::EnterPeer { .. }
            | AgendaStep::RestorePacket(_)
            | AgendaStep::Restore(_)
            | AgendaStep::Leave(_) => needs.add_everything(),
        }
    }
    needs.add_actions(state.action_set.actions(), None);
    state.bridge.readable().live(&needs)
}

/// Returns the steps without information that no step uses.
/// The next step is at the end.
///
/// Action sets use at most the information `action_set_info` on their rule.
fn normalise(steps: Vec<FrozenStep>, action_set_info: RuleInfo) -> Vec<FrozenStep> {
    // The visit of the next lookup needs its `EndVisit`. The ends of visits before the partition
    // point are not needed.
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
            FrozenStep::ActionSet(context) => {
                FrozenStep::ActionSet(used_part(context, action_set_info))
            }
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

/// Returns the context, reduced to the information `need`.
const fn used_part(context: RuleContext, need: RuleInfo) -> RuleContext {
    match need {
        RuleInfo::All => context,
        RuleInfo::Table => {
            RuleContext { table: context.table, in_set: context.in_set, ..NO_RULE_CONTEXT }
        }
        RuleInfo::Depth | RuleInfo::Nothing => {
            RuleContext { in_set: context.in_set, ..NO_RULE_CONTEXT }
        }
    }
}

/// A context without information on a rule.
const NO_RULE_CONTEXT: RuleContext = RuleContext::PACKET_OUT;

/// Returns whether the instructions after `apply_actions` have no effect.
fn is_idle(rest: &Instructions) -> bool {
    !rest.clear && rest.write.is_empty() && rest.metadata.is_none() && rest.goto.is_none()
}
