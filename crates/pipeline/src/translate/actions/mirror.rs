//! Mirrors: copies of packets that a bridge receives and sends.
//!
//! The copies of a received packet come before everything that the tables do with it, those of a
//! sent packet directly after it. A copy is the packet as it is at this moment. It has the tag that
//! its VLAN has on the wire of its output, as with NORMAL. This is as in Open vSwitch 3.1, which
//! however copies no packet for a patch port.
//!
//! A packet gets one copy at each output, also if actions change it and send it again. A copy that
//! leaves on a port which another mirror selects is copied as well. A mirror counts the packets of
//! which it has sent a copy, and no copy changes the cause of a drop of the packet itself.
//!
//! * A copy for a port is sent there even if the packet arrived on it.
//! * A copy for a VLAN is flooded to its ports, except the outputs of mirrors. A packet that is in
//!   this VLAN already gets none, nor does a frame to a reserved address of bridges.

use std::slice;

use shunt_flow::FieldId;

use super::{
    normal::{
        INNER_ID, OUTER_PRESENT, OUTER_PRIORITY, address, is_access, is_reserved, is_tagged_twice,
        put_tag, vlan_id,
    },
    output::Egress,
};
use crate::{
    bridges::{
        mirror_table::{ActiveMirror, ActiveOutput, MirrorSet, MirrorTable},
        port::{PortInfo, PortKind},
    },
    translate::{agenda::AgendaStep, working_packet::vlan::VLAN},
    traversals::{
        drop_cause::{DropCause, NotedDecision},
        traversal::TraversalError,
    },
};

/// The mirrors that have copied a packet.
#[derive(Default)]
pub(in crate::translate) struct MirrorState {
    /// The mirrors that copy the packet no more.
    pub(in crate::translate) done: MirrorSet,
}

/// The remaining mirrors of a packet.
pub(in crate::translate) struct MirrorCopies<'a> {
    mirrors: &'a MirrorTable,
    rest: MirrorSet,
    /// The VLAN of the packet.
    vlan: u16,
    /// The cause of a drop before the first copy.
    drop_cause: Option<DropCause>,
}

/// The remaining ports of the copy for a VLAN.
pub(in crate::translate) struct MirrorFlood<'a> {
    mirrors: &'a MirrorTable,
    mirror: &'a ActiveMirror,
    rest: slice::Iter<'a, PortInfo>,
    vlan: u16,
    is_counted: bool,
}

/// The bits that decide the VLAN of a packet.
const OUTER_VLAN: u64 = OUTER_PRESENT | 0xfff << 32;

/// Copies the packet, which arrives on this port.
#[inline]
pub(in crate::translate) fn mirror_received(egress: &mut Egress<'_, '_>) {
    if let Some(mirrors) = egress.bridge.mirrors() {
        mirror_ingress(egress, mirrors);
    }
}

#[inline(never)]
fn mirror_ingress<'a>(egress: &mut Egress<'_, 'a>, mirrors: &'a MirrorTable) {
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
#[inline(never)]
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
    egress.packet.recorder.consult_word(VLAN, OUTER_VLAN);
    // A packet of a VLAN that the port does not carry is not in any VLAN of the bridge.
    if let Some(vlan) = port.vlans.admit(vlan_id(egress.packet)) {
        let copies = MirrorCopies { mirrors, rest, vlan, drop_cause: None };
        egress.agenda.push(AgendaStep::Mirror(copies));
    }
}

/// Sends the copy of the next mirror, and puts the rest back on the agenda.
#[inline(never)]
pub(in crate::translate) fn mirror_copies<'a>(
    egress: &mut Egress<'_, 'a>,
    mut copies: MirrorCopies<'a>,
) -> Result<(), TraversalError> {
    let MirrorCopies { mirrors, vlan, .. } = copies;
    // The copy before may have been dropped by a peer bridge.
    let recorder = &mut egress.packet.recorder;
    match copies.drop_cause {
        None => copies.drop_cause = Some(recorder.drop_cause()),
        Some(cause) => recorder.set_drop_cause(cause),
    }
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
    match mirror.output {
        ActiveOutput::Port(number) => {
            let port = egress.bridge.find_port(number, &mut egress.packet.recorder);
            let Some(port) = port.filter(|port| may_have_copy(egress, mirror, port)) else {
                return Ok(());
            };
            count_copy(egress, mirror);
            send_copy(egress, port, vlan, mirror.snaplen)
        }
        ActiveOutput::Vlan(output) => {
            if vlan != output && !is_reserved(address(egress.packet, FieldId::EthDst)) {
                let rest = egress.bridge.all_ports(&mut egress.packet.recorder).iter();
                let flood = MirrorFlood { mirrors, mirror, rest, vlan: output, is_counted: false };
                egress.agenda.push(AgendaStep::MirrorFlood(Box::new(flood)));
            }
            Ok(())
        }
    }
}

/// Sends a copy to the next port of a VLAN, and puts the rest back on the agenda.
#[inline(never)]
pub(in crate::translate) fn mirror_flood<'a>(
    egress: &mut Egress<'_, 'a>,
    mut flood: Box<MirrorFlood<'a>>,
) -> Result<(), TraversalError> {
    let Some(port) = flood.rest.next() else { return Ok(()) };
    let MirrorFlood { mirrors, mirror, vlan, is_counted, .. } = *flood;
    let is_reached = port.kind != PortKind::Unbound
        && !port.is_backup()
        && port.vlans.carries(vlan)
        && !mirrors.is_output(port.number)
        && !(is_access(port) && has_inner_vlan(egress))
        && may_have_copy(egress, mirror, port);
    flood.is_counted |= is_reached;
    egress.agenda.push(AgendaStep::MirrorFlood(flood));
    if !is_reached {
        return Ok(());
    }
    if !is_counted {
        count_copy(egress, mirror);
    }
    send_copy(egress, port, vlan, mirror.snaplen)
}

/// Returns whether a port can send a copy; notes it if not.
fn may_have_copy(egress: &mut Egress<'_, '_>, mirror: &ActiveMirror, port: &PortInfo) -> bool {
    let can_send = port.may_send() && port.kind != PortKind::Unbound;
    if !can_send {
        egress.note(NotedDecision::CopyNotSent { mirror: mirror.index, port: port.number });
    }
    can_send
}

/// Counts the packet as copied.
fn count_copy(egress: &mut Egress<'_, '_>, mirror: &ActiveMirror) {
    egress.packet.output_hits.push(mirror.hit.clone());
    egress.note(NotedDecision::Mirrored { mirror: mirror.index });
}

/// Returns whether the packet has a VLAN in a second tag.
fn has_inner_vlan(egress: &mut Egress<'_, '_>) -> bool {
    egress.packet.recorder.consult_word(VLAN, INNER_ID);
    is_tagged_twice(egress.packet)
}

/// Sends a copy with the tag of its VLAN on the wire of a port.
fn send_copy(
    egress: &mut Egress<'_, '_>,
    port: &PortInfo,
    vlan: u16,
    snaplen: Option<u32>,
) -> Result<(), TraversalError> {
    egress.packet.recorder.consult_word(VLAN, OUTER_VLAN | OUTER_PRIORITY);
    put_tag(egress, port, vlan);
    egress.output_copy(port, snaplen)
}

impl ActiveMirror {
    /// Returns whether packets of a VLAN are copied.
    fn selects(&self, vlan: u16) -> bool {
        self.vlans.is_empty() || self.vlans.contains(&vlan)
    }
}
