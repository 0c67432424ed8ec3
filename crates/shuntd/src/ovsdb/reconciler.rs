//! Changes of the switch that lead from its present state to the desired bridges and ports.
//!
//! Each pass compares the rows with the state of the switch. So a change by another client of the
//! switch is undone: the database decides about its bridges.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use shunt_ovsdb::value::RowUuid;
use shunt_switch::{
    Switch, SwitchError,
    config::{BondOptions, BridgeOptions, IpfixOptions, NetflowOptions, PortOptions, SflowOptions},
    with_causes,
};
use tracing::{info, warn};

use super::{
    auto_lb::AutoLbKeys,
    bonds::keep_active_members,
    desired::{DesiredBridge, DesiredBridges, add_reason},
    exports::{ExportLogs, set_collector_sets, set_exports},
    normal_rule::NormalRuleState,
    port_numbers::PortNumbers,
    row_log::RowLog,
    tls::TlsRow,
    vlan_limit::VlanLimitKey,
};

/// The bridges and ports that exist because of rows of the database.
///
/// Bridges of the configuration file are not included, and are never changed here.
pub(super) struct Reconciler {
    switch: Arc<Switch>,
    applied: BTreeMap<String, AppliedBridge>,
    /// Set while packets of new ports are held until rules are restored.
    waits_for_rules: bool,
    /// Log of mirrors that cannot be applied.
    mirror_log: RowLog,
    /// Logs of rows of sFlow, NetFlow and IPFIX that cannot be applied.
    export_logs: ExportLogs,
    auto_lb: AutoLbKeys,
    vlan_limit: VlanLimitKey,
    tls: TlsRow,
}

/// A bridge that exists because of a row of the database.
struct AppliedBridge {
    /// The options with which the bridge was added.
    options: BridgeOptions,
    ports: BTreeMap<String, PortOptions>,
    normal_rule: NormalRuleState,
}

/// The rows that could not be applied, with the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ApplyErrors {
    /// Rows in `Interface` that have no port in the switch, with the reasons.
    pub(super) interfaces: BTreeMap<RowUuid, String>,
    /// Rows in `Interface` of ports with other settings than the row, with the reasons.
    pub(super) settings: BTreeMap<RowUuid, String>,
    /// Errors of rows in `Controller`, by row.
    pub(super) controllers: BTreeMap<RowUuid, String>,
    /// Errors of the controllers of a bridge, by bridge name.
    pub(super) bridge_controllers: BTreeMap<String, String>,
    /// Reasons why the rule for `NORMAL` cannot be changed, by bridge name.
    pub(super) normal_rules: BTreeMap<String, String>,
}

impl Reconciler {
    pub(super) fn new(switch: Arc<Switch>) -> Self {
        Self {
            auto_lb: AutoLbKeys::new(&switch),
            vlan_limit: VlanLimitKey::new(&switch),
            tls: TlsRow::new(&switch),
            switch,
            applied: BTreeMap::new(),
            waits_for_rules: false,
            mirror_log: RowLog::new("Mirror"),
            export_logs: ExportLogs::new(),
        }
    }

