//! Executes datapath actions on one concrete packet.

use std::sync::Arc;

use shunt_flow::{FlowKey, FlowMask, layout::word};

use super::{LearnEffect, PacketEffects, Refreshed, Visited, frame::Frame, oracle::Outcome};
use crate::{
    continuations::continuation::Continuation,
    id::DatapathPort,
    meters::meter::{Meter, MeterVerdict, raise_drop_precedence},
    pipeline::Pipeline,
    time::Time,
    traversals::{
        datapath_action::DatapathAction,
        traversal::{GroupHit, Traversal},
    },
};

/// Executes actions on a packet from `ingress`.
/// Returns the packets that leave, in order.
///
/// # Panics
///
/// If an action pops a tag or a label that is not there, pushes a third tag, or is a partition
/// point.
#[must_use]
pub fn execute(
    actions: &[DatapathAction],
    key: &FlowKey,
    ingress: Option<DatapathPort>,
) -> Vec<Outcome> {
    let mut execution = Execution::new(None, ingress);
    execution.list(actions, &mut Frame::of(key), key);
    execution.effects.outcomes
}

/// The execution of traversals on one packet.
///
/// Every meter has full buckets at the start of an execution, because earlier packets do not count.
pub(super) struct Execution<'p> {
    /// The pipeline that continues after a partition point, and a bound.
    /// The bound is the maximum number of partition points.
    tables: Option<(&'p Pipeline, usize)>,
    /// The ingress port; `None` if the packet has none in the datapath.
    ingress: Option<DatapathPort>,
    /// True once the packet or the current copy was sent.
    has_emitted: bool,
    pub(super) effects: PacketEffects,
    /// The traversals of the packet, one for each parse.
    pub(super) traversals: Vec<Traversal>,
}

/// The result of a meter: the remaining actions of a list run or are skipped.
enum RemainingActions {
    Run,
    Skip,
}

