//! The hidden words of a key that are the state of a packet.
//!
//! Hidden state has every hidden word except two: the recirculation id and the bridge. A
//! continuation has fields of its own for these two, which locate the packet.

use shunt_flow::{
    FlowKey, FlowMask, Match,
    layout::{HEADER_START, word},
};

/// Index of the word with the recirculation id.
const RECIRC: usize = word::RECIRC as usize;
/// Index of the word with the bridge.
const BRIDGE: usize = word::BRIDGE as usize;

const _: () = assert!(RECIRC < BRIDGE && BRIDGE + 1 == HEADER_START);

/// The words of the recirculation id and of the bridge, which locate the packet.
pub(crate) const LOCATION_WORDS: [usize; 2] = [RECIRC, BRIDGE];

/// Returns the indexes of the words of hidden state.
pub(crate) fn hidden_words() -> impl Iterator<Item = usize> {
    (0..HEADER_START).filter(|index| !is_naming(*index))
}

/// Returns whether a word is the recirculation id or the bridge.
pub(crate) fn is_naming(index: usize) -> bool {
    LOCATION_WORDS.contains(&index)
}

/// Returns the bits of hidden state that are set in a key.
pub(crate) fn hidden_state(key: &FlowKey) -> Match {
    let mut mask = FlowMask::EMPTY;
    hidden_words().for_each(|index| mask.words_mut()[index] = key.words()[index]);
    Match::new(key, &mask)
}

/// Returns whether a key has hidden state.
pub(crate) fn has_hidden_state(key: &FlowKey) -> bool {
    let hidden = &key.words()[..HEADER_START];
    let (before, behind) = (&hidden[..RECIRC], &hidden[RECIRC + 1..BRIDGE]);
    before.iter().chain(behind).fold(0, |all, word| all | word) != 0
}