    /// Changes the switch where it differs from the desired bridges and ports.
    ///
    /// The next call retries a failed change. Unchanged objects are left alone.
    pub(super) async fn apply(&mut self, desired: &DesiredBridges) -> ApplyErrors {
        let mut errors = ApplyErrors {
            interfaces: desired.refused_interfaces.clone(),
            settings: desired.refused_settings.clone(),
            controllers: desired.refused_controllers.clone(),
            ..ApplyErrors::default()
        };
        let waited_for_rules = self.waits_for_rules;
        if desired.waits_for_rules != self.waits_for_rules {
            self.waits_for_rules = desired.waits_for_rules;
            let state = if self.waits_for_rules { "wait" } else { "no longer wait" };
            info!("ovsdb: new ports and controllers {state} for the end of flow-restore-wait");
            self.switch.hold_packets(self.waits_for_rules).await;
        }
        self.auto_lb.apply(&self.switch, desired.auto_lb).await;
        self.vlan_limit.apply(&self.switch, desired.vlan_limit).await;
        self.tls.apply(&self.switch, desired.tls.as_ref());
        let mut mirror_errors = desired.refused_mirrors.clone();
        let mut export_errors = desired.refused_exports.clone();
        self.forget_removed();
        self.remove_bridges(desired, &mut errors).await;
        // All removals precede all additions, because a name may move to another bridge.
        for (name, bridge) in &desired.bridges {
            if let Some(applied) = self.applied.get_mut(name) {
                remove_ports(&self.switch, applied, bridge, &mut errors).await;
                remove_bonds(&self.switch, bridge).await;
            }
        }
        for (name, bridge) in &desired.bridges {
            if !self.applied.contains_key(name) && !self.add_bridge(bridge, &mut errors).await {
                continue;
            }
            let applied = self.applied.get_mut(name);
            let Some(applied) = applied.filter(|own| is_same_bridge(&own.options, &bridge.options))
            else {
                continue;
            };
            if let Some(reason) = applied.normal_rule.apply(&self.switch, bridge).await {
                errors.normal_rules.insert(name.clone(), reason.to_owned());
            }
            set_bridge(&self.switch, bridge, &mut errors).await;
            let known = bond_names(&self.switch, name);
            let refused = set_bonds(&self.switch, bridge, &mut errors).await;
            remove_members(&self.switch, applied, bridge, &refused, &mut errors).await;
            set_ports(&self.switch, applied, bridge, &mut errors).await;
            add_ports(&self.switch, applied, bridge, &refused, &mut errors).await;
            keep_active_members(&self.switch, &known, &bridge.last_active).await;
            if let Err(error) = set_mirrors(&self.switch, bridge).await {
                let rows = bridge.mirrors.values().copied();
                mirror_errors.extend(rows.map(|row| (row, with_causes(&error))));
            }
            if let Some(running) = self.switch.bridge_options(name) {
                let (new, rows) = (&bridge.options, bridge.exports);
                set_exports(&self.switch, &running, new, rows, &mut export_errors).await;
                let (sets, refused) = (&bridge.collector_sets, &mut export_errors.collector_sets);
                set_collector_sets(&self.switch, &running, sets, refused).await;
            }
        }
        if waited_for_rules && !self.waits_for_rules {
            // By now, the listeners of bridges have the sockets of the earlier process.
            self.switch.listening_sockets().release_unused();
        }
        self.mirror_log.update(mirror_errors);
        self.export_logs.update(export_errors);
        errors
    }

    /// Returns the names of the bridges that exist because of rows of the database.
    pub(super) fn bridges(&self) -> BTreeSet<&str> {
        self.applied.keys().map(String::as_str).collect()
    }

    /// Forgets bridges and ports that another client of the switch has removed.
    ///
    /// The same pass then adds them again.
    fn forget_removed(&mut self) {
        let running = self.switch.running_config().bridges;
        self.applied.retain(|name, applied| {
            let Some(bridge) = running.iter().find(|bridge| bridge.name == *name) else {
                warn!("bridge {name}: still in OVSDB, adding it again");
                return false;
            };
            let names: HashSet<&str> = bridge.ports.iter().map(|port| port.name.as_str()).collect();
            applied.ports.retain(|name, _| {
                let exists = names.contains(name.as_str());
                if !exists {
                    warn!("port {name}: still in OVSDB, adding it again");
                }
                exists
            });
            true
        });
    }

    async fn remove_bridges(&mut self, desired: &DesiredBridges, errors: &mut ApplyErrors) {
        let must_go = |(name, applied): (&String, &AppliedBridge)| {
            let new = desired.bridges.get(name);
            new.is_none_or(|new| !is_same_bridge(&applied.options, &new.options))
        };
        let gone = self.applied.iter().filter(|(name, applied)| must_go((name, applied)));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            if let Some(bridge) = desired.bridges.get(&name)
                && let Err(error) = self.check_replacement(bridge).await
            {
                // The old bridge stays and continues to forward.
                errors.add_bridge(bridge, &with_causes(&error));
                continue;
            }
            match self.switch.remove_bridge(&name).await {
                Ok(()) => info!("bridge {name}: removed by OVSDB"),
                Err(SwitchError::NoSuchBridge { .. }) => {}
                Err(error) => {
                    let reason = with_causes(&error);
                    warn!(error = reason, "bridge {name}: cannot be removed, retrying");
                    if let Some(bridge) = desired.bridges.get(&name) {
                        errors.add_bridge(bridge, &reason);
                    }
                    continue;
                }
            }
            self.applied.remove(&name);
        }
    }

    /// Refuses a replacement that could not be added after the removal.
    async fn check_replacement(&self, bridge: &DesiredBridge) -> Result<(), SwitchError> {
        let options = new_bridge(&bridge.options);
        match self.switch.declarative().check_replacement(&options).await {
            Err(SwitchError::NoSuchBridge { .. }) => Ok(()),
            checked => checked,
        }
    }

    async fn add_bridge(&mut self, bridge: &DesiredBridge, errors: &mut ApplyErrors) -> bool {
        let (name, options) = (&bridge.options.name, new_bridge(&bridge.options));
        if let Err(error) = self.switch.declarative().add_bridge(&options).await {
            errors.add_bridge(bridge, &with_causes(&error));
            return false;
        }
        info!("bridge {name}: added by OVSDB");
        let applied =
            AppliedBridge { options, ports: BTreeMap::new(), normal_rule: NormalRuleState::new() };
        self.applied.insert(name.clone(), applied);
        true
    }
}

