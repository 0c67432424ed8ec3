//! The ordered changes that lead from one state to another: a pure function of both states.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use super::{
    apply::ApplyPolicy,
    change::{StateChange, kept_bonds},
    object::ObjectId,
    state::{DeclaredBridge, DeclaredPort, DesiredState},
};
use crate::config::{
    BondOptions, BridgeOptions, Config, IpfixOptions, MirrorOptions, NetflowOptions, PortOptions,
    SflowOptions,
    changed_settings::ChangedSettings,
    setting::{BRIDGE_SETTINGS, BRIDGE_START_SETTINGS, SETTINGS, START_FIELDS, SettingField},
};

/// The changes that lead from one state to another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The changes, in the order in which they must be applied.
    pub(crate) changes: Vec<StateChange>,
    /// Changed fields that no change can set.
    pub(crate) at_restart: Vec<StartField>,
    /// Names that an earlier bridge of the state has already.
    pub(crate) repeated: Vec<String>,
}

/// A changed field that takes effect at the next start.
#[derive(Clone)]
pub(crate) enum StartField {
    /// A field of the switch.
    Switch(&'static SettingField<Config>),
    /// A field of the bridge with the given name.
    Bridge(String, &'static SettingField<BridgeOptions>),
}

impl StartField {
    /// Returns the object of the field.
    pub(super) fn object(&self) -> ObjectId {
        match self {
            Self::Switch(_) => ObjectId::Settings,
            Self::Bridge(name, _) => ObjectId::Bridge(name.clone()),
        }
    }

    /// Sets the field in `state` to its value in `present`.
    pub(super) fn undo(&self, present: &DesiredState, state: &mut DesiredState) {
        match self {
            Self::Switch(field) => {
                if let (Some(old), Some(own)) = (&present.settings, &mut state.settings) {
                    (field.copy)(old, Arc::make_mut(own));
                }
            }
            Self::Bridge(name, field) => {
                if let (Some(old), Some(own)) = (present.bridge(name), state.bridge_mut(name)) {
                    (field.copy)(&old.options, Arc::make_mut(&mut own.options));
                }
            }
        }
    }
}

impl fmt::Display for StartField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(field) => f.write_str(field.key),
            Self::Bridge(name, field) => write!(f, "bridge {name}: {}", field.key),
        }
    }
}

impl fmt::Debug for StartField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// Keys are unique, and functions cannot be compared.
impl PartialEq for StartField {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for StartField {}

/// Returns the changes that lead from one state to another.
///
/// Removals are first, so that names, numbers and devices are free for additions. Options that both
/// states share are not compared. Repeated bridges of the desired state lead to no change.
pub(crate) fn difference(
    present: &DesiredState,
    desired: &DesiredState,
    policy: ApplyPolicy,
) -> Difference {
    match desired.without_repeated() {
        Some((desired, repeated)) => {
            Difference { repeated, ..difference_of_unique(present, &desired, policy) }
        }
        None => difference_of_unique(present, desired, policy),
    }
}

/// Returns the changes to a state in which each bridge has a different name.
fn difference_of_unique(
    present: &DesiredState,
    desired: &DesiredState,
    policy: ApplyPolicy,
) -> Difference {
    let mut difference = Difference::default();
    let bridges = BridgePairs::new(present, desired, policy);
    let ports = PortPairs::new(present, desired, &bridges, policy);
    let changes = &mut difference.changes;
    changes.extend(ports.removed_ports().map(|name| StateChange::RemovePort(name.to_owned())));
    changes.extend(bridges.removals());
    changes.extend(bridges.removals_of_bonds());
    for (name, new) in &bridges.new {
        match bridges.kept_bridge(name) {
            None => {
                let start = Arc::new(policy.first_options(&new.options));
                difference.changes.push(StateChange::AddBridge(Arc::clone(&start)));
                bridge_changes(&start, &new.options, policy, &mut difference);
            }
            Some(old) if Arc::ptr_eq(&old.options, &new.options) => {}
            Some(old) => bridge_changes(&old.options, &new.options, policy, &mut difference),
        }
    }
    difference.changes.extend(ports.changes(policy));
    if let [Some(old), Some(new)] = with_nic_bridges([present, desired]) {
        let settings = ChangedSettings::between(&old, &new, SETTINGS);
        if !settings.is_empty() {
            difference.changes.push(StateChange::Set(settings));
        }
        let fields = START_FIELDS.iter().filter(|field| !(field.is_equal)(&old, &new));
        difference.at_restart.extend(fields.map(StartField::Switch));
    }
    difference
}

/// The bridges of two states, by name.
struct BridgePairs<'a> {
    /// The bridges of the present state.
    old: BTreeMap<&'a str, &'a DeclaredBridge>,
    /// The bridges of the desired state.
    new: BTreeMap<&'a str, &'a DeclaredBridge>,
    policy: ApplyPolicy,
}

