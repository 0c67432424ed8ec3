//! The NORMAL action, port by port.

use shunt_flow::{FieldId, PortNo};

use super::{
    learn::{LearnEffect, Refreshed},
    packet::low,
    walker::Walker,
};
use crate::{
    bridges::{mac_table::MacSighting, port::PortInfo, port_vlans::VlanMode},
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
        if !is_from_controller && own.egress(ingress) != Some(ingress) {
            return Ok(());
        }
        let macs = &own.macs;
        let is_here = |port: &PortNo| own.logical(*port) == own.logical(ingress);
        if !is_from_controller && source[0] & 1 == 0 {
            if own.flood_vlans.contains(&vlan) {
                // Nothing is learned or refreshed.
            } else if macs.get(&(vlan, source)).is_some_and(|(port, _)| is_here(port)) {
                self.halves.refresh(Refreshed::Mac(bridge, vlan, source));
            } else {
                let sighting = MacSighting { bridge, vlan, mac: source, port: ingress };
                self.halves.add_learned(LearnEffect::Mac(sighting));
            }
            if target == source {
                return Ok(());
            }
        }
        let mut ports = self.world.bridges[&bridge].ports.clone();
        ports.sort_by_key(|port| port.number);
        let is_known =
            |(port, _): &(PortNo, u64)| (!own.flood_vlans.contains(&vlan)).then_some(*port);
        let known = macs.get(&(vlan, target)).and_then(is_known);
        let has_second = self.packet.tags.get(1).is_some_and(|(_, tci)| tci & 0xfff != 0);
        for port in ports {
            let is_meant = match known {
                Some(number) => own.egress(number) == Some(port.number) && !is_here(&number),
                None if self.is_left_out(&port, ingress) => false,
                None if self.world.bridges[&bridge].is_mirror_output(&port) => false,
                None if has_second && matches!(port.vlans.mode, VlanMode::Access(_)) => false,
                None => !port.config.no_flood && belongs(&port, vlan),
            };
            let is_isolated = port.is_protected && entry.is_some_and(|entry| entry.is_protected);
            if is_meant && !is_isolated && port.number != ingress && !self.has_exited {
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
        let id = match port.vlans.mode {
            VlanMode::Access(_) => 0,
            VlanMode::NativeUntagged(own) if own == vlan => 0,
            _ => vlan,
        };
        let is_access = match port.vlans.mode {
            VlanMode::Access(_) => true,
            VlanMode::NativeUntagged(own) => own == vlan,
            VlanMode::Trunk | VlanMode::NativeTagged(_) => false,
        };
        let before = self.packet.tags.clone();
        match before.first().copied() {
            None if id != 0 => self.packet.tags.push((0x8100, low(0x1000 | u32::from(id)))),
            Some(_) if matches!(port.vlans.mode, VlanMode::Access(_)) => self.packet.tags.clear(),
            Some((_, tci)) if id == 0 && (tci < 0x2000 || is_access) => {
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
