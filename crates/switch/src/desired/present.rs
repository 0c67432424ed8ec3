//! The present state of declared objects.

use std::sync::Arc;

use shunt_flow::PortNo;

use super::{
    apply::{ApplyPolicy, apply},
    object::ObjectId,
    report::ApplyReport,
    state::{DeclaredBridge, DeclaredPort, DesiredState},
};
use crate::{
    config::{PortOptions, mac_text},
    ports::{port::BridgePort, registry::BridgeState},
    switch::Switch,
};

/// The present state of the objects of a declared state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresentState {
    /// The objects that exist, with the options in force.
    ///
    /// A port has the number that was declared. If the configured address is not in force, the
    /// address of the device takes its place, with a zero in front. No desired state has this text,
    /// so a difference sets or clears the address.
    pub state: DesiredState,
    /// The bridges and ports that do not exist any more.
    pub missing: Vec<ObjectId>,
    /// The number of changes of ports and their options before this state.
    ///
    /// If [`ApplyReport::ports_revision`] of an earlier call was smaller, another caller has
    /// changed ports since that call.
    pub ports_revision: u64,
}

impl Switch {
    /// Returns the present state of the objects in `declared`.
    ///
    /// Options in force that are equal to the declared options are shared with them.
    #[must_use]
    pub fn present_state(&self, declared: &DesiredState) -> PresentState {
        let bridges = self.control.bridges.lock();
        let ports_revision = bridges.ports_revision();
        let mut present = PresentState { ports_revision, ..PresentState::default() };
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

    /// Applies a difference, unless ports have changed since the present state.
    ///
    /// The call is [`Self::apply_difference`], except that it changes nothing and returns `None`
    /// if another caller has changed ports after [`Self::present_state`]. The comparison with the
    /// desired state must then be repeated.
    pub async fn apply_to_present(
        &self,
        present: &PresentState,
        desired: &DesiredState,
        policy: ApplyPolicy,
        fill: &mut (dyn FnMut(&str) + Send),
    ) -> Option<ApplyReport> {
        let structure = self.control.structure().await;
        let revision = structure.bridges().lock().ports_revision();
        if revision != present.ports_revision {
            return None;
        }
        Some(apply(&structure, &present.state, desired, policy, fill).await)
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
    if let Some(mac) = other_local_mac(bridge) {
        Arc::make_mut(&mut options).mac = mac;
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
    if let Some(mac) = other_mac(port, bridge) {
        Arc::make_mut(&mut options).mac = mac;
    }
    options
}

/// Returns the address of the local port if it is not the configured one.
///
/// The text equals the one from [`other_mac`].
pub(super) fn other_local_mac(bridge: &BridgeState) -> Option<String> {
    other_mac(bridge.ports.get(PortNo::LOCAL)?, bridge)
}

/// Returns the address of a device that does not have its configured address.
///
/// The text has one more zero than the text of a desired address, which may be equal to the
/// address of the device, or empty. Each of these is then a change of the configured address. The
/// text is a valid address, because options may keep the present one.
fn other_mac(port: &BridgePort, bridge: &BridgeState) -> Option<String> {
    port.mac_problem(bridge)?;
    Some(format!("0{}", mac_text(port.device?.mac)))
}

#[cfg(test)]
mod tests {
    use shunt_datapath::port::HostDeviceState;

    use super::*;
    use crate::{
        config::{BridgeOptions, Config, PortType, mac::parse_mac},
        desired::{change::StateChange, difference::difference},
    };

    /// The address in the configuration.
    const CONFIGURED: &str = "02:00:00:00:00:0b";
    /// The address of the device.
    const OF_DEVICE: &str = "02:00:00:00:00:0d";

    /// Returns a declared bridge with a MAC address.
    fn bridge(mac: &str) -> DeclaredBridge {
        let (name, kind, own) = ("p1".to_owned(), PortType::Null, mac.to_owned());
        let ports = vec![PortOptions { name, kind, mac: own, ..PortOptions::default() }];
        let (name, mac) = ("br0".to_owned(), mac.to_owned());
        DeclaredBridge::of(&BridgeOptions { name, mac, ports, ..BridgeOptions::default() })
    }

    /// Returns the changes from one bridge to another.
    fn changes(present: &DeclaredBridge, desired: &DeclaredBridge) -> Vec<String> {
        let [present, desired] = [present, desired]
            .map(|bridge| DesiredState { settings: None, bridges: vec![bridge.clone()] });
        let changes = difference(&present, &desired, ApplyPolicy::Continuous).changes;
        changes.iter().map(StateChange::description).collect()
    }

    /// Gives a port an open device with another address than the configured one.
    fn set_other_mac(port: &mut BridgePort) {
        let mac = parse_mac("mac", OF_DEVICE).unwrap();
        port.device = Some(HostDeviceState { index: 1, is_up: true, mac, mtu: 1500 });
    }

    /// An address that a device refused stays until a state clears or replaces it.
    #[tokio::test]
    async fn a_refused_address_can_be_cleared() {
        let switch = Switch::start(&Config::default(), None, 1).await.unwrap();
        switch.add_bridge(&bridge("").bridge_options()).await.unwrap();
        let declared = bridge(CONFIGURED);
        let present = {
            let mut bridges = switch.control.bridges.lock();
            let id = bridges.find("br0").unwrap().id;
            let own = bridges.by_id_mut(id).unwrap();
            CONFIGURED.clone_into(&mut own.settings.mac);
            let port = own.ports.get_mut(PortNo::new(1)).unwrap();
            CONFIGURED.clone_into(&mut port.settings.mac);
            set_other_mac(port);
            let of_port = present_bridge(&declared, own, &mut Vec::new());
            // The local port has the device now.
            let open = own.ports.get_mut(PortNo::new(1)).unwrap().open.take();
            let local = own.ports.get_mut(PortNo::LOCAL).unwrap();
            local.open = open;
            set_other_mac(local);
            let of_bridge = present_bridge(&declared, own, &mut Vec::new());
            DeclaredBridge { options: of_bridge.options, ports: of_port.ports }
        };
        for mac in [CONFIGURED, OF_DEVICE, ""] {
            let set = [format!("bridge br0: mac={mac}"), "port p1: MAC address set".to_owned()];
            assert_eq!(changes(&present, &bridge(mac)), set, "{mac:?}");
        }
        assert!(parse_mac("mac", &present.options.mac).is_ok(), "{}", present.options.mac);
    }
}
