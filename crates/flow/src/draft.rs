//! A match while it is being put together, one field at a time.
//!
//! OXM and text both describe a match field by field, and several descriptions mean the same
//! packets. A draft writes each of them in one form, so that equal matches are equal values:
//!
//! - `packet_type=(0,0)` is every packet, and leaves no trace;
//! - `vlan_pcp` and `dl_vlan_pcp` ask for a tag, `dl_vlan` is `vlan_vid` with the presence bit;
//! - a match on the absence of a tag asks no priority bits, because an absent tag has none;
//! - a tunnel option is asked for with its presence, even if no bit of it is;
//! - a later fragment is a fragment, and what is no fragment is no later one.
//!
//! All but the last are what Open vSwitch does when a match passes through OXM; that one unites
//! forms that it prints alike.

use crate::{
    FieldId, FlowKey, FlowMask, Match,
    field::{Maskable, vlan},
    layout::word,
    prerequisite,
};

/// A match while it is being put together.
#[derive(Clone, Default)]
pub(crate) struct MatchDraft {
    key: FlowKey,
    mask: FlowMask,
}

impl MatchDraft {
    /// Adds what `bits` ask of one field; `value` is legal (see [`is_legal`]).
    pub(crate) fn add(&mut self, field: FieldId, value: u128, bits: u128) {
        let bits = bits & field.value_max();
        let value = value & bits;
        if let Some(option) = field.tunnel_option() {
            self.ask_for_tunnel_option(option);
        }
        match field {
            FieldId::PacketType if value == 0 => {}
            FieldId::DlVlan if bits != 0 => {
                self.write(FieldId::VlanVid, value | vlan::PRESENT, bits | vlan::PRESENT);
            }
            FieldId::VlanPcp | FieldId::DlVlanPcp if bits != 0 => {
                self.write(field, value, bits);
                self.write(FieldId::VlanTci, vlan::PRESENT, vlan::PRESENT);
            }
            FieldId::VlanTci | FieldId::VlanVid => {
                self.write(field, value, bits);
                self.drop_bits_of_an_absent_tag();
            }
            FieldId::NwFrag => {
                let (value, bits) = frag(value, bits);
                self.write(field, value, bits);
            }
            _ => self.write(field, value, bits),
        }
    }

    /// Whether this match says what `field` needs.
    pub(crate) fn meets(&self, field: FieldId) -> bool {
        prerequisite::is_met(field, &self.key, &self.mask)
    }

    /// Whether some bit of `field` is asked for already.
    pub(crate) fn asks(&self, field: FieldId) -> bool {
        self.mask.field(field) != 0
    }

    /// Whether `bits` of `field` are asked for already with another value.
    pub(crate) fn contradicts(&self, field: FieldId, value: u128, bits: u128) -> bool {
        let mut with = self.clone();
        with.add(field, value, bits);
        !with.key.agrees_with(&self.key, &self.mask)
    }

    /// The match.
    pub(crate) fn finish(self) -> Match {
        Match::new(&self.key, &self.mask)
    }

    fn write(&mut self, field: FieldId, value: u128, bits: u128) {
        self.key.set_field_masked(field, value, bits);
        self.mask.add_bits(field, bits);
    }

    fn ask_for_tunnel_option(&mut self, option: u8) {
        const PRESENT: usize = word::TUN_METADATA_PRESENT as usize;
        self.key.words_mut()[PRESENT] |= 1 << option;
        self.mask.words_mut()[PRESENT] |= 1 << option;
    }

    fn drop_bits_of_an_absent_tag(&mut self) {
        let absent = self.mask.field(FieldId::VlanTci) & vlan::PRESENT != 0
            && self.key.field(FieldId::VlanTci) == 0;
        if absent {
            self.mask.remove_bits(FieldId::VlanTci, vlan::PCP);
        }
    }
}

/// Whether a match may ask `bits` of `field` to be `value`: the value is within the field and
/// within the bits, and the bits are all or none where the field cannot be masked.
pub(crate) fn is_legal(field: FieldId, value: u128, bits: u128) -> bool {
    let whole = bits & field.value_max() == field.value_max();
    value & !value_bits(field) == 0
        && value & !bits == 0
        && (whole || bits == 0 || field.info().maskable == Maskable::Maskable)
        && is_possible(field, value, bits)
}

/// The bits that a value may have: those of the field, of which an ARP operation uses the low byte,
/// and an NSH time to live the low six bits.
///
/// A key shows the operations above 255 as zero, as Open vSwitch does, so a match on one of them
/// would never match.
pub(crate) const fn value_bits(field: FieldId) -> u128 {
    match field {
        FieldId::ArpOp => 0xff,
        FieldId::NshTtl => 0x3f,
        _ => field.value_max(),
    }
}

/// Whether some packet has that value. Only `nw_frag` can be asked for the impossible: a later
/// fragment that is not a fragment, which Open vSwitch accepts and prints as `<error>`.
fn is_possible(field: FieldId, value: u128, bits: u128) -> bool {
    !(field == FieldId::NwFrag && value == 2 && bits & 3 == 3)
}

const fn frag(value: u128, bits: u128) -> (u128, u128) {
    match (value, bits) {
        (2, 2) => (3, 3),
        (0, 1) => (0, 3),
        same => same,
    }
}
