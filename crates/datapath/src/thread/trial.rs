//! Lists of actions that say the same in other words, compared by what comes of them.
//!
//! Both are done to a copy of the packet: the same frames must go to the same places, in the same order,
//! and the same meters be asked. What is done to a copy of the packet is compared likewise; and where a
//! frame waits for a controller, both states are gone on with, and must come to the same.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_pipeline::{Continuation, DatapathAction, Pipeline, Punt, Traversal};

use crate::{Packet, Pool, change::change, execute::Parsed};

/// A comparison of what is done to a packet.
pub(super) struct Trial<'a> {
    pool: &'a mut Pool,
    pipeline: &'a Pipeline,
    version: Version,
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
}

/// What comes of a packet that goes on.
struct Resumed {
    traversal: Arc<Traversal>,
    effects: Vec<Effect>,
}

impl PartialEq for Resumed {
    fn eq(&self, other: &Self) -> bool {
        self.traversal.credits_as(std::slice::from_ref(&other.traversal))
            && self.effects == other.effects
    }
}

/// No buffer is left to try it with.
struct NoBuffer;

/// States that are gone on with for one list at most: rules may make a packet wait for ever.
const RESUMES_MAX: usize = 16;

impl<'a> Trial<'a> {
    pub(super) const fn new(pool: &'a mut Pool, pipeline: &'a Pipeline, version: Version) -> Self {
        Self { pool, pipeline, version, resumes_left: 0 }
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
                DatapathAction::Output { .. }
                | DatapathAction::OutputIngress { .. }
                | DatapathAction::Punt(_)
                | DatapathAction::Recirculate(_)
                | DatapathAction::CheckLength { .. } => {
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
            Some(state) if self.resumes_left > 0 => Some(self.resume(state, packet, parsed)?),
            _ => None,
        };
        let punt = Punt { continuation: None, ..punt.clone() };
        Ok(Effect::Waits { punt, frame: packet.frame().to_vec(), then })
    }

    fn resume(
        &mut self,
        state: &Arc<Continuation>,
        packet: &Packet,
        parsed: &Parsed<'_>,
    ) -> Result<Resumed, NoBuffer> {
        self.resumes_left -= 1;
        let mut key = state.entering(parsed.key);
        let traversal = Arc::new(self.pipeline.resume(&key, state, self.version));
        let parsed = Parsed { key: &mut key, layers: parsed.layers };
        let effects = self.effects(&mut traversal.actions.iter(), packet, &parsed)?;
        Ok(Resumed { traversal, effects })
    }
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
