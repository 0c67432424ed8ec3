//! The effect of a rule on the bits of a packet that later lookups can consult.
//!
//! The published design has its own translation of actions, and so has this module. The module
//! supports writes of fields, VLAN tags, TTL and the stack. The module supports one next table per
//! rule: `goto_table`, or a `resubmit` that is followed only by actions without effect on lookups.
//! Outputs, groups, clones, meters and action sets change only copies of the packet, so they are
//! ignored.
//!
//! The module may omit actions: if it does not reproduce a traversal visit by visit and bit by bit,
//! the traversal is not put into the circuit ([`reproduces`]). The module does not reproduce:
//!
//! - lookups after a resubmit has returned, or inside a group, a clone or an action set;
//! - lookups in another bridge, with another `in_port`, of fragments, or by conjunctions;
//! - MPLS labels, hashes, and recirculated packets.

use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo, layout::word, prerequisite};
use shunt_pipeline::{Action, Instructions, Rule, Subfield, TableId, Traversal, Visit};

use super::state::LookupPacket;

/// The effect of an action on the following actions of the same rule.
enum NextStep {
    /// The next action is executed.
    Runs,
    /// The packet enters this table, and the next action is executed after that table.
    Enters(TableId),
    /// The next action is not executed, or the packet is unknown at that point.
    Ends,
}

/// Applies the actions of a rule to a packet.
///
/// Returns the table that the packet enters next.
///
/// The result is `None` if there is no next table, or if the next table is unknown.
pub(super) fn apply_actions(rule: &Rule, packet: &mut LookupPacket) -> Option<TableId> {
    let Instructions { apply, metadata, goto, .. } = &*rule.instructions;
    for action in apply {
        match next_step(action, rule.table) {
            NextStep::Runs if packet.execute(action) => {}
            NextStep::Enters(table) => return Some(table),
            NextStep::Runs | NextStep::Ends => return None,
        }
    }
    if let Some((value, mask)) = metadata {
        packet.key.set_field_masked(FieldId::Metadata, u128::from(*value), u128::from(*mask));
    }
    *goto
}

/// Returns the table that a rule sends packets to, if any.
pub(super) fn next_table(rule: &Rule) -> Option<TableId> {
    for action in &rule.instructions.apply {
        match next_step(action, rule.table) {
            NextStep::Runs => {}
            NextStep::Enters(table) => return Some(table),
            NextStep::Ends => return None,
        }
    }
    rule.instructions.goto
}

/// Returns whether a rule is a clause of conjunctions, and alone decides nothing.
pub(super) fn is_clause(rule: &Rule) -> bool {
    rule.instructions.apply.iter().any(|action| matches!(action, Action::Conjunction { .. }))
}

/// Returns whether [`apply_actions`] reproduces the visits of a traversal.
/// The arguments are the consecutive sub-traversals of the traversal.
pub(super) fn reproduces<'t>(
    mut sub_traversals: impl Iterator<Item = &'t Traversal> + Clone,
) -> bool {
    let visits = sub_traversals.clone().flat_map(|sub_traversal| &sub_traversal.visits);
    let Some(first) = sub_traversals.next().filter(|first| first.continuation.is_none()) else {
        return false;
    };
    let Some(Visit { bridge, .. }) = visits.clone().next() else { return false };
    let mut packet = LookupPacket::new(FlowKey::from(&first.key));
    let mut next = Some(TableId::FIRST);
    for visit in visits {
        let is_own = visit.bridge == *bridge && visit.clauses.is_empty();
        if !is_own || next != Some(visit.table) || !visit.key.is_of(&packet.key) {
            return false;
        }
        next = visit.rule.as_ref().and_then(|rule| apply_actions(rule, &mut packet));
    }
    next.is_none()
}

