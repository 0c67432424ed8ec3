//! Commands of an operator or a program, each of which changes one object.
//!
//! A command reads the state of its object, changes this state, and applies the difference, as a
//! reload does with whole configurations. A command differs from a reload in two ways: the first
//! refusal ends the command with its error, and a port that cannot be opened is refused.

use std::sync::Arc;

use shunt_flow::PortNo;

use super::{
    apply::command,
    state::{DeclaredBridge, DeclaredPort, DesiredState},
};
use crate::{
    config::{
        BridgeOptions, Config, PortOptions,
        setting::{changed_bridge_settings, changed_settings},
    },
    control::structure::Structure,
    error::SwitchError,
    switch::Switch,
};

impl Switch {
    /// Adds a bridge and its ports.
    ///
    /// # Errors
    ///
    /// If a name or number is in use, or a port cannot be opened.
    pub async fn add_bridge(&self, bridge: &BridgeOptions) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        command(&structure, &DesiredState::default(), &of_bridge(DeclaredBridge::of(bridge))).await
    }

    /// Removes a bridge with its ports and rules.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist.
    pub async fn remove_bridge(&self, name: &str) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        let present = structure.bridge_state(name)?;
        command(&structure, &of_bridge(present), &DesiredState::default()).await
    }

    /// Changes several settings of a bridge in one step, by key and value.
    ///
    /// Controllers and listeners that are not affected keep their connections. A new datapath id
    /// reconnects all. [`BridgeOptions::RUNTIME_KEYS`] lists the keys; a list has commas between
    /// its values.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, a key cannot change, or a value is unusable; then none is set.
    pub async fn set_bridge(
        &self,
        name: &str,
        settings: &[(&str, &str)],
    ) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        let mut present = structure.bridge_state(name)?;
        let changed = changed_bridge_settings(&present.options, settings)?;
        let mut desired = present.clone();
        changed.write(Arc::make_mut(&mut desired.options));
        if changed.has("mac") && structure.bridges().has_other_mac(name) {
            forget_address(&mut present, &desired);
        }
        command(&structure, &of_bridge(present), &of_bridge(desired)).await
    }

    /// Adds a port to a bridge.
    ///
    /// # Errors
    ///
    /// If a name or number is in use, or the port cannot be opened.
    pub async fn add_port(&self, bridge: &str, port: PortOptions) -> Result<(), SwitchError> {
        port.check()?;
        let structure = self.control.structure().await;
        let present = structure.bridge_state(bridge)?;
        let mut desired = present.clone();
        desired.ports.push(DeclaredPort::of(port));
        command(&structure, &of_bridge(present), &of_bridge(desired)).await
    }

    /// Removes a port.
    ///
    /// # Errors
    ///
    /// If the port does not exist, or is the local port of a bridge.
    pub async fn remove_port(&self, name: &str) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        let present = structure.port_state(name)?;
        let desired = DeclaredBridge { ports: Vec::new(), ..present.clone() };
        command(&structure, &of_bridge(present), &of_bridge(desired)).await
    }
}

impl Structure {
    /// Changes several settings in one step, or no setting if one value is refused.
    pub(crate) async fn set(&self, settings: &[(&str, &str)]) -> Result<(), SwitchError> {
        let configured = Config { bridges: Vec::new(), ..self.configured_settings() };
        let mut changed = configured.clone();
        changed_settings(&configured, settings)?.write(&mut changed);
        let [present, desired] = [configured, changed].map(|settings| DesiredState {
            settings: Some(Arc::new(settings)),
            bridges: Vec::new(),
        });
        command(self, &present, &desired).await
    }

    /// Returns a bridge without its ports.
    fn bridge_state(&self, name: &str) -> Result<DeclaredBridge, SwitchError> {
        let bridges = self.bridges().lock();
        let options = Arc::new(bridges.find(name)?.settings.clone());
        Ok(DeclaredBridge { options, ports: Vec::new() })
    }

    /// Returns a port, other than a local port, as the only port of its bridge.
    fn port_state(&self, name: &str) -> Result<DeclaredBridge, SwitchError> {
        let bridges = self.bridges().lock();
        let (bridge, port) = bridges.find_port(name)?;
        if port.number == PortNo::LOCAL {
            let problem = "a local port cannot be removed: remove its bridge";
            return Err(SwitchError::PortSetting { port: name.to_owned(), problem });
        }
        let ports = vec![DeclaredPort::of(port.settings.clone())];
        Ok(DeclaredBridge { options: Arc::new(bridge.settings.clone()), ports })
    }
}

