//! What is known of the packets that a rule's actions work on.
//!
//! An action may only touch a header that every packet of the rule has (OpenFlow 1.3.5, 7.2.4:
//! "the match consistency of actions"). The match says what packets have at first; pushing and
//! popping tags changes it on the way, and what a `clone` changed is forgotten behind it.
//! Actions alone, as of a packet-out, know nothing of their packet: there nothing is refused.

use shunt_flow::{
    FieldId, FlowKey, FlowMask, Match, PortNo, prerequisite,
    text::{PortNames, parse_port},
};

use super::{RuleTextError, RuleTextProblem, piece::Piece};
use crate::Action;

/// Names of ports, and what is known of the packet here.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    ports: &'a dyn PortNames,
    packet: Option<Box<Known>>,
}

/// What every packet here has: those bits of the key that are in the mask.
#[derive(Clone)]
struct Known {
    key: FlowKey,
    mask: FlowMask,
}

/// Transport protocols whose ports can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl<'a> Scope<'a> {
    /// Of the actions of a rule.
    pub(super) fn of_rule(matching: &Match, ports: &'a dyn PortNames) -> Self {
        let mask = FlowMask::from(matching.mask());
        let known = Known { key: matching.key(), mask };
        Self { ports, packet: Some(Box::new(known)) }
    }

    /// Of actions without a rule.
    pub(super) const fn of_packet_out(ports: &'a dyn PortNames) -> Self {
        Self { ports, packet: None }
    }

    /// The port of a name, a reserved name or a number.
    pub(super) fn find_port(&self, text: &str) -> Option<PortNo> {
        parse_port(text, self.ports)
    }

    /// As [`Self::find_port`], where there must be one.
    pub(super) fn port(&self, piece: Piece<'_>) -> Result<PortNo, RuleTextError> {
        let name = piece.text();
        self.find_port(name)
            .ok_or_else(|| piece.error(RuleTextProblem::UnknownPort { name: name.to_owned() }))
    }

    /// Whether every packet here has a VLAN tag.
    pub(super) fn has_vlan(&self) -> bool {
        self.packet.as_ref().is_some_and(|known| known.has_vlan())
    }

    /// The transport protocol that every packet here has.
    pub(super) fn transport(&self) -> Option<Transport> {
        let known = self.packet.as_ref()?;
        let protocols = [
            (FieldId::TcpSrc, Transport::Tcp),
            (FieldId::UdpSrc, Transport::Udp),
            (FieldId::SctpSrc, Transport::Sctp),
        ];
        protocols.into_iter().find(|(field, _)| known.allows(*field)).map(|(_, protocol)| protocol)
    }

    /// Refuses the action where its packet may lack what it needs; notes what it changes.
    pub(super) fn admit(&mut self, action: &Action, at: Piece<'_>) -> Result<(), RuleTextError> {
        let Some(known) = self.packet.as_mut() else { return Ok(()) };
        known.admit(action).map_err(|problem| at.error(problem))
    }
}

impl Known {
    fn admit(&mut self, action: &Action) -> Result<(), RuleTextProblem> {
        match action {
            Action::SetField { field, value, mask } => self.write(*field, *value, *mask),
            Action::Load { target, value } => {
                self.write(target.field, u128::from(*value) << target.offset, target.bits())
            }
            Action::Move { source, target } => {
                self.require(source.field)?;
                self.require(target.field)
            }
            Action::OutputField { source, .. } => self.require(source.field),
            Action::DecTtl { .. } => self.require(FieldId::NwTtl),
            Action::PushVlan { .. } => {
                self.set(FieldId::VlanTci, VLAN_PRESENT, VLAN_PRESENT);
                Ok(())
            }
            Action::PopVlan => {
                self.require_tag()?;
                self.set(FieldId::VlanTci, 0, u128::MAX);
                Ok(())
            }
            // Only a packet-out can go back to the first table.
            Action::Output { port: PortNo::TABLE, .. } => {
                Err(RuleTextProblem::BadPort { port: PortNo::TABLE, action: "output" })
            }
            Action::Output { .. }
            | Action::OutputTruncated { .. }
            | Action::Controller(_)
            | Action::Resubmit { .. }
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::Clone(_)
            | Action::Note(_)
            | Action::Exit => Ok(()),
        }
    }

    fn write(&mut self, field: FieldId, value: u128, bits: u128) -> Result<(), RuleTextProblem> {
        self.require(field)?;
        match field {
            // It may be read without a tag, as zero.
            FieldId::VlanVid => self.require_tag(),
            FieldId::VlanTci => {
                self.set(field, value, bits);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn require(&self, field: FieldId) -> Result<(), RuleTextProblem> {
        if self.allows(field) { Ok(()) } else { Err(RuleTextProblem::Prerequisite(field)) }
    }

    fn require_tag(&self) -> Result<(), RuleTextProblem> {
        if self.has_vlan() { Ok(()) } else { Err(RuleTextProblem::NoVlan) }
    }

    fn allows(&self, field: FieldId) -> bool {
        prerequisite::is_met(field, &self.key, &self.mask)
    }

    fn has_vlan(&self) -> bool {
        let present = self.mask.field(FieldId::VlanTci) & self.key.field(FieldId::VlanTci);
        present & VLAN_PRESENT != 0
    }

    fn set(&mut self, field: FieldId, value: u128, bits: u128) {
        self.key.set_field_masked(field, value, bits);
        self.mask.add_bits(field, bits);
    }
}

/// The bit of `vlan_tci` that says that there is a tag.
const VLAN_PRESENT: u128 = 0x1000;
