//! Outputs: to ports, to floods, to the controller.
//!
//! An output to the ingress port is dropped when it is executed, so that packets of all ports share
//! a cache entry. If an action has rewritten `in_port`, or a mirror selects the output port, the
//! translation drops the output. The ingress port of a packet that arrives on a datapath port
//! cannot be a patch port.
//!
//! After an output to a patch port, the translation continues in the peer bridge, as a step of the
//! agenda.

use std::{slice, sync::Arc};

use shunt_flow::{FieldId, PortNo};

use super::{
    mirror::mirror_sent,
    normal::normal,
    packet_in::{PacketInRequest, punt},
};
use crate::{
    bridges::port::{PortInfo, PortKind},
    translate::{
        action_state::ActionState,
        agenda::{Agenda, AgendaStep},
        bridge_view::BridgeView,
        learn_requests::LearnRequests,
        rule_context::RuleContext,
        working_packet::WorkingPacket,
    },
    traversals::{
        datapath_action::DatapathAction, drop_cause::NotedDecision, traversal::TraversalError,
    },
};

/// References to the fields of a translation that outputs use.
pub(in crate::translate) struct Egress<'t, 'a> {
    pub(super) packet: &'t mut WorkingPacket,
    /// The bridge of the outputs.
    pub(super) bridge: BridgeView<'a>,
    /// The steps that remain.
    pub(super) agenda: &'t mut Agenda<'a>,
    /// The learn requests of the packet.
    pub(super) requests: &'t mut LearnRequests,
    /// The rule that packet-ins report.
    context: RuleContext,
}

/// The remaining ports of an output to ALL or FLOOD.
pub(in crate::translate) struct Flood<'a> {
    /// The ports that have not got the packet yet.
    rest: slice::Iter<'a, Arc<PortInfo>>,
    /// True if ports with `no_flood` are included.
    to_all: bool,
}

impl<'t, 'a> Egress<'t, 'a> {
    /// Creates the egress of the bridge that the packet is in.
    pub(in crate::translate) const fn new(
        packet: &'t mut WorkingPacket,
        state: &ActionState<'a>,
        agenda: &'t mut Agenda<'a>,
        requests: &'t mut LearnRequests,
    ) -> Self {
        Self { packet, bridge: state.bridge, agenda, requests, context: state.rule.context }
    }

    /// Records a decision for the explanation of the translation.
    pub(super) fn note(&mut self, decision: NotedDecision) {
        self.packet.recorder.note(self.bridge.id(), decision);
    }

    /// Runs `output`; `max_len` is the length of a packet-in to the controller.
    pub(in crate::translate) fn output(
        &mut self,
        port: PortNo,
        max_len: u16,
    ) -> Result<(), TraversalError> {
        match port {
            PortNo::FLOOD | PortNo::ALL => {
                let rest = self.bridge.all_ports(&mut self.packet.recorder).iter();
                let flood = Flood { rest, to_all: port == PortNo::ALL };
                self.agenda.push(AgendaStep::Flood(flood));
                Ok(())
            }
            PortNo::CONTROLLER => {
                let request = PacketInRequest::output(self.context.packet_in_reason(), max_len);
                punt(self.packet, self.bridge, self.context, request, None)
            }
            PortNo::IN_PORT => self.output_ingress(None),
            PortNo::NORMAL => normal(self),
            // No bridge has a port with another reserved number.
            _ => self.output_port(port, None),
        }
    }

    /// Runs `output(port=..,max_len=..)`: only datapath ports can truncate.
    pub(in crate::translate) fn output_truncated(
        &mut self,
        port: PortNo,
        max_len: u32,
    ) -> Result<(), TraversalError> {
        if port == PortNo::IN_PORT {
            self.output_ingress(Some(max_len))
        } else if port.is_physical() {
            self.output_port(port, Some(max_len))
        } else {
            Ok(())
        }
    }

