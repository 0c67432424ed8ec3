//! Packets between tables, as rows of the circuit.
//!
//! A row starts with two words that mark the non-zero words of the flow key. The non-zero words
//! follow, and then the stack, with the top at the end. If a packet enters several tables
//! unchanged, these tables share the row.

use std::sync::Arc;

use shunt_flow::{FlowKey, layout::FLOW_WORDS};

/// A packet as a row: the marks, the words of the key, and the stack.
pub(super) type PacketState = Arc<Vec<u64>>;

/// A packet between two lookups: the key and the stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LookupPacket {
    pub(super) key: FlowKey,
    /// The pushed values, the top at the end.
    pub(super) stack: Vec<u128>,
}

/// Number of words at the start of a row that mark the non-zero words of the key.
const HEAD: usize = 2;
const _: () = assert!(FLOW_WORDS <= HEAD * 64, "each word of a key has a bit");

impl LookupPacket {
    /// Creates a packet that arrives on a port, with an empty stack.
    pub(super) const fn new(key: FlowKey) -> Self {
        Self { key, stack: Vec::new() }
    }

    /// Returns the packet as rows of the circuit hold it.
    pub(super) fn to_state(&self) -> PacketState {
        let mut state = vec![0; HEAD];
        for (index, word) in self.key.words().iter().enumerate() {
            if *word != 0 {
                state[index / 64] |= 1 << (index % 64);
                state.push(*word);
            }
        }
        state.extend(self.stack.iter().flat_map(|value| [(value >> 64) as u64, low(*value)]));
        Arc::new(state)
    }

    /// Restores a packet from its state.
    pub(super) fn of(state: &[u64]) -> Self {
        let Some((head, words)) = state.split_first_chunk::<HEAD>() else {
            return Self::new(FlowKey::ZERO);
        };
        let (mut key, mut words) = (FlowKey::ZERO, words.iter());
        for (index, word) in key.words_mut().iter_mut().enumerate() {
            if head[index / 64] >> (index % 64) & 1 == 1 {
                *word = words.next().copied().unwrap_or_default();
            }
        }
        let pushed = words.as_slice().as_chunks().0.iter();
        let stack = pushed.map(|[high, low]| u128::from(*high) << 64 | u128::from(*low)).collect();
        Self { key, stack }
    }
}

/// Returns one word of the flow key of a row.
pub(super) fn word(state: &[u64], index: usize) -> u64 {
    let Some((head, words)) = state.split_first_chunk::<HEAD>() else { return 0 };
    let (own, bit) = (head[index / 64], index % 64);
    if own >> bit & 1 == 0 {
        return 0;
    }
    let before: u32 = head[..index / 64].iter().map(|map| map.count_ones()).sum();
    let table_key = before + (own & ((1 << bit) - 1)).count_ones();
    words.get(table_key as usize).copied().unwrap_or_default()
}

/// Returns the lower 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "the function returns the lower half")]
const fn low(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_packet_reads_back_from_its_row(
            words in prop::collection::btree_map(0..FLOW_WORDS, any::<u64>(), 0..20),
            stack in prop::collection::vec(any::<u128>(), 0..3),
        ) {
            let mut packet = LookupPacket { key: FlowKey::ZERO, stack };
            words.iter().for_each(|(index, own)| packet.key.words_mut()[*index] = *own);
            let state = packet.to_state();
            prop_assert_eq!(&LookupPacket::of(&state), &packet);
            for (index, own) in packet.key.words().iter().enumerate() {
                prop_assert_eq!(word(&state, index), *own);
            }
        }
    }
}
