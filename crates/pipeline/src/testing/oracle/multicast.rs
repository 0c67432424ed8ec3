//! Multicast snooping in the oracle, by scans of all ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use shunt_flow::{FieldId, PortNo};

use super::{
    effects::Outcome,
    normal::{WalkerVlan, belongs, carries_below},
    walker::Walker,
};
use crate::{
    action::Action,
    bridges::multicast::{MulticastEvent, MulticastObservation, MulticastSnooping},
    testing::{BridgeModel, SeenPorts},
    time::Time,
    traversals::traversal::TraversalError,
};

/// The class of a multicast packet, by which snooping decides.
pub(super) struct MulticastClass {
    /// True if the control plane reads the packet.
    is_read: bool,
    /// The group of the destination; `None` if the packet belongs to no group.
    group: Option<IpAddr>,
    /// True for a message of a host to routers.
    is_report: bool,
}

impl Walker<'_> {
    /// Returns whether snooping applies to the packets of an action.
    pub(super) fn is_snooped(&self, action: &Action) -> bool {
        let bridge = self.model.bridges.get(&self.id());
        bridge.is_some_and(|bridge| bridge.snooping.is_some())
            && matches!(action, Action::Output { port, .. } if *port == PortNo::NORMAL)
    }

    /// Returns the class of the packet; `None` if snooping does not apply to it.
    pub(super) fn multicast_class(&self) -> Option<MulticastClass> {
        self.model.bridges[&self.id()].snooping?;
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
        vlan: WalkerVlan,
    ) -> Result<(), TraversalError> {
        let bridge = &self.model.bridges[&self.id()];
        let ingress = self.packet.key.in_port();
        let entry = self.port(ingress);
        if class.is_read && entry.is_some_and(|port| !port.multicast.packets) && !self.is_muted {
            let headers = Outcome::headers(&self.packet.frame().view());
            self.passes.emit(Outcome::ToSnooping(self.id(), ingress, vlan.id, headers));
        }
        let routers = bridge.routers.get(&vlan.id);
        let mut wanted: BTreeSet<PortNo> = routers.map(numbers).unwrap_or_default();
        let members = class.group.and_then(|group| bridge.members.get(&(vlan.id, group)));
        let floods = bridge.snooping.is_some_and(|own| own.floods_unregistered);
        if class.is_report {
            let flagged = bridge.ports.iter().filter(|port| port.multicast.reports);
            wanted.extend(flagged.map(|port| port.number));
        } else if class.group.is_some() && (members.is_some() || !floods) {
            wanted.extend(members.map(numbers).unwrap_or_default());
            let flagged = bridge.ports.iter().filter(|port| port.multicast.packets);
            wanted.extend(flagged.map(|port| port.number));
        } else {
            return self.send_to(target, vlan);
        }
        let mut done = BTreeSet::from([bridge.first_member(ingress)]);
        let below = self.id_below(vlan);
        for number in wanted {
            let Some(own) = self.port(number) else { continue };
            let is_carried = belongs(own, vlan.id) && carries_below(own, below);
            if bridge.is_mirror_output(own) || !is_carried {
                continue;
            }
            if done.insert(bridge.first_member(number)) {
                self.send_logical(number, vlan)?;
            }
        }
        Ok(())
    }

    /// Sends on a port, or on the sending member of its bond.
    fn send_logical(&mut self, number: PortNo, vlan: WalkerVlan) -> Result<(), TraversalError> {
        let bridge = &self.model.bridges[&self.id()];
        let is_protected = self.port(self.packet.key.in_port()).is_some_and(|own| own.is_protected);
        for port in bridge.ports.clone() {
            if bridge.first_member(port.number) == bridge.first_member(number)
                && !(is_protected && port.is_protected)
                && !self.has_exited
                && self.is_sender(&port, self.id_on_port(&port, vlan))
            {
                self.send_in_vlan(&port, vlan, None)?;
            }
        }
        Ok(())
    }
}

/// Returns the ports, without the times of their messages.
fn numbers(ports: &SeenPorts) -> BTreeSet<PortNo> {
    ports.iter().map(|(port, _)| *port).collect()
}