    /// Sends to the next port of a flood, and puts the other ports back on the agenda.
    pub(in crate::translate) fn flood(
        &mut self,
        mut flood: Flood<'a>,
    ) -> Result<(), TraversalError> {
        let Some(port) = flood.rest.next() else { return Ok(()) };
        let is_reached = (flood.to_all || !port.config.no_flood)
            && port.kind != PortKind::Unbound
            && port.bond.as_ref().is_none_or(|own| flood.to_all || self.floods_in_bond(port, own));
        self.agenda.push(AgendaStep::Flood(flood));
        if is_reached { self.output_to(port, None) } else { Ok(()) }
    }

    /// Outputs to a port of the bridge, or notes that the port is missing.
    fn output_port(&mut self, number: PortNo, max_len: Option<u32>) -> Result<(), TraversalError> {
        match self.bridge.find_port(number, &mut self.packet.recorder) {
            Some(port) => self.output_to(port, max_len),
            // Outputs without effect must be bounded as well.
            None => {
                self.note(NotedDecision::OutputPortMissing(number));
                self.packet.count_action()
            }
        }
    }

    /// Sends the packet on a port of the bridge.
    pub(super) fn output_to(
        &mut self,
        port: &PortInfo,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        // With a mirror, the translation must know if the packet is sent, because only then it is
        // copied.
        let is_decided =
            self.packet.recorder.is_rewritten(FieldId::InPort) || self.is_mirrored(port);
        if !port.may_send() {
            self.note(NotedDecision::OutputPortDisabled(port.number));
            return Ok(());
        }
        if is_decided && self.packet.in_port() == port.number {
            self.note(NotedDecision::Hairpin(port.number));
            return Ok(());
        }
        self.send(port, max_len, !is_decided)
    }

    /// Outputs the packet on its ingress port.
    fn output_ingress(&mut self, max_len: Option<u32>) -> Result<(), TraversalError> {
        let filters = self.bridge.filters_egress(&mut self.packet.recorder)
            || self.bridge.mirrors().is_some();
        if !self.packet.recorder.is_rewritten(FieldId::InPort) && !filters {
            let queue = self.packet.queue();
            return self.packet.emit(DatapathAction::OutputIngress { queue, max_len });
        }
        let ingress = self.packet.in_port();
        match self.bridge.find_port(ingress, &mut self.packet.recorder) {
            Some(port) if port.may_send() => self.send(port, max_len, false),
            Some(port) => {
                self.note(NotedDecision::OutputPortDisabled(port.number));
                Ok(())
            }
            None => {
                self.note(NotedDecision::OutputPortMissing(ingress));
                Ok(())
            }
        }
    }

    /// Sends the copy of a mirror, even if the packet arrived on this port.
    ///
    /// The caller has checked that the port can send. Only datapath ports can truncate.
    pub(super) fn output_copy(
        &mut self,
        port: &PortInfo,
        snaplen: Option<u32>,
    ) -> Result<(), TraversalError> {
        self.send(port, snaplen.filter(|_| port.kind.datapath().is_some()), false)
    }

    /// Returns whether a mirror selects the packets that leave on a port.
    fn is_mirrored(&self, port: &PortInfo) -> bool {
        self.bridge.mirrors().is_some_and(|mirrors| !mirrors.sent(port.number).is_empty())
    }

    /// Sends a packet to a port, in the form that the port requires.
    fn send(
        &mut self,
        port: &PortInfo,
        max_len: Option<u32>,
        unless_ingress: bool,
    ) -> Result<(), TraversalError> {
        match port.kind {
            PortKind::Datapath(to) => {
                let queue = self.packet.queue();
                let output = DatapathAction::Output { port: to, queue, unless_ingress, max_len };
                self.packet.emit(output)?;
                mirror_sent(self, port);
                Ok(())
            }
            PortKind::Patch { bridge, port: peer } if max_len.is_none() => {
                mirror_sent(self, port);
                // The step for the peer bridge runs before the copies of mirrors.
                self.agenda.push(AgendaStep::EnterPeer { bridge, port: peer });
                Ok(())
            }
            PortKind::Patch { .. } | PortKind::Unbound => {
                self.note(NotedDecision::OutputPortMissing(port.number));
                Ok(())
            }
        }
    }
}
