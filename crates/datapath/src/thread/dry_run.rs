//! Lists of actions that say the same in other words, compared by what comes of them.
//!
//! Both are done to a copy of the packet: the same frames must go to the same places, in the same order,
//! and the same meters be asked. What is done to a copy of the packet is compared likewise; and where a
//! frame waits for a controller, or is parsed again, both states are gone on with, and must come to the
//! same, as far as [`RESUMES_MAX`] reaches: rules may make a packet go on for ever.

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
    thread::execute::Parsed,
};

/// A comparison of what is done to a packet.
pub(super) struct Trial<'a> {
    pool: &'a mut Pool,
    pipeline: &'a Pipeline,
    version: Version,
    vlan_limit: VlanLimit,
    /// States that are still gone on with, of those that one list leaves.
    resumes_left: usize,
}

/// What comes of an action.
#[derive(PartialEq)]
enum Effect {
    /// A meter is asked.
    Asked(DatapathAction),
    /// The frame is handed on.
    Left { action: DatapathAction, frame: Vec<u8> },
    /// This is done to a copy.
    Copied(Vec<Self>),
    /// The frame goes to the controllers, and this comes of it when one sends it back. The punt is
    /// without its state.
    Waits { punt: Punt, frame: Vec<u8>, then: Option<Resumed> },
    /// The frame is parsed again, and goes on.
    Again { frame: Vec<u8>, then: Option<Resumed> },
}

/// What comes of a packet that goes on.
struct Resumed {
    traversal: Arc<Traversal>,
    effects: Vec<Effect>,
}

impl PartialEq for Resumed {
    fn eq(&self, other: &Self) -> bool {
        self.traversal.credits_like(std::slice::from_ref(&other.traversal))
            && self.effects == other.effects
    }
}

/// No buffer is left to try it with.
struct NoBuffer;

/// States that are gone on with for one list at most. What comes of those behind them is not compared.
const RESUMES_MAX: usize = 16;

impl<'a> Trial<'a> {
    /// A comparison by the tables of a version, where packets are parsed as far as a limit says.
    pub(super) const fn new(
        pool: &'a mut Pool,
        pipeline: &'a Pipeline,
        version: Version,
        vlan_limit: VlanLimit,
    ) -> Self {
        Self { pool, pipeline, version, vlan_limit, resumes_left: 0 }
    }

    /// Whether lists, one behind the other, do what a whole one does. Where no buffer is left to try it
    /// with, they have the benefit of the doubt.
    pub(super) fn do_the_same(
        &mut self,
        lists: &[&[DatapathAction]],
        whole: &[DatapathAction],
        packet: &Packet,
        parsed: &Parsed<'_>,
    ) -> bool {
        let mut come_of = |actions: &mut dyn Iterator<Item = &DatapathAction>| {
            self.resumes_left = RESUMES_MAX;
            self.effects(actions, packet, parsed)
        };
        let cut = come_of(&mut lists.iter().copied().flatten());
        let whole = come_of(&mut whole.iter());
        match (cut, whole) {
            (Ok(cut), Ok(whole)) => cut == whole,
            (Err(NoBuffer), _) | (_, Err(NoBuffer)) => true,
        }
    }

    /// What comes of actions that are done to a copy of a packet.
    fn effects(
        &mut self,
        actions: &mut dyn Iterator<Item = &DatapathAction>,
        packet: &Packet,
        parsed: &Parsed<'_>,
    ) -> Result<Vec<Effect>, NoBuffer> {
        let mut copy = self.pool.copy(packet, None).ok_or(NoBuffer)?;
        let mut key = parsed.key.clone();
        let mut state = Parsed { key: &mut key, layers: parsed.layers };
        let mut effects = Vec::new();
        let end = self.note(&mut effects, actions, &mut copy, &mut state);
        self.pool.give(copy);
        end.map(|()| effects)
    }

    fn note(
        &mut self,
        effects: &mut Vec<Effect>,
        actions: &mut dyn Iterator<Item = &DatapathAction>,
        packet: &mut Packet,
        parsed: &mut Parsed<'_>,
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
                DatapathAction::Meter(_) => effects.push(Effect::Asked(action.clone())),
                DatapathAction::Copy(list) => {
                    let copied = self.effects(&mut list.iter(), packet, parsed)?;
                    effects.push(Effect::Copied(copied));
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
                    effects.push(Effect::Left { action, frame });
                }
            }
        }
        Ok(())
    }

    fn wait(
        &mut self,
        punt: &Punt,
        packet: &Packet,
        parsed: &Parsed<'_>,
    ) -> Result<Effect, NoBuffer> {
        let then = match &punt.continuation {
            Some(state) => {
                self.resume(state, packet, (state.entering(parsed.key), parsed.layers))?
            }
            None => None,
        };
        let punt = Punt { continuation: None, ..punt.clone() };
        Ok(Effect::Waits { punt, frame: packet.frame().to_vec(), then })
    }

    fn parse_again(
        &mut self,
        state: &Arc<Continuation>,
        packet: &Packet,
        parsed: &Parsed<'_>,
    ) -> Result<Effect, NoBuffer> {
        let mut copy = self.pool.copy(packet, None).ok_or(NoBuffer)?;
        if let (Some(ttl), Some(payload)) = (state.ttl_copy(), parsed.layers.payload()) {
            rewrite::copy_ttl(copy.frame_mut(), payload, ttl);
        }
        let mut key = FlowKey::ZERO;
        let layers = extract(copy.frame(), self.vlan_limit, &mut key);
        key.set_in_port(parsed.key.in_port());
        state.enter(&mut key);
        let then = self.resume(state, &copy, (key, layers));
        let frame = copy.frame().to_vec();
        self.pool.give(copy);
        Ok(Effect::Again { frame, then: then? })
    }

    /// What comes of a packet that goes on with a state, unless too many have.
    fn resume(
        &mut self,
        state: &Arc<Continuation>,
        packet: &Packet,
        (mut key, layers): (FlowKey, Layers),
    ) -> Result<Option<Resumed>, NoBuffer> {
        let Some(left) = self.resumes_left.checked_sub(1) else { return Ok(None) };
        self.resumes_left = left;
        let traversal = Arc::new(self.pipeline.resume(&key, state, self.version));
        let parsed = Parsed { key: &mut key, layers };
        let effects = self.effects(&mut traversal.actions.iter(), packet, &parsed)?;
        Ok(Some(Resumed { traversal, effects }))
    }
}

#[cfg(test)]
#[path = "dry_run_tests.rs"]
mod tests;
