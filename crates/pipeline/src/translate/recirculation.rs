//! Recirculation: a translation that needs headers beyond the key ends, and the packet is parsed
//! again to continue (see [`crate::continuations::continuation`]).
//!
//! A pop that uncovers headers does not recirculate by itself: most packets are only sent
//! afterwards. The next steps are run as long as they need none of these headers, which
//! [`needs_headers`] decides, much like `recirc_for_mpls` of Open vSwitch. The first step that
//! needs such a header stays on the agenda, and the cache entry ends.
//!
//! A clone, a bucket or a patch port works on a copy of the packet. Within it, the continuation
//! has only the remaining steps of the copy, which the datapath parses again. The translation
//! continues at once with the steps after the clone, bucket or patch port, and with the restored
//! packet. Lookups and depth are summed up
//! along a chain of recirculations, and the length of the chain is bounded.

use shunt_flow::{FieldId, Match, PortNo, field::Prerequisite, rewrite::TtlCopy};

use super::{
    action_state::ActionState, agenda::AgendaStep, bridge_view::BridgeView, limits::LimitCounters,
    rule_context::RunningRule, working_packet::WorkingPacket,
};
use crate::{
    action::Action,
    continuations::{
        continuation::{FrozenState, FrozenStep},
        hidden_state::{hidden_state, hidden_words},
    },
    tables::{rule::Instructions, rule_filter::any_action},
};

/// Returns the state for `steps` by value, and consults all bits of hidden state.
pub(super) fn freeze(
    packet: &mut WorkingPacket,
    state: &ActionState<'_>,
    steps: &[AgendaStep<'_>],
    ttl_copy: Option<TtlCopy>,
    limits: LimitCounters,
) -> FrozenState {
    for index in hidden_words() {
        packet.recorder.consult_word(index, u64::MAX);
    }
    let hidden = hidden_state(packet.key());
    let frozen = freeze_with_hidden(packet, state, steps, hidden, limits);
    FrozenState { ttl_copy, ..frozen }
}

/// Returns the state for `steps` by value, with the given hidden state.
///
/// The caller has consulted the bits of `hidden`.
pub(super) fn freeze_with_hidden(
    packet: &mut WorkingPacket,
    state: &ActionState<'_>,
    steps: &[AgendaStep<'_>],
    hidden: Match,
    limits: LimitCounters,
) -> FrozenState {
    let is_elsewhere = packet.recorder.is_rewritten(FieldId::InPort);
    let in_port = is_elsewhere.then(|| packet.in_port());
    let (steps, names_rule) = frozen_steps(steps);
    FrozenState {
        bridge: state.bridge.id(),
        in_port,
        hidden,
        is_live_only: false,
        ttl_copy: None,
        steps,
        action_set: state.action_set.actions().cloned().collect(),
        stack: state.stack.clone(),
        context: state.rule.context,
        rule: state.rule.named(names_rule),
        limits,
        mirrored: state.bridge.ports().mirrors.hits(packet.mirror.done),
    }
}

/// Returns the agenda steps of a continuation.
pub(super) fn thawed_steps(steps: &[FrozenStep]) -> Vec<AgendaStep<'_>> {
    steps.iter().map(thaw).collect()
}

impl AgendaStep<'_> {
    /// Returns whether the step needs headers after the Ethernet type, or a decision
    /// by them.
    pub(super) fn needs_headers(&self, bridge: BridgeView<'_>) -> bool {
        let needed = |action: &Action| needs_headers(action, bridge);
        match self {
            Self::Actions(rest) => rest.as_slice().first().is_some_and(needed),
            Self::Set(rest) => rest.as_slice().first().is_some_and(|action| needed(action)),
            Self::Instructions(instructions) => instructions.goto.is_some(),
            Self::Walk | Self::LookUp { .. } => true,
            Self::ActionSet(_)
            | Self::Buckets(_)
            | Self::Flood(_)
            | Self::NormalFlood(_)
            | Self::Multicast(_)
            | Self::Mirror(_)
            | Self::MirrorFlood(_)
            | Self::EndVisit
            | Self::Return { .. }
            | Self::EnterPeer { .. }
            | Self::RestorePacket(_)
            | Self::Restore(_)
            | Self::Leave(_) => false,
        }
    }
}

