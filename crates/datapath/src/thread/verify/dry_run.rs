//! Dry runs of two action lists, to compare their effects on a packet.
//!
//! Each list runs on a copy of the packet. The compared action lists must send the same frames to
//! the same ports in the same order, and apply the same meters. The actions inside
//! [`DatapathAction::Copy`] are compared in the same manner. Where a frame waits for a controller
//! or recirculates, both runs resume there and must have the same effects. At most [`RESUMES_MAX`]
//! resumptions are compared, since rules may recirculate forever.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::{
    FlowKey, Layers,
    extract::{VlanLimit, extract},
    rewrite,
};
use shunt_pipeline::{Continuation, DatapathAction, Pipeline, Punt, Traversal};

use crate::{
    packet::{
        buffer::{Packet, Pool},
        change::change,
    },
    thread::execute::ParsedPacket,
};

/// A comparison of the effects of action lists on one packet.
pub(super) struct DryRun<'a> {
    /// The pool of packet buffers.
    pool: &'a mut Pool,
    /// The pipeline that translates the packet.
    pipeline: &'a Pipeline,
    /// The version of the rules.
    version: Version,
    /// The maximum number of VLAN tags that are matched.
    vlan_limit: VlanLimit,
    /// Number of resumptions left for the current list.
    resumes_left: usize,
}

/// The effect of an action on a packet.
#[derive(PartialEq)]
enum ActionEffect {
    /// A meter counts the packet.
    Metered(DatapathAction),
    /// The packet may be sampled, as this frame.
    Sampled { action: DatapathAction, frame: Vec<u8> },
    /// The frame is sent to a port, or punted.
    Emitted { action: DatapathAction, frame: Vec<u8> },
    /// The effects of actions on a copy of the packet.
    Copied(Vec<Self>),
    /// The frame is punted, and resumes when a controller sends it back.
    ///
    /// The punt is stored without its continuation.
    PausedPunt { punt: Punt, frame: Vec<u8>, then: Option<ResumedEffects> },
    /// The frame is recirculated.
    Recirculated { frame: Vec<u8>, then: Option<ResumedEffects> },
}

/// The traversal and the effects of a packet after it resumed.
struct ResumedEffects {
    /// The traversal of the resumed packet.
    traversal: Arc<Traversal>,
    /// The effects on the packet, in order.
    effects: Vec<ActionEffect>,
}

impl PartialEq for ResumedEffects {
    fn eq(&self, other: &Self) -> bool {
        self.traversal.credits_like(std::slice::from_ref(&other.traversal))
            && self.effects == other.effects
    }
}

/// The error that the pool has no buffer for a dry run.
struct NoBuffer;

/// Maximum number of resumptions that the run of one list follows.
const RESUMES_MAX: usize = 16;

impl<'a> DryRun<'a> {
    /// Creates a dry run that resumes recirculated packets in the tables of `version`.
    pub(super) const fn new(
        pool: &'a mut Pool,
        pipeline: &'a Pipeline,
        version: Version,
        vlan_limit: VlanLimit,
    ) -> Self {
        Self { pool, pipeline, version, vlan_limit, resumes_left: 0 }
    }

    /// Returns whether `lists` in sequence have the same effects as the list `whole`.
    ///
    /// The function also returns true if the pool has no buffer.
    pub(super) fn have_same_effects(
        &mut self,
        lists: &[&[DatapathAction]],
        whole: &[DatapathAction],
        packet: &Packet,
        parsed: &ParsedPacket<'_>,
    ) -> bool {
        let mut run = |actions: &mut dyn Iterator<Item = &DatapathAction>| {
            self.resumes_left = RESUMES_MAX;
            self.effects(actions, packet, parsed)
        };
        let split = run(&mut lists.iter().copied().flatten());
        let whole = run(&mut whole.iter());
        match (split, whole) {
            (Ok(split), Ok(whole)) => split == whole,
            (Err(NoBuffer), _) | (_, Err(NoBuffer)) => true,
        }
    }

    /// Returns the effects of actions on a copy of a packet.
    fn effects(
        &mut self,
        actions: &mut dyn Iterator<Item = &DatapathAction>,
        packet: &Packet,
        parsed: &ParsedPacket<'_>,
    ) -> Result<Vec<ActionEffect>, NoBuffer> {
        let mut copy = self.pool.copy(packet, None).ok_or(NoBuffer)?;
        let mut key = parsed.key.clone();
        let mut state = ParsedPacket { key: &mut key, layers: parsed.layers };
        let mut effects = Vec::new();
        let end = self.record_actions(&mut effects, actions, &mut copy, &mut state);
        self.pool.put_back(copy);
        end.map(|()| effects)
    }

