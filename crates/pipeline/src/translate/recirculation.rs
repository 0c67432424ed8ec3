//! Recirculation: a translation that needs what is not in the key ends, and the packet is parsed
//! again to continue (see [`crate::continuations::continuation`]).
//!
//! A pop that uncovers headers does not recirculate by itself: most packets are only sent
//! afterwards. The next steps are run as long as they need none of these headers, which
//! [`needs_headers`] decides, much like `recirc_for_mpls` of Open vSwitch. The first step that does
//! is put back, and the entry ends.
//!
//! The frozen steps reach down to the nearest clone or patch port. That part belongs to the copy,
//! which the datapath parses again. The steps below continue here at once, with the packet put
//! back. Lookups and depth are summed up along a chain of recirculations, and the length of the
//! chain is bounded.

use std::sync::Arc;

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    field::Prerequisite,
    layout::{HEADER_START, word},
    rewrite::TtlCopy,
};

use super::{
    agenda::{Agenda, AgendaStep},
    limits::LimitCounters,
    record::recorder::IN_PORT_BITS,
    translation::Translation,
};
use crate::{
    action::{Action, Subfield},
    continuations::continuation::{Continuation, FrozenState, FrozenStep, NamedRule},
    tables::{
        rule::{Instructions, Rule},
        rule_filter::any_action,
    },
    traversals::{datapath_action::DatapathAction, traversal::TraversalError},
    versions::delta::Object,
};

/// Hidden words that are not in a continuation: the recirculation id and the bridge
/// name it.
const NAMING: [u8; 2] = [word::RECIRC, word::BRIDGE];

impl<'a> Translation<'a> {
    /// Ends the entry before a step that needs headers which were not parsed.
    pub(super) fn recirculate_before(
        &mut self,
        step: AgendaStep<'a>,
    ) -> Result<(), TraversalError> {
        self.agenda.push(step);
        self.recirculate(None)
    }

    /// Ends the entry; a TTL that only the frame shows is copied before the packet
    /// continues.
    pub(super) fn recirculate_after(&mut self, copy: TtlCopy) -> Result<(), TraversalError> {
        self.recirculate(Some(copy))
    }

    /// `check_pkt_larger`: ends the entry, with one continuation for each result.
    pub(super) fn check_length(
        &mut self,
        length: u16,
        target: Subfield,
    ) -> Result<(), TraversalError> {
        let frozen = self.freeze(None)?;
        let with_bit = |value| {
            let mut frozen = frozen.clone();
            frozen.steps.push(FrozenStep::Actions(vec![Action::Load { target, value }]));
            self.tables.continuations.intern(frozen, None)
        };
        let (larger, other) = (with_bit(1), with_bit(0));
        self.end_entry(DatapathAction::CheckLength { length, larger, other })
    }

    /// Continues where a continuation was frozen. The key's own hidden words are names
    /// alone.
    pub(super) fn thaw(&mut self, continuation: &'a Continuation) {
        let frozen = continuation.frozen();
        if frozen.is_live_only {
            self.packet.recorder.read(Object::Live(frozen.bridge));
        }
        self.packet.key.words_mut()[..usize::from(word::BRIDGE)].fill(0);
        for (index, value) in frozen.hidden.mask().map().iter().zip(frozen.hidden.value()) {
            if !is_naming(index) {
                self.packet.key.words_mut()[index] = *value;
            }
        }
        self.packet.recorder.wrote_hidden();
        if let Some(port) = frozen.in_port {
            self.packet.key.set_in_port(port);
            self.packet.recorder.wrote_word(usize::from(word::IN_PORT), IN_PORT_BITS);
        }
        self.agenda = Agenda::new(frozen.steps.iter().map(thawed).collect());
        self.action_set.refill(&frozen.action_set);
        self.stack = frozen.stack.clone();
        self.context = frozen.context;
        self.rule = frozen.rule.as_ref().map(|named| &named.0);
        self.limits = frozen.limits;
    }

    fn recirculate(&mut self, ttl_copy: Option<TtlCopy>) -> Result<(), TraversalError> {
        let frozen = self.freeze(ttl_copy)?;
        self.end_entry(DatapathAction::Recirculate(self.tables.continuations.intern(frozen, None)))
    }

    /// Emits the last action of the entry, and continues below the frozen steps.
    fn end_entry(&mut self, action: DatapathAction) -> Result<(), TraversalError> {
        self.packet.builder.emit(&self.packet.key, &mut self.packet.recorder, action)?;
        self.leave_frozen();
        Ok(())
    }

    /// Continues below the frozen steps.
    pub(super) fn leave_frozen(&mut self) {
        for step in self.agenda.drain_frozen() {
            if let AgendaStep::EndVisit = step {
                self.packet.recorder.end_visit();
            }
        }
    }

    /// Freezes the remaining steps, within the limit of a chain of recirculations.
    fn freeze(&mut self, ttl_copy: Option<TtlCopy>) -> Result<FrozenState, TraversalError> {
        let limits = self.limits.recirculated()?;
        Ok(self.frozen(ttl_copy, limits))
    }

