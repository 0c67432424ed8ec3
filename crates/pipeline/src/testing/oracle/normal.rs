//! The NORMAL action in the oracle, by scans of all ports.

use shunt_flow::{FieldId, PortNo};

use super::{
    learn::{LearnEffect, Refreshed},
    packet::low,
    walker::Walker,
};
use crate::{
    bridges::{
        mac_table::MacObservation,
        port::{PortInfo, PortKind},
        port_vlans::{PriorityTags, QinqEthtype, VlanMode},
    },
    traversals::traversal::TraversalError,
};

impl Walker<'_> {
    /// Forwards a packet by the tables, or by NORMAL in a bridge that fails open.
    pub(super) fn forward(&mut self) -> Result<(), TraversalError> {
        if !self.model.bridges[&self.id()].fails_open {
            return self.walk();
        }
        self.need_headers()?;
        self.normal()
    }

    /// Executes an output to `NORMAL`.
    pub(super) fn normal(&mut self) -> Result<(), TraversalError> {
        let bridge = self.id();
        let ingress = self.packet.key.in_port();
        if self.packet.tags.is_empty() && [0x8100, 0x88a8].contains(&self.packet.key().eth_type()) {
            return Ok(());
        }
        let id = self.packet.tags.first().map_or(0, |(_, tci)| tci & 0xfff);
        let is_from_controller = ingress == PortNo::CONTROLLER || ingress == PortNo::ANY;
        let entry = self.port(ingress);
        if entry.is_some_and(|port| self.model.bridges[&bridge].is_mirror_output(port)) {
            return Ok(());
        }
        let arrived = match entry {
            None if is_from_controller => Some(WalkerVlan { id, service: None }),
            None => None,
            Some(port) => arriving(port, id),
        };
        let Some(in_vlan) = arrived else { return Ok(()) };
        let vlan = in_vlan.id;
        let [source, target] = [FieldId::EthSrc, FieldId::EthDst].map(|field| {
            let [.., a, b, c, d, e, f] = self.packet.key.field(field).to_be_bytes();
            [a, b, c, d, e, f]
        });
        if !is_from_controller && target[..5] == [0x01, 0x80, 0xc2, 0, 0] && target[5] < 16 {
            return Ok(());
        }
        let own = &self.model.bridges[&bridge];
        let is_here = |port: &PortNo| own.first_member(*port) == own.first_member(ingress);
        let is_flooded = own.flood_vlans.contains(&vlan);
        let held = own.macs.get(&(vlan, source)).filter(|_| !is_flooded).map(|(port, _)| *port);
        let is_announced = held.is_some() && own.announced.contains_key(&(vlan, source));
        let is_announcement = self.is_announcement(target);
        if let Some(port) = entry.filter(|port| port.bond.is_some()) {
            let is_moved = own.receives_copies(port) && held.is_some_and(|port| !is_here(&port));
            if !own.takes(port, target) || is_moved && (is_announced || !is_announcement) {
                return Ok(());
            }
        }
        if !is_from_controller && source[0] & 1 == 0 {
            let precedes_packet = own.ports.iter().any(|port| own.receives_copies(port));
            let is_held_here = held.is_some_and(|port| is_here(&port));
            let is_announcement = is_announcement
                && !is_announced
                && precedes_packet
                && (entry.is_some_and(|port| port.bond.is_none()) || !is_held_here);
            if is_flooded || own.is_static((vlan, source)) {
                // The address is neither learned nor refreshed.
            } else if is_held_here && !is_announcement {
                self.passes.refresh(Refreshed::Mac(bridge, vlan, source));
            } else {
                let (mac, port) = (source, ingress);
                let observation =
                    MacObservation { bridge, vlan, mac, port, is_announcement, precedes_packet };
                self.passes.add_learned(LearnEffect::Mac(observation));
            }
            if target == source {
                return Ok(());
            }
        }
        if target[0] & 1 == 1
            && target != [0xff; 6]
            && let Some(class) = self.multicast_class()
        {
            return self.snoop(&class, target, in_vlan);
        }
        self.send_to(target, in_vlan)
    }

    /// Sends to the port of an address, or to all ports of the VLAN.
    ///
    /// Sends packets to group addresses to all ports.
    pub(super) fn send_to(
        &mut self,
        target: [u8; 6],
        vlan: WalkerVlan,
    ) -> Result<(), TraversalError> {
        let own = &self.model.bridges[&self.id()];
        let ingress = self.packet.key.in_port();
        let is_here = |port: &PortNo| own.first_member(*port) == own.first_member(ingress);
        let entry = self.port(ingress);
        let is_flooded = own.flood_vlans.contains(&vlan.id);
        let is_group = target[0] & 1 == 1;
        let known = own.macs.get(&(vlan.id, target)).filter(|_| !is_flooded && !is_group);
        let known = known.map(|(port, _)| *port);
        let mut ports = own.ports.clone();
        ports.sort_by_key(|port| port.number);
        let below = self.id_below(vlan);
        for port in ports {
            let is_selected = match known {
                Some(number) => {
                    own.first_member(number) == own.first_member(port.number) && !is_here(&number)
                }
                None if is_here(&port.number) => false,
                None if own.is_mirror_output(&port) => false,
                None if !carries_below(&port, below) => false,
                None if port.kind == PortKind::Unbound => false,
                None => !port.config.no_flood && belongs(&port, vlan.id),
            };
            let is_isolated = port.is_protected && entry.is_some_and(|entry| entry.is_protected);
            let id = self.id_on_port(&port, vlan);
            if is_selected && !is_isolated && !self.has_exited && self.is_sender(&port, id) {
                self.send_in_vlan(&port, vlan, None)?;
            }
        }
        Ok(())
    }

    /// Sends the packet with the tags of its VLAN on the port.
    pub(super) fn send_in_vlan(
        &mut self,
        port: &PortInfo,
        vlan: WalkerVlan,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        let before = self.packet.tags.clone();
        match vlan.service {
            Some(tpid) if !matches!(port.vlans.mode, VlanMode::Access(_)) => {
                self.add_service_tag(port, vlan.id, tpid);
            }
            _ => self.change_outer_tag(port, vlan.id),
        }
        self.send(port.number, max_len)?;
        self.packet.tags = before;
        Ok(())
    }

    /// Changes the outer tag to that of a VLAN.
    fn change_outer_tag(&mut self, port: &PortInfo, vlan: u16) {
        let id = id_on_wire(port, vlan);
        let is_removed = removes_tag(port, vlan);
        let is_kept = |tci: u16| match port.vlans.priority_tags {
            PriorityTags::Never => !is_removed && tci >= 0x2000,
            PriorityTags::IfNonzero => tci >= 0x2000,
            PriorityTags::Always => true,
        };
        match self.packet.tags.first().copied() {
            None if id != 0 => self.packet.tags.push((0x8100, low(0x1000 | u32::from(id)))),
            Some((_, tci)) if is_removed => {
                if matches!(port.vlans.mode, VlanMode::Access(_)) {
                    self.packet.tags.clear();
                } else {
                    self.packet.tags.remove(0);
                }
                let (priority, priority_tags) = (tci & 0xe000, port.vlans.priority_tags);
                match self.packet.tags.first_mut() {
                    Some((_, below)) if priority_tags != PriorityTags::Never => {
                        *below = *below & 0x1fff | priority;
                    }
                    None if is_kept(tci) => self.packet.tags.push((0x8100, 0x1000 | priority)),
                    Some(_) | None => {}
                }
                let is_empty = matches!(self.packet.tags.first(), Some((_, 0x1000)));
                if is_empty && priority_tags != PriorityTags::Always {
                    self.packet.tags.remove(0);
                }
            }
            Some((_, tci)) if id == 0 && !is_kept(tci) => {
                self.packet.tags.remove(0);
            }
            Some((tpid, tci)) => self.packet.tags[0] = (tpid, tci & 0xf000 | id),
            None => {}
        }
    }

    /// Adds the tag of a service VLAN above the tags of the customer.
    ///
    /// The port is no access port.
    fn add_service_tag(&mut self, port: &PortInfo, vlan: u16, tpid: u16) {
        let tags = &mut self.packet.tags;
        let tci = tags.first().map_or(0, |(_, tci)| *tci);
        let has_priority_tags = port.vlans.priority_tags != PriorityTags::Never;
        if tci == 0x1000 && port.vlans.priority_tags != PriorityTags::Always {
            tags.remove(0);
        }
        if vlan != 0 && !removes_tag(port, vlan) {
            let priority = if has_priority_tags { tci & 0xe000 } else { 0 };
            tags.insert(0, (tpid, priority | 0x1000 | vlan));
            tags.truncate(2);
        }
    }

    /// Returns the VLAN id of the tag below that of the VLAN; 0 without a tag.
    pub(super) fn id_below(&self, vlan: WalkerVlan) -> u16 {
        let index = usize::from(vlan.service.is_none());
        self.packet.tags.get(index).map_or(0, |(_, tci)| tci & 0xfff)
    }

    /// Returns the VLAN id of the outer tag that the packet has on a port.
    pub(super) fn id_on_port(&self, port: &PortInfo, vlan: WalkerVlan) -> u16 {
        match port.vlans.mode {
            VlanMode::Access(_) => 0,
            _ if removes_tag(port, vlan.id) => self.id_below(vlan),
            _ => vlan.id,
        }
    }
}

