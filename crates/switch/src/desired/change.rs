//! One change of a switch, with its description and its inverse.

use std::sync::Arc;

use super::{object::ObjectId, report::ObjectOutcome, state::DesiredState};
use crate::config::{
    BondOptions, BridgeOptions, CollectorSetOptions, Config, MirrorOptions, PortOptions,
    changed_settings::ChangedSettings,
};

/// One change; the variants are in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateChange {
    RemovePort(String),
    /// Removes a bridge; `replacement` has the options of the bridge that replaces it.
    RemoveBridge {
        /// The name of the bridge.
        name: String,
        replacement: Option<Arc<BridgeOptions>>,
    },
    AddBridge(Arc<BridgeOptions>),
    AddPort {
        /// The name of the bridge.
        bridge: String,
        port: Arc<PortOptions>,
        /// The number that the port had before; 0 if it had none.
        last_number: u32,
    },
    SetVlans(Arc<PortOptions>),
    SetPolicing(Arc<PortOptions>),
    SetQos(Arc<PortOptions>),
    SetBfd(Arc<PortOptions>),
    /// Replaces all bonds of a bridge.
    SetBonds {
        bridge: String,
        bonds: Vec<BondOptions>,
    },
    /// Adds a bond, or replaces the bond of the same name.
    SetBond {
        bridge: String,
        bond: BondOptions,
    },
    SetMtu(Arc<PortOptions>),
    SetMac(Arc<PortOptions>),
    RemoveMirror {
        bridge: String,
        name: String,
    },
    SetMirror {
        bridge: String,
        mirror: MirrorOptions,
    },
    SetCollectorSets {
        bridge: String,
        sets: Vec<CollectorSetOptions>,
    },
    /// Sets the MTU of the local port of a bridge.
    SetBridgeMtu {
        bridge: String,
        mtu: u32,
    },
    SetBridge {
        bridge: String,
        object: ObjectId,
        settings: ChangedSettings<BridgeOptions>,
    },
    Set(ChangedSettings<Config>),
}

impl StateChange {
    /// Returns the object that changes.
    pub(super) fn object(&self) -> ObjectId {
        match self {
            Self::RemovePort(name) => ObjectId::Port(name.clone()),
            Self::RemoveBridge { name, .. } => ObjectId::Bridge(name.clone()),
            Self::AddBridge(bridge) => ObjectId::Bridge(bridge.name.clone()),
            Self::AddPort { port, .. }
            | Self::SetVlans(port)
            | Self::SetPolicing(port)
            | Self::SetQos(port)
            | Self::SetBfd(port)
            | Self::SetMtu(port)
            | Self::SetMac(port) => ObjectId::Port(port.name.clone()),
            Self::SetBonds { bridge, .. } => ObjectId::Bonds(bridge.clone()),
            Self::SetBond { bond, .. } => ObjectId::Bond(bond.name.clone()),
            Self::RemoveMirror { bridge, name }
            | Self::SetMirror { bridge, mirror: MirrorOptions { name, .. } } => {
                ObjectId::Mirror { bridge: bridge.clone(), name: name.clone() }
            }
            Self::SetCollectorSets { bridge, .. } => ObjectId::CollectorSets(bridge.clone()),
            Self::SetBridgeMtu { bridge, .. } => ObjectId::Bridge(bridge.clone()),
            Self::SetBridge { object, .. } => object.clone(),
            Self::Set(_) => ObjectId::Settings,
        }
    }

    /// Returns the outcome of the change if it is in force.
    pub(super) const fn success(&self) -> ObjectOutcome {
        match self {
            Self::RemovePort(_) | Self::RemoveBridge { .. } | Self::RemoveMirror { .. } => {
                ObjectOutcome::Removed
            }
            Self::AddBridge(_) | Self::AddPort { .. } => ObjectOutcome::Added,
            Self::SetVlans(_)
            | Self::SetPolicing(_)
            | Self::SetQos(_)
            | Self::SetBfd(_)
            | Self::SetBonds { .. }
            | Self::SetBond { .. }
            | Self::SetMtu(_)
            | Self::SetMac(_)
            | Self::SetMirror { .. }
            | Self::SetCollectorSets { .. }
            | Self::SetBridgeMtu { .. }
            | Self::SetBridge { .. }
            | Self::Set(_) => ObjectOutcome::Changed,
        }
    }

