//! Actions that write fields of the packet.

use std::ops::ControlFlow;

use shunt_flow::{FieldId, PortNo};

use super::WorkingPacket;
use crate::{action::Subfield, id::QueueId};

/// The source port fields of TCP, UDP and SCTP.
pub(in crate::translate) const SOURCE_PORTS: [FieldId; 3] =
    [FieldId::TcpSrc, FieldId::UdpSrc, FieldId::SctpSrc];
/// The destination port fields of TCP, UDP and SCTP.
pub(in crate::translate) const DESTINATION_PORTS: [FieldId; 3] =
    [FieldId::TcpDst, FieldId::UdpDst, FieldId::SctpDst];

impl WorkingPacket {
    /// Writes bits of a field, if the packet has it (`set_field`, `load` and others).
    pub(in crate::translate) fn set_field(&mut self, field: FieldId, value: u128, mask: u128) {
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
    pub(in crate::translate) fn move_bits(&mut self, source: Subfield, target: Subfield) {
        if self.has_field(target.field) && self.has_field(source.field) {
            let value = self.read_bits(source) << target.offset;
            self.set_field(target.field, value, target.bits());
        }
    }

    /// Writes the field of `ports` that the packet has, if there is one.
    pub(in crate::translate) fn set_port(&mut self, ports: [FieldId; 3], port: u16) {
        if let Some(field) = ports.into_iter().find(|field| self.has_field(*field)) {
            self.write(field, port.into(), u128::MAX);
        }
    }

    /// Decrements the TTL; returns `Break` if the TTL has expired.
    pub(in crate::translate) fn dec_ttl(&mut self) -> ControlFlow<()> {
        if !self.has_field(FieldId::NwTtl) {
            return ControlFlow::Continue(());
        }
        let ttl = self.read_bits(Subfield::whole(FieldId::NwTtl));
        if ttl > 1 {
            self.write(FieldId::NwTtl, ttl - 1, u128::MAX);
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    }

    /// `set_queue`: stores the queue for later outputs of the packet.
    pub(in crate::translate) fn set_queue(&mut self, queue: QueueId) {
        self.write(FieldId::SkbPriority, u128::from(queue.number()), u128::MAX);
    }

    /// Returns the egress queue of the packet.
    ///
    /// Packets arrive with the default queue, and only actions set another queue. So the queue is a
    /// constant of the cache entry, and no mask needs its bits.
    pub(in crate::translate) fn queue(&self) -> QueueId {
        if self.recorder.is_rewritten(FieldId::SkbPriority) {
            QueueId::new(u32_of(self.key.field(FieldId::SkbPriority)))
        } else {
            QueueId::DEFAULT
        }
    }
}

/// Returns the value of a field of 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "the field has 32 bits")]
const fn u32_of(value: u128) -> u32 {
    value as u32
}

/// Returns the lower 16 bits of a value.
#[expect(clippy::cast_possible_truncation, reason = "only 16 bits were written")]
const fn low_half(value: u128) -> u16 {
    value as u16
}
