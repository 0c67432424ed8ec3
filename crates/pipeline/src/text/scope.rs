//! The headers that packets are known to have when an action runs.
//!
//! An action may only use a header that every packet of the rule has (OpenFlow 1.3.5, 7.2.4: "the
//! match consistency of actions"). The match determines which headers packets have at first. Pushing and
//! popping tags changes them from action to action, and a `clone` restores them at its end. Without
//! a match, as in a packet-out, the headers of the packet are unknown and no action is refused. No
//! action of a saved rule is refused either, because OpenFlow 1.0 has no such requirement.

use std::net::IpAddr;

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo, prerequisite,
    text::{PortNames, parse_port},
};

use super::{RuleTextError, RuleTextProblem, slice::TextSlice, subfield::Writes};
use crate::action::{Action, CtAction, CtZone, LearnAction, LearnSource, LearnTarget, NatAction};

/// The names of ports, and the known headers of the packets.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    ports: &'a dyn PortNames,
    /// The headers of the packets; `None` if they are not known.
    packet: Option<Box<KnownHeaders>>,
    /// True if an action that needs another header than the known ones is refused.
    refuses: bool,
}

/// The known bits of the packets' key: those in the mask.
#[derive(Clone)]
struct KnownHeaders {
    /// The values of the known bits.
    key: FlowKey,
    /// The bits that are known.
    mask: FlowMask,
}

/// A transport protocol with ports that actions can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortProtocol {
    Tcp,
    Udp,
    Sctp,
}

impl<'a> Scope<'a> {
    /// Returns the scope of the actions of a rule.
    pub(super) fn of_rule(matching: &Match, ports: &'a dyn PortNames) -> Self {
        let mask = FlowMask::from(matching.mask());
        let known = KnownHeaders { key: matching.key(), mask };
        Self { ports, packet: Some(Box::new(known)), refuses: true }
    }

    /// Returns the scope of the actions of a rule that the switch had accepted.
    pub(super) fn of_saved_rule(matching: &Match, ports: &'a dyn PortNames) -> Self {
        Self { refuses: false, ..Self::of_rule(matching, ports) }
    }

    /// Returns the scope of actions without a rule.
    pub(super) const fn of_packet_out(ports: &'a dyn PortNames) -> Self {
        Self { ports, packet: None, refuses: false }
    }

    /// Returns the port with this name, reserved name or number, if there is one.
    pub(super) fn find_port(&self, text: &str) -> Option<PortNo> {
        parse_port(text, self.ports)
    }

    /// Returns the port with this name, or an error.
    pub(super) fn port(&self, slice: TextSlice<'_>) -> Result<PortNo, RuleTextError> {
        let name = slice.text();
        self.find_port(name)
            .ok_or_else(|| slice.error(RuleTextProblem::UnknownPort { name: name.to_owned() }))
    }

    /// Returns whether packets may lack the headers of an action, as without a rule.
    pub(super) const fn allows_absent(&self) -> bool {
        !self.refuses
    }

    /// Returns whether the actions are of a rule that the switch had accepted.
    pub(super) const fn is_saved(&self) -> bool {
        !self.refuses && self.packet.is_some()
    }

    /// Returns the fields that an action outside `ct` may write.
    pub(super) const fn writes(&self) -> Writes {
        if self.refuses { Writes::Packet } else { Writes::PacketOrNewTag }
    }

    /// Returns whether every packet has a VLAN tag.
    pub(super) fn has_vlan(&self) -> bool {
        self.packet.as_ref().is_some_and(|known| known.has_vlan())
    }

    /// Returns the transport protocol that all packets have, if the match names one.
    pub(super) fn transport(&self) -> Option<PortProtocol> {
        let known = self.packet.as_ref()?;
        let protocols = [
            (FieldId::TcpSrc, PortProtocol::Tcp),
            (FieldId::UdpSrc, PortProtocol::Udp),
            (FieldId::SctpSrc, PortProtocol::Sctp),
        ];
        protocols.into_iter().find(|(field, _)| known.allows(*field)).map(|(_, protocol)| protocol)
    }

    /// Checks that every packet has the headers that `action` needs.
    /// Records the action's changes of headers.
    pub(super) fn admit(
        &mut self,
        action: &Action,
        at: TextSlice<'_>,
    ) -> Result<(), RuleTextError> {
        self.admit_if(|known| known.check(action), action, at)
    }

