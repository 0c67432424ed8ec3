//! Bridges and ports as the rows of a database describe them.

use std::collections::BTreeMap;

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::config::{BridgeOptions, LocalPort, PortOptions, PortType, PortVlanMode};

/// All bridges that the rows describe, and the rows that describe something else.
#[derive(Debug, Default)]
pub(super) struct DesiredBridges {
    /// Bridges by their names.
    pub(super) bridges: BTreeMap<String, DesiredBridge>,
    /// Interfaces that cannot be a port, with the reason.
    pub(super) refused_interfaces: BTreeMap<RowUuid, String>,
    /// Controllers that cannot be used, with the reason.
    pub(super) refused_controllers: BTreeMap<RowUuid, String>,
}

/// A bridge and its ports.
#[derive(Debug)]
pub(super) struct DesiredBridge {
    /// The bridge, without its ports.
    pub(super) options: BridgeOptions,
    /// Row in `Interface` of the local port.
    pub(super) local: Option<RowUuid>,
    /// Set if the bridge forwards by `NORMAL` until a controller adds rules.
    pub(super) is_standalone: bool,
    /// Ports by their names.
    pub(super) ports: BTreeMap<String, DesiredPort>,
}

/// A port of a bridge.
#[derive(Debug)]
pub(super) struct DesiredPort {
    pub(super) options: PortOptions,
    /// Number before the last stop, which the port gets again if it is free.
    pub(super) last_number: u32,
    /// Row in `Interface`.
    pub(super) interface: RowUuid,
}

impl DesiredBridges {
    /// Reads the rows that the row of `Open_vSwitch` reaches.
    pub(super) fn of(snapshot: &DatabaseSnapshot) -> Self {
        let mut state = Self::default();
        for root in snapshot.rows("Open_vSwitch") {
            for bridge in root.uuids("bridges").filter_map(|uuid| snapshot.row("Bridge", uuid)) {
                state.add_bridge(snapshot, bridge);
            }
        }
        state
    }

    fn add_bridge(&mut self, snapshot: &DatabaseSnapshot, row: RowView<'_>) {
        let name = row.string("name").unwrap_or_default();
        let text = |key| row.entry("other_config", key).unwrap_or_default().to_owned();
        let mut options = BridgeOptions {
            name: name.to_owned(),
            datapath_id: text("datapath-id"),
            mac: text("hwaddr"),
            ..BridgeOptions::default()
        };
        let controllers = row.uuids("controller");
        for controller in controllers.filter_map(|uuid| snapshot.row("Controller", uuid)) {
            let target = controller.string("target").unwrap_or_default();
            match controller_address(target) {
                Ok(ControllerAddress::Connect(address)) => options.controllers.push(address),
                Ok(ControllerAddress::Listen(address)) => options.listen.push(address),
                Err(reason) => drop(self.refused_controllers.insert(controller.uuid(), reason)),
            }
        }
        let has_controller = !options.controllers.is_empty() || !options.listen.is_empty();
        let is_standalone = row.string("fail_mode") != Some("secure") && !has_controller;
        let mut bridge =
            DesiredBridge { options, local: None, is_standalone, ports: BTreeMap::new() };
        for port in row.uuids("ports").filter_map(|uuid| snapshot.row("Port", uuid)) {
            self.add_port(snapshot, &mut bridge, port);
        }
        self.bridges.insert(name.to_owned(), bridge);
    }

    fn add_port(
        &mut self,
        snapshot: &DatabaseSnapshot,
        bridge: &mut DesiredBridge,
        port: RowView<'_>,
    ) {
        let interfaces: Vec<RowView<'_>> =
            port.uuids("interfaces").filter_map(|uuid| snapshot.row("Interface", uuid)).collect();
        let [interface] = interfaces.as_slice() else {
            for interface in interfaces {
                let reason = "bonds are not supported: give the port one interface";
                self.refused_interfaces.insert(interface.uuid(), reason.to_owned());
            }
            return;
        };
        let name = interface.string("name").unwrap_or_default();
        if name == bridge.options.name {
            bridge.local = Some(interface.uuid());
            bridge.options.local = LocalPort::Tap;
            bridge.options.mtu = unsigned(interface.integer("mtu_request"));
            return;
        }
        match port_options(port, *interface) {
            Ok(options) => {
                let last_number = unsigned(interface.integer("ofport"));
                let port = DesiredPort { options, last_number, interface: interface.uuid() };
                bridge.ports.insert(name.to_owned(), port);
            }
            Err(reason) => drop(self.refused_interfaces.insert(interface.uuid(), reason)),
        }
    }
}