fn of_bridge(bridge: DeclaredBridge) -> DesiredState {
    DesiredState { settings: None, bridges: vec![bridge] }
}

/// Removes a present address that another program has changed.
///
/// So the difference contains the address. If the command removes the address, the states differ
/// already.
fn forget_address(present: &mut DeclaredBridge, desired: &DeclaredBridge) {
    if !desired.options.mac.is_empty() {
        Arc::make_mut(&mut present.options).mac.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::PortType,
        desired::{apply::ApplyPolicy, difference::difference},
    };

    fn port(name: &str, kind: PortType) -> PortOptions {
        let rx = if kind == PortType::Pcap { "/no/such/file.pcap".into() } else { "".into() };
        PortOptions { name: name.to_owned(), kind, rx, ..PortOptions::default() }
    }

    fn bridge(name: &str, ports: Vec<PortOptions>) -> BridgeOptions {
        BridgeOptions { name: name.to_owned(), ports, ..BridgeOptions::default() }
    }

    fn ports(switch: &Switch) -> Vec<(String, Vec<String>)> {
        let names = |bridge: BridgeOptions| {
            let ports = bridge.ports.into_iter().map(|port| port.name);
            (bridge.name, ports.collect())
        };
        switch.running_config().bridges.into_iter().map(names).collect()
    }

    /// A command sets or removes an address that another program has changed.
    #[test]
    fn a_changed_address_is_set_or_removed() {
        let own = "02:00:00:00:00:01";
        for mac in [own, "02:00:00:00:00:02", ""] {
            let [mut present, desired] = [own, mac].map(|mac| {
                let mac = mac.to_owned();
                DeclaredBridge::of(&BridgeOptions { mac, ..bridge("br0", Vec::new()) })
            });
            forget_address(&mut present, &desired);
            let [present, desired] = [present, desired].map(of_bridge);
            let changes = difference(&present, &desired, ApplyPolicy::Once).changes;
            assert_eq!(changes.len(), 1, "{mac:?}: {changes:?}");
        }
    }

    /// A bridge is added with all its ports or not at all, and each command changes one
    /// object.
    #[tokio::test]
    async fn a_command_changes_one_object_or_nothing() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        let [good, bad] = [port("p1", PortType::Null), port("p2", PortType::Pcap)];
        switch.add_bridge(&bridge("br0", vec![good.clone(), bad.clone()])).await.unwrap_err();
        assert!(ports(&switch).is_empty());
        switch.add_bridge(&bridge("br0", vec![good.clone()])).await.unwrap();
        let again = switch.add_bridge(&bridge("br0", Vec::new())).await;
        assert!(matches!(again, Err(SwitchError::BridgeExists(_))), "{again:?}");
        assert!(switch.add_port("br0", bad).await.is_err());
        let again = switch.add_port("br0", good).await;
        assert!(matches!(again, Err(SwitchError::PortExists { .. })), "{again:?}");
        switch.add_port("br0", port("p3", PortType::Null)).await.unwrap();
        let one = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned());
            vec![("br0".to_owned(), names.collect::<Vec<_>>())]
        };
        assert_eq!(ports(&switch), one(&["p1", "p3"]));
        switch.set_bridge("br0", &[("mac_entries", "77")]).await.unwrap();
        assert_eq!(switch.bridge_options("br0").unwrap().mac_entries, 77);
        switch.remove_port("p1").await.unwrap();
        assert_eq!(ports(&switch), one(&["p3"]));
        for (name, error) in [
            ("p1", "no port p1; existing ports: p3, br0"),
            ("br0", "a local port cannot be removed: remove its bridge"),
        ] {
            let refused = switch.remove_port(name).await.unwrap_err().to_string();
            assert!(refused.contains(error), "{refused}");
        }
        for refused in [
            switch.remove_bridge("br9").await,
            switch.set_bridge("br9", &[("mac_entries", "77")]).await,
            switch.add_port("br9", port("p4", PortType::Null)).await,
        ] {
            let refused = refused.unwrap_err().to_string();
            assert_eq!(refused, "no bridge br9; existing bridges: br0");
        }
        switch.remove_bridge("br0").await.unwrap();
        assert!(ports(&switch).is_empty());
    }
}
