//! Outputs: to ports, to floods, to controllers.
//!
//! The check against the ingress port is left to the execution of an output, so that packets of all
//! ports share an entry. If an action has rewritten `in_port`, the check is done here. The ingress
//! port of a packet that arrives on a datapath port cannot be a patch port.

use std::{slice, sync::Arc};

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use crate::{
    action::{ControllerAction, PacketInReason, Subfield},
    bridges::port::{PortInfo, PortKind},
    continuations::continuation::Continuation,
    id::{MeterId, TableId},
    translate::{agenda::AgendaStep, rule_context::ActionOrigin, translation::Translation},
    traversals::{
        datapath_action::{DatapathAction, Punt},
        traversal::TraversalError,
    },
    versions::delta::Object,
};

/// The properties of a requested packet-in.
#[derive(Clone, Copy)]
pub(in crate::translate) struct PacketInRequest<'a> {
    pub(in crate::translate) reason: PacketInReason,
    pub(in crate::translate) controller_id: u16,
    pub(in crate::translate) max_len: u16,
    pub(in crate::translate) userdata: &'a [u8],
    /// The meter that the packet-in passes first.
    pub(in crate::translate) meter: Option<MeterId>,
    /// True if the packet waits until it is sent back.
    pub(in crate::translate) pause: bool,
}

impl<'a> PacketInRequest<'a> {
    /// Returns the request of an action.
    pub(in crate::translate) fn by(action: &'a ControllerAction) -> Self {
        Self {
            reason: action.reason,
            controller_id: action.controller_id,
            max_len: action.max_len,
            userdata: &action.userdata,
            meter: action.meter,
            pause: action.pause,
        }
    }

    /// The request for a packet with a TTL that is used up.
    pub(in crate::translate) const fn invalid_ttl(controller_id: u16) -> Self {
        Self {
            reason: PacketInReason::InvalidTtl,
            controller_id,
            max_len: u16::MAX,
            userdata: &[],
            meter: None,
            pause: false,
        }
    }
}

/// The remaining ports of a flood.
pub(in crate::translate) struct Flood<'a> {
    rest: slice::Iter<'a, PortInfo>,
    /// True if ports with `no_flood` are included.
    to_all: bool,
}

/// The fields that a packet-in shows in addition to the packet.
pub(in crate::translate) const METADATA: &[FieldId] = &[
    FieldId::TunId,
    FieldId::TunSrc,
    FieldId::TunDst,
    FieldId::TunIpv6Src,
    FieldId::TunIpv6Dst,
    FieldId::TunFlags,
    FieldId::TunGbpId,
    FieldId::TunGbpFlags,
    FieldId::Metadata,
    FieldId::Reg0,
    FieldId::Reg1,
    FieldId::Reg2,
    FieldId::Reg3,
    FieldId::Reg4,
    FieldId::Reg5,
    FieldId::Reg6,
    FieldId::Reg7,
    FieldId::Reg8,
    FieldId::Reg9,
    FieldId::Reg10,
    FieldId::Reg11,
    FieldId::Reg12,
    FieldId::Reg13,
    FieldId::Reg14,
    FieldId::Reg15,
    FieldId::PktMark,
    FieldId::InPort,
];

impl<'a> Translation<'a> {
    /// `output`; `max_len` is the length of a packet-in.
    pub(in crate::translate) fn output(
        &mut self,
        port: PortNo,
        max_len: u16,
    ) -> Result<(), TraversalError> {
        match port {
            PortNo::TABLE if self.context.origin == ActionOrigin::PacketOut => {
                self.resubmit(None, Some(TableId::FIRST))
            }
            PortNo::FLOOD | PortNo::ALL => {
                let rest = self.bridge.all_ports(&mut self.packet.recorder).iter();
                let flood = Flood { rest, to_all: port == PortNo::ALL };
                self.agenda.push(AgendaStep::Flood(flood));
                Ok(())
            }
            PortNo::CONTROLLER => self.punt(PacketInRequest {
                reason: self.context.packet_in_reason(),
                controller_id: 0,
                max_len,
                userdata: &[],
                meter: None,
                pause: false,
            }),
            PortNo::IN_PORT => self.output_ingress(None),
            PortNo::NORMAL => self.normal(),
            // No bridge has a port with another reserved number.
            _ => self.output_port(port, None),
        }
    }

    /// `output(port=..,max_len=..)`: only datapath ports can truncate.
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

    /// `output:FIELD[..]`.
    pub(in crate::translate) fn output_field(
        &mut self,
        source: Subfield,
        max_len: u16,
    ) -> Result<(), TraversalError> {
        match u32::try_from(self.packet.read_bits(source)) {
            Ok(port) => self.output(PortNo::widened(port), max_len),
            Err(_) => Ok(()),
        }
    }

