//! The ports of a bridge by their OpenFlow numbers.

use std::collections::BTreeMap;

use shunt_flow::PortNo;

use crate::ports::port::BridgePort;

/// The ports of a bridge, in the order of their numbers.
///
/// A port has about 800 bytes. A node of a map with ascending numbers is about half empty, so the
/// map has boxes.
#[derive(Default)]
pub(crate) struct BridgePorts(BTreeMap<PortNo, Box<BridgePort>>);

impl BridgePorts {
    /// Adds a port with its number; replaces a port with the same number.
    pub(crate) fn insert(&mut self, port: BridgePort) {
        self.0.insert(port.number, Box::new(port));
    }

    /// Removes the port with a number.
    pub(crate) fn remove(&mut self, number: PortNo) -> Option<BridgePort> {
        self.0.remove(&number).map(|port| *port)
    }

    /// Returns the port with a number.
    pub(crate) fn get(&self, number: PortNo) -> Option<&BridgePort> {
        self.0.get(&number).map(|port| &**port)
    }

    /// Returns the port with a number, to change it.
    pub(crate) fn get_mut(&mut self, number: PortNo) -> Option<&mut BridgePort> {
        self.0.get_mut(&number).map(|port| &mut **port)
    }

    /// Returns the numbers of the ports.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &PortNo> {
        self.0.keys()
    }

    /// Returns the ports.
    pub(crate) fn values(&self) -> impl Iterator<Item = &BridgePort> {
        self.0.values().map(|port| &**port)
    }

    /// Returns the ports, to change them.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut BridgePort> {
        self.0.values_mut().map(|port| &mut **port)
    }
}
