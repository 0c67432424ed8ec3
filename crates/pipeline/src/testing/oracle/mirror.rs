//! Mirrors in the oracle, by scans of all ports.

use std::collections::BTreeSet;

use shunt_flow::{FieldId, FlowKey, PortNo};

use super::{
    normal::{WalkerVlan, arriving, belongs, carries_below},
    walker::Walker,
};
use crate::{
    bridges::{
        mirror::{Mirror, MirrorOutput, MirroredPorts},
        port::{PortInfo, PortKind},
    },
    testing::BridgeModel,
    traversals::traversal::TraversalError,
};

impl BridgeModel {
    /// Returns whether copies of a mirror leave on a port.
    pub(in crate::testing) fn is_mirror_output(&self, port: &PortInfo) -> bool {
        self.mirrors.iter().any(|mirror| match &mirror.output {
            MirrorOutput::Port(name) => names_of(port).contains(name),
            MirrorOutput::Vlan(_) => false,
        })
    }

    /// Removes the addresses, groups and router ports at outputs of mirrors.
    pub(in crate::testing) fn forget_mirror_outputs(&mut self) {
        let outputs = self.ports.iter().filter(|port| self.is_mirror_output(port));
        let outputs: Vec<_> = outputs.map(|port| port.number).collect();
        self.macs.retain(|_, (port, _)| !outputs.contains(port));
        self.keep_multicast_ports(|port| !outputs.contains(&port));
    }

    /// Returns the port on which copies to a port or bond leave, or no port.
    fn outputs(&self, name: &str) -> Vec<PortInfo> {
        let is_output = |port: &&PortInfo| {
            names_of(port).iter().any(|own| own == name)
                && self.active(port.number) == Some(port.number)
        };
        self.ports.iter().filter(is_output).cloned().collect()
    }

    /// Returns the ports and the VLAN to which copies go; 0: no VLAN.
    ///
    /// The name may be that of a bond, or of one of its members.
    fn destination(&self, output: &MirrorOutput) -> (Vec<PortNo>, u16) {
        match output {
            MirrorOutput::Port(name) => {
                (self.outputs(name).iter().map(|port| port.number).collect(), 0)
            }
            MirrorOutput::Vlan(vlan) => (Vec::new(), *vlan),
        }
    }

    /// Returns the mirrors that have an output, with their indices.
    fn active_mirrors(&self) -> Vec<(usize, &Mirror)> {
        let has_output = |mirror: &Mirror| match &mirror.output {
            MirrorOutput::Port(name) => !self.outputs(name).is_empty(),
            MirrorOutput::Vlan(_) => true,
        };
        self.mirrors.iter().enumerate().filter(|(_, mirror)| has_output(mirror)).collect()
    }
}

impl Walker<'_> {
    /// Returns whether a packet arrives on a port that is reserved for copies.
    pub(super) fn is_reserved(&self, key: &FlowKey) -> bool {
        let port = self.port(key.in_port());
        port.is_some_and(|port| self.model.bridges[&self.id()].is_mirror_output(port))
    }

    /// Copies a packet that has arrived in a bridge.
    pub(super) fn mirror_received(&mut self) -> Result<(), TraversalError> {
        let ingress = self.port(self.packet.key.in_port());
        let Some(port) = ingress else { return Ok(()) };
        self.mirror(port, |ports| match ports {
            MirroredPorts::All => true,
            MirroredPorts::Named { received, .. } => {
                names_of(port).iter().any(|name| received.contains(name))
            }
        })
    }

    /// Copies a packet that has left on a port.
    pub(super) fn mirror_sent(&mut self, port: &PortInfo) -> Result<(), TraversalError> {
        self.mirror(port, |ports| match ports {
            MirroredPorts::All => true,
            MirroredPorts::Named { sent, .. } => {
                names_of(port).iter().any(|name| sent.contains(name))
            }
        })
    }

    /// Copies the packet to the mirrors that select a port.
    fn mirror(
        &mut self,
        port: &PortInfo,
        selects: impl Fn(&MirroredPorts) -> bool,
    ) -> Result<(), TraversalError> {
        let bridge = &self.model.bridges[&self.id()];
        let id = self.packet.tags.first().map_or(0, |(_, tci)| tci & 0xfff);
        let Some(vlan) = arriving(port, id) else { return Ok(()) };
        let [.., a, b, c, d, e, f] = self.packet.key.field(FieldId::EthDst).to_be_bytes();
        let is_reserved = [a, b, c, d, e] == [0x01, 0x80, 0xc2, 0, 0] && f < 16;
        for (index, mirror) in bridge.active_mirrors() {
            let is_selected = mirror.vlans.is_empty() || mirror.vlans.contains(&vlan.id);
            if !selects(&mirror.ports) || !is_selected || self.mirrored.contains(&index) {
                continue;
            }
            let place = |own: &Mirror| bridge.destination(&own.output);
            let same =
                bridge.active_mirrors().into_iter().filter(|(_, own)| place(own) == place(mirror));
            self.mirrored.extend(same.map(|(index, _)| index));
            let mut ports = bridge.ports.clone();
            ports.sort_by_key(|port| port.number);
            match &mirror.output {
                MirrorOutput::Port(name) => {
                    self.send_copies(mirror, &bridge.outputs(name), vlan)?;
                }
                MirrorOutput::Vlan(output) if vlan.id != *output && !is_reserved => {
                    let below = self.id_below(vlan);
                    ports.retain(|port| {
                        port.kind != PortKind::Unbound
                            && bridge.active(port.number) == Some(port.number)
                            && belongs(port, *output)
                            && !bridge.is_mirror_output(port)
                            && carries_below(port, below)
                    });
                    self.send_copies(mirror, &ports, WalkerVlan { id: *output, ..vlan })?;
                }
                MirrorOutput::Vlan(_) => {}
            }
        }
        Ok(())
    }

    /// Sends the packet to all ports of a mirror, cut to its snapshot length.
    fn send_copies(
        &mut self,
        mirror: &Mirror,
        ports: &[PortInfo],
        vlan: WalkerVlan,
    ) -> Result<(), TraversalError> {
        let sends = |port: &PortInfo| {
            port.kind != PortKind::Unbound && !port.config.no_fwd && !port.config.port_down
        };
        if ports.iter().any(sends) {
            self.passes.note_mirror(&mirror.name);
        }
        for port in ports {
            let max_len = mirror.snaplen.filter(|_| matches!(port.kind, PortKind::Datapath(_)));
            self.send_in_vlan(port, vlan, max_len)?;
        }
        Ok(())
    }
}

/// Returns the names by which mirrors select a port:
/// those of the port and its bond.
fn names_of(port: &PortInfo) -> Vec<String> {
    let bond = port.bond.as_ref().map(|member| member.bond.to_string());
    bond.into_iter().chain([port.name.clone()]).collect()
}

/// The mirrors that have copied a packet, by their indices.
pub(super) type Mirrored = BTreeSet<usize>;