    /// Sends to the next port of a flood, and puts the rest back on the agenda.
    pub(in crate::translate) fn flood(
        &mut self,
        mut flood: Flood<'a>,
    ) -> Result<(), TraversalError> {
        let Some(port) = flood.rest.next() else { return Ok(()) };
        let is_reached = flood.to_all || !port.config.no_flood;
        self.agenda.push(AgendaStep::Flood(flood));
        if is_reached { self.output_to(port, None) } else { Ok(()) }
    }

    /// Sends the packet to controllers; if it pauses there, the remaining steps are
    /// frozen.
    pub(in crate::translate) fn punt(
        &mut self,
        request: PacketInRequest<'_>,
    ) -> Result<(), TraversalError> {
        let continuation = request.pause.then(|| self.pause());
        self.emit_punt(request, continuation)?;
        if request.pause {
            self.leave_frozen();
        }
        Ok(())
    }

    fn emit_punt(
        &mut self,
        request: PacketInRequest<'_>,
        continuation: Option<Arc<Continuation>>,
    ) -> Result<(), TraversalError> {
        METADATA.iter().for_each(|field| self.packet.recorder.consult(*field, u128::MAX));
        let reason = match request.reason {
            PacketInReason::Action if self.context.origin == ActionOrigin::Miss => {
                PacketInReason::NoMatch
            }
            reason => reason,
        };
        if reason == PacketInReason::NoMatch {
            let ingress = self.find_port(self.packet.key.in_port());
            if ingress.is_some_and(|own| own.config.no_packet_in) {
                return Ok(());
            }
        }
        let punt = Punt {
            bridge: self.bridge.id,
            reason,
            table: self.context.table,
            cookie: self.context.cookie,
            controller_id: request.controller_id,
            max_len: request.max_len,
            userdata: request.userdata.into(),
            metadata: metadata(&self.packet.key),
            continuation,
        };
        let punt = DatapathAction::Punt(Arc::new(punt));
        match request.meter.and_then(|id| self.bridge.find_meter(id, &mut self.packet.recorder)) {
            // Above the rate, only the packet-in is dropped.
            Some(meter) => {
                let metered = [DatapathAction::Meter(meter), punt];
                self.packet.emit(DatapathAction::Copy(metered.into()))
            }
            None => self.packet.emit(punt),
        }
    }

    pub(in crate::translate) fn output_port(
        &mut self,
        number: PortNo,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        match self.find_port(number) {
            Some(port) => self.output_to(port, max_len),
            // Outputs without effect must be bounded as well.
            None => self.packet.builder.count_action(),
        }
    }

    /// Sends the packet on a port of the bridge.
    pub(in crate::translate) fn output_to(
        &mut self,
        port: &PortInfo,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        let is_decided = self.packet.recorder.is_rewritten(FieldId::InPort);
        if !port.may_send() || (is_decided && self.packet.in_port() == port.number) {
            return Ok(());
        }
        self.send(port, max_len, !is_decided)
    }

    fn output_ingress(&mut self, max_len: Option<u32>) -> Result<(), TraversalError> {
        self.packet.recorder.read(Object::PortFilters(self.bridge.id));
        if !self.packet.recorder.is_rewritten(FieldId::InPort) && !self.bridge.ports.filters_egress
        {
            return self.packet.emit(DatapathAction::OutputIngress { max_len });
        }
        let ingress = self.packet.in_port();
        match self.find_port(ingress) {
            Some(port) if port.may_send() => self.send(port, max_len, false),
            _ => Ok(()),
        }
    }

    fn send(
        &mut self,
        port: &PortInfo,
        max_len: Option<u32>,
        unless_ingress: bool,
    ) -> Result<(), TraversalError> {
        match port.kind {
            PortKind::Datapath(port) => {
                self.packet.emit(DatapathAction::Output { port, unless_ingress, max_len })
            }
            PortKind::Patch { bridge, port } if max_len.is_none() => {
                self.enter_peer_bridge(bridge, port)
            }
            PortKind::Patch { .. } | PortKind::Unbound => Ok(()),
        }
    }
}

/// Returns the fields of a key that a packet-in shows: those that are not zero, and
/// `in_port`.
fn metadata(key: &FlowKey) -> Match {
    let mut mask = FlowMask::EMPTY;
    let is_shown = |field: &&FieldId| **field == FieldId::InPort || key.field(**field) != 0;
    METADATA.iter().filter(is_shown).for_each(|field| mask.add_field(*field));
    Match::new(key, &mask)
}
