//! Reload: changes a running switch from one configuration to another.
//!
//! The plan is a pure function of both configurations. The plan names bridges, ports and settings
//! that differ between the configurations. So objects that were only added by `shuntctl` or a
//! program stay. A step that fails does not prevent the other steps.
//!
//! A start with a saved state compares the configuration file in the same way with the file of the
//! last run (`resumed`).

mod bonds;
mod collector_sets;
mod keys;
mod mirrors;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Serialize, de::DeserializeOwned};
use tracing::warn;

use self::{
    bonds::{kept_bonds, removals_of_bonds, setting_of_bonds},
    collector_sets::CollectorSetsChange,
    keys::keys_that_differ,
    mirrors::mirror_steps,
};
use crate::{
    config::{BondOptions, BridgeOptions, Config, MirrorOptions, PortOptions, setting},
    control::structure::{OpenPolicy, SettingOrigin, Structure, TableFiller},
    error::{SwitchError, with_causes},
};

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Changes that were applied, such as `port eth1: added`.
    pub applied: Vec<String>,
    /// Changes that were refused, each with the reason.
    pub refused: Vec<String>,
    /// Changed keys that take effect when the switch starts again.
    pub at_restart: Vec<String>,
    /// The steps of the changes in `refused`.
    refused_steps: Vec<ReloadStep>,
    /// The keys of `at_restart`, with their bridges.
    keys_at_restart: Vec<KeyAtRestart>,
}

impl ReloadReport {
    /// Returns whether the compared configurations are equal.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.applied.is_empty() && self.refused.is_empty() && self.at_restart.is_empty()
    }

    /// Returns the configuration `after` without the changes that were refused.
    ///
    /// `before` and `after` are the configurations of the reload. A later reload from the result
    /// retries the refused changes, and only these.
    #[must_use]
    pub fn without_refused(&self, before: &Config, after: &Config) -> Config {
        let mut result = after.clone();
        for step in &self.refused_steps {
            step.undo(before, &mut result);
        }
        result
    }

    /// Returns the configuration `after` without the changes that are not in force.
    ///
    /// These changes were refused, or wait for the next start. `before` and `after` are the
    /// configurations of the reload of a running switch.
    #[must_use]
    pub fn in_force(&self, before: &Config, after: &Config) -> Config {
        let mut result = self.without_refused(before, after);
        for key in &self.keys_at_restart {
            key.undo(before, &mut result);
        }
        result
    }
}

/// A changed key that takes effect at the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyAtRestart {
    /// Name of the bridge; `None` for a key of the switch.
    bridge: Option<String>,
    key: String,
}

impl KeyAtRestart {
    /// Sets the key in `result` to its value in `before`.
    fn undo(&self, before: &Config, result: &mut Config) {
        match &self.bridge {
            None => restore_key(before, result, &self.key),
            Some(name) => {
                let is_named = |own: &&BridgeOptions| own.name == *name;
                let Some(old) = before.bridges.iter().find(is_named) else { return };
                let new = result.bridges.iter_mut().find(|own| own.name == *name);
                if let Some(new) = new {
                    restore_key(old, new, &self.key);
                }
            }
        }
    }
}

impl fmt::Display for KeyAtRestart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bridge {
            None => f.write_str(&self.key),
            Some(name) => write!(f, "bridge {name}: {}", self.key),
        }
    }
}

/// Copies the value of a key; dots in the key separate nested fields.
fn restore_key<T: Serialize + DeserializeOwned>(from: &T, to: &mut T, key: &str) {
    // The options are plain values with text keys, so the conversion to JSON never fails.
    let old = serde_json::to_value(from).unwrap_or_default();
    let mut new = serde_json::to_value(&*to).unwrap_or_default();
    let pointer = format!("/{}", key.replace('.', "/"));
    let old = old.pointer(&pointer).cloned().unwrap_or_default();
    if let Some(value) = new.pointer_mut(&pointer) {
        *value = old;
    }
    if let Ok(restored) = serde_json::from_value(new) {
        *to = restored;
    }
}

