//! A match under construction, one field at a time.
//!
//! OXM and text both describe a match field by field, and several descriptions have the same
//! meaning. A draft writes descriptions with the same meaning in one form, so that equal matches
//! are equal values:
//!
//! - `packet_type=(0,0)` matches every packet, and adds nothing;
//! - `vlan_pcp` and `dl_vlan_pcp` imply a tag; `dl_vlan` is `vlan_vid` with the presence bit;
//! - a match on the absence of a tag has no priority bits, because an absent tag has none;
//! - a tunnel option implies its presence, even if no bit of it is matched;
//! - a later fragment is a fragment, and a packet that is not a fragment is not a later one.
//!
//! Open vSwitch applies all these rules but the last when a match passes through OXM. The last rule
//! merges matches that Open vSwitch prints in the same form.

use crate::{
    FieldId, FlowKey, FlowMask, Match, PortNo,
    field::{Maskable, vlan},
    layout::word,
    prerequisite,
};

/// A match under construction.
#[derive(Clone, Default)]
pub(crate) struct MatchDraft {
    /// The values of the matched fields.
    key: FlowKey,
    /// The bits that are matched.
    mask: FlowMask,
}

impl MatchDraft {
    /// Adds `bits` of one field; `value` is legal (see [`is_legal`]).
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
                let (value, bits) = from_open_vswitch_frag(value, bits);
                self.write(field, value, bits);
            }
            _ => self.write(field, value, bits),
        }
    }

    /// Returns whether this match has the prerequisite of `field`.
    pub(crate) fn has_prerequisite(&self, field: FieldId) -> bool {
        prerequisite::is_met(field, &self.key, &self.mask)
    }

    /// Returns whether any bit of `field` is in the match.
    pub(crate) fn asks(&self, field: FieldId) -> bool {
        self.mask.field(field) != 0
    }

    /// Returns whether `bits` of `field` are in the match with another value.
    pub(crate) fn contradicts(&self, field: FieldId, value: u128, bits: u128) -> bool {
        let mut with = self.clone();
        with.add(field, value, bits);
        !with.key.agrees_with(&self.key, &self.mask)
    }

    /// Returns the match that has been built.
    pub(crate) fn finish(self) -> Match {
        Match::new(&self.key, &self.mask)
    }

    /// Sets some bits of a field, and adds them to the mask.
    fn write(&mut self, field: FieldId, value: u128, bits: u128) {
        self.key.set_field_masked(field, value, bits);
        self.mask.add_bits(field, bits);
    }

    /// Matches the presence of a tunnel option.
    fn ask_for_tunnel_option(&mut self, option: u8) {
        /// Index of the word that has a bit for each present option.
        const PRESENT: usize = word::TUN_METADATA_PRESENT as usize;
        self.key.words_mut()[PRESENT] |= 1 << option;
        self.mask.words_mut()[PRESENT] |= 1 << option;
    }

    /// Removes the priority from the mask of a match on an absent tag.
    fn drop_bits_of_an_absent_tag(&mut self) {
        let absent = self.mask.field(FieldId::VlanTci) & vlan::PRESENT != 0
            && self.key.field(FieldId::VlanTci) == 0;
        if absent {
            self.mask.remove_bits(FieldId::VlanTci, vlan::PCP);
        }
    }
}

/// Returns whether a match may have this value and these bits of a field.
///
/// The value must be within the field and within the bits. The bits must be all or none if the
/// field cannot be masked.
pub(crate) fn is_legal(field: FieldId, value: u128, bits: u128) -> bool {
    let whole = bits & field.value_max() == field.value_max();
    value & !value_bits(field) == 0
        && value & !bits == 0
        && (whole || bits == 0 || field.info().maskable == Maskable::Maskable)
        && is_possible(field, value, bits)
}

/// Returns the bits that a value may have.
///
/// The result is all bits of the field, except for the low byte of an ARP operation and the low six
/// bits of an NSH time to live. As in Open vSwitch, a key has zero for ARP operations above 255, so
/// a match on a higher operation would never match.
pub(crate) const fn value_bits(field: FieldId) -> u128 {
    match field {
        FieldId::ArpOp => 0xff,
        FieldId::NshTtl => 0x3f,
        _ => field.value_max(),
    }
}

/// Returns whether a packet can have this value of `field`.
///
/// A later fragment that is not a fragment is impossible: Open vSwitch accepts this match and
/// prints `<error>`. As in Open vSwitch, a port number between the ports of a switch and the
/// reserved ports is impossible. So is a type of NSH metadata other than 1 and 2.
fn is_possible(field: FieldId, value: u128, bits: u128) -> bool {
    /// The maximum number of a port that is not reserved.
    const PORT_MAX: u128 = PortNo::MAX.number() as u128;
    /// The minimum number of a reserved port.
    const RESERVED_MIN: u128 = PortNo::RESERVED_MIN.number() as u128;
    match field {
        FieldId::NwFrag => !(value == 2 && bits & 3 == 3),
        FieldId::NshMdtype => matches!(value, 1 | 2),
        FieldId::InPort | FieldId::ActsetOutput => value <= PORT_MAX || value >= RESERVED_MIN,
        _ => true,
    }
}

/// Returns the value and mask of `nw_frag` for those of `nx_ip_frag`.
const fn from_open_vswitch_frag(value: u128, bits: u128) -> (u128, u128) {
    match (value, bits) {
        (2, 2) => (3, 3),
        (0, 1) => (0, 3),
        same => same,
    }
}