impl BridgeModel {
    /// Changes groups and router ports by a message of IGMP or MLD.
    pub(in crate::testing) fn snoop(&mut self, seen: &MulticastObservation, now: Time) {
        let port = self.ports.iter().find(|port| port.number == seen.port);
        let (Some(port), Some(snooping)) = (port, self.snooping) else { return };
        let is_refused =
            !belongs(port, seen.vlan) || self.is_mirror_output(port) || port.multicast.packets;
        if is_refused {
            return;
        }
        let first = self.first_member(seen.port);
        let keeps_groups = port.multicast.reports;
        let ports = self.ports.iter().map(|own| own.number);
        let own: BTreeSet<_> = ports.filter(|own| self.first_member(*own) == first).collect();
        let routers = self.routers.get(&seen.vlan);
        let is_router = routers.is_some_and(|ports| !numbers(ports).is_disjoint(&own));
        match seen.event {
            MulticastEvent::Query => {
                see(self.routers.entry(seen.vlan).or_default(), seen.port, &own, now);
            }
            MulticastEvent::Join(group) if !is_router => {
                let key = (seen.vlan, group);
                if !self.members.contains_key(&key) {
                    let max = snooping.groups_max.saturating_sub(1);
                    self.limit_groups(max, Some(seen.port));
                }
                see(self.members.entry(key).or_default(), seen.port, &own, now);
            }
            MulticastEvent::Leave(group) if !keeps_groups => {
                if let Some(ports) = self.members.get_mut(&(seen.vlan, group)) {
                    ports.retain(|(port, _)| !own.contains(port));
                }
            }
            MulticastEvent::Join(_) | MulticastEvent::Leave(_) => {}
        }
        self.keep_multicast_ports(|_| true);
    }

    /// Removes ports from groups until there are at most `max` groups.
    ///
    /// Each group is charged to the port that has been in it longest. The port with the most such
    /// groups leaves the group that it reported longest ago. `reporter` is the port of a new group:
    /// it leaves a group of its own if, with the new group, it has as many as any other port. For a
    /// new group, a limited number of ports leave groups that have other ports, too.
    pub(in crate::testing) fn limit_groups(&mut self, max: usize, reporter: Option<PortNo>) {
        let mut departures = 0;
        while self.members.len() > max {
            let first = |ports: &SeenPorts| ports[0].0;
            let count = |port| self.members.values().filter(|own| first(own) == port).count();
            let counts = self.members.values().map(|own| (count(first(own)), first(own)));
            let Some((most, last)) = counts.max() else { return };
            let gives_way = |port: &PortNo| count(*port) > 0 && count(*port) + 1 >= most;
            let largest = reporter.filter(gives_way).unwrap_or(last);
            let own = self.members.iter().filter(|(_, own)| first(own) == largest);
            let oldest = own.min_by_key(|(key, own)| (own[0].1, **key)).map(|(key, _)| *key);
            if let Some(own) = oldest.and_then(|key| self.members.get_mut(&key)) {
                own.remove(0);
                departures += 1;
                if reporter.is_some() && departures >= MulticastSnooping::DEPARTURES_MAX {
                    own.clear();
                }
            }
            self.keep_multicast_ports(|_| true);
        }
    }

    /// Removes the ports for which `is_kept` is false, from groups and router ports.
    pub(in crate::testing) fn keep_multicast_ports(&mut self, is_kept: impl Fn(PortNo) -> bool) {
        self.members.values_mut().for_each(|ports| ports.retain(|(port, _)| is_kept(*port)));
        self.routers.values_mut().for_each(|ports| ports.retain(|(port, _)| is_kept(*port)));
        self.members.retain(|_, ports| !ports.is_empty());
        self.routers.retain(|_, ports| !ports.is_empty());
    }

    /// Moves ports of groups, and router ports, to other ports.
    pub(in crate::testing) fn move_multicast_ports(&mut self, moved: &BTreeMap<PortNo, PortNo>) {
        for ports in self.members.values_mut().chain(self.routers.values_mut()) {
            for (port, _) in ports {
                *port = moved.get(port).copied().unwrap_or(*port);
            }
        }
    }

    /// Removes the ports without a report or query in time.
    pub(in crate::testing) fn expire_multicast(&mut self, now: Time) {
        let Some(MulticastSnooping { ageing, .. }) = self.snooping else { return };
        let router_ageing = Duration::from_secs(180);
        self.members
            .values_mut()
            .for_each(|ports| ports.retain(|(_, seen)| seen.after(ageing) > now));
        self.routers
            .values_mut()
            .for_each(|ports| ports.retain(|(_, seen)| seen.after(router_ageing) > now));
        self.keep_multicast_ports(|_| true);
    }

    /// Returns the multicast table in any order.
    pub(in crate::testing) fn multicast(&self) -> BTreeSet<(u16, Option<IpAddr>, PortNo, Time)> {
        let members = self.members.iter().flat_map(|((vlan, group), ports)| {
            ports.iter().map(|(port, seen)| (*vlan, Some(*group), *port, *seen))
        });
        let routers = self
            .routers
            .iter()
            .flat_map(|(vlan, ports)| ports.iter().map(|(port, seen)| (*vlan, None, *port, *seen)));
        members.chain(routers).collect()
    }
}

/// Records a message of a port; `own` are the ports of its bond.
fn see(ports: &mut SeenPorts, port: PortNo, own: &BTreeSet<PortNo>, now: Time) {
    match ports.iter_mut().find(|(known, _)| own.contains(known)) {
        Some((_, seen)) => *seen = now.max(*seen),
        None => ports.push((port, now)),
    }
}
