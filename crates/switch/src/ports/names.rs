//! Port names, for parsing and printing rules of one bridge.

use std::sync::Arc;

use shunt_flow::{PortNo, text::PortNames};
use shunt_pipeline::{BridgeId, Mirror, Pipeline, PortInfo};

use crate::ports::registry::listed;

/// The names of the ports and mirrors of one bridge at one moment.
#[derive(Debug)]
pub struct BridgeNames {
    ports: Option<Arc<[PortInfo]>>,
    mirrors: Vec<Mirror>,
}

impl BridgeNames {
    /// Returns the names of the current ports; none if the bridge does not exist.
    #[must_use]
    pub fn new(pipeline: &Pipeline, bridge: BridgeId) -> Self {
        let mirrors = pipeline.settings(bridge).map(|settings| settings.mirrors);
        Self { ports: pipeline.ports(bridge), mirrors: mirrors.unwrap_or_default() }
    }

    /// Returns a mirror, by its index.
    pub(crate) fn mirror(&self, index: u8) -> Option<&Mirror> {
        self.mirrors.get(usize::from(index))
    }

    /// Returns whether a port is a member of a bond that balances.
    pub(crate) fn balances(&self, number: PortNo) -> bool {
        let port = self.ports().find(|port| port.number == number);
        port.and_then(|port| port.bond.as_ref()).is_some_and(|member| member.balance.is_some())
    }

    /// Returns the bond of a port, for a message.
    pub(crate) fn bond(&self, number: PortNo) -> Option<String> {
        let port = self.ports().find(|port| port.number == number)?;
        port.bond.as_ref().map(|member| format!("bond {}", member.bond))
    }

    /// Returns whether the bridge has a port with this number.
    pub(crate) fn has(&self, number: PortNo) -> bool {
        self.ports().any(|port| port.number == number)
    }

    /// Returns the port names with their numbers, for a message.
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
        // The local port has its reserved name, as in `ovs-ofctl`.
        let named = self.ports().find(|port| port.number == number && number != PortNo::LOCAL);
        named.map(|port| port.name.clone())
    }
}