fn port_options(port: RowView<'_>, interface: RowView<'_>) -> Result<PortOptions, String> {
    let kind = match interface.string("type").unwrap_or_default() {
        "" | "system" => PortType::AfPacket,
        "internal" | "tap" => PortType::Tap,
        "afxdp" => PortType::AfXdp,
        "null" => PortType::Null,
        "patch" => PortType::Patch,
        other => {
            return Err(format!(
                "interface type {other} is not supported: use system, internal, tap, afxdp, patch or null"
            ));
        }
    };
    let vlan_mode = match port.string("vlan_mode") {
        None => None,
        Some("access") => Some(PortVlanMode::Access),
        Some("trunk") => Some(PortVlanMode::Trunk),
        Some("native-tagged") => Some(PortVlanMode::NativeTagged),
        Some("native-untagged") => Some(PortVlanMode::NativeUntagged),
        Some(other) => {
            return Err(format!(
                "vlan_mode {other} is not supported: use access, trunk, native-tagged or native-untagged"
            ));
        }
    };
    let peer = interface.entry("options", "peer").unwrap_or_default();
    if kind == PortType::Patch && peer.is_empty() {
        return Err("a patch port needs options:peer: name the port at the other end".to_owned());
    }
    let vlan = |id: i64| u16::try_from(id).ok();
    Ok(PortOptions {
        name: interface.string("name").unwrap_or_default().to_owned(),
        number: unsigned(interface.integer("ofport_request")),
        kind,
        mtu: if has_mtu(kind) { unsigned(interface.integer("mtu_request")) } else { 0 },
        peer: if kind == PortType::Patch { peer.to_owned() } else { String::new() },
        vlan_mode,
        tag: port.integer("tag").and_then(vlan),
        trunks: port.integers("trunks").filter_map(vlan).collect(),
        ..PortOptions::default()
    })
}

/// A supported target of a controller.
#[derive(Debug, PartialEq, Eq)]
enum ControllerAddress {
    Connect(String),
    Listen(String),
}

/// Returns a target with its port, which may be omitted (`ovs-vsctl(8)`).
fn controller_address(target: &str) -> Result<ControllerAddress, String> {
    if let Some(address) = target.strip_prefix("tcp:") {
        let has_port = match address.rsplit_once(']') {
            Some((_, rest)) => rest.starts_with(':'),
            None => address.matches(':').count() == 1,
        };
        let port = if has_port { String::new() } else { format!(":{DEFAULT_PORT}") };
        return Ok(ControllerAddress::Connect(format!("{target}{port}")));
    }
    match target.strip_prefix("ptcp:") {
        Some("") => Ok(ControllerAddress::Listen(format!("{target}{DEFAULT_PORT}"))),
        Some(_) => Ok(ControllerAddress::Listen(target.to_owned())),
        None => {
            Err(format!("target {target} is not supported: use tcp:IP[:PORT] or ptcp:[PORT][:IP]"))
        }
    }
}

/// The port of OpenFlow at IANA.
const DEFAULT_PORT: u16 = 6653;

const fn has_mtu(kind: PortType) -> bool {
    matches!(kind, PortType::AfPacket | PortType::AfXdp | PortType::Tap)
}

fn unsigned(value: Option<i64>) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_targets_get_their_port() {
        let connect = |address: &str| Ok(ControllerAddress::Connect(address.to_owned()));
        let listen = |address: &str| Ok(ControllerAddress::Listen(address.to_owned()));
        assert_eq!(controller_address("tcp:192.0.2.1"), connect("tcp:192.0.2.1:6653"));
        assert_eq!(controller_address("tcp:192.0.2.1:99"), connect("tcp:192.0.2.1:99"));
        assert_eq!(controller_address("tcp:[2001:db8::1]"), connect("tcp:[2001:db8::1]:6653"));
        assert_eq!(controller_address("ptcp:"), listen("ptcp:6653"));
        assert!(controller_address("ssl:192.0.2.1").is_err());
    }
}
