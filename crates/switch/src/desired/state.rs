//! The value that describes a switch.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use crate::config::{BridgeOptions, Config, PortOptions};

/// The state that a switch is to have: bridges with their objects, and settings.
///
/// Options that two states share cost a comparison of pointers. So a state should be made from the
/// options of the state before it where these are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// Settings of the switch, without bridges; `None`: they stay as they are.
    pub settings: Option<Arc<Config>>,
    /// Bridges, each with a different name.
    ///
    /// A bridge with the name of an earlier one is refused.
    pub bridges: Vec<DeclaredBridge>,
}

/// A bridge of a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredBridge {
    /// Options of the bridge with its bonds and mirrors, without its ports.
    pub options: Arc<BridgeOptions>,
    /// Ports of the bridge, in the order in which they get their numbers.
    pub ports: Vec<DeclaredPort>,
}

/// A port of a desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredPort {
    /// Options of the port.
    pub options: Arc<PortOptions>,
    /// The number that the port had before, which it gets again if it is free; 0: none.
    ///
    /// The number has an effect with [`ApplyPolicy::Continuous`](crate::ApplyPolicy::Continuous).
    pub last_number: u32,
}

impl DesiredState {
    /// Returns the state that a configuration describes.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let settings = Config { bridges: Vec::new(), ..config.clone() };
        let bridges = config.bridges.iter().map(DeclaredBridge::of).collect();
        Self { settings: Some(Arc::new(settings)), bridges }
    }

    /// Returns the state as a configuration; settings that stay have their defaults.
    #[must_use]
    pub fn config(&self) -> Config {
        let settings = self.settings.as_deref().cloned().unwrap_or_default();
        Config {
            bridges: self.bridges.iter().map(DeclaredBridge::bridge_options).collect(),
            ..settings
        }
    }

    /// Returns the state without repeated bridges, and the names of these.
    ///
    /// A repeated bridge has the name of an earlier one. `None` if no bridge is repeated.
    pub(super) fn without_repeated(&self) -> Option<(Self, Vec<String>)> {
        let mut names = BTreeSet::new();
        let (first, repeated): (Vec<_>, Vec<_>) =
            self.bridges.iter().partition(|own| names.insert(own.options.name.as_str()));
        if repeated.is_empty() {
            return None;
        }
        let repeated = repeated.into_iter().map(|own| own.options.name.clone()).collect();
        let bridges = first.into_iter().cloned().collect();
        Some((Self { settings: self.settings.clone(), bridges }, repeated))
    }

    /// Returns the bridge with the given name.
    #[must_use]
    pub fn bridge(&self, name: &str) -> Option<&DeclaredBridge> {
        self.bridges.iter().find(|bridge| bridge.options.name == name)
    }

    /// Returns the bridge with the given name, to change it.
    pub(super) fn bridge_mut(&mut self, name: &str) -> Option<&mut DeclaredBridge> {
        self.bridges.iter_mut().find(|bridge| bridge.options.name == name)
    }

    /// Returns the port with the given name, and the name of its bridge.
    pub(super) fn port(&self, name: &str) -> Option<(&str, &DeclaredPort)> {
        self.bridges
            .iter()
            .find_map(|bridge| Some((bridge.options.name.as_str(), bridge.port(name)?)))
    }
}

impl DeclaredBridge {
    /// Returns the bridge that options describe, with their ports.
    #[must_use]
    pub fn of(bridge: &BridgeOptions) -> Self {
        let ports = bridge.ports.iter().map(|port| DeclaredPort::of(port.clone()));
        let options = BridgeOptions { ports: Vec::new(), ..bridge.clone() };
        Self { options: Arc::new(options), ports: ports.collect() }
    }

    /// Returns the options of the bridge with its ports.
    #[must_use]
    pub fn bridge_options(&self) -> BridgeOptions {
        let ports = self.ports.iter().map(|port| (*port.options).clone());
        BridgeOptions { ports: ports.collect(), ..(*self.options).clone() }
    }

    /// Returns the port with the given name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<&DeclaredPort> {
        self.ports.iter().find(|port| port.options.name == name)
    }

    /// Returns the ports that do not share their options with a port in `others`.
    pub(super) fn ports_other_than(&self, others: Option<&Self>) -> Vec<&DeclaredPort> {
        let others = others.map(|others| others.ports.as_slice()).unwrap_or_default();
        let shared: HashSet<_> = others.iter().map(|port| Arc::as_ptr(&port.options)).collect();
        let is_other = |port: &&DeclaredPort| !shared.contains(&Arc::as_ptr(&port.options));
        self.ports.iter().filter(is_other).collect()
    }
}

impl DeclaredPort {
    /// Returns the port that options describe, without a number that it had before.
    #[must_use]
    pub fn of(options: PortOptions) -> Self {
        Self { options: Arc::new(options), last_number: 0 }
    }
}
