//! Mirrors: copies of packets that a bridge receives and sends.
//!
//! The copies of a received packet come before everything that the tables do with it, those of a
//! sent packet directly after it. A copy is the packet as it is at this moment. It has the tag that
//! its VLAN has on the wire of its output, as with NORMAL. This is as in Open vSwitch 3.1, which
//! however copies no packet for a patch port.
//!
//! A packet gets one copy at each output, also if actions change it and send it again. A copy that
//! leaves on a port which another mirror selects is copied as well.
//!
//! * A copy for a port is sent there even if the packet arrived on it.
//! * A copy for a VLAN is flooded to its ports, except the outputs of mirrors. A packet that is in
//!   this VLAN already gets none, nor does a frame to a reserved address of bridges.

use std::slice;

use shunt_flow::FieldId;

use super::{
    normal::{address, is_access, is_reserved, is_tagged_twice, put_tag, vlan_id},
    output::Egress,
};
use crate::{
    bridges::{
        mirror::MirrorHit,
        mirror_table::{ActiveMirror, ActiveOutput, MirrorSet, MirrorTable},
        port::{PortInfo, PortKind},
    },
    translate::{agenda::AgendaStep, working_packet::vlan::VLAN},
    traversals::{drop_cause::NotedDecision, traversal::TraversalError},
};

/// The mirrors that have copied a packet.
#[derive(Default)]
pub(in crate::translate) struct MirrorState {
    /// The mirrors that copy the packet no more.
    pub(in crate::translate) done: MirrorSet,
    /// Every copy, to be counted.
    pub(in crate::translate) hits: Vec<MirrorHit>,
}

/// The remaining mirrors of a packet.
pub(in crate::translate) struct MirrorCopies<'a> {
    mirrors: &'a MirrorTable,
    rest: MirrorSet,
    /// The VLAN of the packet.
    vlan: u16,
}

/// The remaining ports of the copy for a VLAN.
pub(in crate::translate) struct MirrorFlood<'a> {
    mirrors: &'a MirrorTable,
    rest: slice::Iter<'a, PortInfo>,
    vlan: u16,
    snaplen: Option<u32>,
}

/// Copies the packet, which arrives on this port.
#[inline]
pub(in crate::translate) fn mirror_received(egress: &mut Egress<'_, '_>) {
    let Some(mirrors) = egress.bridge.mirrors() else { return };
    let ingress = egress.packet.in_port();
    let selected = mirrors.received(ingress);
    if !selected.is_empty()
        && let Some(port) = egress.bridge.find_port(ingress, &mut egress.packet.recorder)
    {
        mirror(egress, port, mirrors, selected);
    }
}

/// Copies the packet, which was sent on this port.
#[inline]
pub(super) fn mirror_sent(egress: &mut Egress<'_, '_>, port: &PortInfo) {
    if let Some(mirrors) = egress.bridge.mirrors() {
        mirror(egress, port, mirrors, mirrors.sent(port.number));
    }
}

/// Copies the packet by those of the `selected` mirrors that have not done so.
#[cold]
fn mirror<'a>(
    egress: &mut Egress<'_, 'a>,
    port: &PortInfo,
    mirrors: &'a MirrorTable,
    selected: MirrorSet,
) {
    let rest = selected.without(egress.packet.mirror.done);
    if rest.is_empty() {
        return;
    }
    egress.packet.recorder.consult_word(VLAN, u64::MAX);
    // A packet of a VLAN that the port does not carry is not in any VLAN of the bridge.
    if let Some(vlan) = port.vlans.admit(vlan_id(egress.packet)) {
        egress.agenda.push(AgendaStep::Mirror(MirrorCopies { mirrors, rest, vlan }));
    }
}

/// Sends the copy of the next mirror, and puts the rest back on the agenda.
pub(in crate::translate) fn mirror_copies<'a>(
    egress: &mut Egress<'_, 'a>,
    mut copies: MirrorCopies<'a>,
) -> Result<(), TraversalError> {
    let MirrorCopies { mirrors, vlan, .. } = copies;
    // The copy before may itself have been copied.
    copies.rest = copies.rest.without(egress.packet.mirror.done);
    let Some(mirror) = copies.rest.take_first().and_then(|index| mirrors.get(index)) else {
        return Ok(());
    };
    egress.agenda.push(AgendaStep::Mirror(copies));
    if !mirror.selects(vlan) {
        return Ok(());
    }
    egress.packet.mirror.done.insert(mirror.same_output);
    egress.packet.mirror.hits.push(mirror.hit.clone());
    egress.note(NotedDecision::Mirrored { mirror: mirror.index });
    match mirror.output {
        ActiveOutput::Port(number) => {
            let port = egress.bridge.find_port(number, &mut egress.packet.recorder);
            port.map_or(Ok(()), |port| send_copy(egress, port, vlan, mirror.snaplen))
        }
        ActiveOutput::Vlan(output) => {
            if vlan != output && !is_reserved(address(egress.packet, FieldId::EthDst)) {
                let rest = egress.bridge.all_ports(&mut egress.packet.recorder).iter();
                let flood = MirrorFlood { mirrors, rest, vlan: output, snaplen: mirror.snaplen };
                egress.agenda.push(AgendaStep::MirrorFlood(Box::new(flood)));
            }
            Ok(())
        }
    }
}

/// Sends a copy to the next port of a VLAN, and puts the rest back on the agenda.
pub(in crate::translate) fn mirror_flood<'a>(
    egress: &mut Egress<'_, 'a>,
    mut flood: Box<MirrorFlood<'a>>,
) -> Result<(), TraversalError> {
    let Some(port) = flood.rest.next() else { return Ok(()) };
    let MirrorFlood { mirrors, vlan, snaplen, .. } = *flood;
    egress.agenda.push(AgendaStep::MirrorFlood(flood));
    let is_reached = port.kind != PortKind::Unbound
        && port.vlans.carries(vlan)
        && !mirrors.is_output(port.number)
        && !(is_tagged_twice(egress.packet) && is_access(port));
    if is_reached { send_copy(egress, port, vlan, snaplen) } else { Ok(()) }
}

/// Sends a copy with the tag of its VLAN on the wire of a port.
fn send_copy(
    egress: &mut Egress<'_, '_>,
    port: &PortInfo,
    vlan: u16,
    snaplen: Option<u32>,
) -> Result<(), TraversalError> {
    put_tag(egress, port, vlan);
    egress.output_copy(port, snaplen)
}

impl ActiveMirror {
    /// Returns whether packets of a VLAN are copied.
    fn selects(&self, vlan: u16) -> bool {
        self.vlans.is_empty() || self.vlans.contains(&vlan)
    }
}