impl ApplyErrors {
    /// Adds an error for all ports of a bridge.
    fn add_bridge(&mut self, bridge: &DesiredBridge, reason: &str) {
        let rows = bridge.ports.values().map(|port| port.interface).chain(bridge.local);
        self.interfaces.extend(rows.map(|row| (row, reason.to_owned())));
    }
}

/// Returns the options with which a bridge is added first.
///
/// The remaining settings are set afterwards, so that a wrong value does not prevent the bridge.
fn new_bridge(options: &BridgeOptions) -> BridgeOptions {
    BridgeOptions {
        datapath_id: String::new(),
        controllers: Vec::new(),
        listen: Vec::new(),
        bonds: Vec::new(),
        mirrors: Vec::new(),
        sflow: SflowOptions::default(),
        netflow: NetflowOptions::default(),
        ipfix: IpfixOptions::default(),
        ..options.clone()
    }
}

/// Returns whether a bridge can stay, because only runtime settings differ.
fn is_same_bridge(old: &BridgeOptions, new: &BridgeOptions) -> bool {
    old.local == new.local
}

/// Returns whether a port can stay, or must be removed and added.
///
/// The port can stay if only keys differ that change at run time, or if the request for its number
/// was removed.
fn is_same_port(old: &PortOptions, new: &PortOptions) -> bool {
    let number = if new.number == 0 { 0 } else { old.number };
    old == new || *new == PortOptions { number, ..old.with_runtime_keys_of(new) }
}

/// Returns the options in force of the ports of a running bridge.
fn running_ports(switch: &Switch, name: &str) -> Option<Vec<PortOptions>> {
    let mut bridges = switch.running_config().bridges.into_iter();
    bridges.find(|bridge| bridge.name == name).map(|bridge| bridge.ports)
}

/// Sets the settings of a running bridge, and the MTU of its local port.
async fn set_bridge(switch: &Switch, bridge: &DesiredBridge, errors: &mut ApplyErrors) {
    let Some(old) = switch.bridge_options(&bridge.options.name) else { return };
    let new = &bridge.options_for(&old);
    let mut refuse = |error: SwitchError| {
        if let Some(local) = bridge.local {
            add_reason(&mut errors.settings, local, &with_causes(&error));
        }
    };
    if old.mtu != new.mtu
        && let Err(error) = switch.set_mtu(&new.name, new.mtu).await
    {
        refuse(error);
    }
    let mut settings = changed_settings(&old, new);
    if old.mac == new.mac && !new.mac.is_empty() && switch.has_other_mac(&new.name) {
        settings.push(("mac", new.mac.clone()));
    }
    // If one value is refused, the other values are set nevertheless.
    for (key, value) in &settings {
        if let Err(error) =
            switch.declarative().set_bridge(&new.name, &[(*key, value.as_str())]).await
        {
            refuse(error);
        }
    }
    if old.controllers != new.controllers || old.listen != new.listen {
        let (controllers, listen) = (new.controllers.join(","), new.listen.join(","));
        let settings = [("controllers", controllers.as_str()), ("listen", listen.as_str())];
        if let Err(error) = switch.declarative().set_bridge(&new.name, &settings).await {
            errors.bridge_controllers.insert(new.name.clone(), with_causes(&error));
        }
    }
}