/// Returns whether an action needs headers after the Ethernet type, or a decision
/// by them.
fn needs_headers(action: &Action, bridge: BridgeView<'_>) -> bool {
    match action {
        // Multicast snooping reads the destination address, and messages of IGMP and MLD.
        Action::Output { port: PortNo::NORMAL, .. } => bridge.snooping().is_some(),
        Action::Output { port, .. } => *port == PortNo::TABLE,
        Action::SetField { field, .. } => is_behind_link(*field),
        Action::Load { target: bits, .. } | Action::Push(bits) | Action::Pop(bits) => {
            is_behind_link(bits.field)
        }
        Action::Move { source, target } => {
            is_behind_link(source.field) || is_behind_link(target.field)
        }
        Action::Controller(action) => action.meter.is_some(),
        Action::OutputTruncated { .. }
        | Action::SetQueue(_)
        | Action::PopQueue { .. }
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit
        | Action::Conjunction { .. }
        // `check_pkt_larger` ends the entry by itself.
        | Action::CheckPktLarger { .. } => false,
        // A tag may hide headers from the parser, which parses a limited number of tags.
        Action::PushVlan { .. }
        | Action::PopVlan
        | Action::OutputField { .. }
        | Action::DecTtl { .. }
        | Action::Resubmit { .. }
        | Action::Group(_)
        // A meter may change the DSCP.
        | Action::Meter(_)
        | Action::SetNwTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::Learn(_)
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::FinTimeout { .. }
        | Action::Ct(_)
        | Action::CtClear
        | Action::Nat(_)
        | Action::Sample(_) => true,
    }
}

/// Returns whether a field is the Ethernet type, or depends on the Ethernet type.
fn is_behind_link(field: FieldId) -> bool {
    field == FieldId::EthType
        || !matches!(
            field.info().prerequisite,
            Prerequisite::Any
                | Prerequisite::Ethernet
                | Prerequisite::InPort
                | Prerequisite::VlanVid
        )
}

/// Returns steps by value.
/// The function also returns whether actions up to the next return name the current rule.
fn frozen_steps(steps: &[AgendaStep<'_>]) -> (Vec<FrozenStep>, bool) {
    let mut names_rule = false;
    let freeze = |step| {
        let frozen = frozen_step(step, names_rule)?;
        match &frozen {
            FrozenStep::Actions(list) => names_rule |= any_action(&[list], names_own_rule),
            FrozenStep::Return { .. } => names_rule = false,
            _ => {}
        }
        Some(frozen)
    };
    (steps.iter().filter_map(freeze).collect(), names_rule)
}

/// Returns whether an action names its rule. An action set holds no such action.
const fn names_own_rule(action: &Action) -> bool {
    matches!(action, Action::Learn(_) | Action::FinTimeout { .. })
}

/// Returns a step by value; `None` if it does nothing.
///
/// `names_rule` is true if later actions name the rule of the actions.
fn frozen_step(step: &AgendaStep<'_>, names_rule: bool) -> Option<FrozenStep> {
    Some(match step {
        AgendaStep::Actions(rest) if rest.as_slice().is_empty() => return None,
        AgendaStep::Actions(rest) => FrozenStep::Actions(rest.as_slice().to_vec()),
        AgendaStep::Set(rest) if rest.as_slice().is_empty() => return None,
        AgendaStep::Set(rest) => FrozenStep::Set(rest.clone().cloned().collect()),
        AgendaStep::Instructions(instructions) => FrozenStep::Instructions(Instructions {
            meter: None,
            apply: Box::default(),
            ..Instructions::clone(instructions)
        }),
        AgendaStep::ActionSet(context) => FrozenStep::ActionSet(*context),
        AgendaStep::Walk => FrozenStep::Walk,
        AgendaStep::LookUp { table, port } => FrozenStep::LookUp { table: *table, port: *port },
        AgendaStep::EndVisit => FrozenStep::EndVisit,
        AgendaStep::Return { rule, depth } => {
            let (context, depth) = (rule.context, *depth);
            FrozenStep::Return { context, rule: rule.named(names_rule), depth }
        }
        // A continuation never contains these steps. A copy is frozen only up to its restore, which
        // lies above buckets and floods. Copies for mirrors are sent before the next action.
        AgendaStep::EnterPeer { .. }
        | AgendaStep::RestorePacket(_)
        | AgendaStep::Restore(_)
        | AgendaStep::Leave(_)
        | AgendaStep::Buckets(_)
        | AgendaStep::Flood(_)
        | AgendaStep::NormalFlood(_)
        | AgendaStep::Multicast(_)
        | AgendaStep::Mirror(_)
        | AgendaStep::MirrorFlood(_) => return None,
    })
}

/// Returns a stored step as a step of the agenda.
fn thaw(step: &FrozenStep) -> AgendaStep<'_> {
    match step {
        FrozenStep::Actions(actions) => AgendaStep::Actions(actions.iter()),
        FrozenStep::Set(actions) => AgendaStep::Set(actions.iter().collect::<Vec<_>>().into_iter()),
        FrozenStep::Instructions(instructions) => AgendaStep::Instructions(instructions),
        FrozenStep::ActionSet(context) => AgendaStep::ActionSet(*context),
        FrozenStep::Walk => AgendaStep::Walk,
        FrozenStep::LookUp { table, port } => AgendaStep::LookUp { table: *table, port: *port },
        FrozenStep::EndVisit => AgendaStep::EndVisit,
        FrozenStep::Return { context, rule, depth } => {
            let rule = RunningRule::thawed(*context, rule.as_ref());
            AgendaStep::Return { rule, depth: *depth }
        }
    }
}
