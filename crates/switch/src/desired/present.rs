//! The present state of declared objects.

use std::sync::Arc;

use shunt_flow::PortNo;

use super::{
    object::ObjectId,
    state::{DeclaredBridge, DeclaredPort, DesiredState},
};
use crate::{
    config::PortOptions,
    ports::{port::BridgePort, registry::BridgeState},
    switch::Switch,
};

/// The present state of the objects of a declared state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresentState {
    /// The objects that exist, with the options in force.
    ///
    /// A port has the number that was declared. An address that another program has changed is
    /// empty, so that a difference sets it again.
    pub state: DesiredState,
    /// The bridges and ports that do not exist any more.
    pub missing: Vec<ObjectId>,
}

impl Switch {
    /// Returns the present state of the objects in `declared`.
    ///
    /// Options in force that are equal to the declared options are shared with them.
    #[must_use]
    pub fn present_state(&self, declared: &DesiredState) -> PresentState {
        let bridges = self.control.bridges.lock();
        let mut present = PresentState::default();
        for own in &declared.bridges {
            let name = &own.options.name;
            match bridges.find(name) {
                Ok(bridge) => {
                    let own = present_bridge(own, bridge, &mut present.missing);
                    present.state.bridges.push(own);
                }
                Err(_) => present.missing.push(ObjectId::Bridge(name.clone())),
            }
        }
        present
    }

    /// Returns the number of changes of ports and their options so far.
    #[must_use]
    pub fn ports_revision(&self) -> u64 {
        self.control.bridges.lock().ports_revision()
    }
}

/// Returns a declared bridge with the options in force.
fn present_bridge(
    declared: &DeclaredBridge,
    bridge: &BridgeState,
    missing: &mut Vec<ObjectId>,
) -> DeclaredBridge {
    let mut options = if bridge.settings == *declared.options {
        Arc::clone(&declared.options)
    } else {
        Arc::new(bridge.settings.clone())
    };
    let local = bridge.ports.get(&PortNo::LOCAL);
    let has_other_mac = local.is_some_and(|port| port.mac_problem(bridge).is_some());
    if has_other_mac && !options.mac.is_empty() {
        Arc::make_mut(&mut options).mac.clear();
    }
    let mut ports = Vec::with_capacity(declared.ports.len());
    for own in &declared.ports {
        let name = &own.options.name;
        match bridge.port_named(name) {
            Some(port) => ports.push(DeclaredPort {
                options: present_port(&own.options, port, bridge),
                last_number: port.number.number(),
            }),
            None => missing.push(ObjectId::Port(name.clone())),
        }
    }
    DeclaredBridge { options, ports }
}

/// Returns the options of a declared port, with the runtime options in force.
fn present_port(
    declared: &Arc<PortOptions>,
    port: &BridgePort,
    bridge: &BridgeState,
) -> Arc<PortOptions> {
    let mut options = if declared.has_runtime_keys_of(&port.settings) {
        Arc::clone(declared)
    } else {
        Arc::new(declared.with_runtime_keys_of(&port.settings))
    };
    if !options.mac.is_empty() && port.mac_problem(bridge).is_some() {
        Arc::make_mut(&mut options).mac.clear();
    }
    options
}
