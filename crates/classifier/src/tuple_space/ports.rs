//! The trie over the transport ports of the rules of one subtable.
//!
//! All rules of a subtable match the same bits of the ports, so they have one prefix length. The
//! prefix begins with the source port, and ends at the last port bit of the mask. If every earlier
//! stage has the value of a packet, the trie gives the port bits that prove that no rule has the
//! ports of the packet.

use shunt_flow::{FlowKey, SparseMask, layout::word};

use crate::trie::Trie;

/// The ports of the rules of a subtable that matches ports.
#[derive(Clone, Debug)]
pub(super) struct PortTrie {
    /// The port bits of the mask in the word [`word::TRANSPORT`].
    mask: u64,
    /// Length of the longest port prefix in bits.
    length: u8,
    /// The trie of the port prefixes.
    trie: Trie<u32>,
}

impl PortTrie {
    /// Creates an empty trie, if the mask has port bits.
    #[expect(clippy::cast_possible_truncation, reason = "the value is at most 32")]
    pub(super) fn new(mask: &SparseMask) -> Option<Self> {
        let (_, bits) = mask.iter().find(|(index, _)| *index == usize::from(word::TRANSPORT))?;
        let mask = bits & PORTS;
        let length = (u64::BITS - mask.trailing_zeros()) as u8;
        (mask != 0).then(|| Self { mask, length, trie: Trie::new() })
    }

    /// Adds the port prefix of a rule.
    pub(super) fn insert(&mut self, key: &FlowKey) {
        self.trie.insert(self.value(key), self.length);
    }

    /// Removes the port prefix of a rule.
    pub(super) fn remove(&mut self, key: &FlowKey) {
        self.trie.remove(self.value(key), self.length);
    }

    /// Returns the bits of [`word::TRANSPORT`] that prove that no rule has these ports.
    ///
    /// If a rule has these ports, all port bits of the mask are returned.
    #[expect(clippy::cast_possible_truncation, reason = "the half above is zero")]
    pub(super) fn proof(&self, key: &FlowKey) -> u64 {
        let count = self.trie.prefixes(self.value(key)).absence(self.length);
        count.map_or(self.mask, |count| self.mask & !(u128::from(u64::MAX) >> count) as u64)
    }

    /// Returns the ports of a key as a value of the trie.
    fn value(&self, key: &FlowKey) -> u128 {
        u128::from(key.words()[usize::from(word::TRANSPORT)] & self.mask) << 64
    }
}

/// The bits of [`word::TRANSPORT`] that have the ports (or type and code of ICMP).
pub(super) const PORTS: u64 = 0xffff_ffff_0000_0000;
