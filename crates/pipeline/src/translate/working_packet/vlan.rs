//! Actions on VLAN tags.
//!
//! A key holds two tags, the outer one in the high half of its word. A tag exists if its present
//! bit is set; an absent tag is zero. A push or a pop moves a whole tag within the key, so the bits
//! of the tag are consulted, and the word then holds constants. A third tag replaces the innermost
//! tag, as in Open vSwitch, where flow keys also hold two tags.
//!
//! A pop can uncover a tag that was not parsed, because the daemon parses fewer tags than the
//! packet has. The Ethernet type in the key belongs to the tag, before and after the pop. The
//! translation continues with this type, as in Open vSwitch with `vlan-limit`.

use shunt_flow::{FieldId, layout::word};

use super::WorkingPacket;

/// Index of the word with the VLAN tags.
pub(in crate::translate) const VLAN: usize = word::VLAN as usize;
/// The present bit of the outer tag.
const OUTER_PRESENT: u64 = 0x1000 << 32;
/// The present bit of the inner tag.
const INNER_PRESENT: u64 = 0x1000;
/// The bits of the outer tag in the word of the tags.
const OUTER: u64 = 0xffff_ffff_0000_0000;
/// The bits of the inner tag in the word of the tags.
const INNER: u64 = 0x0000_0000_ffff_ffff;
/// `ETH_TYPE_VLAN`: the type of a tag if no action names one.
const TPID_DEFAULT: u16 = 0x8100;

impl WorkingPacket {
    /// `push_vlan`: pushes a new outer tag with VLAN id 0 and priority 0.
    pub(in crate::translate) fn push_vlan(&mut self, tpid: u16) {
        let inner = if self.is_tagged(OUTER_PRESENT) {
            if self.is_tagged(INNER_PRESENT) {
                self.builder.lost_inner_tag();
            }
            self.recorder.consult_word(VLAN, OUTER);
            self.key.words()[VLAN] >> 32
        } else {
            0
        };
        self.replace_tags(u64::from(tpid) << 48 | OUTER_PRESENT | inner);
        self.builder.pushed_tag();
    }

    /// `pop_vlan`: removes the outer tag, if there is one.
    pub(in crate::translate) fn pop_vlan(&mut self) {
        if self.is_tagged(OUTER_PRESENT) {
            self.pop_tag();
        }
    }

    /// Writes bits of the tag control information of the outer tag.
    ///
    /// `vlan_pcp` writes only to an existing tag. `dl_vlan` and `dl_vlan_pcp` add a tag if there is
    /// none. `vlan_tci` and `vlan_vid` add or remove the tag as the present bit requires.
    pub(in crate::translate) fn set_tag(&mut self, field: FieldId, value: u128, mask: u128) {
        if !self.is_tagged(OUTER_PRESENT) {
            let is_made = match field {
                FieldId::DlVlan | FieldId::DlVlanPcp => true,
                FieldId::VlanTci | FieldId::VlanVid => value & mask & 0x1000 != 0,
                _ => false,
            };
            if !is_made {
                return;
            }
            self.push_vlan(TPID_DEFAULT);
        }
        self.write(field, value, mask);
        if self.key.words()[VLAN] & OUTER_PRESENT == 0 {
            self.pop_tag();
        }
    }

    /// Returns whether a tag is present, and consults its bit.
    fn is_tagged(&mut self, present: u64) -> bool {
        self.recorder.consult_word(VLAN, present);
        self.key.words()[VLAN] & present != 0
    }

    /// Removes the outer VLAN tag.
    fn pop_tag(&mut self) {
        let inner = if self.is_tagged(INNER_PRESENT) {
            self.recorder.consult_word(VLAN, INNER);
            self.key.words()[VLAN] << 32
        } else {
            0
        };
        self.replace_tags(inner);
        self.builder.popped_tag();
    }

    /// Writes both VLAN tags of the packet.
    fn replace_tags(&mut self, tags: u64) {
        self.key.words_mut()[VLAN] = tags;
        self.recorder.wrote_word(VLAN, u64::MAX);
    }
}
