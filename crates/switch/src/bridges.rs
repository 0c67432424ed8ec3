//! The bridges of a daemon, and the names by which people know them and their ports.

use std::collections::BTreeMap;

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort, PortInfo, PortKind};

use crate::{
    SwitchError,
    config::{self, PortType},
    ports::BridgePort,
};

/// A bridge.
pub(crate) struct Bridge {
    /// Its number, which packets carry.
    pub(crate) id: BridgeId,
    /// What was configured, without the ports.
    pub(crate) settings: config::Bridge,
    /// Identity towards controllers.
    pub(crate) datapath_id: u64,
    /// Its ports, the local one too.
    pub(crate) ports: BTreeMap<PortNo, BridgePort>,
}

/// All bridges.
#[derive(Default)]
pub(crate) struct Bridges {
    by_name: BTreeMap<String, Bridge>,
    last_bridge: u16,
    last_port: u32,
}

impl Bridges {
    /// Adds a bridge without ports.
    pub(crate) fn add(&mut self, settings: config::Bridge) -> Result<&mut Bridge, SwitchError> {
        let name = settings.name.clone();
        if self.by_name.contains_key(&name) {
            return Err(SwitchError::BridgeExists(name));
        }
        // Numbers are not used again: a packet under way may carry one of a bridge that is gone.
        self.last_bridge += 1;
        let id = BridgeId::new(self.last_bridge);
        let datapath_id = settings.datapath_id()?;
        let bridge = Bridge { id, settings, datapath_id, ports: BTreeMap::new() };
        Ok(self.by_name.entry(name).or_insert(bridge))
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Bridge> {
        self.by_name.remove(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bridge> {
        self.by_name.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Bridge> {
        self.by_name.values_mut()
    }

    pub(crate) fn find(&self, name: &str) -> Result<&Bridge, SwitchError> {
        self.by_name.get(name).ok_or_else(|| self.no_bridge(name))
    }

    pub(crate) fn find_mut(&mut self, name: &str) -> Result<&mut Bridge, SwitchError> {
        let missing = self.no_bridge(name);
        self.by_name.get_mut(name).ok_or(missing)
    }

    pub(crate) fn by_id(&self, id: BridgeId) -> Option<&Bridge> {
        self.iter().find(|bridge| bridge.id == id)
    }

    pub(crate) fn by_id_mut(&mut self, id: BridgeId) -> Option<&mut Bridge> {
        self.by_name.values_mut().find(|bridge| bridge.id == id)
    }

    /// The bridge and the number of a port, by its name.
    pub(crate) fn find_port(&self, name: &str) -> Result<(&Bridge, &BridgePort), SwitchError> {
        let ports =
            || self.iter().flat_map(|bridge| bridge.ports.values().map(move |p| (bridge, p)));
        ports().find(|(_, port)| port.settings.name == name).ok_or_else(|| {
            let known = ports().map(|(_, port)| port.settings.name.as_str());
            SwitchError::NoSuchPort { name: name.to_owned(), known: listed(known) }
        })
    }

    /// A number for a port of the datapath. Not used again, for the same reason as a bridge's.
    pub(crate) fn next_datapath_port(&mut self) -> DatapathPort {
        self.last_port += 1;
        DatapathPort::new(self.last_port)
    }

    /// What tables know of the ports of every bridge: each bridge with its whole list.
    pub(crate) fn infos(&self) -> Vec<(BridgeId, Vec<PortInfo>)> {
        let of = |bridge: &Bridge| {
            let ports = bridge.ports.values().map(|port| port.info(self.kind(port)));
            (bridge.id, ports.collect())
        };
        self.iter().map(of).collect()
    }

    fn kind(&self, port: &BridgePort) -> PortKind {
        // Tables send to no port that threads may not have.
        if let Some(datapath) = port.datapath.filter(|_| port.open.is_some()) {
            return PortKind::Datapath(datapath);
        }
        if port.settings.kind != PortType::Patch {
            return PortKind::Unbound;
        }
        // A patch leads on only where both ends name each other.
        match self.find_port(&port.settings.peer) {
            Ok((bridge, peer)) if peer.settings.peer == port.settings.name => {
                PortKind::Patch { bridge: bridge.id, port: peer.number }
            }
            _ => PortKind::Unbound,
        }
    }

    fn no_bridge(&self, name: &str) -> SwitchError {
        let known = listed(self.by_name.keys().map(String::as_str));
        SwitchError::NoSuchBridge { name: name.to_owned(), known }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
