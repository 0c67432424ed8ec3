//! The VLAN tags that a packet of NORMAL has on a port.
//!
//! A packet has a VLAN within the bridge, and tags as it arrived. The VLAN comes from the outer
//! tag, or from the ingress port. If the ingress port is a dot1q-tunnel port, the VLAN is the
//! service VLAN of the port, and all tags of the packet are below it:
//!
//! ```text
//! ingress port   tags of the packet   VLAN   tags on a trunk            tags on a dot1q-tunnel port
//! trunk          100, 7               100    100, 7                     7
//! access 100     none                 100    100                        none
//! tunnel 100     7                    100    100 (type 0x88a8), 7       7
//! tunnel 100     none                 100    100 (type 0x88a8)          none
//! ```
//!
//! Open vSwitch sends the same tags. A tag with VLAN 0 and priority 0 has no meaning: it is
//! removed, unless the port sends priority tags always. The priority of a service tag is 0, or that
//! of the customer's tag on ports with priority tags. A tag that a removed one has covered keeps its
//! priority, except on ports with priority tags, where it gets that of the removed tag.

use shunt_flow::FieldId;

use super::output::Egress;
use crate::{
    bridges::{
        port::PortInfo,
        port_vlans::{PriorityTags, QinqEthtype, VlanMode},
    },
    translate::{
        agenda::AgendaStep,
        working_packet::{WorkingPacket, vlan::VLAN},
    },
};

/// The VLAN of a packet within a bridge.
#[derive(Clone, Copy)]
pub(in crate::translate) struct PacketVlan {
    /// The VLAN id; 0: no VLAN.
    pub(super) id: u16,
    /// The type of the VLAN's tag, if all tags of the packet lie below the tag.
    pub(super) service_tag: Option<QinqEthtype>,
}

/// The present bit of the outer tag in the word of the tags.
pub(super) const OUTER_PRESENT: u64 = 0x1000 << 32;
/// The priority of the outer tag.
pub(super) const OUTER_PRIORITY: u64 = 0xe000 << 32;
/// The VLAN id of the outer tag.
pub(super) const OUTER_ID: u64 = 0xfff << 32;
/// The VLAN id of the inner tag.
pub(super) const INNER_ID: u64 = 0xfff;

impl PacketVlan {
    /// Returns the VLAN of a packet that arrives with a VLAN id on a port.
    ///
    /// `None` if the port drops the packet.
    pub(super) fn on(port: &PortInfo, id: u16) -> Option<Self> {
        let service_tag = port.vlans.service_tag();
        port.vlans.admit(id).map(|id| Self { id, service_tag })
    }

    /// Returns the VLAN id of the tag below the tag of this VLAN; 0 if there is none.
    ///
    /// The caller has consulted the tags.
    pub(super) fn id_below(self, packet: &WorkingPacket) -> u16 {
        let tags = packet.key().words()[VLAN];
        let below = if self.service_tag.is_some() { tags >> 32 } else { tags };
        u16::try_from(below & INNER_ID).unwrap_or_default()
    }

    /// Returns the VLAN id of the outer tag of the packet on a port; 0 without a tag.
    ///
    /// The caller has consulted the tags.
    pub(super) fn id_on_wire(self, packet: &WorkingPacket, port: &PortInfo) -> u16 {
        if is_access(port) || !port.vlans.removes_tag(self.id) {
            port.vlans.id_on_wire(self.id)
        } else {
            self.id_below(packet)
        }
    }
}

/// Gives the packet the tags that `port` requires, until the next output is done.
///
/// The caller must have consulted the VLAN tags.
pub(super) fn put_tags(egress: &mut Egress<'_, '_>, port: &PortInfo, vlan: PacketVlan) {
    match vlan.service_tag {
        // An access port sends no tag of the customer either.
        Some(service_tag) if !is_access(port) => {
            put_service_tag(egress, port, vlan.id, service_tag);
        }
        Some(_) | None => put_outer_tag(egress, port, vlan.id),
    }
}

