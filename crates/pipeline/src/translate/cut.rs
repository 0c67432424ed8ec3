//! Cuts: where a translation needs what is not in the key, it ends, and the rest of it goes on with
//! the packet parsed anew (see [`crate::continuation`]).
//!
//! A pop that uncovers headers cuts nothing by itself: most packets are only sent afterwards. What
//! comes next is run as long as it needs none of them, which is what [`needs_headers`] tells, much
//! like `recirc_for_mpls` of Open vSwitch; the first step that does is put back and the entry ends.
//!
//! What is frozen reaches down to the nearest clone or patch port. That part is the copy's, which
//! the datapath parses again; what lies below goes on here at once, with the packet put back.
//! Lookups and depth are summed up along a chain of cuts, and the chain is bounded itself.

use std::sync::Arc;

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match,
    field::Prerequisite,
    layout::{HEADER_START, word},
    rewrite::TtlCopy,
};

use super::{
    context::{Step, Translation},
    recorder::IN_PORT_BITS,
};
use crate::{
    action::{Action, Subfield},
    continuations::continuation::{Continuation, Frozen, FrozenStep, NamedRule},
    tables::{
        rule::{Instructions, Rule},
        rule_filter::any_action,
    },
    traversals::{datapath_action::DatapathAction, traversal::TraversalError},
    versions::delta::Object,
};

/// Whether the key shows the headers that the packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Headers {
    /// As far as they can be shown.
    Parsed,
    /// Not those behind the Ethernet type: they lay behind labels, and nobody has looked.
    Uncovered,
}

/// What was spent of the bounds so far, along a chain of cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    /// How deep resubmits to the same or a lower table, and patch ports, nest here.
    pub(super) depth: u16,
    /// Lookups after the first.
    pub(super) resubmits: u16,
    /// How often the packet was parsed again.
    pub(super) recirculations: u8,
}

/// How often a packet is parsed again at most, as in Open vSwitch.
const RECIRCULATIONS_MAX: u8 = 6;

/// Hidden words that a continuation says nothing of: the ids of recirculation and of the bridge
/// name the continuation itself.
const NAMING: [u8; 2] = [word::RECIRC, word::BRIDGE];

impl<'a> Translation<'a> {
    /// Ends the entry before a step that needs headers which were not parsed.
    pub(super) fn cut_before(&mut self, step: Step<'a>) -> Result<(), TraversalError> {
        self.agenda.push(step);
        self.cut(None)
    }

    /// Ends the entry; a TTL that only the frame shows is copied before the packet goes on.
    pub(super) fn cut_after(&mut self, copy: TtlCopy) -> Result<(), TraversalError> {
        self.cut(Some(copy))
    }

    /// `check_pkt_larger`: ends the entry, and goes on in one of two ways.
    pub(super) fn check_length(
        &mut self,
        length: u16,
        target: Subfield,
    ) -> Result<(), TraversalError> {
        let frozen = self.freeze(None)?;
        let with_bit = |value| {
            let mut frozen = frozen.clone();
            frozen.steps.push(FrozenStep::Actions(vec![Action::Load { target, value }]));
            self.continuations.intern(frozen, None)
        };
        let (larger, other) = (with_bit(1), with_bit(0));
        self.end_entry(DatapathAction::CheckLength { length, larger, other })
    }

    /// Goes on where a continuation was frozen. The key's own hidden words are names alone.
    pub(super) fn thaw(&mut self, continuation: &'a Continuation) {
        let frozen = continuation.frozen();
        if frozen.is_live_only {
            self.recorder.read(Object::Live(frozen.bridge));
        }
        self.key.words_mut()[..usize::from(word::BRIDGE)].fill(0);
        for (index, value) in frozen.hidden.mask().map().iter().zip(frozen.hidden.value()) {
            if !is_naming(index) {
                self.key.words_mut()[index] = *value;
            }
        }
        self.recorder.wrote_hidden();
        if let Some(port) = frozen.in_port {
            self.key.set_in_port(port);
            self.recorder.wrote_word(usize::from(word::IN_PORT), IN_PORT_BITS);
        }
        self.agenda = frozen.steps.iter().map(thawed).collect();
        self.action_set.refill(&frozen.action_set);
        self.stack = frozen.stack.clone();
        self.scope = frozen.scope;
        self.rule = frozen.rule.as_ref().map(|named| &named.0);
        self.spent = frozen.spent;
    }

    fn cut(&mut self, ttl_copy: Option<TtlCopy>) -> Result<(), TraversalError> {
        let frozen = self.freeze(ttl_copy)?;
        self.end_entry(DatapathAction::Recirculate(self.continuations.intern(frozen, None)))
    }

    /// Hands the packet on, and goes on where what was frozen ends.
    fn end_entry(&mut self, action: DatapathAction) -> Result<(), TraversalError> {
        self.wire.emit(&self.key, &mut self.recorder, action)?;
        self.leave_frozen();
        Ok(())
    }

    /// Goes on where what was frozen ends.
    pub(super) fn leave_frozen(&mut self) {
        let boundary = self.nearest_boundary();
        for step in self.agenda.drain(boundary..).rev() {
            if let Step::EndVisit = step {
                self.recorder.end_visit();
            }
        }
    }

