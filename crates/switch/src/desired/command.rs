//! Commands of an operator or a program, each of which changes one object.
//!
//! A command reads the state of its object, changes this state, and applies the difference, as a
//! reload does with whole configurations. A command differs from a reload in two ways: the first
//! refusal ends the command with its error, and a port that cannot be opened is refused.

use std::sync::Arc;

use super::{
    apply::command,
    present::other_local_mac,
    state::{DeclaredBridge, DeclaredPort, DesiredState},
};
use crate::{
    config::{
        BondOptions, BridgeOptions, CollectorSetOptions, Config, MirrorOptions, PortOptions,
        setting::{changed_bridge_settings, changed_settings},
    },
    control::structure::Structure,
    error::SwitchError,
    ports::registry::listed,
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
        if changed.has("mac") {
            let other = other_local_mac(structure.bridges().lock().find(name)?);
            set_present_mac(&mut present, other);
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
        port.check_new().map_err(|error| *error.problem)?;
        let structure = self.control.structure().await;
        let present = structure.bridge_state(bridge)?;
        let mut desired = present.clone();
        desired.ports.push(DeclaredPort::of(port));
        command(&structure, &of_bridge(present), &of_bridge(desired)).await
    }

    /// Removes a port from its bridge.
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

    /// Sets the VLANs of a port (`vlan_mode`, `tag`, `trunks`) to the values in `port`.
    ///
    /// All other settings of the port stay. Returns when no packet uses the old VLANs.
    ///
    /// # Errors
    ///
    /// If the port or a VLAN does not exist.
    pub async fn set_vlans(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        structure.change_port(&port.name, |own| own.with_vlans_of(port)).await
    }

    /// Sets the ingress policing of a port to the limits in the options `port`.
    ///
    /// All other settings of the port stay. Returns when the old limits apply to no packet. Changed
    /// limits start with full token buckets.
    ///
    /// # Errors
    ///
    /// If the port does not exist, or is a patch port or a local port.
    pub async fn set_ingress_policing(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        structure.change_port(&port.name, |own| own.with_ingress_policing_of(port)).await
    }

    /// Sets the QoS of a port to the QoS in the options `port`.
    ///
    /// All other settings of the port stay. Returns when the old limits apply to no packet. A
    /// changed limit starts with a full token bucket.
    ///
    /// # Errors
    ///
    /// If the port does not exist, is a patch port or a local port, or a value is not valid.
    pub async fn set_qos(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let with_qos = |own: &PortOptions| PortOptions { qos: port.qos.clone(), ..own.clone() };
        self.control.structure().await.change_port(&port.name, with_qos).await
    }

    /// Sets the BFD session of a port to the session in the options `port`.
    ///
    /// All other settings of the port stay. The session stays up and negotiates new intervals.
    ///
    /// # Errors
    ///
    /// If the port does not exist, is a patch port or a local port, or a value is not valid.
    pub async fn set_bfd(&self, port: &PortOptions) -> Result<(), SwitchError> {
        let with_bfd = |own: &PortOptions| PortOptions { bfd: port.bfd.clone(), ..own.clone() };
        self.control.structure().await.change_port(&port.name, with_bfd).await
    }

    /// Adds a bond to a bridge.
    ///
    /// A member may name a port that does not exist yet; the bond uses the port once it is added.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, the name is in use, or a value is not valid.
    pub async fn add_bond(&self, bridge: &str, bond: BondOptions) -> Result<(), SwitchError> {
        let structure = self.control.structure().await;
        structure.check_options_of_members(bridge, &bond)?;
        let add = |own: &mut BridgeOptions| {
            own.bonds.push(bond);
            Ok(())
        };
        structure.change_bridge_options(bridge, add).await
    }

    /// Removes a bond of a bridge; its members stay as ports.
    ///
    /// # Errors
    ///
    /// If the bridge or the bond does not exist.
    pub async fn remove_bond(&self, bridge: &str, name: &str) -> Result<(), SwitchError> {
        let remove = |own: &mut BridgeOptions| {
            let Some(index) = own.bonds.iter().position(|bond| bond.name == name) else {
                let known = listed(own.bonds.iter().map(|bond| bond.name.as_str()));
                return Err(SwitchError::NoSuchBond { name: name.to_owned(), known });
            };
            own.bonds.remove(index);
            Ok(())
        };
        self.control.structure().await.change_bridge_options(bridge, remove).await
    }

    /// Adds a mirror to a bridge.
    ///
    /// A mirror may name ports that do not exist yet; it uses them once they are added.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, the name is in use, or a value is not valid.
    pub async fn add_mirror(&self, bridge: &str, mirror: MirrorOptions) -> Result<(), SwitchError> {
        let add = |own: &mut BridgeOptions| {
            // A difference would replace the mirror of this name.
            if own.mirrors.iter().any(|other| other.name == mirror.name) {
                let (mirror, bridge) = (mirror.name, own.name.clone());
                return Err(SwitchError::MirrorExists { mirror, bridge });
            }
            own.mirrors.push(mirror);
            Ok(())
        };
        self.control.structure().await.change_bridge_options(bridge, add).await
    }

    /// Removes a mirror of a bridge.
    ///
    /// # Errors
    ///
    /// If the bridge or the mirror does not exist.
    pub async fn remove_mirror(&self, bridge: &str, name: &str) -> Result<(), SwitchError> {
        let remove = |own: &mut BridgeOptions| {
            let Some(index) = own.mirrors.iter().position(|mirror| mirror.name == name) else {
                let known = listed(own.mirrors.iter().map(|mirror| mirror.name.as_str()));
                let (name, bridge) = (name.to_owned(), own.name.clone());
                return Err(SwitchError::NoSuchMirror { name, bridge, known });
            };
            own.mirrors.remove(index);
            Ok(())
        };
        self.control.structure().await.change_bridge_options(bridge, remove).await
    }

    /// Replaces the mirrors of a bridge, one after another.
    ///
    /// Returns when the old mirrors copy no packet any more. A mirror that keeps its name keeps its
    /// counters.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid. After an error, no mirror has
    /// changed.
    pub async fn set_mirrors(
        &self,
        bridge: &str,
        mirrors: Vec<MirrorOptions>,
    ) -> Result<(), SwitchError> {
        let replace = |own: &mut BridgeOptions| {
            own.mirrors = mirrors;
            own.check().map_err(|error| *error.problem)
        };
        self.control.structure().await.change_bridge_options(bridge, replace).await
    }

    /// Replaces the sets of IPFIX collectors of a bridge.
    ///
    /// Rules name a set in their action `sample`. A rule takes no samples for a set that does not
    /// exist. A set that keeps its number keeps its counters.
    ///
    /// # Errors
    ///
    /// If the bridge does not exist, or a value is not valid. After an error, no set has changed.
    pub async fn set_collector_sets(
        &self,
        bridge: &str,
        sets: Vec<CollectorSetOptions>,
    ) -> Result<(), SwitchError> {
        let replace = |own: &mut BridgeOptions| {
            own.collector_sets = sets;
            Ok(())
        };
        self.control.structure().await.change_bridge_options(bridge, replace).await
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

    /// Returns a port as the only port of its bridge.
    fn port_state(&self, name: &str) -> Result<DeclaredBridge, SwitchError> {
        let bridges = self.bridges().lock();
        let (bridge, port) = bridges.find_port(name)?;
        let ports = vec![DeclaredPort::of(port.settings.clone())];
        Ok(DeclaredBridge { options: Arc::new(bridge.settings.clone()), ports })
    }

    /// Changes the options of an existing port.
    async fn change_port(
        &self,
        name: &str,
        change: impl Fn(&PortOptions) -> PortOptions,
    ) -> Result<(), SwitchError> {
        let present = self.port_state(name)?;
        let ports = present.ports.iter().map(|own| DeclaredPort::of(change(&own.options)));
        let desired = DeclaredBridge { ports: ports.collect(), ..present.clone() };
        command(self, &of_bridge(present), &of_bridge(desired)).await
    }

    /// Changes the options of an existing bridge, of which its ports are no part.
    async fn change_bridge_options(
        &self,
        bridge: &str,
        change: impl FnOnce(&mut BridgeOptions) -> Result<(), SwitchError>,
    ) -> Result<(), SwitchError> {
        let present = self.bridge_state(bridge)?;
        let mut desired = present.clone();
        change(Arc::make_mut(&mut desired.options))?;
        command(self, &of_bridge(present), &of_bridge(desired)).await
    }
}

/// Returns a desired state with one bridge and no settings.
fn of_bridge(bridge: DeclaredBridge) -> DesiredState {
    DesiredState { settings: None, bridges: vec![bridge] }
}

/// Sets the present address of a bridge to another one of its device, if any.
///
/// Another program may have changed the address of the device.
/// So the difference contains the MAC address that the command sets.
fn set_present_mac(present: &mut DeclaredBridge, other: Option<String>) {
    if let Some(mac) = other {
        Arc::make_mut(&mut present.options).mac = mac;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{BfdOptions, PortType, QosOptions, QosType},
        desired::{apply::ApplyPolicy, difference::difference},
    };

    /// Returns a port with a type.
    fn port(name: &str, kind: PortType) -> PortOptions {
        let rx = if kind == PortType::Pcap { "/no/such/file.pcap".into() } else { "".into() };
        PortOptions { name: name.to_owned(), kind, rx, ..PortOptions::default() }
    }

    /// Returns a bridge with some ports.
    fn bridge(name: &str, ports: Vec<PortOptions>) -> BridgeOptions {
        BridgeOptions { name: name.to_owned(), ports, ..BridgeOptions::default() }
    }

    /// Returns the names of the ports of each bridge.
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
        let [own, of_device] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
        for mac in [own, of_device, ""] {
            let [mut present, desired] = [own, mac].map(|mac| {
                let mac = mac.to_owned();
                DeclaredBridge::of(&BridgeOptions { mac, ..bridge("br0", Vec::new()) })
            });
            set_present_mac(&mut present, Some(format!("0{of_device}")));
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
            ("p1", "there is no port p1; existing ports: p3, br0"),
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
            assert_eq!(refused, "there is no bridge br9; existing bridges: br0");
        }
        switch.remove_bridge("br0").await.unwrap();
        assert!(ports(&switch).is_empty());
    }

    /// A command of a port sets its own keys, and equal values change nothing.
    #[tokio::test]
    async fn command_sets_its_own_keys_of_port() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        // The names of ports without a device may be long.
        let plain = port("a-port-without-a-device", PortType::Null);
        switch.add_bridge(&bridge("br0", vec![plain.clone()])).await.unwrap();
        let qos = QosOptions { cir: 1000, cbs: 500, ..QosOptions::new(QosType::EgressPolicer) };
        let wanted = PortOptions {
            tag: Some(5),
            ingress_policing_rate: 800,
            qos: Some(qos),
            bfd: Some(BfdOptions::default()),
            ..plain.clone()
        };
        let options = || PortOptions {
            number: 0,
            ..switch.running_config().bridges.remove(0).ports.remove(0)
        };
        switch.set_vlans(&wanted).await.unwrap();
        let tagged = PortOptions { tag: Some(5), ..plain };
        assert_eq!(options(), tagged);
        switch.set_ingress_policing(&wanted).await.unwrap();
        assert_eq!(options(), PortOptions { ingress_policing_rate: 800, ..tagged });
        switch.set_qos(&wanted).await.unwrap();
        switch.set_bfd(&wanted).await.unwrap();
        assert_eq!(options(), wanted);
        let revision = || switch.present_state(&DesiredState::default()).ports_revision;
        let before = revision();
        switch.set_vlans(&wanted).await.unwrap();
        switch.set_ingress_policing(&wanted).await.unwrap();
        switch.set_qos(&wanted).await.unwrap();
        switch.set_bfd(&wanted).await.unwrap();
        assert_eq!(revision(), before);
    }

    /// A local port has VLANs, but no limits and no BFD session.
    #[tokio::test]
    async fn a_command_refuses_wrong_keys_of_a_port() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        switch.add_bridge(&bridge("br0", Vec::new())).await.unwrap();
        let wanted = |name: &str| PortOptions {
            tag: Some(5),
            ingress_policing_rate: 800,
            qos: Some(QosOptions::new(QosType::LinuxNoop)),
            bfd: Some(BfdOptions::default()),
            ..port(name, PortType::Null)
        };
        let local = wanted("br0");
        switch.set_vlans(&local).await.unwrap();
        for (refused, error) in [
            (switch.set_ingress_policing(&local).await, "no ingress policing and no QoS"),
            (switch.set_qos(&local).await, "no ingress policing and no QoS"),
            (switch.set_bfd(&local).await, "a local port has no BFD"),
            (switch.set_vlans(&wanted("p9")).await, "there is no port p9; existing ports: br0"),
            (switch.set_ingress_policing(&wanted("p9")).await, "no port p9"),
            (switch.set_qos(&wanted("p9")).await, "no port p9"),
            (switch.set_bfd(&wanted("p9")).await, "no port p9"),
            (switch.set_vlans(&PortOptions { tag: Some(4096), ..local }).await, "tag = 4096"),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(error), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_command_adds_or_removes_one_bond() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        let tagged = PortOptions { tag: Some(5), ..port("p1", PortType::Null) };
        switch.add_bridge(&bridge("br0", vec![tagged])).await.unwrap();
        let bond = BondOptions {
            name: "bond0".to_owned(),
            members: ["p1", "p2"].map(str::to_owned).into(),
            ..BondOptions::default()
        };
        let bonds = || switch.bridge_options("br0").unwrap().bonds;
        let refused = switch.add_bond("br0", bond.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("port p1: its VLANs are those of its bond"), "{refused}");
        assert!(bonds().is_empty());
        switch.set_vlans(&port("p1", PortType::Null)).await.unwrap();
        switch.add_bond("br0", bond.clone()).await.unwrap();
        let wrong = BondOptions { name: "bond1".to_owned(), ..bond.clone() };
        for (refused, error) in [
            (switch.add_bond("br0", bond.clone()).await, "bond bond0: a bridge, port or bond has"),
            (switch.add_bond("br0", wrong).await, "bond bond1: a member is in another bond"),
            (
                switch.add_bond("br9", bond.clone()).await,
                "there is no bridge br9; existing \
                 bridges: br0",
            ),
            (
                switch.remove_bond("br0", "bond9").await,
                "there is no bond bond9; existing bonds: \
                 bond0",
            ),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(error), "{refused}");
        }
        assert_eq!(bonds(), [bond]);
        switch.remove_bond("br0", "bond0").await.unwrap();
        assert!(bonds().is_empty());
        assert_eq!(ports(&switch), [("br0".to_owned(), vec!["p1".to_owned()])]);
    }

    /// A mirror of the same name is refused, and is not replaced.
    #[tokio::test]
    async fn a_command_adds_or_removes_one_mirror() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        switch.add_bridge(&bridge("br0", Vec::new())).await.unwrap();
        let mirror = |name: &str, output_vlan| MirrorOptions {
            name: name.to_owned(),
            select_all: true,
            output_vlan,
            ..MirrorOptions::default()
        };
        let mirrors = || switch.bridge_options("br0").unwrap().mirrors;
        switch.add_mirror("br0", mirror("m1", 7)).await.unwrap();
        let wrong = vec![mirror("m2", 8), mirror("m3", 0)];
        for (refused, error) in [
            (switch.add_mirror("br0", mirror("m1", 7)).await, "mirror m1 exists already"),
            (switch.add_mirror("br0", mirror("m1", 8)).await, "mirror m1 exists already"),
            (switch.add_mirror("br0", mirror("m2", 0)).await, "mirror m2: give the mirror an"),
            (switch.add_mirror("br9", mirror("m2", 8)).await, "no bridge br9"),
            (switch.set_mirrors("br0", wrong).await, "mirror m3: give the mirror an"),
            (switch.remove_mirror("br0", "m9").await, "has no mirror m9; existing mirrors: m1"),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(error), "{refused}");
        }
        assert_eq!(mirrors(), [mirror("m1", 7)]);
        switch.set_mirrors("br0", vec![mirror("m2", 8), mirror("m3", 9)]).await.unwrap();
        assert_eq!(mirrors(), [mirror("m2", 8), mirror("m3", 9)]);
        switch.remove_mirror("br0", "m2").await.unwrap();
        assert_eq!(mirrors(), [mirror("m3", 9)]);
    }
}
