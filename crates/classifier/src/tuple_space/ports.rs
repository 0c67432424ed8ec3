//! The trie over the transport ports of the rules of one subtable.
//!
//! All rules of a subtable look at the same bits of the ports, so one prefix length serves all:
//! up to the last bit that the mask looks at, source port first. Where a packet passed every
//! earlier stage, the trie says how few bits of its ports prove that no rule has them.

use shunt_flow::{FlowKey, SparseMask, layout::word};

use crate::trie::Trie;

/// The ports of the rules of a subtable whose mask looks at ports.
#[derive(Clone, Debug)]
pub(super) struct PortTrie {
    /// The bits of [`word::TRANSPORT`] that lie in the ports.
    mask: u64,
    length: u8,
    trie: Trie<u32>,
}

impl PortTrie {
    /// An empty trie, if the mask looks at ports.
    #[expect(clippy::cast_possible_truncation, reason = "at most 32")]
    pub(super) fn new(mask: &SparseMask) -> Option<Self> {
        let (_, bits) = mask.iter().find(|(index, _)| *index == usize::from(word::TRANSPORT))?;
        let mask = bits & PORTS;
        let length = (u64::BITS - mask.trailing_zeros()) as u8;
        (mask != 0).then(|| Self { mask, length, trie: Trie::new() })
    }

    pub(super) fn insert(&mut self, key: &FlowKey) {
        self.trie.insert(self.value(key), self.length);
    }

    pub(super) fn remove(&mut self, key: &FlowKey) {
        self.trie.remove(self.value(key), self.length);
    }

    /// The bits of [`word::TRANSPORT`] that prove that no rule has this packet's ports; all that
    /// the mask looks at when some rule has them.
    #[expect(clippy::cast_possible_truncation, reason = "the half above is zero")]
    pub(super) fn proof(&self, key: &FlowKey) -> u64 {
        let count = self.trie.prefixes(self.value(key)).absence(self.length);
        count.map_or(self.mask, |count| self.mask & !(u128::from(u64::MAX) >> count) as u64)
    }

    fn value(&self, key: &FlowKey) -> u128 {
        u128::from(key.words()[usize::from(word::TRANSPORT)] & self.mask) << 64
    }
}

/// The bits of [`word::TRANSPORT`] that hold the ports (or the type and code of ICMP).
pub(super) const PORTS: u64 = 0xffff_ffff_0000_0000;