    /// Returns the outcome of the change if it was refused.
    pub(super) fn refusal(&self, reason: String) -> ObjectOutcome {
        match self.success() {
            ObjectOutcome::Removed => ObjectOutcome::NotRemoved(reason),
            ObjectOutcome::Added | ObjectOutcome::AddedDown(_) => ObjectOutcome::NotAdded(reason),
            ObjectOutcome::Changed
            | ObjectOutcome::NotAdded(_)
            | ObjectOutcome::NotRemoved(_)
            | ObjectOutcome::NotChanged(_)
            | ObjectOutcome::AtRestart => ObjectOutcome::NotChanged(reason),
        }
    }

    /// Returns the bridge that must exist for the change, if it is known.
    pub(super) fn bridge(&self) -> Option<&str> {
        match self {
            Self::AddBridge(bridge) => Some(&bridge.name),
            Self::AddPort { bridge, .. }
            | Self::SetBonds { bridge, .. }
            | Self::SetBond { bridge, .. }
            | Self::RemoveMirror { bridge, .. }
            | Self::SetMirror { bridge, .. }
            | Self::SetCollectorSets { bridge, .. }
            | Self::SetBridgeMtu { bridge, .. }
            | Self::SetBridge { bridge, .. } => Some(bridge),
            Self::RemovePort(_)
            | Self::RemoveBridge { .. }
            | Self::SetVlans(_)
            | Self::SetPolicing(_)
            | Self::SetQos(_)
            | Self::SetBfd(_)
            | Self::SetMtu(_)
            | Self::SetMac(_)
            | Self::Set(_) => None,
        }
    }

    /// Undoes the change in `state`; `present` is the state before all changes.
    pub(crate) fn undo(&self, present: &DesiredState, state: &mut DesiredState) {
        match self {
            Self::AddBridge(bridge) => state.bridges.retain(|own| own.options.name != bridge.name),
            Self::AddPort { bridge, port, .. } => {
                // Another bridge may have the port, which is the reason of the refusal.
                if let Some(own) = state.bridge_mut(bridge) {
                    own.ports.retain(|own| own.options.name != port.name);
                }
            }
            Self::RemoveBridge { name, .. } => {
                state.bridges.retain(|own| own.options.name != *name);
                state.bridges.extend(present.bridge(name).cloned());
            }
            Self::RemovePort(name) => undo_port(name, present, state),
            Self::SetVlans(port)
            | Self::SetPolicing(port)
            | Self::SetQos(port)
            | Self::SetBfd(port)
            | Self::SetMtu(port)
            | Self::SetMac(port) => self.undo_key(&port.name, present, state),
            Self::SetBonds { bridge, .. } => with_both(bridge, present, state, |old, own| {
                own.bonds = kept_bonds(&old.bonds, &own.bonds);
            }),
            Self::SetBond { bridge, bond } => with_both(bridge, present, state, |old, own| {
                own.bonds.retain(|own| own.name != bond.name);
                own.bonds.extend(old.bonds.iter().find(|old| old.name == bond.name).cloned());
            }),
            Self::RemoveMirror { bridge, name }
            | Self::SetMirror { bridge, mirror: MirrorOptions { name, .. } } => {
                let old = present.bridge(bridge).map(|own| &own.options.mirrors);
                let old = old.into_iter().flatten().find(|own| own.name == *name);
                if let Some(own) = state.bridge_mut(bridge) {
                    let own = Arc::make_mut(&mut own.options);
                    own.mirrors.retain(|own| own.name != *name);
                    own.mirrors.extend(old.cloned());
                }
            }
            Self::SetCollectorSets { bridge, .. } => {
                with_both(bridge, present, state, |old, own| {
                    own.collector_sets.clone_from(&old.collector_sets);
                });
            }
            Self::SetBridgeMtu { bridge, .. } => {
                with_both(bridge, present, state, |old, own| own.mtu = old.mtu);
            }
            Self::SetBridge { bridge, settings, .. } => {
                with_both(bridge, present, state, |old, own| settings.undo(old, own));
            }
            Self::Set(settings) => {
                if let (Some(old), Some(own)) = (&present.settings, &mut state.settings) {
                    settings.undo(old, Arc::make_mut(own));
                }
            }
        }
    }

    /// Undoes the change of a port; the other options of the port stay.
    fn undo_key(&self, name: &str, present: &DesiredState, state: &mut DesiredState) {
        let Some((bridge, old)) = present.port(name) else { return };
        let Some(bridge) = state.bridge_mut(bridge) else { return };
        let Some(own) = bridge.ports.iter_mut().find(|own| own.options.name == name) else {
            return;
        };
        let (old, own) = (&*old.options, Arc::make_mut(&mut own.options));
        match self {
            Self::SetVlans(_) => *own = own.with_vlans_of(old),
            Self::SetPolicing(_) => *own = own.with_ingress_policing_of(old),
            Self::SetQos(_) => own.qos.clone_from(&old.qos),
            Self::SetBfd(_) => own.bfd.clone_from(&old.bfd),
            Self::SetMtu(_) => own.mtu = old.mtu,
            Self::SetMac(_) => own.mac.clone_from(&old.mac),
            _ => {}
        }
    }

