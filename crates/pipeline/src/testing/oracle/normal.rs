//! The NORMAL action in the oracle, by scans of all ports.

use shunt_flow::{FieldId, PortNo};

use super::{
    learn::{LearnEffect, Refreshed},
    packet::low,
    walker::Walker,
};
use crate::{
    bridges::{
        mac_table::MacSighting,
        port::{PortInfo, PortKind},
        port_vlans::{PriorityTags, VlanMode},
    },
    traversals::traversal::TraversalError,
};

impl Walker<'_> {
    pub(super) fn normal(&mut self) -> Result<(), TraversalError> {
        let bridge = self.id();
        let ingress = self.packet.key.in_port();
        if self.packet.tags.is_empty() && [0x8100, 0x88a8].contains(&self.packet.key().eth_type()) {
            return Ok(());
        }
        let id = self.packet.tags.first().map_or(0, |(_, tci)| tci & 0xfff);
        let is_from_controller = ingress == PortNo::CONTROLLER || ingress == PortNo::ANY;
        let entry = self.port(ingress);
        if entry.is_some_and(|port| self.world.bridges[&bridge].is_mirror_output(port)) {
            return Ok(());
        }
        let vlan = match entry.map(|port| port.vlans.mode) {
            None if is_from_controller => id,
            None => return Ok(()),
            Some(VlanMode::Access(_)) if id != 0 => return Ok(()),
            Some(VlanMode::Access(own)) => own,
            Some(VlanMode::NativeTagged(own) | VlanMode::NativeUntagged(own)) if id == 0 => own,
            Some(_) if entry.is_some_and(|port| belongs(port, id)) => id,
            Some(_) => return Ok(()),
        };
        let [source, target] = [FieldId::EthSrc, FieldId::EthDst].map(|field| {
            let [.., a, b, c, d, e, f] = self.packet.key.field(field).to_be_bytes();
            [a, b, c, d, e, f]
        });
        if !is_from_controller && target[..5] == [0x01, 0x80, 0xc2, 0, 0] && target[5] < 16 {
            return Ok(());
        }
        let own = &self.world.bridges[&bridge];
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
            if is_flooded {
                // The address is neither learned nor refreshed.
            } else if is_held_here && !is_announcement {
                self.passes.refresh(Refreshed::Mac(bridge, vlan, source));
            } else {
                let (mac, port) = (source, ingress);
                let sighting =
                    MacSighting { bridge, vlan, mac, port, is_announcement, precedes_packet };
                self.passes.add_learned(LearnEffect::Mac(sighting));
            }
            if target == source {
                return Ok(());
            }
        }
        if target[0] & 1 == 1
            && target != [0xff; 6]
            && let Some(class) = self.multicast_class()
        {
            return self.snoop(&class, target, vlan);
        }
        self.send_to(target, vlan)
    }

    /// Sends to the port of an address, or to all ports of the VLAN.
    pub(super) fn send_to(&mut self, target: [u8; 6], vlan: u16) -> Result<(), TraversalError> {
        let own = &self.world.bridges[&self.id()];
        let ingress = self.packet.key.in_port();
        let is_here = |port: &PortNo| own.first_member(*port) == own.first_member(ingress);
        let entry = self.port(ingress);
        let is_flooded = own.flood_vlans.contains(&vlan);
        let known = own.macs.get(&(vlan, target)).filter(|_| !is_flooded).map(|(port, _)| *port);
        let mut ports = own.ports.clone();
        ports.sort_by_key(|port| port.number);
        let has_second = self.packet.tags.get(1).is_some_and(|(_, tci)| tci & 0xfff != 0);
        for port in ports {
            let is_meant = match known {
                Some(number) => {
                    own.first_member(number) == own.first_member(port.number) && !is_here(&number)
                }
                None if is_here(&port.number) => false,
                None if own.is_mirror_output(&port) => false,
                None if has_second && matches!(port.vlans.mode, VlanMode::Access(_)) => false,
                None if port.kind == PortKind::Unbound => false,
                None => !port.config.no_flood && belongs(&port, vlan),
            };
            let is_isolated = port.is_protected && entry.is_some_and(|entry| entry.is_protected);
            let id = id_on_wire(&port, vlan);
            if is_meant && !is_isolated && !self.has_exited && self.is_sender(&port, id) {
                self.send_in_vlan(&port, vlan, None)?;
            }
        }
        Ok(())
    }

    pub(super) fn send_in_vlan(
        &mut self,
        port: &PortInfo,
        vlan: u16,
        max_len: Option<u32>,
    ) -> Result<(), TraversalError> {
        let id = id_on_wire(port, vlan);
        let is_access = match port.vlans.mode {
            VlanMode::Access(_) => true,
            VlanMode::NativeUntagged(own) => own == vlan,
            VlanMode::Trunk | VlanMode::NativeTagged(_) => false,
        };
        let is_kept = |tci: u16| match port.vlans.priority_tags {
            PriorityTags::Never => !is_access && tci >= 0x2000,
            PriorityTags::IfNonzero => tci >= 0x2000,
            PriorityTags::Always => true,
        };
        let before = self.packet.tags.clone();
        match before.first().copied() {
            None if id != 0 => self.packet.tags.push((0x8100, low(0x1000 | u32::from(id)))),
            Some((_, tci)) if is_access => {
                if matches!(port.vlans.mode, VlanMode::Access(_)) {
                    self.packet.tags.clear();
                } else {
                    self.packet.tags.remove(0);
                }
                let priority = tci & 0xe000;
                match self.packet.tags.first_mut() {
                    Some((_, inner)) if is_kept(tci) => *inner = *inner & 0x1fff | priority,
                    None if is_kept(tci) => self.packet.tags.push((0x8100, 0x1000 | priority)),
                    _ => {}
                }
            }
            Some((_, tci)) if id == 0 && !is_kept(tci) => {
                self.packet.tags.remove(0);
            }
            Some((tpid, tci)) => self.packet.tags[0] = (tpid, tci & 0xf000 | id),
            None => {}
        }
        self.send(port.number, max_len)?;
        self.packet.tags = before;
        Ok(())
    }
}

/// Returns the VLAN id that a port writes into frames of a VLAN; 0: no tag.
pub(super) fn id_on_wire(port: &PortInfo, vlan: u16) -> u16 {
    match port.vlans.mode {
        VlanMode::Access(_) => 0,
        VlanMode::NativeUntagged(own) if own == vlan => 0,
        _ => vlan,
    }
}

/// Returns whether a port belongs to a VLAN.
pub(in crate::testing) fn belongs(port: &PortInfo, vlan: u16) -> bool {
    let is_trunked = match &port.vlans.trunks {
        None => true,
        Some(trunks) => trunks.iter().any(|own| *own == vlan),
    };
    match port.vlans.mode {
        VlanMode::Access(own) => own == vlan,
        VlanMode::Trunk => is_trunked,
        VlanMode::NativeTagged(own) | VlanMode::NativeUntagged(own) => {
            own == vlan || is_trunked && vlan != 0
        }
    }
}