impl<'a> BridgePairs<'a> {
    /// Pairs the bridges of both states by name.
    fn new(present: &'a DesiredState, desired: &'a DesiredState, policy: ApplyPolicy) -> Self {
        let by_name = |state: &'a DesiredState| {
            state.bridges.iter().map(|bridge| (bridge.options.name.as_str(), bridge)).collect()
        };
        Self { old: by_name(present), new: by_name(desired), policy }
    }

    /// Returns the present bridge with the given name, if it stays.
    fn kept_bridge(&self, name: &str) -> Option<&'a DeclaredBridge> {
        let (old, new) = (self.old.get(name)?, self.new.get(name)?);
        (!self.policy.replaces(&old.options, &new.options)).then_some(*old)
    }

    /// Returns the changes that remove bridges.
    fn removals(&self) -> impl Iterator<Item = StateChange> {
        let gone = self.old.keys().filter(|name| self.kept_bridge(name).is_none());
        gone.map(|name| StateChange::RemoveBridge {
            name: (*name).to_owned(),
            replacement: self.new.get(name).map(|new| Arc::clone(&new.options)),
        })
    }

    /// Returns the removals of bonds that no longer exist.
    ///
    /// Another bridge may get the names of these bonds.
    fn removals_of_bonds(&self) -> impl Iterator<Item = StateChange> {
        self.new.iter().filter_map(|(name, new)| {
            let old = &self.kept_bridge(name)?.options.bonds;
            bond_change(name, old, kept_bonds(old, &new.options.bonds))
        })
    }
}

/// Adds the changes of a bridge that stays, except those of its ports.
fn bridge_changes(
    old: &BridgeOptions,
    new: &BridgeOptions,
    policy: ApplyPolicy,
    difference: &mut Difference,
) {
    let (bridge, changes) = (&new.name, &mut difference.changes);
    changes.extend(bond_change(bridge, &kept_bonds(&old.bonds, &new.bonds), new.bonds.clone()));
    changes.extend(mirror_changes(bridge, &old.mirrors, &new.mirrors));
    if old.collector_sets != new.collector_sets {
        let (bridge, sets) = (bridge.clone(), new.collector_sets.clone());
        changes.push(StateChange::SetCollectorSets { bridge, sets });
    }
    if old.mtu != new.mtu && policy == ApplyPolicy::Continuous {
        changes.push(StateChange::SetBridgeMtu { bridge: bridge.clone(), mtu: new.mtu });
    }
    let settings = ChangedSettings::between(old, new, BRIDGE_SETTINGS);
    if !settings.is_empty() {
        let object = ObjectId::Bridge(bridge.clone());
        changes.push(StateChange::SetBridge { bridge: bridge.clone(), object, settings });
    }
    if policy == ApplyPolicy::Once {
        let fields = BRIDGE_START_SETTINGS.iter().map(|setting| &setting.field);
        let fields = fields.filter(|field| !(field.is_equal)(old, new));
        let named = fields.map(|field| StartField::Bridge(bridge.clone(), field));
        difference.at_restart.extend(named);
    }
}

/// Returns the change that replaces the bonds of a bridge, if they differ.
fn bond_change(bridge: &str, old: &[BondOptions], bonds: Vec<BondOptions>) -> Option<StateChange> {
    (old != bonds).then(|| StateChange::SetBonds { bridge: bridge.to_owned(), bonds })
}

/// Returns the changes that replace the mirrors of a bridge.
fn mirror_changes(
    bridge: &str,
    old: &[MirrorOptions],
    new: &[MirrorOptions],
) -> impl Iterator<Item = StateChange> {
    let is_gone = |own: &&MirrorOptions| !new.iter().any(|other| other.name == own.name);
    let removed = old
        .iter()
        .filter(is_gone)
        .map(|own| StateChange::RemoveMirror { bridge: bridge.to_owned(), name: own.name.clone() });
    let set = new
        .iter()
        .filter(|own| !old.contains(own))
        .map(|own| StateChange::SetMirror { bridge: bridge.to_owned(), mirror: own.clone() });
    removed.chain(set)
}

/// The ports of two states that do not share their options, by name.
struct PortPairs<'a> {
    /// Ports of the bridges that stay.
    old: BTreeMap<&'a str, (&'a str, &'a DeclaredPort)>,
    /// Ports of all desired bridges, each with its bridge, in the order of the state.
    new: Vec<(&'a str, &'a DeclaredPort)>,
    /// Names of the ports in `old` that must be removed.
    replaced: BTreeSet<&'a str>,
}

impl<'a> PortPairs<'a> {
    /// Pairs the ports of both states, and finds those to remove first.
    fn new(
        present: &'a DesiredState,
        desired: &'a DesiredState,
        bridges: &BridgePairs<'a>,
        policy: ApplyPolicy,
    ) -> Self {
        let (mut old, mut new) = (BTreeMap::new(), Vec::new());
        for bridge in &present.bridges {
            let name = bridge.options.name.as_str();
            if bridges.kept_bridge(name).is_some() {
                let ports = bridge.ports_other_than(bridges.new.get(name).copied());
                old.extend(ports.iter().map(|port| (port.options.name.as_str(), (name, *port))));
            }
        }
        for bridge in &desired.bridges {
            let name = bridge.options.name.as_str();
            let ports = bridge.ports_other_than(bridges.kept_bridge(name));
            new.extend(ports.iter().map(|port| (name, *port)));
        }
        if policy == ApplyPolicy::Continuous {
            // The sort is stable: ports of equal precedence keep their order.
            new.sort_by_key(|(_, port)| (port.options.number == 0, port.last_number == 0));
        }
        let stays = |(bridge, port): &(&str, &DeclaredPort)| {
            old.get(port.options.name.as_str()).is_some_and(|(old_bridge, old)| {
                old_bridge == bridge && is_same_port(&old.options, &port.options)
            })
        };
        let kept: BTreeSet<_> = new.iter().filter(|own| stays(own)).map(port_name).collect();
        let replaced = old.keys().copied().filter(|name| !kept.contains(name)).collect();
        Self { old, new, replaced }
    }