impl<'p> Execution<'p> {
    /// Returns an execution of no actions. It needs `tables` to resume a packet.
    pub(super) fn new(
        tables: Option<(&'p Pipeline, usize)>,
        ingress: Option<DatapathPort>,
    ) -> Self {
        let (has_emitted, effects, traversals) = (false, PacketEffects::default(), Vec::new());
        Self { tables, ingress, has_emitted, effects, traversals }
    }

    /// Executes a traversal on a packet with this key.
    /// The function also executes the traversals that continue with the packet.
    pub(super) fn run(&mut self, traversal: &Traversal, mut frame: Frame, key: &FlowKey) {
        self.traversals.push(traversal.clone());
        self.note(traversal, frame.len());
        let outer = std::mem::take(&mut self.has_emitted);
        self.list(&traversal.actions, &mut frame, key);
        self.effects.dropped += usize::from(!self.has_emitted);
        self.has_emitted = outer;
    }

    /// Records the statistics and refreshes of a traversal.
    fn note(&mut self, traversal: &Traversal, length: usize) {
        let chose = |hit: &GroupHit| (hit.group.bridge, hit.group.id, hit.bucket);
        let effects = &mut self.effects;
        effects.visited.extend(traversal.lookups().map(|visit| Visited {
            place: (visit.bridge, visit.table),
            rule: visit.rule.as_ref().map(|rule| rule.id),
            length,
        }));
        effects.groups.extend(traversal.group_hits.iter().map(chose));
        let mirrors = traversal.output_hits.iter().map(|hit| hit.name().to_owned());
        effects.mirrored.extend(mirrors);
        effects.learned.extend(traversal.learnings.iter().map(LearnEffect::of));
        effects.refreshed.extend(traversal.refreshes.iter().map(Refreshed::of));
        if traversal.continuation.is_none() {
            effects.error = traversal.error;
        } else {
            effects.later_errors.extend(traversal.error);
        }
    }

    /// Executes a list of actions.
    fn list(&mut self, actions: &[DatapathAction], frame: &mut Frame, key: &FlowKey) {
        for action in actions {
            if let RemainingActions::Skip = self.step(action, frame, key) {
                return;
            }
        }
    }

    /// Executes one action of a traversal.
    fn step(
        &mut self,
        action: &DatapathAction,
        frame: &mut Frame,
        key: &FlowKey,
    ) -> RemainingActions {
        match action {
            DatapathAction::Output { port, queue, unless_ingress, max_len } => {
                if !(*unless_ingress && self.ingress == Some(*port)) {
                    self.emit(Outcome::sent(*port, *queue, *max_len, frame));
                }
            }
            DatapathAction::OutputIngress { queue, max_len } => {
                if let Some(port) = self.ingress {
                    self.emit(Outcome::sent(port, *queue, *max_len, frame));
                }
            }
            DatapathAction::Punt(punt) => {
                self.emit(Outcome::punted(punt, frame));
            }
            DatapathAction::Meter(meter) => {
                match full_meter(meter).admit(Time::ZERO, frame.len()) {
                    MeterVerdict::Pass => {}
                    MeterVerdict::Remark(levels) => remark(frame, levels),
                    MeterVerdict::Drop => {
                        self.effects.was_metered = true;
                        return RemainingActions::Skip;
                    }
                }
            }
            DatapathAction::Copy(inner) => self.list(inner, &mut frame.clone(), key),
            DatapathAction::Recirculate(continuation) => self.resume(frame, key, continuation),
            DatapathAction::CheckLength { length, larger, other } => {
                let is_larger = frame.len() > usize::from(*length);
                self.resume(frame, key, if is_larger { larger } else { other });
            }
            DatapathAction::SetHeader(_)
            | DatapathAction::PushVlan { .. }
            | DatapathAction::PopVlan
            | DatapathAction::PushMpls { .. }
            | DatapathAction::PopMpls { .. } => change(action, frame),
            DatapathAction::Sample(_) => {}
        }
        RemainingActions::Run
    }

    /// Records an outcome of the traversal.
    fn emit(&mut self, outcome: Outcome) {
        self.has_emitted = true;
        self.effects.outcomes.push(outcome);
    }

    /// Continues with a recirculated packet.
    #[expect(clippy::expect_used, reason = "only an execution with tables resumes a packet")]
    fn resume(&mut self, frame: &Frame, key: &FlowKey, continuation: &Arc<Continuation>) {
        let (pipeline, parsed_max) =
            self.tables.expect("only an execution with tables resumes a packet");
        self.has_emitted = true;
        if self.traversals.len() > parsed_max {
            self.effects.dropped += 1;
            return;
        }
        let mut frame = frame.clone();
        if let Some(copy) = continuation.ttl_copy() {
            frame.copy_ttl(copy);
        }
        let mut parsed = frame.view();
        parsed.set_in_port(key.in_port());
        continuation.enter(&mut parsed);
        let traversal = pipeline.resume(&parsed, continuation, pipeline.version());
        self.run(&traversal, frame, &parsed);
    }
}

/// Returns the meter in its initial state.
fn full_meter(meter: &Meter) -> Meter {
    Meter::new(meter.id, meter.bridge, meter.config.clone(), Time::ZERO)
}

/// Lowers the DSCP by some drop precedences.
fn remark(frame: &mut Frame, levels: u8) {
    if let Some(dscp) = frame.dscp() {
        let raised = raise_drop_precedence(u8::try_from(dscp).unwrap_or(0), levels);
        frame.set_dscp(raised.into());
    }
}

/// Applies an action that changes the frame.
fn change(action: &DatapathAction, frame: &mut Frame) {
    /// The word of a key that has the VLAN tags.
    const VLAN: usize = word::VLAN as usize;
    let vlan = frame.view().words()[VLAN];
    match action {
        DatapathAction::SetHeader(set) => {
            let (value, mask) = (set.key(), FlowMask::from(set.mask()));
            let words = value.words().iter().zip(mask.words()).enumerate();
            words.for_each(|(word, (value, mask))| frame.write(word, *value, *mask));
        }
        DatapathAction::PushVlan { tpid, tci } => {
            assert_eq!(vlan & 0x1000, 0, "a third tag");
            let tag = u64::from(*tpid) << 16 | u64::from(*tci);
            frame.write(VLAN, tag << 32 | vlan >> 32, u64::MAX);
        }
        DatapathAction::PopVlan => {
            assert_ne!(vlan & 0x1000 << 32, 0, "no tag to pop");
            frame.write(VLAN, vlan << 32, u64::MAX);
        }
        DatapathAction::PushMpls { lse, ethertype } => {
            frame.labels.insert(0, *lse);
            frame.set_ether_type(*ethertype);
        }
        DatapathAction::PopMpls { ethertype } => {
            frame.labels.remove(0);
            frame.set_ether_type(*ethertype);
        }
        other => unreachable!("{other:?} changes no header"),
    }
}
