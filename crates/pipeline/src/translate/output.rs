//! Outputs: to ports, to floods of them, to controllers.
//!
//! "Not to the port that it came in by" is left to whoever executes the output, so that packets of
//! all ports can share an entry, unless some action has rewritten `in_port`: then it is decided
//! here. A packet that came in by a port of the datapath cannot have a patch port as its ingress.

use std::{slice, sync::Arc};

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, PortNo};

use super::{
    context::{Step, Translation},
    scope::Origin,
};
use crate::{
    action::{ControllerAction, PacketInReason, Subfield},
    bridges::port::{PortInfo, PortKind},
    continuations::continuation::Continuation,
    id::{MeterId, TableId},
    traversals::{
        datapath_action::{DatapathAction, Punt},
        traversal::TraversalError,
    },
    versions::delta::Object,
};

/// What a packet-in is asked to be.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) reason: PacketInReason,
    pub(super) controller_id: u16,
    pub(super) max_len: u16,
    pub(super) userdata: &'a [u8],
    /// What packet-ins pass first.
    pub(super) meter: Option<MeterId>,
    /// The packet waits until it is sent back.
    pub(super) pause: bool,
}

impl<'a> Asked<'a> {
    /// What an action asks for.
    pub(super) fn by(action: &'a ControllerAction) -> Self {
        Self {
            reason: action.reason,
            controller_id: action.controller_id,
            max_len: action.max_len,
            userdata: &action.userdata,
            meter: action.meter,
            pause: action.pause,
        }
    }
}

/// Ports that a flood has still to go to.
pub(super) struct Flood<'a> {
    rest: slice::Iter<'a, PortInfo>,
    /// Also to ports that are set not to flood.
    to_all: bool,
}

/// The fields that a packet-in tells besides the packet.
pub(super) const METADATA: &[FieldId] = &[
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
    /// `output`, with or without a length to cut to; `max_len` is that of a packet-in.
    pub(super) fn output(&mut self, port: PortNo, max_len: u16) -> Result<(), TraversalError> {
        match port {
            PortNo::TABLE if self.scope.origin == Origin::PacketOut => {
                self.resubmit(None, Some(TableId::FIRST))
            }
            PortNo::FLOOD | PortNo::ALL => {
                let rest = self.all_ports().iter();
                let flood = Flood { rest, to_all: port == PortNo::ALL };
                self.agenda.push(Step::Flood(flood));
                Ok(())
            }
            PortNo::CONTROLLER => self.punt(Asked {
                reason: self.scope.packet_in_reason(),
                controller_id: 0,
                max_len,
                userdata: &[],
                meter: None,
                pause: false,
            }),
            PortNo::IN_PORT => self.output_ingress(None),
            PortNo::NORMAL => self.normal(),
            // Other reserved ports are ports that no bridge has.
            _ => self.output_port(port, None),
        }
    }

    /// `output(port=..,max_len=..)`: only ports of the datapath can cut.
    pub(super) fn output_truncated(
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
    pub(super) fn output_field(
        &mut self,
        source: Subfield,
        max_len: u16,
    ) -> Result<(), TraversalError> {
        match u32::try_from(self.read_bits(source)) {
            Ok(port) => self.output(PortNo::widened(port), max_len),
            Err(_) => Ok(()),
        }
    }

    /// Goes to the next port of a flood, and comes back for the rest.
    pub(super) fn flood(&mut self, mut flood: Flood<'a>) -> Result<(), TraversalError> {
        let Some(port) = flood.rest.next() else { return Ok(()) };
        let is_reached = flood.to_all || !port.config.no_flood;
        self.agenda.push(Step::Flood(flood));
        if is_reached { self.output_to(port, None) } else { Ok(()) }
    }

    /// Sends the packet to controllers; if it pauses there, nothing more is done with it here.
    pub(super) fn punt(&mut self, asked: Asked<'_>) -> Result<(), TraversalError> {
        let continuation = asked.pause.then(|| self.pause());
        self.tell(asked, continuation)?;
        if asked.pause {
            self.leave_frozen();
        }
        Ok(())
    }

    fn tell(
        &mut self,
        asked: Asked<'_>,
        continuation: Option<Arc<Continuation>>,
    ) -> Result<(), TraversalError> {
        METADATA.iter().for_each(|field| self.recorder.consult(*field, u128::MAX));
        let reason = match asked.reason {
            PacketInReason::Action if self.scope.origin == Origin::Miss => PacketInReason::NoMatch,
            reason => reason,
        };
        if reason == PacketInReason::NoMatch {
            let ingress = self.find_port(self.key.in_port());
            if ingress.is_some_and(|own| own.config.no_packet_in) {
                return Ok(());
            }
        }
        let punt = Punt {
            bridge: self.here.id,
            reason,
            table: self.scope.table,
            cookie: self.scope.cookie,
            controller_id: asked.controller_id,
            max_len: asked.max_len,
            userdata: asked.userdata.into(),
            metadata: metadata(&self.key),
            continuation,
        };
        let punt = DatapathAction::Punt(Arc::new(punt));
        match asked.meter.and_then(|id| self.find_meter(id)) {
            // A packet that comes too fast is only not told of.
            Some(meter) => {
                let metered = [DatapathAction::Meter(meter), punt];
                self.emit(DatapathAction::Copy(metered.into()))
            }
            None => self.emit(punt),
        }
    }

    pub(super) fn output_port(
        &mut self,
        number: PortNo,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        match self.find_port(number) {
            Some(port) => self.output_to(port, max_len),
            // What is not emitted has to be bounded as well.
            None => self.wire.count_action(),
        }
    }

    /// Goes out of a port that was found.
    pub(super) fn output_to(
        &mut self,
        port: &PortInfo,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        let is_decided = self.recorder.is_rewritten(FieldId::InPort);
        if !port.may_send() || (is_decided && self.in_port() == port.number) {
            return Ok(());
        }
        self.send(port, max_len, !is_decided)
    }

    fn output_ingress(&mut self, max_len: Option<u32>) -> Result<(), TraversalError> {
        self.recorder.read(Object::PortFilters(self.here.id));
        if !self.recorder.is_rewritten(FieldId::InPort) && !self.here.ports.filters_egress {
            return self.emit(DatapathAction::OutputIngress { max_len });
        }
        let ingress = self.in_port();
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
                self.emit(DatapathAction::Output { port, unless_ingress, max_len })
            }
            PortKind::Patch { bridge, port } if max_len.is_none() => self.cross(bridge, port),
            PortKind::Patch { .. } | PortKind::Unbound => Ok(()),
        }
    }

    /// The port that the packet came in by, as far as actions can tell.
    pub(super) fn in_port(&mut self) -> PortNo {
        self.recorder.consult(FieldId::InPort, u128::MAX);
        self.key.in_port()
    }

    /// Does something to the packet as it is now.
    pub(super) fn emit(&mut self, action: DatapathAction) -> Result<(), TraversalError> {
        self.wire.emit(&self.key, &mut self.recorder, action)
    }
}

/// The fields of a key that a packet-in tells: those that are not zero, and `in_port`.
fn metadata(key: &FlowKey) -> Match {
    let mut mask = FlowMask::EMPTY;
    let told = |field: &&FieldId| **field == FieldId::InPort || key.field(**field) != 0;
    METADATA.iter().filter(told).for_each(|field| mask.add_field(*field));
    Match::new(key, &mask)
}