/// Returns the table that an action enters next, if it enters one.
fn next_step(action: &Action, here: TableId) -> NextStep {
    match action {
        Action::Resubmit { port: None | Some(PortNo::IN_PORT), table } => {
            NextStep::Enters(table.unwrap_or(here))
        }
        Action::Output { .. }
        | Action::OutputField { .. }
        | Action::OutputTruncated { .. }
        | Action::Controller(_)
        | Action::SetField { .. }
        | Action::Load { .. }
        | Action::Move { .. }
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::DecTtl { .. }
        | Action::SetQueue(_)
        | Action::PopQueue { .. }
        | Action::Clone(_)
        | Action::Note(_)
        | Action::Group(_)
        | Action::Meter(_)
        | Action::SetNwTtl(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::SetMplsTtl(_)
        | Action::Push(_)
        | Action::Pop(_)
        | Action::Learn(_)
        | Action::FinTimeout { .. } => NextStep::Runs,
        Action::Resubmit { port: Some(_), .. }
        | Action::Exit
        | Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::DecMplsTtl
        | Action::Conjunction { .. }
        | Action::Multipath(_)
        | Action::Bundle(_)
        | Action::CheckPktLarger { .. }
        | Action::Ct(_)
        | Action::CtClear
        | Action::Nat(_)
        | Action::Sample(_) => NextStep::Ends,
    }
}

/// Index of the word with the VLAN tags.
const VLAN: usize = word::VLAN as usize;
/// The bits of the VLAN word that are set if the outer or the inner tag is present.
const OUTER_PRESENT: u64 = 0x1000 << 32;
/// The bit that is set if the packet has an inner VLAN tag.
const INNER_PRESENT: u64 = 0x1000;
/// The Ethernet type of a pushed VLAN tag, if the action does not set a type.
const TAG_TYPE: u16 = 0x8100;

impl LookupPacket {
    /// Executes an action, and returns whether the next actions are executed.
    fn execute(&mut self, action: &Action) -> bool {
        match action {
            Action::SetField { field, value, mask } => self.set(*field, *value, *mask),
            Action::Load { target, value } => {
                self.set(target.field, u128::from(*value) << target.offset, target.bits());
            }
            Action::Move { source, target } if self.has(source.field) => {
                let value = self.read(*source) << target.offset;
                self.set(target.field, value, target.bits());
            }
            Action::PushVlan { ethertype } => self.push_tag(*ethertype),
            Action::PopVlan => self.pop_tag(),
            Action::DecTtl { .. } if self.has(FieldId::NwTtl) => {
                let ttl = self.key.field(FieldId::NwTtl);
                self.key.set_field(FieldId::NwTtl, ttl.saturating_sub(1));
                return ttl > 1;
            }
            Action::SetQueue(queue) => self.key.set_field(FieldId::SkbPriority, (*queue).into()),
            Action::PopQueue { .. } => self.key.set_field(FieldId::SkbPriority, 0),
            Action::SetNwTtl(ttl) => self.set(FieldId::NwTtl, (*ttl).into(), u128::MAX),
            Action::SetMplsTtl(ttl) => self.set(FieldId::MplsTtl, (*ttl).into(), u128::MAX),
            Action::SetTpSrc(port) => {
                self.set_port([FieldId::TcpSrc, FieldId::UdpSrc, FieldId::SctpSrc], *port);
            }
            Action::SetTpDst(port) => {
                self.set_port([FieldId::TcpDst, FieldId::UdpDst, FieldId::SctpDst], *port);
            }
            Action::Push(source) => {
                let value = if self.has(source.field) { self.read(*source) } else { 0 };
                self.stack.push(value);
            }
            Action::Pop(target) => {
                if let Some(value) = self.stack.pop() {
                    let bits = target.bits();
                    self.set(target.field, value << target.offset & bits, bits);
                }
            }
            // The other actions have no effect that a lookup consults.
            _ => {}
        }
        true
    }

    /// Returns whether the packet has a field.
    fn has(&self, field: FieldId) -> bool {
        prerequisite::consult(field, &self.key, &mut FlowMask::EMPTY.clone())
    }

    /// Returns the value of some bits of a field.
    fn read(&self, source: Subfield) -> u128 {
        (self.key.field(source.field) & source.bits()) >> source.offset
    }

    /// Writes bits of a field, if the packet has this field.
    fn set(&mut self, field: FieldId, value: u128, mask: u128) {
        if !self.has(field) {
            return;
        }
        match field {
            FieldId::VlanTci
            | FieldId::VlanVid
            | FieldId::VlanPcp
            | FieldId::DlVlan
            | FieldId::DlVlanPcp => self.set_tag(field, value, mask),
            FieldId::InPort if mask == 0xffff => {
                let number = u32::try_from(value & mask).unwrap_or_default();
                self.key.set_in_port(PortNo::widened(number));
            }
            _ => self.key.set_field_masked(field, value, mask),
        }
    }

    /// Sets a transport port, in the field of the packet's protocol.
    fn set_port(&mut self, ports: [FieldId; 3], port: u16) {
        if let Some(field) = ports.into_iter().find(|field| self.has(*field)) {
            self.key.set_field(field, port.into());
        }
    }

    /// Returns both VLAN tags.
    const fn tags(&self) -> u64 {
        self.key.words()[VLAN]
    }

    /// Adds an outer VLAN tag.
    fn push_tag(&mut self, ethertype: u16) {
        let inner = if self.tags() & OUTER_PRESENT == 0 { 0 } else { self.tags() >> 32 };
        self.key.words_mut()[VLAN] = u64::from(ethertype) << 48 | OUTER_PRESENT | inner;
    }

    /// Removes the outer VLAN tag.
    fn pop_tag(&mut self) {
        if self.tags() & OUTER_PRESENT != 0 {
            self.uncover_inner_tag();
        }
    }

    /// Makes the inner VLAN tag the outer one.
    fn uncover_inner_tag(&mut self) {
        let tags = self.tags();
        self.key.words_mut()[VLAN] = if tags & INNER_PRESENT == 0 { 0 } else { tags << 32 };
    }

    /// Writes bits of the outer VLAN tag.
    fn set_tag(&mut self, field: FieldId, value: u128, mask: u128) {
        if self.tags() & OUTER_PRESENT == 0 {
            let is_made = match field {
                FieldId::DlVlan | FieldId::DlVlanPcp => true,
                FieldId::VlanTci => value & mask & 0x1000 != 0,
                _ => false,
            };
            if !is_made {
                return;
            }
            self.push_tag(TAG_TYPE);
        }
        self.key.set_field_masked(field, value, mask);
        if self.tags() & OUTER_PRESENT == 0 {
            self.uncover_inner_tag();
        }
    }
}
