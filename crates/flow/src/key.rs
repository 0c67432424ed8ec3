//! Flow keys: all header and metadata fields of one packet at one moment.

use std::fmt;

use crate::{
    FieldId, FlowMask, PortNo,
    layout::{self, FLOW_WORDS},
};

/// All header and metadata fields of one packet at one moment.
///
/// [`crate::layout`] has the layout; [`FieldId::slot`] returns the slot of a field.
#[derive(Clone, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct FlowKey {
    /// The words of the key.
    words: [u64; FLOW_WORDS],
}

impl FlowKey {
    /// The key without any field: every word is zero.
    pub const ZERO: Self = Self { words: [0; FLOW_WORDS] };

    /// Returns the words, in the order of [`crate::layout`].
    #[must_use]
    pub const fn words(&self) -> &[u64; FLOW_WORDS] {
        &self.words
    }

    /// Returns the words, to write.
    #[must_use]
    pub const fn words_mut(&mut self) -> &mut [u64; FLOW_WORDS] {
        &mut self.words
    }

    /// Returns the value of a field, right-aligned.
    #[must_use]
    pub fn field(&self, field: FieldId) -> u128 {
        field.slot().read(&self.words) & field.value_max()
    }

    /// Sets a field; bits of `value` beyond its width are ignored.
    pub fn set_field(&mut self, field: FieldId, value: u128) {
        self.set_field_masked(field, value, u128::MAX);
    }

    /// Sets those bits of a field that are set in `mask`.
    pub fn set_field_masked(&mut self, field: FieldId, value: u128, mask: u128) {
        field.slot().write(&mut self.words, value, mask & field.value_max());
    }

    /// Returns the ingress port.
    #[must_use]
    pub fn in_port(&self) -> PortNo {
        PortNo::new((self.words[usize::from(layout::word::IN_PORT)] >> 32) as u32)
    }

    /// Sets the ingress port.
    pub fn set_in_port(&mut self, port: PortNo) {
        self.set_field(FieldId::InPort, u128::from(port.number()));
    }

    /// Returns the Ethernet type.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lowest 16 bits are the field")]
    pub const fn eth_type(&self) -> u16 {
        self.words[layout::word::ETH_DST as usize] as u16
    }

    /// Returns the number of the bridge that the packet is in.
    #[must_use]
    pub const fn bridge(&self) -> u64 {
        self.words[layout::word::BRIDGE as usize]
    }

    /// Sets the number of the bridge that the packet is in.
    pub const fn set_bridge(&mut self, bridge: u64) {
        self.words[layout::word::BRIDGE as usize] = bridge;
    }

    /// Returns the tunnel options of the packet: bit `n` is set for `tun_metadata` n.
    #[must_use]
    pub const fn tunnel_options(&self) -> u64 {
        self.words[layout::word::TUN_METADATA_PRESENT as usize]
    }

    /// Returns whether both keys agree in every bit of `mask`.
    #[must_use]
    pub fn agrees_with(&self, other: &Self, mask: &FlowMask) -> bool {
        let words = self.words.iter().zip(&other.words).zip(mask.words());
        words.fold(0, |differing, ((a, b), mask)| differing | (a ^ b) & mask) == 0
    }

    /// Returns this key with every bit outside `mask` zero.
    #[must_use]
    pub fn masked(&self, mask: &FlowMask) -> Self {
        let mut masked = self.clone();
        masked.words.iter_mut().zip(mask.words()).for_each(|(word, mask)| *word &= mask);
        masked
    }
}

impl Default for FlowKey {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        layout::debug_words(&self.words, f)
    }
}
