//! The agenda: the remaining steps of a translation.
//!
//! Rules choose how deep resubmits, clones and patch ports nest, so the translation has no
//! recursion. The remaining steps lie on a stack of [`AgendaStep`]s, and one loop takes the topmost
//! step. A walk through the tables from the first table is, from bottom to top:
//!
//! ```text
//! EndVisit       closes the last visit of the walk
//! ActionSet      executes the action set
//! Instructions   the rest of the rule: action set, metadata, goto
//! Actions        the rest of the actions of the rule
//! ```
//!
//! If a step needs headers that were not parsed, the remaining steps become a continuation: see
//! `recirculation`.
//!
//! `goto` ends the visit and begins the next in its place. `resubmit` pushes `Return`, `EndVisit`
//! and the lookup. `clone` pushes `Restore`, then an execution of its copy of the action set, then
//! its actions. An output to a patch port pushes `EnterPeer`, which pushes `Leave` and a walk
//! through the peer's tables. A group pushes `Leave` and then the actions of a bucket. NORMAL and
//! mirrors push `RestorePacket` before an output with another tag. `exit` drops all steps down to
//! the nearest `Leave`. An error for too many labels drops all steps down to the `Leave` of a
//! bucket.
//!
//! Rare steps are boxed, because every push and pop copies as many bytes as the largest step has.

use std::{ops::ControlFlow, slice, vec};

use shunt_flow::PortNo;

use super::{
    actions::{
        mirror::{MirrorCopies, MirrorFlood},
        multicast::MulticastOutputs,
        normal::NormalFlood,
        output::Flood,
    },
    nesting::SavedContext,
    rule_context::{RuleContext, RunningRule},
    working_packet::SavedPacket,
};
use crate::{
    action::Action,
    groups::group::Bucket,
    id::{BridgeId, TableId},
    tables::rule::Instructions,
};

/// A stack of steps, with the next step at the end.
#[derive(Default)]
pub(super) struct Agenda<'a> {
    /// The steps, the next one last.
    steps: Vec<AgendaStep<'a>>,
}

/// One step of a translation that remains to be done.
pub(super) enum AgendaStep<'a> {
    /// Execute the remaining actions of a list.
    Actions(slice::Iter<'a, Action>),
    /// Execute the remaining actions of an action set.
    Set(vec::IntoIter<&'a Action>),
    /// Execute the instructions of a rule after its `apply_actions`.
    Instructions(&'a Instructions),
    /// Execute the action set on behalf of this rule.
    ActionSet(RuleContext),
    /// Run the remaining buckets of a group.
    Buckets(slice::Iter<'a, Bucket>),
    /// Send to the remaining ports of a flood.
    Flood(Flood<'a>),
    /// Send to the remaining ports of a flood by NORMAL.
    NormalFlood(NormalFlood<'a>),
    /// Send to the remaining ports of a multicast packet.
    Multicast(MulticastOutputs<'a>),
    /// Send the remaining copies for mirrors.
    Mirror(MirrorCopies<'a>),
    /// Send to the remaining ports of a mirror's copy in a VLAN.
    MirrorFlood(Box<MirrorFlood<'a>>),
    /// Walk through the tables from the first table.
    Walk,
    /// Look up the packet in a table, and run the matched rule.
    /// `port` replaces the ingress port.
    LookUp { table: TableId, port: Option<PortNo> },
    /// Close the visit that was begun last.
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
    /// Restore the packet after an output that changed its tag.
    RestorePacket(Box<SavedPacket>),
    /// Restore packet and state after a clone.
    Restore(Box<SavedContext<'a>>),
    /// Restore packet and state after the peer bridge, or after a bucket.
    Leave(Box<SavedContext<'a>>),
}

impl<'a> Agenda<'a> {
    /// Creates an agenda of these steps, with the next step at the end.
    pub(super) const fn new(steps: Vec<AgendaStep<'a>>) -> Self {
        Self { steps }
    }

    /// Creates an empty agenda that reuses memory.
    pub(super) fn reusing(steps: Vec<AgendaStep<'static>>) -> Self {
        Self::new(clear_steps(steps))
    }

    /// Empties the agenda, and returns its memory for the next agenda.
    pub(super) fn into_memory(self) -> Vec<AgendaStep<'static>> {
        clear_steps(self.steps)
    }

    /// Pushes a step, which becomes the next step.
    pub(super) fn push(&mut self, step: AgendaStep<'a>) {
        self.steps.push(step);
    }

    /// Takes the step that is executed next.
    pub(super) fn pop(&mut self) -> Option<AgendaStep<'a>> {
        self.steps.pop()
    }

    /// Returns all steps, with the next step at the end.
    pub(super) fn steps(&self) -> &[AgendaStep<'a>] {
        &self.steps
    }

    /// Drops all steps that are left.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
    }

    /// On `Break`, drops the current list of actions and the instructions after it.
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

    /// Returns the steps until the packet is next restored; the next step is the last.
    pub(super) fn freezable(&self) -> &[AgendaStep<'a>] {
        &self.steps[self.nearest_boundary()..]
    }

    /// Returns whether no remaining step restores an earlier packet.
    pub(super) fn is_freezable(&self) -> bool {
        self.nearest_boundary() == 0
    }

    /// Returns the index of the steps until the packet is next restored.
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

    /// Takes the steps until the packet is next restored, in the order of execution.
    pub(super) fn drain_frozen(&mut self) -> impl Iterator<Item = AgendaStep<'a>> {
        let boundary = self.nearest_boundary();
        self.steps.drain(boundary..).rev()
    }
}

/// Drops all steps, and returns the memory for steps of another lifetime.
fn clear_steps<'b>(mut steps: Vec<AgendaStep<'_>>) -> Vec<AgendaStep<'b>> {
    steps.clear();
    // The standard library collects into the same memory if the layouts are equal.
    steps.into_iter().map(|_| AgendaStep::EndVisit).collect()
}
