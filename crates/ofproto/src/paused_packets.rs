//! Packets that are paused at controllers (`controller(pause)`, `NXT_RESUME`).
//!
//! The continuation of a paused packet holds rule actions, hidden state and a stack. No controller
//! may write rule actions or hidden state, so the continuation stays in the switch. The packet-in
//! carries a token for the continuation, in the opaque `NXPINT_CONTINUATION` property. A token is a
//! number and a keyed hash of that number. The key of the hash never leaves the process, so a
//! controller cannot forge a token.
//!
//! A bridge keeps the last [`PAUSED_MAX`] continuations; several packets may share one. A resumed
//! packet with an older token, or with a token of an earlier process, is stale.

use std::{
    collections::VecDeque,
    hash::BuildHasher as _,
    sync::{Arc, Mutex, PoisonError},
};

use shunt_pipeline::Continuation;

/// Number of continuations that a bridge keeps.
pub const PAUSED_MAX: usize = 4096;

/// A token that names the continuation of a paused packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseToken([u8; Self::LEN]);

/// The continuations of the paused packets of one bridge.
#[derive(Debug, Default)]
pub struct PausedPackets {
    /// The secret that makes tokens hard to guess.
    key: TokenKey,
    /// The continuations of paused packets.
    queue: Mutex<ContinuationQueue>,
}

#[expect(clippy::disallowed_types, reason = "a secret that is random in every process, not a map")]
type TokenKey = std::hash::RandomState;

/// The kept continuations, numbered from the oldest.
#[derive(Debug, Default)]
struct ContinuationQueue {
    /// Number of the oldest continuation.
    first: u64,
    /// The continuations of paused packets, oldest first.
    continuations: VecDeque<Arc<Continuation>>,
}

impl PauseToken {
    /// Length of a token in bytes.
    ///
    /// A token is encoded as a property, like the parts of Open vSwitch continuations. The client
    /// of Open vSwitch prints the properties that it knows, and sends back all properties.
    const LEN: usize = 24;
    /// Type and length of the token property.
    /// Open vSwitch does not use this property type.
    const HEADER: [u8; 4] = [0x5d, 0x01, 0, 20];

    /// Returns the bytes of the token, to send in a packet-in.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PausedPackets {
    /// Stores a continuation, returns its token; a full store drops its oldest one.
    pub fn hold(&self, continuation: &Arc<Continuation>) -> PauseToken {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // Consecutive packets that pause often share a continuation.
        let is_last = |last: &Arc<Continuation>| Arc::ptr_eq(last, continuation);
        if !queue.continuations.back().is_some_and(is_last) {
            if queue.continuations.len() >= PAUSED_MAX {
                queue.continuations.pop_front();
                queue.first += 1;
            }
            queue.continuations.push_back(Arc::clone(continuation));
        }
        self.token(queue.first + queue.continuations.len() as u64 - 1)
    }

    /// Returns the continuation of `token`; `None` if the token is forged or too old.
    #[must_use]
    pub fn find(&self, token: &[u8]) -> Option<Arc<Continuation>> {
        let number = u64::from_be_bytes(*token.get(Self::NUMBER_AT..)?.first_chunk()?);
        if self.token(number).bytes() != token {
            return None;
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(number.checked_sub(queue.first)?).ok()?;
        queue.continuations.get(index).cloned()
    }

    /// Offset of the number in a token.
    const NUMBER_AT: usize = PauseToken::HEADER.len();

    /// Returns the token of a paused packet, which no peer can forge.
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

    /// Returns the continuation of a packet that pauses before it is sent with `mark`.
    fn continuation(pipeline: &Pipeline, mark: usize) -> Arc<Continuation> {
        let text = format!("actions=controller(pause),set_field:{mark}->reg0,resubmit(,9)");
        let names = shunt_flow::text::NoPortNames;
        let rule = parse_rule(shunt_pipeline::FlowModCommand::Add, &text, &names).unwrap();
        let mut key = FlowKey::ZERO;
        key.set_bridge(1);
        let actions = &rule.instructions.apply;
        let traversal = pipeline.translate_actions_at_newest_version(&key, actions);
        let DatapathAction::Punt(punt) = &traversal.actions[0] else { panic!("a packet-in") };
        Arc::clone(punt.continuation.as_ref().unwrap())
    }

    /// Returns a pipeline with a bridge.
    fn pipeline() -> Pipeline {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BridgeId::new(1), BridgeSettings::default());
        pipeline
    }

    #[test]
    fn a_pause_token_selects_its_continuation() {
        let (pipeline, paused) = (pipeline(), PausedPackets::default());
        let [one, two] = [1, 2].map(|mark| continuation(&pipeline, mark));
        let tokens = [&one, &two, &two, &one].map(|own| paused.hold(own));
        assert_eq!(tokens[1], tokens[2], "both packets share one continuation");
        let found = tokens.map(|token| paused.find(token.bytes()).unwrap());
        assert_eq!(found, [one.clone(), two.clone(), two, one]);
    }

    #[test]
    fn tokens_cannot_be_forged() {
        let (pipeline, paused) = (pipeline(), PausedPackets::default());
        let token = paused.hold(&continuation(&pipeline, 1));
        for at in 0..PauseToken::LEN {
            let mut forged = token;
            forged.0[at] ^= 1;
            assert!(paused.find(forged.bytes()).is_none(), "byte {at}");
            assert!(paused.find(&token.bytes()[..at]).is_none());
        }
        assert!(paused.find(&[token.bytes(), &[0]].concat()).is_none());
        assert!(
            PausedPackets::default().find(token.bytes()).is_none(),
            "a token of another process"
        );
    }

    #[test]
    fn the_oldest_continuation_is_dropped_first() {
        let (pipeline, paused) = (pipeline(), PausedPackets::default());
        let all: Vec<_> = (0..=PAUSED_MAX).map(|mark| continuation(&pipeline, mark)).collect();
        let tokens: Vec<_> = all.iter().map(|own| paused.hold(own)).collect();
        assert!(paused.find(tokens[0].bytes()).is_none());
        assert_eq!(paused.find(tokens[1].bytes()).as_ref(), Some(&all[1]));
        assert_eq!(paused.find(tokens[PAUSED_MAX].bytes()).as_ref(), Some(&all[PAUSED_MAX]));
    }
}
