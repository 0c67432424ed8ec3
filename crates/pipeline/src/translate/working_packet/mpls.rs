//! Actions on MPLS labels.
//!
//! A key holds three label stack entries, the outermost in the high half of its first word. The
//! Ethernet type and the bottom-of-stack bits determine the number of labels, so every action on
//! labels consults these bits. A push or a pop moves complete entries within the key.
//!
//! A push makes the network header a part of the payload, so the key drops the network header. A
//! pop of the last label uncovers headers that were not parsed. The packet is then
//! [uncovered](HeaderState::Uncovered), and the first step that needs these headers ends the cache
//! entry (see `recirculation`).
//!
//! A fourth label is an error. A pop is an error if the key lacks the label that would become the
//! third label. As in Open vSwitch, the error drops the whole packet, except in a bucket of a
//! group, where it ends the bucket. A pop to a type other than MPLS pops all labels, as in Open
//! vSwitch. OpenFlow pops one label, and leaves labels where the Ethernet type promises other
//! headers, which no receiver can parse. A new label is a copy of the outermost one. The first
//! label is as in Open vSwitch: label 0, or 2 before IPv6 (explicit null, RFC 3032, 2.1). The
//! traffic class of this label is the lower half of the DSCP. The TTL of this label comes from the
//! IP header, or is 64 if there is no IP header or its TTL is 0.

use std::ops::ControlFlow;

use shunt_flow::{
    FieldId,
    layout::{FLOW_WORDS, word},
    rewrite::TtlCopy,
};

use super::{HeaderState, WorkingPacket};
use crate::{action::Subfield, traversals::traversal::TraversalError};

/// The most labels of a packet that the switch changes.
const LABELS_MAX: u8 = 3;

/// Index of the word with the first two labels.
const FIRST: usize = word::MPLS as usize;
/// Index of the word with the third label.
const THIRD: usize = word::MPLS_PBB as usize;
/// The words of the key for the headers after the Ethernet type.
const PAYLOAD: std::ops::Range<usize> = word::IPV4 as usize..FLOW_WORDS;

/// The bottom-of-stack bit of a label stack entry.
const BOTTOM: u32 = 0x100;
/// The TTL bits of a label stack entry.
const TTL: u32 = 0xff;

/// The Ethernet types of MPLS, unicast and multicast.
const ETHER_TYPES: [u16; 2] = [0x8847, 0x8848];
/// The TTL of a new label if no header has one.
const TTL_DEFAULT: u128 = 64;

impl WorkingPacket {
    /// `push_mpls`: pushes a new outermost label.
    pub(in crate::translate) fn push_mpls(
        &mut self,
        ether_type: u16,
    ) -> Result<(), TraversalError> {
        let depth = self.labels();
        if depth == LABELS_MAX {
            return Err(TraversalError::TooManyMplsLabels(LABELS_MAX));
        }
        let old = self.entries();
        let entries = if depth == 0 {
            // Writes to the payload must reach the frame before the key drops it.
            self.commit();
            let new = [self.first_label(), 0, 0];
            self.forget_payload();
            new
        } else {
            self.consult_entries(depth);
            [old[0] & !BOTTOM, old[0], old[1]]
        };
        self.builder.pushed_label(self.key.eth_type());
        self.replace_labels(entries, ether_type);
        Ok(())
    }

    /// `pop_mpls`: pops the outermost label, if there is one.
    ///
    /// If the action names a type other than MPLS, pops all labels.
    pub(in crate::translate) fn pop_mpls(&mut self, ether_type: u16) -> Result<(), TraversalError> {
        let depth = self.labels();
        if depth == 0 {
            return Ok(());
        }
        let [_, second, third] = self.entries();
        if depth == LABELS_MAX && third & BOTTOM == 0 {
            return Err(TraversalError::TooManyMplsLabels(LABELS_MAX));
        }
        let is_last = !ETHER_TYPES.contains(&ether_type);
        if !is_last {
            self.consult_entries(depth);
        }
        for _ in 0..if is_last { depth } else { 1 } {
            self.builder.popped_label(self.key.eth_type());
        }
        self.replace_labels(if is_last { [0; 3] } else { [second, third, 0] }, ether_type);
        if depth == 1 || is_last {
            self.headers = HeaderState::Uncovered;
        }
        Ok(())
    }