    /// Checks that packets have the headers that an action of an action set needs.
    ///
    /// The headers at the time when the set runs are unknown. As in a packet-out, an action without
    /// effect is then no error.
    pub(super) fn admit_to_set(
        &mut self,
        action: &Action,
        at: TextSlice<'_>,
    ) -> Result<(), RuleTextError> {
        let is_forgiven = matches!(
            action,
            Action::PopVlan
                | Action::DecTtl { .. }
                | Action::SetNwTtl(_)
                | Action::PopMpls { .. }
                | Action::SetMplsTtl(_)
                | Action::DecMplsTtl
        );
        self.admit_if(|known| if is_forgiven { Ok(()) } else { known.check(action) }, action, at)
    }

    /// Checks an action against the known headers, and records its effect.
    fn admit_if(
        &mut self,
        check: impl FnOnce(&KnownHeaders) -> Result<(), RuleTextProblem>,
        action: &Action,
        at: TextSlice<'_>,
    ) -> Result<(), RuleTextError> {
        let Some(known) = self.packet.as_mut() else { return Ok(()) };
        if self.refuses {
            check(known).map_err(|problem| at.error(problem))?;
        }
        known.note(action);
        Ok(())
    }
}

impl KnownHeaders {
    /// Returns an error for an action that needs a header which a packet may lack.
    fn check(&self, action: &Action) -> Result<(), RuleTextProblem> {
        match action {
            Action::SetField { field, .. } => self.check_write(*field),
            Action::Load { target, .. } | Action::Pop(target) => self.check_write(target.field),
            Action::Move { source, target } => {
                self.require(source.field)?;
                self.check_write(target.field)
            }
            Action::OutputField { source, .. } | Action::Push(source) => self.require(source.field),
            Action::Multipath(action) => self.check_write(action.target.field),
            Action::CheckPktLarger { target, .. } => self.check_write(target.field),
            Action::Bundle(action) => {
                action.target.map_or(Ok(()), |target| self.check_write(target.field))
            }
            Action::DecTtl { .. } | Action::SetNwTtl(_) => self.require(FieldId::NwTtl),
            Action::PopVlan => self.require_tag(),
            Action::PopMpls { .. } | Action::SetMplsTtl(_) | Action::DecMplsTtl => {
                self.require(FieldId::MplsTtl)
            }
            Action::FinTimeout { .. } => self.require(FieldId::TcpFlags),
            Action::Learn(learn) => self.check_learn(learn),
            Action::Ct(ct) => self.check_ct(ct),
            Action::Nat(nat) => self.check_nat(nat),
            // Only a packet-out may output to TABLE, which restarts at the first table.
            Action::Output { port: PortNo::TABLE, .. } => {
                Err(RuleTextProblem::BadPort { port: PortNo::TABLE, action: "output" })
            }
            Action::Output { .. }
            | Action::OutputTruncated { .. }
            | Action::Controller(_)
            | Action::Resubmit { .. }
            | Action::Group(_)
            | Action::Meter(_)
            | Action::PushVlan { .. }
            | Action::PushMpls { .. }
            // These actions ignore headers without a TTL.
            | Action::CopyTtlOut
            | Action::CopyTtlIn
            // These actions write the port of the packet's protocol, and ignore other packets.
            | Action::SetTpSrc(_)
            | Action::SetTpDst(_)
            | Action::SetQueue(_)
            | Action::PopQueue { .. }
            | Action::Conjunction { .. }
            | Action::CtClear
            | Action::Sample(_)
            | Action::Clone(_)
            | Action::Note(_)
            | Action::Exit => Ok(()),
        }
    }

    /// Records the changes that an action makes to the packet.
    fn note(&mut self, action: &Action) {
        match action {
            Action::SetField { field: field @ FieldId::VlanTci, value, mask } => {
                self.set(*field, *value, *mask);
            }
            Action::Load { target, value } if target.field == FieldId::VlanTci => {
                self.set(
                    target.field,
                    u128::from(*value).unbounded_shl(target.offset.into()),
                    target.bits(),
                );
            }
            Action::PushVlan { .. }
            | Action::SetField { field: FieldId::DlVlan | FieldId::DlVlanPcp, .. } => {
                self.set(FieldId::VlanTci, VLAN_PRESENT, VLAN_PRESENT);
            }
            Action::PopVlan => self.set(FieldId::VlanTci, 0, u128::MAX),
            // The packet after a label is unknown.
            Action::PushMpls { ethertype } => {
                self.set(FieldId::EthType, u128::from(*ethertype), u128::MAX);
                self.mask.remove_bits(FieldId::IpProto, u128::MAX);
            }
            Action::PopMpls { ethertype } => {
                self.set(FieldId::EthType, u128::from(*ethertype), u128::MAX);
            }
            _ => {}
        }
    }

