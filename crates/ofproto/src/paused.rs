//! Packets that pause at controllers (`controller(pause)`, `NXT_RESUME`).
//!
//! What is left of a paused packet's way names rules' actions, hidden state and a stack: nothing
//! that a controller should be able to write. So it stays here, and the packet-in has a token for
//! it, the opaque continuation. The token is a number and a keyed hash of the number, whose key never
//! leaves the process: who has not been given it cannot make it up.
//!
//! A bridge holds the last [`PAUSED_MAX`] of them, however many packets share one; a packet that
//! comes back with an older one, or with one of another run, is stale.

use std::{
    collections::VecDeque,
    hash::BuildHasher as _,
    sync::{Arc, Mutex, PoisonError},
};

use shunt_pipeline::Continuation;

/// What is held for paused packets of one bridge.
pub const PAUSED_MAX: usize = 4096;

/// Names what is left of a paused packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseToken([u8; Self::LEN]);

/// What is left of the ways of paused packets.
#[derive(Debug, Default)]
pub struct Paused {
    key: Key,
    held: Mutex<Held>,
}

#[expect(clippy::disallowed_types, reason = "a secret that every process has anew, and no map")]
type Key = std::hash::RandomState;

#[derive(Debug, Default)]
struct Held {
    /// Number of the oldest.
    first: u64,
    continuations: VecDeque<Arc<Continuation>>,
}

impl PauseToken {
    /// Bytes of a token, which are a property as Open vSwitch has some in a continuation: its client
    /// prints what it knows of them, and sends back all.
    const LEN: usize = 24;
    /// Type and length of that property; no type of Open vSwitch's.
    const HEADER: [u8; 4] = [0x5d, 0x01, 0, 20];

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Paused {
    /// Holds what is left of a packet's way; the oldest goes when there are too many.
    pub fn hold(&self, continuation: &Arc<Continuation>) -> PauseToken {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Packets that pause one after the other often share what is left of their ways.
        let is_last = |last: &Arc<Continuation>| Arc::ptr_eq(last, continuation);
        if !held.continuations.back().is_some_and(is_last) {
            if held.continuations.len() >= PAUSED_MAX {
                held.continuations.pop_front();
                held.first += 1;
            }
            held.continuations.push_back(Arc::clone(continuation));
        }
        self.token(held.first + held.continuations.len() as u64 - 1)
    }

    /// What a token names; `None` if this never gave it, or no longer holds it.
    #[must_use]
    pub fn find(&self, token: &[u8]) -> Option<Arc<Continuation>> {
        let number = u64::from_be_bytes(*token.get(Self::NUMBER_AT..)?.first_chunk()?);
        if self.token(number).bytes() != token {
            return None;
        }
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(number.checked_sub(held.first)?).ok()?;
        held.continuations.get(index).cloned()
    }

    const NUMBER_AT: usize = PauseToken::HEADER.len();

    fn token(&self, number: u64) -> PauseToken {
        let mut bytes = [0; PauseToken::LEN];
        let parts = [
            &PauseToken::HEADER[..],
            &number.to_be_bytes(),
            &self.key.hash_one(number).to_be_bytes(),
        ];
        for (byte, value) in bytes.iter_mut().zip(parts.concat()) {
            *byte = value;
        }
        PauseToken(bytes)
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FlowKey;
    use shunt_pipeline::{BridgeId, BridgeSettings, DatapathAction, Pipeline, text::parse_rule};

    use super::*;

    /// What is left of a packet's way that pauses before it is sent with `mark`.
    fn continuation(pipeline: &Pipeline, mark: usize) -> Arc<Continuation> {
        let text = format!("actions=controller(pause),set_field:{mark}->reg0,resubmit(,9)");
        let names = shunt_flow::text::NoPortNames;
        let rule = parse_rule(shunt_pipeline::FlowModCommand::Add, &text, &names).unwrap();
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        let actions = &rule.instructions.apply;
        let traversal = pipeline.translate_actions_newest(&key, actions);
        let DatapathAction::Punt(punt) = &traversal.actions[0] else { panic!("a packet-in") };
        Arc::clone(punt.continuation.as_ref().unwrap())
    }

    fn pipeline() -> Pipeline {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BridgeId::new(1), BridgeSettings::default());
        pipeline
    }

    #[test]
    fn a_token_finds_what_it_was_given_for() {
        let (pipeline, paused) = (pipeline(), Paused::default());
        let [one, two] = [1, 2].map(|mark| continuation(&pipeline, mark));
        let tokens = [&one, &two, &two, &one].map(|own| paused.hold(own));
        assert_eq!(tokens[1], tokens[2], "packets share it");
        let found = tokens.map(|token| paused.find(token.bytes()).unwrap());
        assert_eq!(found, [one.clone(), two.clone(), two, one]);
    }

    #[test]
    fn nobody_makes_a_token_up() {
        let (pipeline, paused) = (pipeline(), Paused::default());
        let token = paused.hold(&continuation(&pipeline, 1));
        for at in 0..PauseToken::LEN {
            let mut forged = token;
            forged.0[at] ^= 1;
            assert!(paused.find(forged.bytes()).is_none(), "byte {at}");
            assert!(paused.find(&token.bytes()[..at]).is_none());
        }
        assert!(paused.find(&[token.bytes(), &[0]].concat()).is_none());
        assert!(Paused::default().find(token.bytes()).is_none(), "another run's");
    }

    #[test]
    fn the_oldest_goes_when_too_many_pause() {
        let (pipeline, paused) = (pipeline(), Paused::default());
        let all: Vec<_> = (0..=PAUSED_MAX).map(|mark| continuation(&pipeline, mark)).collect();
        let tokens: Vec<_> = all.iter().map(|own| paused.hold(own)).collect();
        assert!(paused.find(tokens[0].bytes()).is_none());
        assert_eq!(paused.find(tokens[1].bytes()).as_ref(), Some(&all[1]));
        assert_eq!(paused.find(tokens[PAUSED_MAX].bytes()).as_ref(), Some(&all[PAUSED_MAX]));
    }
}