/// The VLAN of a packet in a bridge.
#[derive(Clone, Copy)]
pub(super) struct WalkerVlan {
    /// The VLAN id; 0 means no VLAN.
    pub(super) id: u16,
    /// The type of the service tag that lies above all tags of the packet.
    pub(super) service: Option<u16>,
}

/// Returns the VLAN of a packet that arrives on a port; `None`: it is dropped.
pub(super) fn arriving(port: &PortInfo, id: u16) -> Option<WalkerVlan> {
    let plain = |id| Some(WalkerVlan { id, service: None });
    match port.vlans.mode {
        VlanMode::Access(own) if id == 0 => plain(own),
        VlanMode::Access(_) => None,
        VlanMode::NativeTagged(own) | VlanMode::NativeUntagged(own) if id == 0 => plain(own),
        VlanMode::Dot1qTunnel(own) => {
            let service = match port.vlans.qinq_ethtype {
                QinqEthtype::Dot1ad => 0x88a8,
                QinqEthtype::Dot1q => 0x8100,
            };
            carries_below(port, id).then_some(WalkerVlan { id: own, service: Some(service) })
        }
        _ if belongs(port, id) => plain(id),
        _ => None,
    }
}

/// Returns whether a port sends packets with a VLAN id below that of the bridge.
pub(super) fn carries_below(port: &PortInfo, id: u16) -> bool {
    match (port.vlans.mode, &port.vlans.cvlans) {
        (VlanMode::Access(_), _) => id == 0,
        (VlanMode::Dot1qTunnel(_), Some(own)) => own.iter().any(|own| *own == id),
        _ => true,
    }
}

/// Returns whether a port sends packets of a VLAN without their outer tag.
fn removes_tag(port: &PortInfo, vlan: u16) -> bool {
    match port.vlans.mode {
        VlanMode::Access(_) | VlanMode::Dot1qTunnel(_) => true,
        VlanMode::NativeUntagged(own) => own == vlan,
        VlanMode::Trunk | VlanMode::NativeTagged(_) => false,
    }
}

/// Returns the VLAN id that a port writes into frames of a VLAN; 0: no tag.
fn id_on_wire(port: &PortInfo, vlan: u16) -> u16 {
    if removes_tag(port, vlan) { 0 } else { vlan }
}

/// Returns whether a port belongs to a VLAN.
pub(in crate::testing) fn belongs(port: &PortInfo, vlan: u16) -> bool {
    let is_trunked = match &port.vlans.trunks {
        None => true,
        Some(trunks) => trunks.iter().any(|own| *own == vlan),
    };
    match port.vlans.mode {
        VlanMode::Access(own) | VlanMode::Dot1qTunnel(own) => own == vlan,
        VlanMode::Trunk => is_trunked,
        VlanMode::NativeTagged(own) | VlanMode::NativeUntagged(own) => {
            own == vlan || is_trunked && vlan != 0
        }
    }
}
