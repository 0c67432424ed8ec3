//! Multicast snooping, port by port.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use shunt_flow::{FieldId, PortNo};

use super::{
    effects::Outcome,
    normal::{belongs, id_on_wire},
    walker::Walker,
};
use crate::{
    action::Action,
    bridges::{
        multicast::{MulticastEvent, MulticastSighting},
        port_vlans::VlanMode,
    },
    testing::WorldBridge,
    traversals::traversal::TraversalError,
};

/// The treatment of a packet by snooping.
pub(super) struct MulticastClass {
    /// The control plane reads it.
    is_read: bool,
    /// The group of its destination; `None`: it is flooded.
    group: Option<IpAddr>,
    /// Hosts sent it for routers.
    is_report: bool,
}

impl Walker<'_> {
    /// Returns whether an action looks for multicast packets.
    pub(super) fn is_snooped(&self, action: &Action) -> bool {
        let bridge = self.world.bridges.get(&self.id());
        bridge.is_some_and(|bridge| bridge.snooping.is_some())
            && matches!(action, Action::Output { port, .. } if *port == PortNo::NORMAL)
    }

    /// Returns the treatment of the packet; `None`: that of a bridge without snooping.
    pub(super) fn multicast_class(&self) -> Option<MulticastClass> {
        self.world.bridges[&self.id()].snooping?;
        let key = self.packet.key();
        let protocol = key.field(FieldId::IpProto);
        let (is_v4, is_v6) = (key.eth_type() == 0x0800, key.eth_type() == 0x86dd);
        let kind = key.field(FieldId::IcmpType);
        let is_igmp = is_v4 && protocol == 2;
        let is_mld = is_v6 && protocol == 58 && [130, 131, 132, 143].contains(&kind);
        let is_query = is_igmp && kind == 0x11 || is_mld && kind == 130;
        let is_report = is_igmp && [0x12, 0x16, 0x17, 0x22].contains(&kind) || is_mld && !is_query;
        let v4 = Ipv4Addr::from_bits(u32::try_from(key.field(FieldId::Ipv4Dst)).unwrap_or(0));
        let v6 = Ipv6Addr::from_bits(key.field(FieldId::Ipv6Dst));
        let is_local =
            is_v4 && v4.to_bits() >> 8 == 0x00e0_0000 || is_v6 && v6.to_bits() == 0xff02 << 112 | 1;
        let group = if is_v4 { IpAddr::V4(v4) } else { IpAddr::V6(v6) };
        let is_group = !is_igmp && !is_mld && !is_local;
        (is_v4 || is_v6).then_some(MulticastClass {
            is_read: is_query || is_report,
            group: is_group.then_some(group),
            is_report,
        })
    }

    /// Forwards a multicast packet of a VLAN.
    pub(super) fn snoop(
        &mut self,
        class: &MulticastClass,
        target: [u8; 6],
        vlan: u16,
    ) -> Result<(), TraversalError> {
        let bridge = &self.world.bridges[&self.id()];
        let ingress = self.packet.key.in_port();
        let entry = self.port(ingress);
        if class.is_read && entry.is_some_and(|port| !port.multicast.packets) && !self.is_muted {
            let headers = Outcome::headers(&self.packet.frame().view());
            self.halves.emit(Outcome::ToSnooping(self.id(), ingress, vlan, headers));
        }
        let mut wanted: BTreeSet<PortNo> = bridge.routers.get(&vlan).cloned().unwrap_or_default();
        let members = class.group.and_then(|group| bridge.members.get(&(vlan, group)));
        let floods = bridge.snooping.is_some_and(|own| own.floods_unregistered);
        if class.is_report {
            let flagged = bridge.ports.iter().filter(|port| port.multicast.reports);
            wanted.extend(flagged.map(|port| port.number));
        } else if class.group.is_some() && (members.is_some() || !floods) {
            wanted.extend(members.into_iter().flatten());
            let flagged = bridge.ports.iter().filter(|port| port.multicast.packets);
            wanted.extend(flagged.map(|port| port.number));
        } else {
            return self.send_to(target, vlan);
        }
        let mut done = BTreeSet::from([bridge.logical(ingress)]);
        let has_second = self.packet.tags.get(1).is_some_and(|(_, tci)| tci & 0xfff != 0);
        for number in wanted {
            let Some(own) = self.port(number) else { continue };
            let is_access = matches!(own.vlans.mode, VlanMode::Access(_));
            if bridge.is_mirror_output(own) || !belongs(own, vlan) || has_second && is_access {
                continue;
            }
            if done.insert(bridge.logical(number)) {
                self.send_logical(number, vlan)?;
            }
        }
        Ok(())
    }

    /// Sends on a port, or on the member of its bond that sends.
    fn send_logical(&mut self, number: PortNo, vlan: u16) -> Result<(), TraversalError> {
        let bridge = &self.world.bridges[&self.id()];
        let is_protected = self.port(self.packet.key.in_port()).is_some_and(|own| own.is_protected);
        for port in bridge.ports.clone() {
            if bridge.logical(port.number) == bridge.logical(number)
                && !(is_protected && port.is_protected)
                && !self.has_exited
                && self.is_sender(&port, id_on_wire(&port, vlan))
            {
                self.send_in_vlan(&port, vlan, None)?;
            }
        }
        Ok(())
    }
}

impl WorldBridge {
    /// Learns from a message.
    pub(in crate::testing) fn snoop(&mut self, seen: &MulticastSighting) {
        let port = self.ports.iter().find(|port| port.number == seen.port);
        let Some(port) = port.filter(|_| self.snooping.is_some()) else { return };
        let is_refused =
            !belongs(port, seen.vlan) || self.is_mirror_output(port) || port.multicast.packets;
        if is_refused {
            return;
        }
        let logical = self.logical(seen.port);
        let keeps_groups = port.multicast.reports;
        let ports = self.ports.iter().map(|own| own.number);
        let own: BTreeSet<_> = ports.filter(|own| self.logical(*own) == logical).collect();
        let is_in =
            |ports: Option<&BTreeSet<PortNo>>| ports.is_some_and(|ports| !ports.is_disjoint(&own));
        let is_router = is_in(self.routers.get(&seen.vlan));
        match seen.event {
            MulticastEvent::Query if !is_router => {
                self.routers.entry(seen.vlan).or_default().insert(seen.port);
            }
            MulticastEvent::Join(group) if !is_router => {
                if !is_in(self.members.get(&(seen.vlan, group))) {
                    self.members.entry((seen.vlan, group)).or_default().insert(seen.port);
                }
            }
            MulticastEvent::Leave(group) if !keeps_groups => {
                if let Some(ports) = self.members.get_mut(&(seen.vlan, group)) {
                    ports.retain(|port| !own.contains(port));
                }
            }
            MulticastEvent::Query | MulticastEvent::Join(_) | MulticastEvent::Leave(_) => {}
        }
        self.keep_multicast_ports(|_| true);
    }

    /// Keeps ports in the groups, and as router ports, for which `is_kept` is true.
    pub(in crate::testing) fn keep_multicast_ports(&mut self, is_kept: impl Fn(PortNo) -> bool) {
        self.members.values_mut().for_each(|ports| ports.retain(|port| is_kept(*port)));
        self.routers.values_mut().for_each(|ports| ports.retain(|port| is_kept(*port)));
        self.members.retain(|_, ports| !ports.is_empty());
        self.routers.retain(|_, ports| !ports.is_empty());
    }
}
