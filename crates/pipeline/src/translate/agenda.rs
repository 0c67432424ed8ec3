//! The agenda: the remaining steps of a translation.
//!
//! Rules choose how deep resubmits, clones and patch ports nest, so no function here calls itself.
//! The steps after a nested part lie on a stack of [`AgendaStep`]s, and one loop takes the
//! topmost. A walk through the tables from the first one is, from bottom to top:
//!
//! ```text
//! EndVisit       closes the last visit of the walk
//! ActionSet      executes the action set
//! Instructions   the rest of the rule: action set, metadata, goto
//! Actions        the rest of the actions of the rule
//! ```
//!
//! If a step needs headers that were not parsed, the agenda is frozen: see `recirculation`.
//!
//! `goto` ends the visit and begins the next in its place. `resubmit` puts `Return`, `EndVisit` and
//! the lookup on top. `clone` puts `Restore` under its actions and under an execution of its copy
//! of the action set. An output to a patch port puts `EnterPeer` on top, which puts `Leave` under a
//! walk of its own. A group puts `Leave` under the actions of a bucket. NORMAL and mirrors put
//! `RestorePacket` under an output with another tag. `exit` drops all steps down to the nearest
//! `Leave`; too many labels, to the one of a bucket.
//!
//! Rare steps are boxed, because every push and pop moves as much as the largest step.

use std::{ops::ControlFlow, slice, vec};

use shunt_flow::PortNo;

use super::{
    actions::{
        mirror::{MirrorCopies, MirrorFlood},
        multicast::MulticastOutputs,
        normal::NormalFlood,
        output::Flood,
    },
    nesting::Saved,
    rule_context::{RuleContext, RunningRule},
    working_packet::SavedPacket,
};
use crate::{
    action::Action,
    groups::group::Bucket,
    id::{BridgeId, TableId},
    tables::rule::Instructions,
};

/// A stack of steps, the next one last.
#[derive(Default)]
pub(super) struct Agenda<'a> {
    steps: Vec<AgendaStep<'a>>,
}

/// One remaining step.
pub(super) enum AgendaStep<'a> {
    /// The rest of a list of actions.
    Actions(slice::Iter<'a, Action>),
    /// The rest of an action set that is being executed.
    Set(vec::IntoIter<&'a Action>),
    /// The instructions of a rule after its actions.
    Instructions(&'a Instructions),
    /// Execute the action set, as this rule.
    ActionSet(RuleContext),
    /// The rest of the buckets of a group.
    Buckets(slice::Iter<'a, Bucket>),
    /// The rest of a flood.
    Flood(Flood<'a>),
    /// The rest of a flood by NORMAL.
    NormalFlood(NormalFlood<'a>),
    /// The rest of the ports of a multicast packet.
    Multicast(MulticastOutputs<'a>),
    /// The rest of the copies for mirrors.
    Mirror(MirrorCopies<'a>),
    /// The rest of a flood of a copy for a mirror.
    MirrorFlood(Box<MirrorFlood<'a>>),
    /// Walk through the tables from the first one.
    Walk,
    /// Look up in a table and run the matched rule. `port` replaces the ingress port.
    LookUp { table: TableId, port: Option<PortNo> },
    /// Close the innermost visit.
    EndVisit,
    /// Return from a resubmit.
    Return {
        /// The rule of the resubmit.
        rule: RunningRule<'a>,
        /// The nesting depth of the resubmit.
        depth: u16,
    },
    /// Send the packet to a port of the peer bridge of a patch port.
    EnterPeer { bridge: BridgeId, port: PortNo },
    /// Put the packet back after an output that changed its tag.
    RestorePacket(Box<SavedPacket>),
    /// Put packet and state back after a clone.
    Restore(Box<Saved<'a>>),
    /// Put packet and state back after the peer bridge, or after a bucket.
    Leave(Box<Saved<'a>>),
}

impl<'a> Agenda<'a> {
    /// An agenda of these steps, the next one last.
    pub(super) const fn new(steps: Vec<AgendaStep<'a>>) -> Self {
        Self { steps }
    }

    /// An empty agenda in used memory.
    pub(super) fn reusing(steps: Vec<AgendaStep<'static>>) -> Self {
        Self::new(emptied(steps))
    }

    /// Returns the memory for the next agenda.
    pub(super) fn into_memory(self) -> Vec<AgendaStep<'static>> {
        emptied(self.steps)
    }

    /// Puts a step on top: it is the next.
    pub(super) fn push(&mut self, step: AgendaStep<'a>) {
        self.steps.push(step);
    }

    /// Takes the next step.
    pub(super) fn pop(&mut self) -> Option<AgendaStep<'a>> {
        self.steps.pop()
    }

    /// Returns all steps, the next one last.
    pub(super) fn steps(&self) -> &[AgendaStep<'a>] {
        &self.steps
    }

    /// Drops all steps.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
    }

    /// On `Break`, drops the rest of the current list and the instructions after it.
    pub(super) fn apply_flow(&mut self, flow: ControlFlow<()>) {
        if flow.is_continue() {
            return;
        }
        self.steps.pop();
        if let Some(AgendaStep::Instructions(_)) = self.steps.last() {
            self.steps.pop();
        }
    }

    /// Returns whether a bucket is being run.
    pub(super) fn is_in_bucket(&self) -> bool {
        let is_bucket =
            |step: &AgendaStep<'_>| matches!(step, AgendaStep::Leave(saved) if saved.is_bucket);
        self.steps.iter().any(is_bucket)
    }

    /// Returns the steps that concern the packet as it is now, the next one last.
    pub(super) fn freezable(&self) -> &[AgendaStep<'a>] {
        &self.steps[self.nearest_boundary()..]
    }

    /// Returns whether all remaining steps concern the packet as it is now.
    pub(super) fn is_freezable(&self) -> bool {
        self.nearest_boundary() == 0
    }

    /// Returns the index above which all steps concern the packet as it is now.
    fn nearest_boundary(&self) -> usize {
        let is_boundary = |step: &AgendaStep<'_>| match step {
            AgendaStep::RestorePacket(_) | AgendaStep::Restore(_) | AgendaStep::Leave(_) => true,
            AgendaStep::Actions(_)
            | AgendaStep::Set(_)
            | AgendaStep::Instructions(_)
            | AgendaStep::ActionSet(_)
            | AgendaStep::Buckets(_)
            | AgendaStep::Flood(_)
            | AgendaStep::NormalFlood(_)
            | AgendaStep::Multicast(_)
            | AgendaStep::Mirror(_)
            | AgendaStep::MirrorFlood(_)
            | AgendaStep::Walk
            | AgendaStep::LookUp { .. }
            | AgendaStep::EndVisit
            | AgendaStep::Return { .. }
            | AgendaStep::EnterPeer { .. } => false,
        };
        self.steps.iter().rposition(is_boundary).map_or(0, |index| index + 1)
    }

    /// Takes the steps above the nearest boundary, the next one first.
    pub(super) fn drain_frozen(&mut self) -> impl Iterator<Item = AgendaStep<'a>> {
        let boundary = self.nearest_boundary();
        self.steps.drain(boundary..).rev()
    }
}

/// Drops all steps, and returns the memory for steps of another lifetime.
fn emptied<'b>(mut steps: Vec<AgendaStep<'_>>) -> Vec<AgendaStep<'b>> {
    steps.clear();
    // The standard library collects a list of equal layout in place.
    steps.into_iter().map(|_| AgendaStep::EndVisit).collect()
}
