//! Datapath numbers and names of all ports.

use std::collections::BTreeMap;

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, DatapathPort};

use crate::ports::registry::BridgeRegistry;

/// A snapshot of the ports of all bridges.
pub(super) struct DatapathPorts {
    /// The name of each port, by datapath number.
    by_number: BTreeMap<DatapathPort, String>,
    /// The datapath number and name of each port, by OpenFlow number.
    by_bridge: BTreeMap<(BridgeId, PortNo), (Option<DatapathPort>, String)>,
    /// True if names are written instead of datapath numbers.
    with_names: bool,
}

impl DatapathPorts {
    /// Collects the datapath ports of all bridges.
    pub(super) fn of(bridges: &BridgeRegistry, with_names: bool) -> Self {
        let (mut by_number, mut by_bridge) = (BTreeMap::new(), BTreeMap::new());
        for bridge in bridges.iter() {
            for port in bridge.ports.values() {
                let name = port.settings.name.clone();
                by_bridge.insert((bridge.id, port.number), (port.datapath, name.clone()));
                by_number.extend(port.datapath.map(|datapath| (datapath, name)));
            }
        }
        Self { by_number, by_bridge, with_names }
    }

    /// Returns the name or datapath number of an output port.
    pub(super) fn text(&self, port: DatapathPort) -> String {
        let name = self.by_number.get(&port).filter(|_| self.with_names);
        name.cloned().unwrap_or_else(|| port.number().to_string())
    }

    /// Returns the datapath port of a port of a bridge, if the port has one.
    pub(super) fn datapath(&self, bridge: BridgeId, number: PortNo) -> Option<DatapathPort> {
        self.by_bridge.get(&(bridge, number))?.0
    }

    /// Returns the name or datapath number of an ingress port.
    ///
    /// The text is the port name if the port has no datapath number.
    pub(super) fn ingress(&self, bridge: BridgeId, number: PortNo) -> String {
        match self.by_bridge.get(&(bridge, number)) {
            Some((Some(datapath), _)) => self.text(*datapath),
            Some((None, name)) => name.clone(),
            None => number.to_string(),
        }
    }
}