    /// Records the effect of each action on the packet, and sends nothing.
    fn record_actions(
        &mut self,
        effects: &mut Vec<ActionEffect>,
        actions: &mut dyn Iterator<Item = &DatapathAction>,
        packet: &mut Packet,
        parsed: &mut ParsedPacket<'_>,
    ) -> Result<(), NoBuffer> {
        for action in actions {
            match action {
                DatapathAction::SetHeader(_)
                | DatapathAction::PushVlan { .. }
                | DatapathAction::PopVlan
                | DatapathAction::PushMpls { .. }
                | DatapathAction::PopMpls { .. } => {
                    if !change(packet, action, parsed) {
                        break;
                    }
                }
                DatapathAction::Meter(_) => effects.push(ActionEffect::Metered(action.clone())),
                DatapathAction::Sample(_) => effects.push(ActionEffect::Sampled {
                    action: action.clone(),
                    frame: packet.frame().to_vec(),
                }),
                DatapathAction::Copy(list) => {
                    let copied = self.effects(&mut list.iter(), packet, parsed)?;
                    effects.push(ActionEffect::Copied(copied));
                }
                DatapathAction::Punt(punt) if punt.continuation.is_some() => {
                    effects.push(self.wait(punt, packet, parsed)?);
                }
                DatapathAction::Recirculate(state) => {
                    effects.push(self.parse_again(state, packet, parsed)?);
                }
                DatapathAction::CheckLength { length, larger, other } => {
                    let is_larger = packet.wire_len() > usize::from(*length);
                    let state = if is_larger { larger } else { other };
                    effects.push(self.parse_again(state, packet, parsed)?);
                }
                DatapathAction::Output { .. }
                | DatapathAction::OutputIngress { .. }
                | DatapathAction::Punt(_) => {
                    let (action, frame) = (action.clone(), packet.frame().to_vec());
                    effects.push(ActionEffect::Emitted { action, frame });
                }
            }
        }
        Ok(())
    }

    /// Records a punt that pauses the packet, with the effects after it.
    fn wait(
        &mut self,
        punt: &Punt,
        packet: &Packet,
        parsed: &ParsedPacket<'_>,
    ) -> Result<ActionEffect, NoBuffer> {
        let then = match &punt.continuation {
            Some(state) => self.resume(state, packet, state.entering(parsed.key), parsed.layers)?,
            None => None,
        };
        let punt = Punt { continuation: None, ..punt.clone() };
        Ok(ActionEffect::PausedPunt { punt, frame: packet.frame().to_vec(), then })
    }

    /// Records a recirculation: the key after another parse of the packet.
    fn parse_again(
        &mut self,
        state: &Arc<Continuation>,
        packet: &Packet,
        parsed: &ParsedPacket<'_>,
    ) -> Result<ActionEffect, NoBuffer> {
        let mut copy = self.pool.copy(packet, None).ok_or(NoBuffer)?;
        if let (Some(ttl), Some(payload)) = (state.ttl_copy(), parsed.layers.payload()) {
            rewrite::copy_ttl(copy.frame_mut(), payload, ttl);
        }
        let mut key = FlowKey::ZERO;
        let layers = extract(copy.frame(), self.vlan_limit, &mut key);
        key.set_in_port(parsed.key.in_port());
        state.enter(&mut key);
        let then = self.resume(state, &copy, key, layers);
        let frame = copy.frame().to_vec();
        self.pool.put_back(copy);
        Ok(ActionEffect::Recirculated { frame, then: then? })
    }

    /// Resumes a packet at a continuation; `None` if no resumption is left.
    fn resume(
        &mut self,
        state: &Arc<Continuation>,
        packet: &Packet,
        mut key: FlowKey,
        layers: Layers,
    ) -> Result<Option<ResumedEffects>, NoBuffer> {
        let Some(left) = self.resumes_left.checked_sub(1) else { return Ok(None) };
        self.resumes_left = left;
        let traversal = Arc::new(self.pipeline.resume(&key, state, self.version));
        let parsed = ParsedPacket { key: &mut key, layers };
        let effects = self.effects(&mut traversal.actions.iter(), packet, &parsed)?;
        Ok(Some(ResumedEffects { traversal, effects }))
    }
}

#[cfg(test)]
#[path = "dry_run_tests.rs"]
mod tests;
