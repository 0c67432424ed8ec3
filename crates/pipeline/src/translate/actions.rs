//! Actions that write fields of the packet.

use shunt_flow::{FieldId, FlowMask, PortNo, field::Prerequisite, layout::word, prerequisite};

use super::{context::Translation, recorder::words};
use crate::{
    action::{PacketInReason, Subfield},
    traversals::traversal::TraversalError,
};

/// The source port of each protocol that has one.
pub(super) const SOURCE_PORTS: [FieldId; 3] = [FieldId::TcpSrc, FieldId::UdpSrc, FieldId::SctpSrc];
/// The destination port.
pub(super) const TARGET_PORTS: [FieldId; 3] = [FieldId::TcpDst, FieldId::UdpDst, FieldId::SctpDst];

/// Whether the rest of an action list is run.
#[derive(Clone, Copy)]
pub(super) enum Rest {
    Runs,
    IsLeft,
}

impl Translation<'_> {
    /// `set_field`, and what comes down to it: writes bits of a field, if the packet has it.
    pub(super) fn set_field(&mut self, field: FieldId, value: u128, mask: u128) {
        if !self.has_field(field) {
            return;
        }
        match field {
            FieldId::VlanTci
            | FieldId::VlanVid
            | FieldId::VlanPcp
            | FieldId::DlVlan
            | FieldId::DlVlanPcp => self.set_tag(field, value, mask),
            FieldId::InPort if mask == 0xffff => {
                let port = PortNo::widened(u32::from(low_half(value)));
                self.write(field, u128::from(port.number()), u128::MAX);
            }
            _ => self.write(field, value, mask),
        }
    }

    /// `move`: copies bits, if the packet has both fields.
    pub(super) fn move_bits(&mut self, source: Subfield, target: Subfield) {
        if self.has_field(target.field) && self.has_field(source.field) {
            let value = self.read_bits(source) << target.offset;
            self.set_field(target.field, value, target.bits());
        }
    }

    /// Writes the port of whichever protocol the packet has.
    pub(super) fn set_port(&mut self, ports: [FieldId; 3], port: u16) {
        if let Some(field) = ports.into_iter().find(|field| self.has_field(*field)) {
            self.write(field, port.into(), u128::MAX);
        }
    }

    /// The bits of a field, which are consulted.
    pub(super) fn read_bits(&mut self, source: Subfield) -> u128 {
        self.recorder.consult(source.field, source.bits());
        (self.key.field(source.field) & source.bits()) >> source.offset
    }

    /// `dec_ttl`: a TTL that is used up goes to controllers, and the rest of the list is left.
    pub(super) fn dec_ttl(&mut self, controllers: &[u16]) -> Result<Rest, TraversalError> {
        if !self.has_field(FieldId::NwTtl) {
            return Ok(Rest::Runs);
        }
        let ttl = self.read_bits(Subfield::whole(FieldId::NwTtl));
        if ttl > 1 {
            self.write(FieldId::NwTtl, ttl - 1, u128::MAX);
            return Ok(Rest::Runs);
        }
        for controller in controllers {
            self.punt_invalid_ttl(*controller)?;
        }
        Ok(Rest::IsLeft)
    }

    /// `set_queue`: carried with the packet; no port asks for it yet.
    pub(super) fn set_queue(&mut self, queue: u32) {
        self.write(FieldId::SkbPriority, u128::from(queue), u128::MAX);
    }

    /// Writes bits of a field that the packet has.
    pub(super) fn write(&mut self, field: FieldId, value: u128, mask: u128) {
        self.key.set_field_masked(field, value, mask);
        for (word, bits) in words(field, mask) {
            self.recorder.wrote_word(word, bits);
            self.wire.wrote_word(word, bits);
        }
    }

    /// Writes a word of hidden state.
    pub(super) fn write_hidden(&mut self, word: u8, value: u64) {
        debug_assert!(word <= word::BRIDGE, "header words are written field by field");
        self.key.words_mut()[usize::from(word)] = value;
        self.recorder.wrote_word(usize::from(word), u64::MAX);
    }

    /// Whether the packet has a field; the bits that say so are consulted.
    pub(super) fn has_field(&mut self, field: FieldId) -> bool {
        if field.info().prerequisite == Prerequisite::Any {
            return true;
        }
        let mut mask = FlowMask::EMPTY;
        let has = prerequisite::consult(field, &self.key, &mut mask);
        self.recorder.consult_mask(&mask);
        has
    }

    fn punt_invalid_ttl(&mut self, controller_id: u16) -> Result<(), TraversalError> {
        self.punt(super::output::Asked {
            reason: PacketInReason::InvalidTtl,
            controller_id,
            max_len: u16::MAX,
            userdata: &[],
            meter: None,
            pause: false,
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only 16 bits were written")]
const fn low_half(value: u128) -> u16 {
    value as u16
}