/// Returns the changed settings of a running bridge, by key.
///
/// The controllers are not included.
fn changed_settings(old: &BridgeOptions, new: &BridgeOptions) -> Vec<(&'static str, String)> {
    let pairs = |bridge: &BridgeOptions| {
        [
            ("datapath_id", bridge.datapath_id.clone()),
            (
                "flood_vlans",
                bridge.flood_vlans.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
            ),
            ("mac", bridge.mac.clone()),
            ("mac_ageing_s", bridge.mac_ageing_s.to_string()),
            ("mac_entries", bridge.mac_entries.to_string()),
            ("mcast_snooping_ageing_s", bridge.mcast_snooping_ageing_s.to_string()),
            (
                "mcast_snooping_disable_flood_unregistered",
                bridge.mcast_snooping_disable_flood_unregistered.to_string(),
            ),
            ("mcast_snooping_enable", bridge.mcast_snooping_enable.to_string()),
            ("mcast_snooping_entries", bridge.mcast_snooping_entries.to_string()),
            ("protocols", bridge.protocols.join(",")),
            ("table_limits", bridge.table_limits.join(",")),
            ("table_names", bridge.table_names.join(",")),
        ]
    };
    pairs(new)
        .into_iter()
        .zip(pairs(old))
        .filter(|(new, old)| new != old)
        .map(|(new, _)| new)
        .collect()
}

/// Returns the names of the bonds that a bridge has in the switch.
fn bond_names(switch: &Switch, bridge: &str) -> BTreeSet<String> {
    let bonds = switch.bridge_options(bridge).map(|own| own.bonds).unwrap_or_default();
    bonds.into_iter().map(|bond| bond.name).collect()
}

/// The members of refused bonds, with the reasons.
type RefusedMembers = BTreeMap<String, String>;

/// Removes bonds that the rows of a bridge no longer contain;
/// another bridge may get them.
async fn remove_bonds(switch: &Switch, bridge: &DesiredBridge) {
    let new = &bridge.options;
    let Some(old) = switch.bridge_options(&new.name) else { return };
    let stays = |own: &&BondOptions| new.bonds.iter().any(|bond| bond.name == own.name);
    let kept: Vec<_> = old.bonds.iter().filter(stays).cloned().collect();
    if kept == old.bonds {
        return;
    }
    if let Err(error) = switch.set_bonds(&new.name, kept).await {
        warn!(error = with_causes(&error), "bridge {}: cannot remove bonds, retrying", new.name);
    }
}

/// Sets the changed bonds of a bridge.
///
/// If a bond is refused, the others are set nevertheless. A bond with a refused change keeps its
/// old options, and the rows of its members get the error.
async fn set_bonds(
    switch: &Switch,
    bridge: &DesiredBridge,
    errors: &mut ApplyErrors,
) -> RefusedMembers {
    let new = &bridge.options;
    let mut refused = RefusedMembers::new();
    let Some(old) = switch.bridge_options(&new.name).filter(|old| old.bonds != new.bonds) else {
        return refused;
    };
    if switch.set_bonds(&new.name, new.bonds.clone()).await.is_ok() {
        return refused;
    }
    let mut kept = old.bonds;
    for bond in &new.bonds {
        let mut tried = kept.clone();
        tried.retain(|own| own.name != bond.name);
        tried.push(bond.clone());
        match switch.set_bonds(&new.name, tried.clone()).await {
            Ok(()) => kept = tried,
            Err(error) => {
                let reason = with_causes(&error);
                refused.extend(bond.members.iter().map(|name| (name.clone(), reason.clone())));
            }
        }
    }
    let is_kept = |name: &String| kept.iter().any(|bond| bond.members.contains(name));
    for (name, reason) in refused.extract_if(.., |name, _| is_kept(name)) {
        if let Some(port) = bridge.ports.get(&name) {
            add_reason(&mut errors.settings, port.interface, &reason);
        }
    }
    refused
}

/// Removes the member ports of refused bonds.
///
/// As separate ports, the members would close a loop.
async fn remove_members(
    switch: &Switch,
    applied: &mut AppliedBridge,
    bridge: &DesiredBridge,
    refused: &RefusedMembers,
    errors: &mut ApplyErrors,
) {
    for (name, reason) in refused {
        let row = bridge.ports.get(name).map(|port| port.interface);
        errors.interfaces.extend(row.map(|row| (row, reason.clone())));
        if applied.ports.remove(name).is_some() {
            warn!("port {name}: removed, because its bond was refused: {reason}");
            if let Err(error) = switch.remove_port(name).await {
                warn!(error = with_causes(&error), "port {name}: cannot be removed");
            }
        }
    }
}