/// One change; the variants are in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReloadStep {
    RemovePort(String),
    RemoveBridge(String),
    AddBridge(BridgeOptions),
    AddPort { bridge: String, port: PortOptions },
    SetVlans(PortOptions),
    SetPolicing(PortOptions),
    SetQos(PortOptions),
    SetBfd(PortOptions),
    SetBonds { bridge: String, bonds: Vec<BondOptions> },
    SetDevice(PortOptions),
    RemoveMirror { bridge: String, name: String },
    SetMirror { bridge: String, mirror: MirrorOptions },
    SetCollectorSets(CollectorSetsChange),
    SetBridge(String, Vec<(&'static str, String)>),
    Set(Vec<(&'static str, String)>),
}

/// The steps that change one configuration into another.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReloadPlan {
    steps: Vec<ReloadStep>,
    /// Keys that no step can change.
    at_restart: Vec<KeyAtRestart>,
}

/// Applies the differences between two configurations.
///
/// A port that cannot be opened is added nevertheless, because no later reload would add it. `fill`
/// fills the tables of new bridges before they have ports.
pub(crate) async fn reload(
    structure: &Structure,
    before: &Config,
    after: &Config,
    fill: &mut TableFiller<'_>,
) -> ReloadReport {
    let ReloadPlan { steps, at_restart } = plan(before, after);
    let mut report = ReloadReport {
        at_restart: at_restart.iter().map(ToString::to_string).collect(),
        keys_at_restart: at_restart,
        ..ReloadReport::default()
    };
    let before_steps = structure.running_config();
    let mut without_bond = BTreeSet::new();
    for step in steps {
        let done = step.description();
        if let ReloadStep::AddPort { port, .. } = &step
            && without_bond.contains(&port.name)
        {
            // Outside its refused bond, the port would close a loop with the other members.
            report.refused.push(format!("{done}: its bond was refused"));
            report.refused_steps.push(step);
            continue;
        }
        match step.clone().run(structure, fill).await {
            Ok(None) => report.applied.push(done),
            Ok(Some(trouble)) => report.applied.push(format!("{done}, but down: {trouble}")),
            // The running configuration is compared only after a step was refused.
            Err(_) if step.is_done(&structure.running_config()) => {}
            Err(error) => {
                if let ReloadStep::SetBonds { bonds, .. } = &step {
                    without_bond.extend(bonds.iter().flat_map(|bond| bond.members.clone()));
                }
                report.refused.push(format!("{done}: {}", with_causes(&error)));
                let removal = restore_port(&step, structure, &before_steps).await;
                report.refused_steps.push(step);
                if let Some(removal) = removal {
                    let removed = removal.description();
                    report.applied.retain(|done| *done != removed);
                    report.refused_steps.push(removal);
                }
            }
        }
    }
    report
}

/// Adds a removed port again, because the step that replaces it was refused.
///
/// `before` has the ports before the reload. Returns the removal step, which was undone.
async fn restore_port(
    step: &ReloadStep,
    structure: &Structure,
    before: &Config,
) -> Option<ReloadStep> {
    let ReloadStep::AddPort { port: PortOptions { name, .. }, .. } = step else { return None };
    let (bridge, old) = find_port(before, name)?;
    if find_port(&structure.running_config(), name).is_some() {
        return None;
    }
    match structure.add_configured_port(bridge, old.clone(), None, OpenPolicy::Retried).await {
        Ok(_) => {
            warn!("port {name}: its new options are refused, so it has the old ones");
            Some(ReloadStep::RemovePort(name.clone()))
        }
        Err(error) => {
            warn!(
                error = with_causes(&error),
                "port {name}: lost, its old options are refused too"
            );
            None
        }
    }
}

/// Returns the configuration of a start that resumes a saved configuration,
/// without ports.
///
/// A key keeps its saved value if it can change at run time, and the file has not changed it since
/// the last run. Bridges that only the saved configuration has stay as saved.
///
/// `loaded` is the configuration file of the last run, and `file` the file of this start.
pub(crate) fn resumed(saved: &Config, loaded: &Config, file: &Config) -> Config {
    let settings = |config: &Config| Config { bridges: Vec::new(), ..config.clone() };
    let [old, new] = with_nic_bridges([loaded, file]);
    let [own, old, new] = [saved, &old, &new].map(settings);
    let mut resumed = with_saved_keys(&own, &old, &new, setting::KEYS);
    let bridge = |own: &BridgeOptions| {
        let [old, new] =
            [loaded, file].map(|config| bridges(config).get(own.name.as_str()).copied());
        let default = BridgeOptions { name: own.name.clone(), ..BridgeOptions::default() };
        let changed =
            new.map(|new| with_saved_keys(own, old.unwrap_or(&default), new, setting::BRIDGE_KEYS));
        BridgeOptions { ports: Vec::new(), ..changed.unwrap_or_else(|| own.clone()) }
    };
    resumed.bridges = saved.bridges.iter().map(bridge).collect();
    let nic_bridge = &mut resumed.caches.gigaflow.offload.bridge;
    if let Some(first) = file.bridges.first().or_else(|| saved.bridges.first())
        && nic_bridge.is_empty()
    {
        nic_bridge.clone_from(&first.name);
    }
    resumed
}

/// Returns two configurations in which the bridge of the NIC is named.
///
/// The name is filled in only if both configurations omit it. The default is the first bridge, so
/// it changes when the file renames that bridge.
fn with_nic_bridges(configs: [&Config; 2]) -> [Config; 2] {
    let is_default = configs.iter().all(|config| {
        let offload = &config.caches.gigaflow.offload;
        !offload.is_none() && offload.bridge.is_empty() && !config.bridges.is_empty()
    });
    configs.map(|config| {
        let mut config = config.clone();
        if let Some(first) = config.bridges.first().filter(|_| is_default) {
            config.caches.gigaflow.offload.bridge.clone_from(&first.name);
        }
        config
    })
}

/// Returns `new` with the values that `saved` has for unchanged keys.
///
/// Unchanged keys are the members of `keys` that are equal in `old` and `new`.
fn with_saved_keys<T>(saved: &T, old: &T, new: &T, keys: &[&str]) -> T
where
    T: Serialize + DeserializeOwned + Clone,
{
    // The options are plain values with text keys, so the conversion to JSON never fails.
    let [saved, old, mut merged] =
        [saved, old, new].map(|options| serde_json::to_value(options).unwrap_or_default());
    for key in keys {
        let pointer = format!("/{}", key.replace('.', "/"));
        if old.pointer(&pointer) == merged.pointer(&pointer)
            && let (Some(value), Some(own)) =
                (saved.pointer(&pointer), merged.pointer_mut(&pointer))
        {
            *own = value.clone();
        }
    }
    serde_json::from_value(merged).unwrap_or_else(|_| new.clone())
}

impl ReloadStep {
    /// Executes the step; returns the reason if it has added a port that is down now.
    async fn run(
        self,
        structure: &Structure,
        fill: &mut TableFiller<'_>,
    ) -> Result<Option<String>, SwitchError> {
        let policy = OpenPolicy::Retried;
        let done = match self {
            Self::AddPort { bridge, port } => {
                port.check()?;
                return structure.add_configured_port(&bridge, port, None, policy).await;
            }
            Self::RemovePort(name) => match structure.remove_port(&name).await {
                Err(SwitchError::NoSuchPort { .. }) => Ok(()),
                removed => removed,
            },
            Self::RemoveBridge(name) => match structure.remove_bridge(&name).await {
                Err(SwitchError::NoSuchBridge { .. }) => Ok(()),
                removed => removed,
            },
            Self::AddBridge(bridge) => structure.create_bridge(&bridge, policy, fill).await,
            Self::SetVlans(port) => structure.set_vlans(&port).await,
            Self::SetPolicing(port) => structure.set_ingress_policing(&port).await,
            Self::SetQos(port) => structure.set_qos(&port).await,
            Self::SetBfd(port) => structure.set_bfd(&port),
            Self::SetBonds { bridge, bonds } => structure.set_bonds(&bridge, bonds).await,
            Self::SetDevice(port) => structure.set_device(&port).await,
            Self::RemoveMirror { bridge, name } => {
                match structure.remove_mirror(&bridge, &name).await {
                    Err(SwitchError::NoSuchMirror { .. }) => Ok(()),
                    removed => removed,
                }
            }
            Self::SetMirror { bridge, mirror } => structure.set_mirror(&bridge, mirror).await,
            Self::SetCollectorSets(change) => change.apply(structure).await,
            Self::SetBridge(name, settings) => {
                let origin = SettingOrigin::Operator;
                structure.set_bridge(&name, &borrowed(&settings), policy, origin).await
            }
            Self::Set(settings) => structure.set(&borrowed(&settings)).await,
        };
        done.map(|()| None)
    }

    /// Returns whether the switch already has the bridge or port of the step.
    ///
    /// All options must be equal. An operator, or an earlier reload, has then added the object.
    fn is_done(&self, running: &Config) -> bool {
        match self {
            Self::AddBridge(bridge) => running
                .bridges
                .iter()
                .any(|own| *bridge == BridgeOptions { ports: Vec::new(), ..own.clone() }),
            Self::AddPort { bridge, port } => {
                find_port(running, &port.name).is_some_and(|(place, own)| {
                    let number = if port.number == 0 { 0 } else { own.number };
                    place == bridge && *port == PortOptions { number, ..own.clone() }
                })
            }
            Self::RemovePort(_)
            | Self::RemoveBridge(_)
            | Self::SetVlans(_)
            | Self::SetPolicing(_)
            | Self::SetQos(_)
            | Self::SetBfd(_)
            | Self::SetBonds { .. }
            | Self::SetDevice(_)
            | Self::RemoveMirror { .. }
            | Self::SetMirror { .. }
            | Self::SetCollectorSets(_)
            | Self::SetBridge(..)
            | Self::Set(_) => false,
        }
    }

    /// Undoes the step in `config`; `before` is the configuration before the reload.
    fn undo(&self, before: &Config, config: &mut Config) {
        match self {
            Self::AddBridge(bridge) => config.bridges.retain(|own| own.name != bridge.name),
            Self::AddPort { port, .. } => {
                for bridge in &mut config.bridges {
                    bridge.ports.retain(|own| own.name != port.name);
                }
            }
            Self::RemoveBridge(name) => {
                config
                    .bridges
                    .extend(before.bridges.iter().filter(|own| own.name == *name).cloned());
            }
            Self::RemovePort(name)
            | Self::SetVlans(PortOptions { name, .. })
            | Self::SetPolicing(PortOptions { name, .. })
            | Self::SetQos(PortOptions { name, .. })
            | Self::SetBfd(PortOptions { name, .. })
            | Self::SetDevice(PortOptions { name, .. }) => {
                let Some((bridge, port)) = find_port(before, name) else { return };
                for own in &mut config.bridges {
                    own.ports.retain(|own| own.name != *name);
                    if own.name == *bridge {
                        own.ports.push(port.clone());
                    }
                }
            }
            Self::SetBonds { bridge, .. } => {
                let old = before.bridges.iter().find(|own| own.name == *bridge);
                let own = config.bridges.iter_mut().find(|own| own.name == *bridge);
                if let (Some(old), Some(own)) = (old, own) {
                    own.bonds = kept_bonds(&old.bonds, &own.bonds);
                }
            }
            Self::RemoveMirror { bridge, name }
            | Self::SetMirror { bridge, mirror: MirrorOptions { name, .. } } => {
                let old = before.bridges.iter().find(|own| own.name == *bridge);
                let old = old.and_then(|own| own.mirrors.iter().find(|own| own.name == *name));
                if let Some(own) = config.bridges.iter_mut().find(|own| own.name == *bridge) {
                    own.mirrors.retain(|own| own.name != *name);
                    own.mirrors.extend(old.cloned());
                }
            }
            Self::SetCollectorSets(change) => change.undo(before, config),
            Self::SetBridge(name, settings) => {
                let Some(old) = before.bridges.iter().find(|old| old.name == *name) else { return };
                if let Some(own) = config.bridges.iter_mut().find(|own| own.name == *name) {
                    *own = with_keys_of(old, own, settings);
                }
            }
            Self::Set(settings) => *config = with_keys_of(before, config, settings),
        }
    }

    fn description(&self) -> String {
        match self {
            Self::RemovePort(name) => format!("port {name}: removed"),
            Self::RemoveBridge(name) => format!("bridge {name}: removed"),
            Self::AddBridge(bridge) => format!("bridge {}: added", bridge.name),
            Self::AddPort { bridge, port } => format!("port {}: added to {bridge}", port.name),
            Self::SetVlans(port) => format!("port {}: VLANs set: {}", port.name, port.vlans_text()),
            Self::SetPolicing(port) => format!("port {}: ingress policing set", port.name),
            Self::SetQos(port) => format!("port {}: QoS set", port.name),
            Self::SetBfd(port) => format!("port {}: BFD set", port.name),
            Self::SetBonds { bridge, .. } => format!("bridge {bridge}: bonds set"),
            Self::SetDevice(port) => format!("port {}: MTU and MAC address set", port.name),
            Self::RemoveMirror { bridge, name } => format!("mirror {name}: removed from {bridge}"),
            Self::SetMirror { bridge, mirror } => {
                format!("mirror {}: set on {bridge}", mirror.name)
            }
            Self::SetCollectorSets(change) => change.description(),
            Self::SetBridge(name, settings) => format!("bridge {name}: {}", words(settings)),
            Self::Set(settings) => words(settings),
        }
    }
}

/// Returns the port with a name, and the name of its bridge.
fn find_port<'a>(config: &'a Config, name: &str) -> Option<(&'a str, &'a PortOptions)> {
    let ports = |bridge: &'a BridgeOptions| {
        bridge.ports.iter().map(move |port| (bridge.name.as_str(), port))
    };
    config.bridges.iter().flat_map(ports).find(|(_, port)| port.name == name)
}