    /// Decrements the TTL of the outermost label; returns `Break` if it has expired.
    pub(in crate::translate) fn dec_mpls_ttl(&mut self) -> ControlFlow<()> {
        let ttl = self.read_bits(Subfield::whole(FieldId::MplsTtl));
        if ttl > 1 {
            self.write(FieldId::MplsTtl, ttl - 1, u128::MAX);
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    }

    /// `copy_ttl_in` and `copy_ttl_out`, between the outermost label and the next
    /// header.
    ///
    /// Returns false if the next header is the packet after the last label: the datapath must copy
    /// the TTL. Open vSwitch refuses both actions; Shunt follows OpenFlow 1.3.5, 5.12. Tunnel
    /// headers are not accessible, so a packet without labels has no second TTL.
    pub(in crate::translate) fn copy_ttl(&mut self, copy: TtlCopy) -> bool {
        match self.labels() {
            0 => true,
            1 => false,
            depth => {
                self.consult_entries(depth);
                let [outer, next, third] = self.entries();
                let (outer, next) = match copy {
                    TtlCopy::In => (outer, next & !TTL | outer & TTL),
                    TtlCopy::Out => (outer & !TTL | next & TTL, next),
                };
                self.builder.rewrote_labels(self.key.eth_type());
                self.set_entries([outer, next, third]);
                true
            }
        }
    }

    /// Returns the number of labels in the key.
    /// Returns the maximum if none of them is the bottom of the stack.
    fn labels(&mut self) -> u8 {
        if !self.has_field(FieldId::MplsLabel) {
            return 0;
        }
        for (depth, shift) in [(1, 32), (2, 0)] {
            self.recorder.consult_word(FIRST, u64::from(BOTTOM) << shift);
            if self.key.words()[FIRST] >> shift & u64::from(BOTTOM) != 0 {
                return depth;
            }
        }
        self.recorder.consult_word(THIRD, u64::from(BOTTOM) << 32);
        LABELS_MAX
    }

    /// Returns the label stack entries of the key, outermost first.
    /// Entries after the bottom are zero.
    fn entries(&self) -> [u32; 3] {
        let (first, third) = (self.key.words()[FIRST], self.key.words()[THIRD]);
        [first, first << 32, third].map(high_half)
    }

    /// Returns the entry of the first label of a packet.
    fn first_label(&mut self) -> u32 {
        let label = if self.key.eth_type() == 0x86dd { 2 } else { 0 };
        let (mut class, mut ttl) = (0, TTL_DEFAULT);
        if self.has_field(FieldId::NwTtl) {
            class = self.read_bits(Subfield::whole(FieldId::IpDscp)) & 7;
            let own = self.read_bits(Subfield::whole(FieldId::NwTtl));
            ttl = if own == 0 { TTL_DEFAULT } else { own };
        }
        let [class, ttl] = [class, ttl].map(low_half);
        label << 12 | class << 9 | BOTTOM | ttl
    }

    /// Clears the fields that are payload behind MPLS labels.
    fn forget_payload(&mut self) {
        for index in [FIRST, THIRD].into_iter().chain(PAYLOAD) {
            self.key.words_mut()[index] = 0;
            self.recorder.wrote_word(index, u64::MAX);
        }
    }

    /// Replaces the three label stack entries and the `EtherType`.
    fn replace_labels(&mut self, entries: [u32; 3], ether_type: u16) {
        self.set_entries(entries);
        self.key.set_field(FieldId::EthType, u128::from(ether_type));
        self.recorder.wrote_word(usize::from(word::ETH_DST), u64::from(u16::MAX));
    }

    /// Sets the three label stack entries of the key.
    fn set_entries(&mut self, [first, second, third]: [u32; 3]) {
        let words = self.key.words_mut();
        words[FIRST] = u64::from(first) << 32 | u64::from(second);
        words[THIRD] = u64::from(third) << 32 | words[THIRD] & u64::from(u32::MAX);
        self.recorder.wrote_word(FIRST, u64::MAX);
        self.recorder.wrote_word(THIRD, u64::MAX << 32);
    }

    /// Consults the bits of the first `depth` label stack entries.
    fn consult_entries(&mut self, depth: u8) {
        let first = if depth == 1 { u64::MAX << 32 } else { u64::MAX };
        self.recorder.consult_word(FIRST, first);
        if depth == LABELS_MAX {
            self.recorder.consult_word(THIRD, u64::MAX << 32);
        }
    }
}

/// Returns the upper 32 bits of a word.
const fn high_half(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns the lower 32 bits of a value.
#[expect(clippy::cast_possible_truncation, reason = "the field has at most eight bits")]
const fn low_half(value: u128) -> u32 {
    value as u32
}