/// Sets the changed mirrors of a bridge.
///
/// Mirrors that another client of the switch has changed are set again.
async fn set_mirrors(switch: &Switch, bridge: &DesiredBridge) -> Result<(), SwitchError> {
    let new = &bridge.options;
    match switch.bridge_options(&new.name) {
        Some(old) if old.mirrors != new.mirrors => {
            switch.set_mirrors(&new.name, new.mirrors.clone()).await
        }
        _ => Ok(()),
    }
}

async fn remove_ports(
    switch: &Switch,
    applied: &mut AppliedBridge,
    bridge: &DesiredBridge,
    errors: &mut ApplyErrors,
) {
    let stays = |name: &String, old: &PortOptions| {
        bridge.ports.get(name).is_some_and(|new| is_same_port(old, &new.options_for(old)))
    };
    let gone = applied.ports.iter().filter(|(name, old)| !stays(name, old));
    let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
    for name in gone {
        match switch.remove_port(&name).await {
            Ok(()) => info!("port {name}: removed by OVSDB"),
            Err(SwitchError::NoSuchPort { .. }) => {}
            Err(error) => {
                let reason = with_causes(&error);
                warn!(error = reason, "port {name}: cannot be removed, retrying");
                let row = bridge.ports.get(&name).map(|port| port.interface);
                if let Some(row) = row {
                    add_reason(&mut errors.settings, row, &reason);
                }
                continue;
            }
        }
        applied.ports.remove(&name);
    }
}

/// Sets the VLANs, the limits and other runtime options of the ports that stay.
async fn set_ports(
    switch: &Switch,
    applied: &mut AppliedBridge,
    bridge: &DesiredBridge,
    errors: &mut ApplyErrors,
) {
    let Some(running) = running_ports(switch, &bridge.options.name) else { return };
    for port in running {
        let Some(old) = applied.ports.get_mut(&port.name) else { continue };
        let Some(new) = bridge.ports.get(&port.name) else { continue };
        let options = new.options_for(old);
        if !is_same_port(old, &options) {
            continue;
        }
        if let Some(reason) = &new.refused_vlans {
            add_reason(&mut errors.settings, new.interface, reason);
        }
        if *old != *options {
            *old = options.into_owned();
        }
        let mut set = Ok(());
        if !port.has_vlans_of(old) {
            set = switch.set_vlans(old).await;
        }
        if port.ingress_policing() != old.ingress_policing() {
            set = set.and(switch.set_ingress_policing(old).await);
        }
        if port.qos != old.qos {
            set = set.and(switch.set_qos(old).await);
        }
        if port.bfd != old.bfd {
            set = set.and(switch.set_bfd(old).await);
        }
        let is_device_other = !old.mac.is_empty() && switch.has_other_mac(&port.name);
        if port.mac != old.mac || is_device_other {
            set = set.and(switch.set_mac(&port.name, &old.mac).await);
        }
        if port.mtu != old.mtu {
            set = set.and(switch.set_mtu(&port.name, old.mtu).await);
        }
        if let Err(error) = set {
            add_reason(&mut errors.settings, new.interface, &with_causes(&error));
        }
    }
}

/// Adds the missing ports, in the order in which they get their numbers.
async fn add_ports(
    switch: &Switch,
    applied: &mut AppliedBridge,
    bridge: &DesiredBridge,
    refused: &RefusedMembers,
    errors: &mut ApplyErrors,
) {
    let is_new = |name: &String| !applied.ports.contains_key(name);
    if !bridge.ports.keys().any(is_new) {
        return;
    }
    let Some(running) = running_ports(switch, &bridge.options.name) else { return };
    let mut numbers = PortNumbers::new(&running, bridge.ports.values());
    for port in PortNumbers::in_order(bridge.ports.values()) {
        let name = &port.options.name;
        if applied.ports.contains_key(name) || refused.contains_key(name) {
            continue;
        }
        if let Some(reason) = &port.refused_vlans {
            errors.interfaces.insert(port.interface, reason.clone());
            continue;
        }
        let mut added = Ok(());
        for number in numbers.candidates(port) {
            let options = PortOptions { number, ..port.options.clone() };
            added = switch.declarative().add_port(&bridge.options.name, options).await;
            match added {
                Err(SwitchError::NumberTaken { .. } | SwitchError::NumberRange(_)) => {}
                _ => {
                    numbers.claim(number);
                    break;
                }
            }
        }
        match added {
            Ok(()) => {
                info!("port {name}: added by OVSDB");
                applied.ports.insert(name.clone(), port.options.clone());
            }
            Err(error) => {
                errors.interfaces.insert(port.interface, with_causes(&error));
            }
        }
    }
}
