//! Actions on labels and on the stack, and actions that need the whole frame.

use shunt_flow::{FieldId, PortNo, field::Prerequisite, rewrite::TtlCopy};

use super::walker::Walker;
use crate::{
    action::{Action, PacketInReason},
    traversals::traversal::TraversalError,
};

impl Walker<'_> {
    /// Runs an action; returns false if the following actions of its list are skipped.
    #[inline(never)]
    pub(super) fn label(&mut self, action: &Action) -> Result<bool, TraversalError> {
        match action {
            Action::SetNwTtl(ttl) => self.set(FieldId::NwTtl, (*ttl).into(), 0xff),
            // A packet has at most one of the two fields. `set` ignores the other.
            Action::SetTpSrc(port) => {
                self.set(FieldId::TcpSrc, (*port).into(), 0xffff);
                self.set(FieldId::UdpSrc, (*port).into(), 0xffff);
            }
            Action::SetTpDst(port) => {
                self.set(FieldId::TcpDst, (*port).into(), 0xffff);
                self.set(FieldId::UdpDst, (*port).into(), 0xffff);
            }
            Action::SetMplsTtl(ttl) => self.set(FieldId::MplsTtl, (*ttl).into(), 0xff),
            Action::PushMpls { ethertype } => {
                check_label_limit(self.packet.push_label(*ethertype))?;
            }
            Action::PopMpls { ethertype } => check_label_limit(self.packet.pop_label(*ethertype))?,
            Action::CopyTtlIn => self.copy_ttl(TtlCopy::In)?,
            Action::CopyTtlOut => self.copy_ttl(TtlCopy::Out)?,
            Action::DecMplsTtl => return Ok(self.dec_mpls_ttl()),
            Action::Push(source) => {
                let has = self.packet.has(source.field);
                self.stack.push(if has { self.read(*source) } else { 0 });
            }
            Action::Pop(target) => {
                if let Some(value) = self.stack.pop() {
                    let bits = target.bits();
                    self.set(target.field, value << target.offset & bits, bits);
                }
            }
            Action::CheckPktLarger { length, target } => {
                let is_larger = self.packet.frame().len() > usize::from(*length);
                self.cut(|_| {})?;
                let value = u128::from(is_larger) << target.offset;
                self.set(target.field, value, target.bits());
            }
            other => unreachable!("the generators make no action {other:?}"),
        }
        Ok(true)
    }

    /// Copies a TTL, and parses the packet again if the copy leaves the labels.
    fn copy_ttl(&mut self, copy: TtlCopy) -> Result<(), TraversalError> {
        if self.packet.copy_ttl(copy) {
            return Ok(());
        }
        self.cut(|packet| packet.copy_ttl_behind(copy))
    }

    /// Decrements the TTL of the label; returns false without a label or if it expires.
    fn dec_mpls_ttl(&mut self) -> bool {
        if !self.packet.is_mpls() {
            return false;
        }
        let ttl = self.packet.key().field(FieldId::MplsTtl);
        if ttl >= 2 {
            self.set(FieldId::MplsTtl, ttl - 1, 0xff);
            return true;
        }
        self.punt(PacketInReason::InvalidTtl, 0, 0xffff, &[]);
        false
    }
}

/// Returns the error for too many MPLS labels unless `is_within` is true.
const fn check_label_limit(is_within: bool) -> Result<(), TraversalError> {
    if is_within { Ok(()) } else { Err(TraversalError::TooManyMplsLabels(3)) }
}

/// Returns whether an action depends on headers after the Ethernet type.
pub(super) fn looks_at_headers(action: &Action) -> bool {
    let is_payload = |field: FieldId| {
        let prerequisite = field.info().prerequisite;
        field == FieldId::EthType
            || ![
                Prerequisite::Any,
                Prerequisite::InPort,
                Prerequisite::Ethernet,
                Prerequisite::VlanVid,
            ]
            .contains(&prerequisite)
    };
    match action {
        Action::Output { port, .. } => *port == PortNo::TABLE,
        Action::Controller(asked) => asked.meter.is_some(),
        Action::SetField { field, .. } => is_payload(*field),
        Action::Load { target: bits, .. } | Action::Push(bits) | Action::Pop(bits) => {
            is_payload(bits.field)
        }
        Action::Move { source, target } => is_payload(source.field) || is_payload(target.field),
        Action::OutputTruncated { .. }
        | Action::SetQueue(_)
        | Action::PopQueue { .. }
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Exit
        | Action::CheckPktLarger { .. } => false,
        _ => true,
    }
}