/// Gives the packet the tag of its VLAN, which its outer tag carries.
fn put_outer_tag(egress: &mut Egress<'_, '_>, port: &PortInfo, vlan: u16) {
    let (now, then) = (vlan_id(egress.packet), port.vlans.id_on_wire(vlan));
    let tags = egress.packet.key().words()[VLAN];
    let (is_tagged, has_priority) = (tags & OUTER_PRESENT != 0, tags & OUTER_PRIORITY != 0);
    let loses_tag = port.vlans.removes_tag(vlan);
    let has_priority_tag = match port.vlans.priority_tags {
        // The priority is removed with the tag.
        PriorityTags::Never => has_priority && !loses_tag,
        PriorityTags::IfNonzero => has_priority,
        PriorityTags::Always => is_tagged,
    };
    let is_tagged_then = then != 0 || has_priority_tag;
    if now == then && is_tagged == is_tagged_then && !(loses_tag && is_tagged) {
        return;
    }
    save_packet(egress);
    if is_tagged_then && !loses_tag {
        return egress.packet.set_tag(FieldId::DlVlan, u128::from(then), 0xfff);
    }
    egress.packet.pop_vlan();
    if is_access(port) {
        egress.packet.pop_vlan();
    } else if loses_tag && !is_tagged_then {
        change_uncovered_tag(egress.packet, port.vlans.priority_tags);
    }
    if is_tagged_then {
        // The new tag has the Ethernet type 0x8100, as in Open vSwitch.
        let priority = (tags & OUTER_PRIORITY) >> 45;
        egress.packet.set_tag(FieldId::DlVlanPcp, priority.into(), 0x7);
    }
}

/// Changes the new outer tag, after an outer tag with priority 0 was removed.
///
/// With priority tags, the tag gets the priority of the removed one, as a tag below an outer tag
/// with another priority does. A tag without a meaning is removed.
fn change_uncovered_tag(packet: &mut WorkingPacket, priority_tags: PriorityTags) {
    let tags = packet.key().words()[VLAN];
    let loses_priority = priority_tags != PriorityTags::Never && tags & OUTER_PRIORITY != 0;
    if has_empty_tag(packet) || loses_priority && tags & OUTER_ID == 0 {
        packet.pop_vlan();
    } else if loses_priority {
        packet.set_tag(FieldId::DlVlanPcp, 0, 0x7);
    }
}

/// Gives the packet the tag of its service VLAN, above the tags of the customer.
fn put_service_tag(
    egress: &mut Egress<'_, '_>,
    port: &PortInfo,
    vlan: u16,
    service_tag: QinqEthtype,
) {
    let priority = egress.packet.key().words()[VLAN] & OUTER_PRIORITY;
    let is_pushed = port.vlans.id_on_wire(vlan) != 0;
    let is_popped =
        port.vlans.priority_tags != PriorityTags::Always && has_empty_tag(egress.packet);
    if !is_pushed && !is_popped {
        return;
    }
    save_packet(egress);
    if is_popped {
        egress.packet.pop_vlan();
    }
    if !is_pushed {
        return;
    }
    egress.packet.push_vlan(service_tag.ethertype());
    egress.packet.set_tag(FieldId::DlVlan, vlan.into(), 0xfff);
    if priority != 0 && port.vlans.priority_tags != PriorityTags::Never {
        egress.packet.set_tag(FieldId::DlVlanPcp, (priority >> 45).into(), 0x7);
    }
}

/// Restores the packet after the next output.
fn save_packet(egress: &mut Egress<'_, '_>) {
    let saved = egress.packet.save();
    egress.agenda.push(AgendaStep::RestorePacket(Box::new(saved)));
}

/// Returns whether the outer tag has VLAN 0 and priority 0.
fn has_empty_tag(packet: &WorkingPacket) -> bool {
    packet.key().words()[VLAN] & (OUTER_PRESENT | OUTER_PRIORITY | OUTER_ID) == OUTER_PRESENT
}

/// Returns the VLAN id of the packet; 0 without a tag.
///
/// The caller has consulted the tags.
pub(super) fn vlan_id(packet: &WorkingPacket) -> u16 {
    u16::try_from(packet.key().words()[VLAN] >> 32 & 0xfff).unwrap_or_default()
}

/// Returns whether a port is an access port of a VLAN.
const fn is_access(port: &PortInfo) -> bool {
    matches!(port.vlans.mode, VlanMode::Access(_))
}