    /// Returns the change as text, such as `port eth1: removed`.
    pub(crate) fn description(&self) -> String {
        self.text("")
    }

    /// Returns the text of a refused change, such as `port eth1: not removed`.
    pub(super) fn refused_description(&self) -> String {
        self.text("not ")
    }

    /// Returns the change as text; `not` is the word before its verb.
    fn text(&self, not: &str) -> String {
        match self {
            Self::RemovePort(name) => format!("port {name}: {not}removed"),
            Self::RemoveBridge { name, .. } => format!("bridge {name}: {not}removed"),
            Self::AddBridge(bridge) => format!("bridge {}: {not}added", bridge.name),
            Self::AddPort { bridge, port, .. } => {
                format!("port {}: {not}added to {bridge}", port.name)
            }
            Self::SetVlans(port) => {
                format!("port {}: VLANs {not}set: {}", port.name, port.vlans_text())
            }
            Self::SetPolicing(port) => format!("port {}: ingress policing {not}set", port.name),
            Self::SetQos(port) => format!("port {}: QoS {not}set", port.name),
            Self::SetBfd(port) => format!("port {}: BFD {not}set", port.name),
            Self::SetBonds { bridge, .. } => format!("bridge {bridge}: bonds {not}set"),
            Self::SetBond { bridge, bond } => format!("bond {}: {not}set on {bridge}", bond.name),
            Self::SetMtu(port) if port.mtu == 0 => {
                format!("port {}: MTU {not}left to the device", port.name)
            }
            Self::SetMtu(port) => format!("port {}: MTU {not}set to {}", port.name, port.mtu),
            Self::SetMac(port) => format!("port {}: MAC address {not}set", port.name),
            Self::RemoveMirror { bridge, name } => {
                format!("mirror {name}: {not}removed from {bridge}")
            }
            Self::SetMirror { bridge, mirror } => {
                format!("mirror {}: {not}set on {bridge}", mirror.name)
            }
            Self::SetCollectorSets { bridge, .. } => {
                format!("bridge {bridge}: collector sets {not}changed")
            }
            Self::SetBridgeMtu { bridge, mtu } => format!("bridge {bridge}: mtu={mtu}"),
            Self::SetBridge { bridge, settings, .. } => {
                format!("bridge {bridge}: {}", settings.words())
            }
            Self::Set(settings) => settings.words(),
        }
    }
}

/// Returns the bonds in `old` of which the name is also in `new`.
pub(super) fn kept_bonds(old: &[BondOptions], new: &[BondOptions]) -> Vec<BondOptions> {
    let stays = |bond: &&BondOptions| new.iter().any(|other| other.name == bond.name);
    old.iter().filter(stays).cloned().collect()
}

/// Removes a port from the desired state.
fn remove_port(state: &mut DesiredState, name: &str) {
    for bridge in &mut state.bridges {
        bridge.ports.retain(|port| port.options.name != name);
    }
}

/// Replaces a port in `state` by the port in `present`.
fn undo_port(name: &str, present: &DesiredState, state: &mut DesiredState) {
    let Some((bridge, port)) = present.port(name) else { return };
    remove_port(state, name);
    if let Some(own) = state.bridge_mut(bridge) {
        own.ports.push(port.clone());
    }
}

/// Calls `change` with the options of a bridge in both states.
///
/// A bridge that only `state` has was added without any option.
fn with_both(
    bridge: &str,
    present: &DesiredState,
    state: &mut DesiredState,
    change: impl FnOnce(&BridgeOptions, &mut BridgeOptions),
) {
    let old = present.bridge(bridge).map_or_else(Arc::default, |old| Arc::clone(&old.options));
    if let Some(own) = state.bridge_mut(bridge) {
        change(&old, Arc::make_mut(&mut own.options));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_mtu_is_left_to_the_device() {
        let text = |mtu| {
            let port = PortOptions { name: "p1".into(), mtu, ..PortOptions::default() };
            StateChange::SetMtu(Arc::new(port)).description()
        };
        assert_eq!(text(0), "port p1: MTU left to the device");
        assert_eq!(text(1500), "port p1: MTU set to 1500");
    }
}
