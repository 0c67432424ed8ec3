//! Changes of the switch that lead to the desired bridges and ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_ovsdb::value::RowUuid;
use shunt_switch::{
    Switch, SwitchError,
    config::{BridgeOptions, PortOptions},
    with_causes,
};
use tracing::{info, warn};

use super::desired::{DesiredBridge, DesiredBridges, DesiredPort};

/// The bridges and ports that exist because of rows.
///
/// Bridges of the configuration file are not among them, and are never changed here.
pub(super) struct Reconciler {
    switch: Arc<Switch>,
    applied: BTreeMap<String, AppliedBridge>,
}

/// A bridge that exists because of a row.
struct AppliedBridge {
    options: BridgeOptions,
    ports: BTreeMap<String, PortOptions>,
}

/// The rows that could not be applied, with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ApplyErrors {
    /// Errors of rows in `Interface`.
    pub(super) interfaces: BTreeMap<RowUuid, String>,
    /// Errors of rows in `Controller`.
    pub(super) controllers: BTreeMap<RowUuid, String>,
    /// Errors of the controllers of a bridge, by its name.
    pub(super) bridge_controllers: BTreeMap<String, String>,
}

impl Reconciler {
    pub(super) const fn new(switch: Arc<Switch>) -> Self {
        Self { switch, applied: BTreeMap::new() }
    }

    /// Changes the switch where it differs from the desired state.
    ///
    /// A failed change is tried again by the next call. Objects that did not change are left alone.
    pub(super) async fn apply(&mut self, desired: &DesiredBridges) -> ApplyErrors {
        let mut errors = ApplyErrors {
            interfaces: desired.refused_interfaces.clone(),
            controllers: desired.refused_controllers.clone(),
            bridge_controllers: BTreeMap::new(),
        };
        self.remove_bridges(desired).await;
        // All removals come before all additions: a name may move to another bridge.
        for (name, bridge) in &desired.bridges {
            if let Some(applied) = self.applied.get_mut(name) {
                remove_ports(&self.switch, applied, bridge).await;
            }
        }
        for (name, bridge) in &desired.bridges {
            if !self.applied.contains_key(name) && !self.add_bridge(bridge, &mut errors).await {
                continue;
            }
            let Some(applied) = self.applied.get_mut(name) else { continue };
            set_controllers(&self.switch, applied, &bridge.options, &mut errors).await;
            add_ports(&self.switch, applied, bridge, &mut errors).await;
        }
        errors
    }

    /// Returns the names of the bridges that exist because of rows.
    pub(super) fn bridges(&self) -> BTreeSet<&str> {
        self.applied.keys().map(String::as_str).collect()
    }

    async fn remove_bridges(&mut self, desired: &DesiredBridges) {
        let must_go = |(name, applied): (&String, &AppliedBridge)| {
            let new = desired.bridges.get(name);
            new.is_none_or(|new| !is_same_bridge(&applied.options, &new.options))
        };
        let gone = self.applied.iter().filter(|(name, applied)| must_go((name, applied)));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            match self.switch.remove_bridge(&name).await {
                Ok(()) => info!("bridge {name}: removed by OVSDB"),
                Err(error) => warn!("bridge {name}: not removed: {}", with_causes(&error)),
            }
            self.applied.remove(&name);
        }
    }

    async fn add_bridge(&mut self, bridge: &DesiredBridge, errors: &mut ApplyErrors) -> bool {
        let name = &bridge.options.name;
        let mut options = bridge.options.clone();
        // Controllers follow by themselves, so that a wrong one does not prevent the bridge.
        options.controllers.clear();
        options.listen.clear();
        if let Err(error) = self.switch.add_bridge(&options).await {
            let rows = bridge.ports.values().map(|port| port.interface).chain(bridge.local);
            for row in rows {
                errors.interfaces.insert(row, with_causes(&error));
            }
            return false;
        }
        info!("bridge {name}: added by OVSDB");
        if bridge.is_standalone {
            let added = self.switch.add_rules(name, &["priority=0,actions=NORMAL"]).await;
            if let Err(error) = added {
                warn!("bridge {name}: no rule for NORMAL: {}", with_causes(&error));
            }
        }
        self.applied.insert(name.clone(), AppliedBridge { options, ports: BTreeMap::new() });
        true
    }
}

/// Returns whether a bridge can stay: only its controllers differ.
fn is_same_bridge(old: &BridgeOptions, new: &BridgeOptions) -> bool {
    let without_controllers = |options: &BridgeOptions| BridgeOptions {
        controllers: Vec::new(),
        listen: Vec::new(),
        ..options.clone()
    };
    without_controllers(old) == without_controllers(new)
}

/// Returns whether a port can stay: only its VLANs differ.
fn is_same_port(old: &PortOptions, new: &PortOptions) -> bool {
    let without_vlans = |options: &PortOptions| PortOptions {
        vlan_mode: None,
        tag: None,
        trunks: Vec::new(),
        ..options.clone()
    };
    without_vlans(old) == without_vlans(new)
}

async fn remove_ports(switch: &Switch, applied: &mut AppliedBridge, bridge: &DesiredBridge) {
    let stays = |name: &String, old: &PortOptions| {
        bridge.ports.get(name).is_some_and(|new| is_same_port(old, &new.options))
    };
    let gone = applied.ports.iter().filter(|(name, old)| !stays(name, old));
    let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
    for name in gone {
        match switch.remove_port(&name).await {
            Ok(()) => info!("port {name}: removed by OVSDB"),
            Err(error) => warn!("port {name}: not removed: {}", with_causes(&error)),
        }
        applied.ports.remove(&name);
    }
}

async fn add_ports(
    switch: &Switch,
    applied: &mut AppliedBridge,
    bridge: &DesiredBridge,
    errors: &mut ApplyErrors,
) {
    for (name, port) in &bridge.ports {
        let options = &port.options;
        let result: Result<(), SwitchError> = match applied.ports.get(name) {
            Some(old) if old == options => continue,
            Some(_) => switch.set_vlans(options.clone()).await,
            None => add_port(switch, &bridge.options.name, port).await,
        };
        match result {
            Ok(()) => {
                info!("port {name}: configured by OVSDB");
                applied.ports.insert(name.clone(), options.clone());
            }
            Err(error) => drop(errors.interfaces.insert(port.interface, with_causes(&error))),
        }
    }
}

/// Adds a port, with its last number if that is free and no other is requested.
async fn add_port(switch: &Switch, bridge: &str, port: &DesiredPort) -> Result<(), SwitchError> {
    let options = port.options.clone();
    if options.number == 0 && port.last_number != 0 {
        let again = PortOptions { number: port.last_number, ..options.clone() };
        if switch.add_port(bridge, again).await.is_ok() {
            return Ok(());
        }
    }
    switch.add_port(bridge, options).await
}

async fn set_controllers(
    switch: &Switch,
    applied: &mut AppliedBridge,
    new: &BridgeOptions,
    errors: &mut ApplyErrors,
) {
    let old = &mut applied.options;
    if old.controllers == new.controllers && old.listen == new.listen {
        return;
    }
    let (controllers, listen) = (new.controllers.join(","), new.listen.join(","));
    let settings = [("controllers", controllers.as_str()), ("listen", listen.as_str())];
    match switch.set_bridge(&new.name, &settings).await {
        Ok(()) => {
            old.controllers.clone_from(&new.controllers);
            old.listen.clone_from(&new.listen);
        }
        Err(error) => {
            errors.bridge_controllers.insert(new.name.clone(), with_causes(&error));
        }
    }
}
