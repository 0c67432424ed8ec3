//! Names of ports, for texts about one bridge.

use std::sync::Arc;

use shunt_flow::{PortNo, text::PortNames};
use shunt_pipeline::{BridgeId, Pipeline, PortInfo};

use crate::ports::bridges::listed;

/// The names of the ports of one bridge, as they were when this was made.
#[derive(Debug)]
pub struct BridgeNames {
    ports: Option<Arc<[PortInfo]>>,
}

impl BridgeNames {
    /// The ports that a bridge has now; without such a bridge there are none.
    #[must_use]
    pub fn new(pipeline: &Pipeline, bridge: BridgeId) -> Self {
        Self { ports: pipeline.ports(bridge) }
    }

    /// Whether the bridge has a port of this number.
    pub(crate) fn has(&self, number: PortNo) -> bool {
        self.ports().any(|port| port.number == number)
    }

    /// The names of its ports with their numbers, for a message.
    pub(crate) fn list(&self) -> String {
        let named = |port: &PortInfo| match port.number {
            PortNo::LOCAL => PortNo::LOCAL.to_string(),
            number => format!("{} ({number})", port.name),
        };
        let names: Vec<String> = self.ports().map(named).collect();
        listed(names.iter().map(String::as_str))
    }

    fn ports(&self) -> impl Iterator<Item = &PortInfo> {
        self.ports.iter().flat_map(|ports| ports.iter())
    }
}

impl PortNames for BridgeNames {
    fn number(&self, name: &str) -> Option<PortNo> {
        self.ports().find(|port| port.name == name).map(|port| port.number)
    }

    fn name(&self, number: PortNo) -> Option<String> {
        // The local port is known by its reserved name, as `ovs-ofctl` prints it.
        let named = self.ports().find(|port| port.number == number && number != PortNo::LOCAL);
        named.map(|port| port.name.clone())
    }
}
