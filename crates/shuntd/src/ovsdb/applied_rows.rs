//! The bridges and ports that were applied, and the part that a pass compares.
//!
//! A pass after a change of few rows compares only the ports of these rows. So a port that is added
//! to a thousand others costs as much as the first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_switch::{DeclaredBridge, DeclaredPort, DesiredState, config::BridgeOptions};

use super::desired::DesiredBridges;

/// The ports that a pass compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortScope {
    /// All ports of the rows.
    All,
    /// The ports with these names; all others are as in the last pass.
    Named(BTreeSet<String>),
}

impl PortScope {
    /// Returns the ports of the scope, by name.
    ///
    /// The cost depends on the scope, and not on the number of ports.
    pub(super) fn select<'a, T>(&self, ports: &'a BTreeMap<String, T>) -> Vec<(&'a String, &'a T)> {
        match self {
            Self::All => ports.iter().collect(),
            Self::Named(names) => {
                names.iter().filter_map(|name| ports.get_key_value(name)).collect()
            }
        }
    }
}

/// The bridges and ports that were applied, by name.
#[derive(Debug, Default)]
pub(super) struct AppliedRows {
    bridges: BTreeMap<String, AppliedBridge>,
}

/// A bridge that was applied, with its ports by name.
#[derive(Debug)]
struct AppliedBridge {
    options: Arc<BridgeOptions>,
    ports: BTreeMap<String, DeclaredPort>,
}

impl AppliedRows {
    /// Returns the names of the bridges.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.bridges.keys().map(String::as_str)
    }

    /// Returns whether a bridge with the given name was applied.
    pub(super) fn has_bridge(&self, name: &str) -> bool {
        self.bridges.contains_key(name)
    }

    /// Returns all bridges, each with its ports in `scope`.
    pub(super) fn state(&self, scope: &PortScope) -> DesiredState {
        let bridge = |own: &AppliedBridge| DeclaredBridge {
            options: Arc::clone(&own.options),
            ports: scope.select(&own.ports).into_iter().map(|(_, port)| port.clone()).collect(),
        };
        DesiredState { settings: None, bridges: self.bridges.values().map(bridge).collect() }
    }

    /// Replaces all bridges, and their ports in `scope`.
    pub(super) fn replace(&mut self, scope: &PortScope, state: DesiredState) {
        let mut before = std::mem::take(&mut self.bridges);
        for DeclaredBridge { options, ports } in state.bridges {
            let kept = match scope {
                PortScope::All => None,
                PortScope::Named(_) => before.remove(&options.name),
            };
            let mut all = kept.map(|own| own.ports).unwrap_or_default();
            if let PortScope::Named(names) = scope {
                names.iter().for_each(|name| drop(all.remove(name)));
            }
            all.extend(ports.into_iter().map(|port| (port.options.name.clone(), port)));
            self.bridges.insert(options.name.clone(), AppliedBridge { options, ports: all });
        }
    }

    /// Returns whether a change of some ports affects no other port.
    ///
    /// A new or replaced bridge needs all of its ports.
    pub(super) fn allows_parts(&self, desired: &DesiredBridges) -> bool {
        let is_alike = |(name, own): (&String, &AppliedBridge)| {
            let new = desired.bridges.get(name);
            new.is_some_and(|new| own.options.local == new.options.local)
        };
        self.bridges.len() == desired.bridges.len() && self.bridges.iter().all(is_alike)
    }

    /// Returns the names of the members of all bonds, as applied and as desired.
    ///
    /// A bond is compared together with all of its members.
    pub(super) fn bond_members<'a>(
        &'a self,
        desired: &'a DesiredBridges,
    ) -> impl Iterator<Item = String> + 'a {
        let applied = self.bridges.values().flat_map(|own| &own.options.bonds);
        let desired = desired.bridges.values().flat_map(|own| &own.options.bonds);
        applied.chain(desired).flat_map(|bond| &bond.members).cloned()
    }
}

#[cfg(test)]
mod tests {
    use shunt_switch::config::PortOptions;

    use super::*;

    /// Returns a desired state with some ports.
    fn state(ports: &[String]) -> DesiredState {
        let options = BridgeOptions { name: "br0".to_owned(), ..BridgeOptions::default() };
        let port = |name: &String| {
            DeclaredPort::of(PortOptions { name: name.clone(), ..PortOptions::default() })
        };
        let ports = ports.iter().map(port).collect();
        let bridges = vec![DeclaredBridge { options: Arc::new(options), ports }];
        DesiredState { settings: None, bridges }
    }

    /// Returns the names of the ports of a state.
    fn names(state: &DesiredState) -> Vec<&str> {
        let ports = state.bridges.iter().flat_map(|bridge| &bridge.ports);
        ports.map(|port| port.options.name.as_str()).collect()
    }

    /// A pass compares the changed ports alone, with ten ports as with a thousand.
    #[test]
    fn a_pass_compares_only_changed_ports() {
        for count in [10, 1000] {
            let all: Vec<String> = (0..count).map(|number| format!("p{number:04}")).collect();
            let mut applied = AppliedRows::default();
            applied.replace(&PortScope::All, state(&all));
            assert_eq!(names(&applied.state(&PortScope::All)).len(), count);

            let changed = ["p0003".to_owned(), "p0004".to_owned(), "new".to_owned()];
            let scope = PortScope::Named(BTreeSet::from(changed));
            assert_eq!(names(&applied.state(&scope)), ["p0003", "p0004"], "of {count}");

            // One port was removed, one stays, and one is new.
            applied.replace(&scope, state(&["p0004".to_owned(), "new".to_owned()]));
            let after = applied.state(&PortScope::All);
            assert_eq!(names(&after).len(), count);
            assert!(names(&after).contains(&"new") && !names(&after).contains(&"p0003"));
        }
    }
}