    /// Returns the names of the ports that are removed and added again.
    fn removed_ports(&self) -> impl Iterator<Item = &'a str> {
        self.replaced.iter().copied()
    }

    /// Returns the additions of ports, and the changes of ports that stay.
    fn changes(&self, policy: ApplyPolicy) -> Vec<StateChange> {
        let mut changes = Vec::new();
        for (bridge, port) in &self.new {
            let name = port.options.name.as_str();
            // A port that stays in another bridge is added, which the switch refuses.
            let stays = |(old_bridge, _): &&(&str, &DeclaredPort)| {
                old_bridge == bridge && !self.replaced.contains(name)
            };
            match self.old.get(name).filter(stays) {
                Some((_, old)) => changes.extend(port_changes(&old.options, &port.options)),
                None => changes.push(StateChange::AddPort {
                    bridge: (*bridge).to_owned(),
                    port: Arc::clone(&port.options),
                    last_number: policy.last_number(port),
                }),
            }
        }
        changes
    }
}

/// Returns the name of a port.
fn port_name<'a>((_, port): &(&'a str, &'a DeclaredPort)) -> &'a str {
    port.options.name.as_str()
}

/// Returns whether a port can stay, or must be removed and added.
///
/// The port can stay if only keys differ that change at run time, or if the request for its number
/// was removed.
fn is_same_port(old: &PortOptions, new: &PortOptions) -> bool {
    let number = if new.number == 0 { 0 } else { old.number };
    *new == PortOptions { number, ..old.with_runtime_keys_of(new) }
}

/// Returns the changes of an open port.
fn port_changes(old: &PortOptions, new: &Arc<PortOptions>) -> impl Iterator<Item = StateChange> {
    let of = || Arc::clone(new);
    let changes = [
        (!old.has_vlans_of(new)).then(|| StateChange::SetVlans(of())),
        (old.ingress_policing() != new.ingress_policing()).then(|| StateChange::SetPolicing(of())),
        (old.qos != new.qos).then(|| StateChange::SetQos(of())),
        (old.bfd != new.bfd).then(|| StateChange::SetBfd(of())),
        (old.mtu != new.mtu).then(|| StateChange::SetMtu(of())),
        (old.mac != new.mac).then(|| StateChange::SetMac(of())),
    ];
    changes.into_iter().flatten()
}

impl ApplyPolicy {
    /// Returns whether a bridge must be removed and added to get new options.
    fn replaces(self, old: &BridgeOptions, new: &BridgeOptions) -> bool {
        self == Self::Continuous && old.local != new.local
    }

    /// Returns the options with which a bridge is added.
    ///
    /// With `Continuous` the remaining options are set afterwards, so that a wrong value does not
    /// prevent the bridge.
    pub(super) fn first_options(self, new: &BridgeOptions) -> BridgeOptions {
        match self {
            Self::Once => new.clone(),
            Self::Continuous => BridgeOptions {
                datapath_id: String::new(),
                controllers: Vec::new(),
                listen: Vec::new(),
                bonds: Vec::new(),
                mirrors: Vec::new(),
                sflow: SflowOptions::default(),
                netflow: NetflowOptions::default(),
                ipfix: IpfixOptions::default(),
                collector_sets: Vec::new(),
                ..new.clone()
            },
        }
    }

    /// Returns the former number of a port; zero if it has none.
    const fn last_number(self, port: &DeclaredPort) -> u32 {
        match self {
            Self::Once => 0,
            Self::Continuous => port.last_number,
        }
    }
}

/// Returns the settings of two states, in which the bridge of the NIC is named.
///
/// The name is filled in only if both states omit it. The default is the first bridge, so it
/// changes when a state renames that bridge.
pub(crate) fn with_nic_bridges(states: [&DesiredState; 2]) -> [Option<Config>; 2] {
    let is_default = states.iter().all(|state| {
        state.settings.as_ref().is_some_and(|settings| {
            let offload = &settings.caches.gigaflow.offload;
            !offload.is_none() && offload.bridge.is_empty() && !state.bridges.is_empty()
        })
    });
    states.map(|state| {
        let mut settings = state.settings.as_deref().cloned()?;
        if let Some(first) = state.bridges.first().filter(|_| is_default) {
            settings.caches.gigaflow.offload.bridge.clone_from(&first.options.name);
        }
        Some(settings)
    })
}
