//! Port names, for parsing and printing rules of one bridge.

use std::sync::Arc;

use shunt_flow::{PortNo, text::PortNames};
use shunt_pipeline::{BondHash, BondMember, BridgeId, LacpAdmission, Mirror, Pipeline, PortInfo};

use crate::ports::registry::listed;

/// A snapshot of the names of the ports and mirrors of one bridge.
#[derive(Debug)]
pub struct BridgeNames {
    /// The ports; `None` if the bridge does not exist.
    ports: Option<Arc<[Arc<PortInfo>]>>,
    /// The mirrors of the bridge.
    mirrors: Vec<Mirror>,
}

impl BridgeNames {
    /// Returns the names of the current ports; empty if the bridge does not exist.
    #[must_use]
    pub fn new(pipeline: &Pipeline, bridge: BridgeId) -> Self {
        let mirrors = pipeline.settings(bridge).map(|settings| settings.mirrors);
        Self { ports: pipeline.ports(bridge), mirrors: mirrors.unwrap_or_default() }
    }

    /// Returns the mirror with an index.
    pub(crate) fn mirror(&self, index: u8) -> Option<&Mirror> {
        self.mirrors.get(usize::from(index))
    }

    /// Returns the packet fields that choose a member of the bond,
    /// if the bond balances.
    pub(crate) fn bond_hash(&self, number: PortNo) -> Option<BondHash> {
        self.member(number)?.balance.as_ref().map(|balance| balance.hash())
    }

    /// Returns whether a port is a member of a bond, and LACP does not use the port.
    pub(crate) fn is_unused_by_lacp(&self, number: PortNo) -> bool {
        self.member(number).is_some_and(|member| member.lacp == LacpAdmission::None)
    }

    /// Returns the bond of a port, if the port is a member of one.
    fn member(&self, number: PortNo) -> Option<&BondMember> {
        self.ports().find(|port| port.number == number)?.bond.as_ref()
    }

    /// Returns the name of the bond of a port, for a message.
    pub(crate) fn bond(&self, number: PortNo) -> Option<String> {
        self.member(number).map(|member| format!("bond {}", member.bond))
    }

    /// Returns whether the bridge has a port with this number.
    pub(crate) fn has(&self, number: PortNo) -> bool {
        self.ports().any(|port| port.number == number)
    }

    /// Returns the port names with their numbers, as text for a message.
    pub(crate) fn list(&self) -> String {
        let named = |port: &PortInfo| match port.number {
            PortNo::LOCAL => PortNo::LOCAL.to_string(),
            number => format!("{} ({number})", port.name),
        };
        let names: Vec<String> = self.ports().map(named).collect();
        listed(names.iter().map(String::as_str))
    }

    /// Returns the ports of the bridge.
    fn ports(&self) -> impl Iterator<Item = &PortInfo> {
        self.ports.iter().flat_map(|ports| ports.iter()).map(|port| &**port)
    }
}

impl PortNames for BridgeNames {
    fn number(&self, name: &str) -> Option<PortNo> {
        self.ports().find(|port| port.name == name).map(|port| port.number)
    }

    fn name(&self, number: PortNo) -> Option<String> {
        // The local port is printed by its reserved name `LOCAL`, as by `ovs-ofctl`.
        let named = self.ports().find(|port| port.number == number && number != PortNo::LOCAL);
        named.map(|port| port.name.clone())
    }
}