/// Returns `new` with the values that `old` has for the keys of `settings`.
fn with_keys_of<T>(old: &T, new: &T, settings: &[(&'static str, String)]) -> T
where
    T: Serialize + DeserializeOwned + Clone,
{
    let keys: Vec<_> = settings.iter().map(|(key, _)| *key).collect();
    with_saved_keys(old, new, new, &keys)
}

fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    settings.iter().map(|(key, value)| (*key, value.as_str())).collect()
}

/// Returns settings as `KEY=VALUE ..`.
fn words(settings: &[(&str, String)]) -> String {
    let words = settings.iter().map(|(key, value)| format!("{key}={value}"));
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the steps that change an open port.
fn port_steps(old: &PortOptions, new: &PortOptions) -> impl Iterator<Item = ReloadStep> {
    let steps = [
        (!old.has_vlans_of(new)).then(|| ReloadStep::SetVlans(new.clone())),
        (old.ingress_policing() != new.ingress_policing())
            .then(|| ReloadStep::SetPolicing(new.clone())),
        (old.qos != new.qos).then(|| ReloadStep::SetQos(new.clone())),
        (old.bfd != new.bfd).then(|| ReloadStep::SetBfd(new.clone())),
        ((old.mtu, &old.mac) != (new.mtu, &new.mac)).then(|| ReloadStep::SetDevice(new.clone())),
    ];
    steps.into_iter().flatten()
}

/// Returns the steps that change one configuration into another.
///
/// Removals are first, so that names, numbers and devices are free for additions.
fn plan(before: &Config, after: &Config) -> ReloadPlan {
    let [before, after] = &with_nic_bridges([before, after]);
    let mut plan = ReloadPlan::default();
    let (old, new) = (bridges(before), bridges(after));
    let kept: BTreeSet<&str> = old.keys().copied().filter(|name| new.contains_key(name)).collect();
    let (old_ports, new_ports) = (ports(before, &kept), ports(after, &kept));
    let is_replaced = |name: &str| match (old_ports.get(name), new_ports.get(name)) {
        (Some(old), Some(new)) => old.0 != new.0 || old.1.with_runtime_keys_of(new.1) != *new.1,
        _ => true,
    };
    for name in old_ports.keys().filter(|name| is_replaced(name)) {
        plan.steps.push(ReloadStep::RemovePort((*name).to_owned()));
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        plan.steps.push(ReloadStep::RemoveBridge((*name).to_owned()));
    }
    plan.steps.extend(removals_of_bonds(&old, &new));
    for (name, bridge) in &new {
        match old.get(name) {
            // A port that cannot be opened must not prevent the addition of the bridge.
            None => {
                let empty = BridgeOptions { ports: Vec::new(), ..(*bridge).clone() };
                plan.steps.push(ReloadStep::AddBridge(empty));
            }
            Some(old) => {
                plan.steps.extend(setting_of_bonds(name, &old.bonds, &bridge.bonds));
                plan.steps.extend(mirror_steps(name, &old.mirrors, &bridge.mirrors));
                plan.steps.extend(CollectorSetsChange::step(old, bridge));
                let without_lists = |own: &BridgeOptions| BridgeOptions {
                    ports: Vec::new(),
                    bonds: Vec::new(),
                    mirrors: Vec::new(),
                    collector_sets: Vec::new(),
                    ..own.clone()
                };
                let [old, new] = [*old, *bridge].map(without_lists);
                let (settings, at_restart) = keys_that_differ(&old, &new, setting::BRIDGE_KEYS);
                let named = at_restart
                    .into_iter()
                    .map(|key| KeyAtRestart { bridge: Some((*name).to_owned()), key });
                plan.at_restart.extend(named);
                if !settings.is_empty() {
                    plan.steps.push(ReloadStep::SetBridge((*name).to_owned(), settings));
                }
            }
        }
    }
    // Ports are added in the order of the file, which decides the numbers of ports without a
    // number.
    for (bridge, port) in
        after.bridges.iter().flat_map(|bridge| bridge.ports.iter().map(move |port| (bridge, port)))
    {
        if is_replaced(&port.name) {
            let (bridge, port) = (bridge.name.clone(), port.clone());
            plan.steps.push(ReloadStep::AddPort { bridge, port });
        } else if let Some((_, old)) = old_ports.get(port.name.as_str()) {
            plan.steps.extend(port_steps(old, port));
        }
    }
    let without_bridges = |config: &Config| Config { bridges: Vec::new(), ..config.clone() };
    let [before, after] = [before, after].map(without_bridges);
    let (settings, at_restart) = keys_that_differ(&before, &after, setting::KEYS);
    let named = at_restart.into_iter().map(|key| KeyAtRestart { bridge: None, key });
    plan.at_restart.extend(named);
    if !settings.is_empty() {
        plan.steps.push(ReloadStep::Set(settings));
    }
    plan
}

fn bridges(config: &Config) -> BTreeMap<&str, &BridgeOptions> {
    config.bridges.iter().map(|bridge| (bridge.name.as_str(), bridge)).collect()
}

/// Returns the ports of bridges by name, each with its bridge.
fn ports<'a>(
    config: &'a Config,
    bridges: &BTreeSet<&str>,
) -> BTreeMap<&'a str, (&'a str, &'a PortOptions)> {
    let bridges = config.bridges.iter().filter(|bridge| bridges.contains(bridge.name.as_str()));
    let ports = bridges.flat_map(|bridge| {
        bridge.ports.iter().map(|port| (port.name.as_str(), (bridge.name.as_str(), port)))
    });
    ports.collect()
}

#[cfg(test)]
mod tests;
