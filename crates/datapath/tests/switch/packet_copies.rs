//! Compares the copies of a packet (sent, punted or dropped) with those of the oracle.

use std::{collections::BTreeMap, sync::Arc};

use shunt_pipeline::{
    DatapathAction, DatapathPort, PuntedPacket,
    testing::{Outcome, PacketEffects, execute},
};

use crate::frames::{headers, key_of};

/// All copies of one packet that left a thread in one iteration.
#[derive(Default)]
pub(crate) struct PacketCopies {
    pub(crate) sent: BTreeMap<DatapathPort, Vec<Vec<u8>>>,
    pub(crate) punted: Vec<PuntedPacket>,
    pub(crate) dropped: usize,
}

/// An expected frame: full length, maximum length after truncation, header words.
type ExpectedFrame<'a> = (usize, usize, &'a [u64]);

/// Compares the copies of a packet with those of the oracle.
pub(crate) fn assert_same(effects: &PacketEffects, ends: &PacketCopies, context: &str) {
    let mut sent: BTreeMap<DatapathPort, Vec<ExpectedFrame<'_>>> = BTreeMap::new();
    let mut punted = Vec::new();
    for outcome in &effects.outcomes {
        match outcome {
            Outcome::Sent(port, _, max_len, words, length) => {
                let max_len = max_len.map_or(usize::MAX, |length| length as usize);
                sent.entry(*port).or_default().push((*length, max_len, words));
            }
            Outcome::Punted(..)
            | Outcome::ToLacp(..)
            | Outcome::ToBfd(..)
            | Outcome::ToSnooping(..) => {
                punted.push(outcome.clone());
            }
        }
    }
    assert!(sent.keys().eq(ends.sent.keys()), "{context}");
    for (expected, came) in sent.values().zip(ends.sent.values()) {
        assert_eq!(expected.len(), came.len(), "{context}");
        for ((length, max_len, words), frame) in expected.iter().zip(came) {
            assert_eq!(frame.len(), *length.min(max_len), "{context}");
            if max_len >= length {
                assert_eq!(headers(&key_of(frame)), *words, "{context}");
            }
        }
    }
    let came = ends.punted.iter().flat_map(|packet_in| {
        let action = DatapathAction::Punt(Arc::clone(&packet_in.punt));
        execute(&[action], &key_of(&packet_in.frame), None)
    });
    let mut came: Vec<Outcome> = came.collect();
    // A port passes a limited number of LACP and BFD frames per second to the control plane, and
    // drops the others.
    let limited = |all: &[Outcome]| all.iter().filter(|outcome| is_limited(outcome)).count();
    let refused = limited(&punted).saturating_sub(limited(&came));
    if refused > 0 {
        punted.retain(|outcome| !is_limited(outcome));
        came.retain(|outcome| !is_limited(outcome));
    }
    assert_eq!(came, punted, "{context}");
    // A meter also drops copies, and packets after a copy was sent.
    let dropped = effects.dropped + refused;
    let is_more = effects.was_metered && ends.dropped > dropped;
    assert!(ends.dropped == dropped || is_more, "{context}");
}

/// Returns whether a port limits the rate of such packets to the control plane.
const fn is_limited(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::ToLacp(..) | Outcome::ToBfd(..))
}