    /// Returns all state that decides the rest, by value; its bits are consulted.
    pub(super) fn frozen(
        &mut self,
        ttl_copy: Option<TtlCopy>,
        limits: LimitCounters,
    ) -> FrozenState {
        for index in (0..HEADER_START).filter(|index| !is_naming(*index)) {
            self.packet.recorder.consult_word(index, u64::MAX);
        }
        let hidden = hidden(&self.packet.key);
        self.frozen_with_hidden(hidden, ttl_copy, limits)
    }

    /// Returns the state as [`Self::frozen`] does, with these hidden words, which are
    /// consulted.
    pub(super) fn frozen_with_hidden(
        &mut self,
        hidden: Match,
        ttl_copy: Option<TtlCopy>,
        limits: LimitCounters,
    ) -> FrozenState {
        let is_elsewhere = self.packet.recorder.is_rewritten(FieldId::InPort);
        let in_port = is_elsewhere.then(|| self.packet.in_port());
        let (steps, names_rule) =
            frozen_steps(&self.agenda.steps()[self.agenda.nearest_boundary()..]);
        FrozenState {
            bridge: self.bridge.id,
            in_port,
            hidden,
            is_live_only: false,
            ttl_copy,
            steps,
            action_set: self.action_set.actions().cloned().collect(),
            stack: self.stack.clone(),
            context: self.context,
            rule: named(self.rule, names_rule),
            limits,
        }
    }
}

impl AgendaStep<'_> {
    /// Returns whether the step needs headers behind the Ethernet type, or a decision
    /// by them.
    pub(super) fn needs_headers(&self) -> bool {
        match self {
            Self::Actions(rest) => rest.as_slice().first().is_some_and(needs_headers),
            Self::Set(rest) => rest.as_slice().first().is_some_and(|action| needs_headers(action)),
            Self::Instructions(instructions) => instructions.goto.is_some(),
            Self::Walk | Self::LookUp { .. } => true,
            Self::ActionSet(_)
            | Self::Buckets(_)
            | Self::Flood(_)
            | Self::NormalFlood(_)
            | Self::EndVisit
            | Self::Return { .. }
            | Self::Restore(_)
            | Self::Leave(_) => false,
        }
    }
}

/// Returns whether an action needs headers behind the Ethernet type, or a decision
/// by them.
fn needs_headers(action: &Action) -> bool {
    match action {
        Action::Output { port, .. } => *port == shunt_flow::PortNo::TABLE,
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
        | Action::PopQueue
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit
        | Action::Conjunction { .. }
        // A recirculation of its own.
        | Action::CheckPktLarger { .. } => false,
        // A tag may hide headers from the parser, which parses a limited number of tags.
        Action::PushVlan { .. }
        | Action::PopVlan
        | Action::OutputField { .. }
        | Action::DecTtl { .. }
        | Action::Resubmit { .. }
        | Action::Group(_)
        // It may change the DSCP.
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

/// Returns whether a field lies behind the Ethernet type, or exists only with some
/// type.
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

/// Returns steps by value, and whether the next of them name the rule of the
/// actions.
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

/// Returns whether an action names the rule it stands in; no such action is in an
/// action set.
const fn names_own_rule(action: &Action) -> bool {
    matches!(action, Action::Learn(_) | Action::FinTimeout { .. })
}

fn named(rule: Option<&Arc<Rule>>, names_rule: bool) -> Option<NamedRule> {
    rule.filter(|_| names_rule).cloned().map(NamedRule)
}

/// Returns a step by value; `None` if it does nothing.
///
/// `names_rule` is true if the steps behind it name the rule of the actions.
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
        AgendaStep::Return { context, rule, depth } => {
            let rule = named(*rule, names_rule);
            FrozenStep::Return { context: *context, rule, depth: *depth }
        }
        // Nothing below these is frozen; the actions of a bucket or of a port of a flood lie above
        // one.
        AgendaStep::Restore(_)
        | AgendaStep::Leave(_)
        | AgendaStep::Buckets(_)
        | AgendaStep::Flood(_)
        | AgendaStep::NormalFlood(_) => return None,
    })
}

fn thawed(step: &FrozenStep) -> AgendaStep<'_> {
    match step {
        FrozenStep::Actions(actions) => AgendaStep::Actions(actions.iter()),
        FrozenStep::Set(actions) => AgendaStep::Set(actions.iter().collect::<Vec<_>>().into_iter()),
        FrozenStep::Instructions(instructions) => AgendaStep::Instructions(instructions),
        FrozenStep::ActionSet(context) => AgendaStep::ActionSet(*context),
        FrozenStep::Walk => AgendaStep::Walk,
        FrozenStep::LookUp { table, port } => AgendaStep::LookUp { table: *table, port: *port },
        FrozenStep::EndVisit => AgendaStep::EndVisit,
        FrozenStep::Return { context, rule, depth } => {
            let rule = rule.as_ref().map(|named| &named.0);
            AgendaStep::Return { context: *context, rule, depth: *depth }
        }
    }
}

/// Returns the hidden words of a key, except those that name a continuation.
pub(super) fn hidden(key: &FlowKey) -> Match {
    let mut mask = FlowMask::EMPTY;
    for index in (0..HEADER_START).filter(|index| !is_naming(*index)) {
        mask.words_mut()[index] = key.words()[index];
    }
    Match::new(key, &mask)
}

fn is_naming(index: usize) -> bool {
    NAMING.iter().any(|word| usize::from(*word) == index)
}