    /// Checks that the learned rule matches valid fields.
    /// The function also checks that the packet has the copied fields.
    fn check_learn(&self, learn: &LearnAction) -> Result<(), RuleTextProblem> {
        let mut learned = Self { key: FlowKey::ZERO, mask: FlowMask::EMPTY };
        for spec in &learn.specs {
            if let LearnSource::Field(source) = &spec.source {
                self.require(source.field)?;
            }
            match (&spec.target, &spec.source) {
                (LearnTarget::Match(target), source) => {
                    learned.require(target.field).map_err(in_learned_rule)?;
                    if let LearnSource::Value(value) = source {
                        learned.set(
                            target.field,
                            value.unbounded_shl(target.offset.into()),
                            target.bits(),
                        );
                    }
                }
                (LearnTarget::Load(target), _) => {
                    learned.check_write(target.field).map_err(in_learned_rule)?;
                }
                (LearnTarget::Output, _) => {}
            }
        }
        learn.result.map_or(Ok(()), |bit| self.check_write(bit.field))
    }

    /// Refuses a `ct` action with fields that the packet may lack.
    fn check_ct(&self, ct: &CtAction) -> Result<(), RuleTextProblem> {
        self.require(FieldId::IpProto)?;
        match ct.alg {
            0 => {}
            TFTP => self.require(FieldId::UdpSrc)?,
            _ => self.require(FieldId::TcpSrc)?,
        }
        if let CtZone::Field(zone) = ct.zone {
            self.require(zone.field)?;
        }
        ct.actions.iter().try_for_each(|action| match action {
            Action::Nat(nat) => self.check_nat(nat),
            Action::Move { source, .. } => self.require(source.field),
            _ => Ok(()),
        })
    }

    /// Refuses a `nat` action with addresses of another protocol.
    fn check_nat(&self, nat: &NatAction) -> Result<(), RuleTextProblem> {
        match nat.range.as_ref().map(|range| range.addresses.start()) {
            Some(IpAddr::V4(_)) => self.require(FieldId::Ipv4Src),
            Some(IpAddr::V6(_)) => self.require(FieldId::Ipv6Src),
            None => Ok(()),
        }
    }

    /// Refuses a write to a field that the packet may lack.
    fn check_write(&self, field: FieldId) -> Result<(), RuleTextProblem> {
        self.require(field)?;
        // Without a tag, the field reads as zero.
        if field == FieldId::VlanVid { self.require_tag() } else { Ok(()) }
    }

    /// Refuses a field that the packet may lack.
    fn require(&self, field: FieldId) -> Result<(), RuleTextProblem> {
        if self.allows(field) { Ok(()) } else { Err(RuleTextProblem::Prerequisite(field)) }
    }

    /// Refuses an action on a VLAN tag that the packet may lack.
    fn require_tag(&self) -> Result<(), RuleTextProblem> {
        if self.has_vlan() { Ok(()) } else { Err(RuleTextProblem::NoVlan) }
    }

    /// Returns whether packets have a field.
    fn allows(&self, field: FieldId) -> bool {
        prerequisite::is_met(field, &self.key, &self.mask)
    }

    /// Returns whether the packet is known to have a VLAN tag.
    fn has_vlan(&self) -> bool {
        let present = self.mask.field(FieldId::VlanTci) & self.key.field(FieldId::VlanTci);
        present & VLAN_PRESENT != 0
    }

    /// Records the value that an action writes to bits of a field.
    fn set(&mut self, field: FieldId, value: u128, bits: u128) {
        self.key.set_field_masked(field, value, bits);
        self.mask.add_bits(field, bits);
    }
}

/// Converts a problem of an action to the problem of a rule that `learn` would add.
fn in_learned_rule(problem: RuleTextProblem) -> RuleTextProblem {
    match problem {
        RuleTextProblem::Prerequisite(field) => RuleTextProblem::PrerequisiteOfLearned(field),
        problem => problem,
    }
}

/// The port of TFTP, which runs over UDP.
const TFTP: u16 = 69;
/// The bit of `vlan_tci` that is set if there is a tag.
const VLAN_PRESENT: u128 = 0x1000;