    /// As [`Self::frozen`], within the bound of a chain of cuts.
    fn freeze(&mut self, ttl_copy: Option<TtlCopy>) -> Result<Frozen, TraversalError> {
        let recirculations = self.spent.recirculations + 1;
        if recirculations > RECIRCULATIONS_MAX {
            return Err(TraversalError::TooManyRecirculations(RECIRCULATIONS_MAX));
        }
        Ok(self.frozen(ttl_copy, Spent { recirculations, ..self.spent }))
    }

    /// Everything that decides how the packet goes on, by value, and consulted.
    pub(super) fn frozen(&mut self, ttl_copy: Option<TtlCopy>, spent: Spent) -> Frozen {
        for index in (0..HEADER_START).filter(|index| !is_naming(*index)) {
            self.recorder.consult_word(index, u64::MAX);
        }
        let hidden = hidden(&self.key);
        self.frozen_with(hidden, ttl_copy, spent)
    }

    /// As [`Self::frozen`], with this of the hidden words, which has been consulted.
    pub(super) fn frozen_with(
        &mut self,
        hidden: Match,
        ttl_copy: Option<TtlCopy>,
        spent: Spent,
    ) -> Frozen {
        let is_elsewhere = self.recorder.is_rewritten(FieldId::InPort);
        let in_port = is_elsewhere.then(|| self.in_port());
        let (steps, names_rule) = frozen_steps(&self.agenda[self.nearest_boundary()..]);
        Frozen {
            bridge: self.here.id,
            in_port,
            hidden,
            is_live_only: false,
            ttl_copy,
            steps,
            action_set: self.action_set.actions().cloned().collect(),
            stack: self.stack.clone(),
            scope: self.scope,
            rule: named(self.rule, names_rule),
            spent,
        }
    }

    /// The place on the agenda above which everything concerns the packet as it is now.
    pub(super) fn nearest_boundary(&self) -> usize {
        let is_boundary = |step: &Step<'_>| matches!(step, Step::Restore(_) | Step::Leave(_));
        self.agenda.iter().rposition(is_boundary).map_or(0, |place| place + 1)
    }
}

impl Step<'_> {
    /// Whether the step looks at headers behind the Ethernet type, or at what they decide.
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

/// Whether an action looks at headers behind the Ethernet type, or at what they decide.
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
        Action::Controller(asked) => asked.meter.is_some(),
        Action::OutputTruncated { .. }
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit
        | Action::Conjunction { .. }
        // A cut of its own.
        | Action::CheckPktLarger { .. } => false,
        // A tag may hide them from whoever parses the packet afterwards, who looks at so many tags.
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

/// Whether a field lies behind the Ethernet type, or exists only with some type.
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

/// Steps by value, and whether what comes first of them names the rule that it stands in.
fn frozen_steps(steps: &[Step<'_>]) -> (Vec<FrozenStep>, bool) {
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

/// Whether an action says which rule it stands in; no such action is in an action set.
const fn names_own_rule(action: &Action) -> bool {
    matches!(action, Action::Learn(_) | Action::FinTimeout { .. })
}

fn named(rule: Option<&Arc<Rule>>, names_rule: bool) -> Option<NamedRule> {
    rule.filter(|_| names_rule).cloned().map(NamedRule)
}

/// A step by value; `None` if it does nothing. What comes after it may name the rule it stands in.
fn frozen_step(step: &Step<'_>, names_rule: bool) -> Option<FrozenStep> {
    Some(match step {
        Step::Actions(rest) if rest.as_slice().is_empty() => return None,
        Step::Actions(rest) => FrozenStep::Actions(rest.as_slice().to_vec()),
        Step::Set(rest) if rest.as_slice().is_empty() => return None,
        Step::Set(rest) => FrozenStep::Set(rest.clone().cloned().collect()),
        Step::Instructions(instructions) => FrozenStep::Instructions(Instructions {
            meter: None,
            apply: Box::default(),
            ..Instructions::clone(instructions)
        }),
        Step::ActionSet(scope) => FrozenStep::ActionSet(*scope),
        Step::Walk => FrozenStep::Walk,
        Step::LookUp { table, port } => FrozenStep::LookUp { table: *table, port: *port },
        Step::EndVisit => FrozenStep::EndVisit,
        Step::Return { scope, rule, depth } => {
            let rule = named(*rule, names_rule);
            FrozenStep::Return { scope: *scope, rule, depth: *depth }
        }
        // Below these nothing is frozen; what a bucket or a port of a flood does, is above one.
        Step::Restore(_)
        | Step::Leave(_)
        | Step::Buckets(_)
        | Step::Flood(_)
        | Step::NormalFlood(_) => return None,
    })
}

fn thawed(step: &FrozenStep) -> Step<'_> {
    match step {
        FrozenStep::Actions(actions) => Step::Actions(actions.iter()),
        FrozenStep::Set(actions) => Step::Set(actions.iter().collect::<Vec<_>>().into_iter()),
        FrozenStep::Instructions(instructions) => Step::Instructions(instructions),
        FrozenStep::ActionSet(scope) => Step::ActionSet(*scope),
        FrozenStep::Walk => Step::Walk,
        FrozenStep::LookUp { table, port } => Step::LookUp { table: *table, port: *port },
        FrozenStep::EndVisit => Step::EndVisit,
        FrozenStep::Return { scope, rule, depth } => {
            let rule = rule.as_ref().map(|named| &named.0);
            Step::Return { scope: *scope, rule, depth: *depth }
        }
    }
}

/// The hidden words of a key, but for those that name a continuation.
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
