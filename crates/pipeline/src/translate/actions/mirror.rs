//! Mirrors: copies of packets that a bridge receives and sends.
//!
//! Copies of a received packet are sent before the tables process the packet, and copies of a sent
//! packet directly after it. A copy has the content of the packet at that moment. The tags of a copy
//! are those that NORMAL would give the packet on the output port of the mirror. Open vSwitch 3.1
//! does the same, but copies no packet that is sent to a patch port. The VLAN of a packet on a
//! dot1q-tunnel port is the service VLAN.
//!
//! A packet gets one copy at each output, also if actions change it and send it again. If a copy
//! leaves on a port that another mirror selects, that mirror copies the copy. A mirror counts the
//! packets of which it has sent a copy. Copies do not change the drop cause of the packet itself.
//!
//! * A copy for a port is sent to the port even if the packet arrived on it.
//! * A copy for a VLAN is flooded to the ports of the VLAN, except the output ports of mirrors.
//!   Packets that are in this VLAN already, and frames to reserved addresses of bridges, are not
//!   copied.

use std::{slice, sync::Arc};

use shunt_flow::FieldId;

use super::{
    normal::{address, is_reserved},
    output::Egress,
    port_tags::{INNER_ID, OUTER_ID, OUTER_PRESENT, OUTER_PRIORITY, PacketVlan, put_tags, vlan_id},
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
    /// The mirrors that have copied the packet, and those with the same outputs.
    pub(in crate::translate) done: MirrorSet,
}

/// The mirrors that still have to copy a packet.
pub(in crate::translate) struct MirrorCopies<'a> {
    /// The mirrors of the bridge.
    mirrors: &'a MirrorTable,
    /// The mirrors that have not copied the packet yet.
    rest: MirrorSet,
    /// The VLAN of the packet.
    vlan: PacketVlan,
    /// The drop cause of the packet before its first copy.
    drop_cause: Option<DropCause>,
}

/// The remaining ports of a copy that is flooded in a VLAN.
pub(in crate::translate) struct MirrorFlood<'a> {
    /// The mirrors of the bridge.
    mirrors: &'a MirrorTable,
    /// The mirror that floods.
    mirror: &'a ActiveMirror,
    /// The ports that have not got the copy yet.
    rest: slice::Iter<'a, Arc<PortInfo>>,
    /// The VLAN that gets the copies.
    vlan: PacketVlan,
    /// True if the mirror has counted this packet.
    is_counted: bool,
}

/// The bits that decide the VLAN of a packet.
const OUTER_VLAN: u64 = OUTER_PRESENT | OUTER_ID;

/// Copies a packet that arrives, for the mirrors of its ingress port.
#[inline]
pub(in crate::translate) fn mirror_received(egress: &mut Egress<'_, '_>) {
    if let Some(mirrors) = egress.bridge.mirrors() {
        mirror_ingress(egress, mirrors);
    }
}

/// Copies a received packet to the mirrors that select its port.
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

/// Copies a packet that was sent on `port`, for the mirrors of this port.
#[inline]
pub(super) fn mirror_sent(egress: &mut Egress<'_, '_>, port: &PortInfo) {
    if let Some(mirrors) = egress.bridge.mirrors() {
        mirror(egress, port, mirrors, mirrors.sent(port.number));
    }
}

/// Begins the copies of the `selected` mirrors that have not copied the packet.
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
    // A packet with a VLAN that the port does not carry is in no VLAN of the bridge.
    if let Some(vlan) = PacketVlan::on(port, vlan_id(egress.packet)) {
        let copies = MirrorCopies { mirrors, rest, vlan, drop_cause: None };
        egress.agenda.push(AgendaStep::Mirror(copies));
    }
}

/// Sends the copy of the next mirror, and puts the other copies back on the agenda.
#[inline(never)]
pub(in crate::translate) fn mirror_copies<'a>(
    egress: &mut Egress<'_, 'a>,
    mut copies: MirrorCopies<'a>,
) -> Result<(), TraversalError> {
    let MirrorCopies { mirrors, vlan, .. } = copies;
    // A peer bridge may have dropped the previous copy, and set another cause.
    let recorder = &mut egress.packet.recorder;
    match copies.drop_cause {
        None => copies.drop_cause = Some(recorder.drop_cause()),
        Some(cause) => recorder.set_drop_cause(cause),
    }
    // Other mirrors may have copied the previous copy.
    copies.rest = copies.rest.without(egress.packet.mirror.done);
    let Some(mirror) = copies.rest.take_first().and_then(|index| mirrors.get(index)) else {
        return Ok(());
    };
    egress.agenda.push(AgendaStep::Mirror(copies));
    if !mirror.selects(vlan.id) {
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
            if vlan.id != output && !is_reserved(address(egress.packet, FieldId::EthDst)) {
                let rest = egress.bridge.all_ports(&mut egress.packet.recorder).iter();
                let vlan = PacketVlan { id: output, ..vlan };
                let flood = MirrorFlood { mirrors, mirror, rest, vlan, is_counted: false };
                egress.agenda.push(AgendaStep::MirrorFlood(Box::new(flood)));
            }
            Ok(())
        }
    }
}

/// Sends a copy to the next port of a VLAN, and puts the flood back on the agenda.
#[inline(never)]
pub(in crate::translate) fn mirror_flood<'a>(
    egress: &mut Egress<'_, 'a>,
    mut flood: Box<MirrorFlood<'a>>,
) -> Result<(), TraversalError> {
    let Some(port) = flood.rest.next() else { return Ok(()) };
    let MirrorFlood { mirrors, mirror, vlan, is_counted, .. } = *flood;
    let is_reached = port.kind != PortKind::Unbound
        && !port.is_backup()
        && port.vlans.carries(vlan.id)
        && !mirrors.is_output(port.number)
        && carries_inside(egress, port, vlan)
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

/// Returns whether a port can send a copy, and notes a port that cannot.
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

/// Returns whether the port sends copies with the packet's VLAN in a second tag.
fn carries_inside(egress: &mut Egress<'_, '_>, port: &PortInfo, vlan: PacketVlan) -> bool {
    // The outer tag, which is consulted, is below a service tag.
    if vlan.service_tag.is_none() && port.vlans.selects_inside() {
        egress.packet.recorder.consult_word(VLAN, INNER_ID);
    }
    port.vlans.carries_inside(vlan.id_below(egress.packet))
}

/// Sends a copy with the tags that frames of its VLAN have on the port.
fn send_copy(
    egress: &mut Egress<'_, '_>,
    port: &PortInfo,
    vlan: PacketVlan,
    snaplen: Option<u32>,
) -> Result<(), TraversalError> {
    egress.packet.recorder.consult_word(VLAN, OUTER_VLAN | OUTER_PRIORITY);
    put_tags(egress, port, vlan);
    egress.output_copy(port, snaplen)
}

impl ActiveMirror {
    /// Returns whether the mirror copies packets of a VLAN.
    fn selects(&self, vlan: u16) -> bool {
        self.vlans.is_empty() || self.vlans.contains(&vlan)
    }
}
