//! Patch ports and their peers.

use shunt_pipeline::PortKind;

use super::{port::BridgePort, registry::BridgeRegistry};
use crate::config::PortType;

impl BridgeRegistry {
    /// Returns the reason why a patch port has no peer; `None` if it has a peer.
    pub(crate) fn peer_problem(&self, port: &BridgePort) -> Option<String> {
        if port.settings.kind != PortType::Patch || self.kind(port) != PortKind::Unbound {
            return None;
        }
        let (name, peer) = (&port.settings.name, &port.settings.peer);
        Some(match self.find_port(peer).map(|(_, peer)| &peer.settings) {
            Err(_) => format!(
                "the peer {peer} does not exist: add a patch port {peer} with the peer {name}"
            ),
            Ok(other) if other.kind != PortType::Patch => {
                format!(
                    "the peer {peer} is not a patch port: set its type to patch and its peer to {name}"
                )
            }
            Ok(other) => {
                let third = &other.peer;
                format!("the peer {peer} has the peer {third}: both ends must name each other")
            }
        })
    }

    /// Returns the kind of a port as the tables see it.
    pub(super) fn kind(&self, port: &BridgePort) -> PortKind {
        // Tables may only send to ports that the packet threads have.
        if let Some(datapath) = port.datapath.filter(|_| port.open.is_some()) {
            return PortKind::Datapath(datapath);
        }
        if port.settings.kind != PortType::Patch {
            return PortKind::Unbound;
        }
        // A patch port forwards only if both ends name each other.
        match self.find_named(&port.settings.peer) {
            Some((bridge, peer)) if peer.settings.peer == port.settings.name => {
                PortKind::Patch { bridge: bridge.id, port: peer.number }
            }
            _ => PortKind::Unbound,
        }
    }
}
