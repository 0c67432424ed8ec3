//! Bridges and ports as the rows of a database describe them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::{
    ControllerEndpoint, EndpointError,
    config::{BridgeOptions, LocalPort, PortOptions, PortType, PortVlanMode, SocketMode},
    with_causes,
};

use super::{
    bonds::{bond, interfaces},
    mirrors::{DesiredMirrors, mirrors as mirrors_of},
    qos::qos as qos_of,
    sflow::sflow as sflow_of,
};

/// All bridges that the rows describe, and the rows that describe something else.
#[derive(Debug, Default)]
pub(super) struct DesiredBridges {
    /// Bridges by their names.
    pub(super) bridges: BTreeMap<String, DesiredBridge>,
    /// Interfaces that cannot be a port, with the reason.
    pub(super) refused_interfaces: BTreeMap<RowUuid, String>,
    /// Interfaces with a setting that their port does not have, with the reason.
    pub(super) refused_settings: BTreeMap<RowUuid, String>,
    /// Controllers that cannot be used, with the reason.
    pub(super) refused_controllers: BTreeMap<RowUuid, String>,
    /// Mirrors without an output, with the reason.
    pub(super) refused_mirrors: BTreeMap<RowUuid, String>,
    /// Rows in `sFlow` that cannot be used, with the reason.
    pub(super) refused_sflow: BTreeMap<RowUuid, String>,
    /// Folder of the sockets of `dpdkvhostuser` ports.
    vhost_folder: PathBuf,
    /// Set while packets and controllers wait for the rules (`flow-restore-wait`).
    pub(super) waits_for_rules: bool,
}

/// A bridge and its ports.
#[derive(Debug)]
pub(super) struct DesiredBridge {
    /// The bridge, without its ports.
    pub(super) options: BridgeOptions,
    /// Row in `Interface` of the local port.
    pub(super) local: Option<RowUuid>,
    /// The handling of the rule for `NORMAL` that the daemon adds.
    pub(super) normal_rule: NormalRule,
    /// Ports by their names.
    pub(super) ports: BTreeMap<String, DesiredPort>,
    /// Rows in `Mirror` of the mirrors, by their names.
    pub(super) mirrors: DesiredMirrors,
    /// Row in `sFlow`.
    pub(super) sflow: Option<RowUuid>,
}

/// The handling of the rule `priority=0,actions=NORMAL`, which the daemon adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormalRule {
    /// No controller is set, and `fail_mode` is not `secure`: the rule is added.
    Added,
    /// A controller is set: it adds and removes rules.
    Kept,
    /// `fail_mode` is `secure`: the rule is removed.
    Removed,
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

/// The key of `ovs-ctl restart`, in `other_config` of `Open_vSwitch`.
const FLOW_RESTORE_WAIT: &str = "flow-restore-wait";

/// The folder of Open vSwitch for sockets.
///
/// `vhost-sock-dir` names another one below.
const RUN_FOLDER: &str = "/var/run/openvswitch";

impl DesiredBridges {
    /// Reads the rows that the row of `Open_vSwitch` reaches.
    pub(super) fn of(snapshot: &DatabaseSnapshot) -> Self {
        let mut state = Self::default();
        for root in snapshot.rows("Open_vSwitch") {
            let folder = root.entry("other_config", "vhost-sock-dir").unwrap_or_default();
            // Nothing outside is meant, so `..` and a leading `/` are left out.
            let parts = Path::new(folder).components();
            let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
            state.vhost_folder = Path::new(RUN_FOLDER).join(parts.collect::<PathBuf>());
            state.waits_for_rules |= root.entry("other_config", FLOW_RESTORE_WAIT) == Some("true");
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
            ..BridgeOptions::default()
        };
        // A wrong address must not cost a bridge its ports and rules.
        let with_mac = BridgeOptions { mac: text("hwaddr"), ..options.clone() };
        let wrong_mac = match with_mac.mac() {
            Ok(_) => {
                options.mac = with_mac.mac;
                None
            }
            Err(error) => Some(format!("other_config:hwaddr has no effect: {error}")),
        };
        self.add_controllers(snapshot, row, &mut options);
        let has_controller = !options.controllers.is_empty() || !options.listen.is_empty();
        let normal_rule = match row.string("fail_mode") {
            Some("secure") => NormalRule::Removed,
            _ if has_controller => NormalRule::Kept,
            _ => NormalRule::Added,
        };
        if self.waits_for_rules {
            // They could change the rules that are being restored.
            options.controllers.clear();
        }
        let mirrors;
        (options.mirrors, mirrors) = mirrors_of(snapshot, row, &mut self.refused_mirrors);
        let sflow;
        (options.sflow, sflow) = sflow_of(snapshot, row, &mut self.refused_sflow);
        let ports = BTreeMap::new();
        let mut bridge = DesiredBridge { options, local: None, normal_rule, ports, mirrors, sflow };
        for port in row.uuids("ports").filter_map(|uuid| snapshot.row("Port", uuid)) {
            self.add_port(snapshot, &mut bridge, port);
        }
        if let (Some(local), Some(reason)) = (bridge.local, wrong_mac) {
            self.refused_settings.insert(local, reason);
        }
        self.refuse_wrong_bonds(&mut bridge);
        self.bridges.insert(name.to_owned(), bridge);
    }

    /// Leaves out bonds that the switch refuses, with their members.
    ///
    /// Members without their bond would be ports of their own, and close a loop.
    fn refuse_wrong_bonds(&mut self, bridge: &mut DesiredBridge) {
        for bond in std::mem::take(&mut bridge.options.bonds) {
            let members = bond.members.clone();
            bridge.options.bonds.push(bond);
            let ports = bridge.ports.values().map(|port| port.options.clone()).collect();
            let whole = BridgeOptions { ports, ..bridge.options.clone() };
            if let Err(error) = whole.check_bonds() {
                bridge.options.bonds.pop();
                let kept = |name: &&String| {
                    !bridge.options.bonds.iter().any(|bond| bond.members.contains(name))
                };
                let members = members.iter().filter(kept);
                let rows: Vec<_> = members.filter_map(|name| bridge.ports.remove(name)).collect();
                let reason = with_causes(&*error.problem);
                let rows = rows.into_iter().map(|port| (port.interface, reason.clone()));
                self.refused_interfaces.extend(rows);
            }
        }
    }

    /// Adds the controllers of a bridge, each in the form in which the switch shows it.
    fn add_controllers(
        &mut self,
        snapshot: &DatabaseSnapshot,
        bridge: RowView<'_>,
        options: &mut BridgeOptions,
    ) {
        let mut endpoints = BTreeSet::new();
        let rows = bridge.uuids("controller").filter_map(|uuid| snapshot.row("Controller", uuid));
        for row in rows {
            let target = row.string("target").unwrap_or_default();
            let endpoint = target.parse::<ControllerEndpoint>().and_then(|endpoint| {
                let is_new = endpoints.insert(endpoint);
                let repeated = || EndpointError::Repeated(target.to_owned());
                is_new.then_some(endpoint).ok_or_else(repeated)
            });
            match endpoint {
                Ok(endpoint @ ControllerEndpoint::Connect(_)) => {
                    options.controllers.push(endpoint.to_string());
                }
                Ok(endpoint @ ControllerEndpoint::Listen(_)) => {
                    options.listen.push(endpoint.to_string());
                }
                Err(error) => {
                    self.refused_controllers.insert(row.uuid(), error.to_string());
                }
            }
        }
    }

    fn add_port(
        &mut self,
        snapshot: &DatabaseSnapshot,
        bridge: &mut DesiredBridge,
        port: RowView<'_>,
    ) {
        let interfaces = interfaces(snapshot, port);
        let [interface] = interfaces.as_slice() else {
            return self.add_bond(snapshot, bridge, port, &interfaces);
        };
        let name = interface.string("name").unwrap_or_default();
        if name == bridge.options.name {
            bridge.local = Some(interface.uuid());
            bridge.options.local = LocalPort::Tap;
            bridge.options.mtu = self.mtu(*interface);
            self.refuse_policing(*interface);
            if port.uuids("qos").next().is_some() {
                let reason = "local ports have no QoS: set it on the other ports of the bridge";
                self.refused_settings.insert(interface.uuid(), reason.to_owned());
            }
            return;
        }
        if let Some(port) = self.desired_port(snapshot, port, *interface) {
            bridge.ports.insert(name.to_owned(), port);
        }
    }

    /// Adds a bond with its members, which have its VLANs.
    fn add_bond(
        &mut self,
        snapshot: &DatabaseSnapshot,
        bridge: &mut DesiredBridge,
        row: RowView<'_>,
        interfaces: &[RowView<'_>],
    ) {
        let mut members = Vec::new();
        let mut vlans = PortOptions::default();
        for interface in interfaces {
            if let Some(mut member) = self.desired_port(snapshot, row, *interface) {
                vlans = member.options.clone();
                (member.options.vlan_mode, member.options.tag) = (None, None);
                member.options.trunks.clear();
                members.push(member);
            }
        }
        match bond(row, interfaces, &vlans) {
            Ok(bond) => {
                bridge.options.bonds.push(bond);
                let named = members.into_iter().map(|port| (port.options.name.clone(), port));
                bridge.ports.extend(named);
            }
            Err(reason) => {
                let rows = interfaces.iter().map(|interface| (interface.uuid(), reason.clone()));
                self.refused_interfaces.extend(rows);
            }
        }
    }

    /// Returns the port of an interface, or notes why the switch cannot have it.
    fn desired_port(
        &mut self,
        snapshot: &DatabaseSnapshot,
        port: RowView<'_>,
        interface: RowView<'_>,
    ) -> Option<DesiredPort> {
        let mut options = match port_options(port, interface, &self.vhost_folder) {
            Ok(options) => options,
            Err(reason) => {
                self.refused_interfaces.insert(interface.uuid(), reason);
                return None;
            }
        };
        if has_mtu(options.kind) {
            options.mtu = self.mtu(interface);
        }
        if options.kind == PortType::Patch {
            self.refuse_policing(interface);
        } else {
            set_ingress_policing(&mut options, interface);
        }
        self.set_qos(snapshot, port, &mut options, interface);
        let last_number = unsigned(interface.integer("ofport"));
        Some(DesiredPort { options, last_number, interface: interface.uuid() })
    }

    /// Returns the requested MTU.
    ///
    /// Notes a wrong one and returns 0, so that the port stays.
    fn mtu(&mut self, interface: RowView<'_>) -> u32 {
        let Some(request) = interface.integer("mtu_request") else { return 0 };
        let range = PortOptions::MTUS;
        let mtu = u32::try_from(request).ok().filter(|mtu| range.contains(mtu));
        mtu.unwrap_or_else(|| {
            let (min, max) = (range.start(), range.end());
            let reason = format!("mtu_request {request} has no effect: it must be {min} to {max}");
            self.refused_settings.insert(interface.uuid(), reason);
            0
        })
    }

    /// Sets the QoS of a port, or notes why the port cannot have it.
    fn set_qos(
        &mut self,
        snapshot: &DatabaseSnapshot,
        port: RowView<'_>,
        options: &mut PortOptions,
        interface: RowView<'_>,
    ) {
        let reason = match qos_of(snapshot, port) {
            Ok(Some(_)) if options.kind == PortType::Patch => {
                "patch ports have no QoS: set it on the ports from which packets leave".to_owned()
            }
            Ok(qos) => {
                options.qos = qos;
                return;
            }
            Err(reason) => reason,
        };
        self.refused_settings.insert(interface.uuid(), reason);
    }

    /// Notes that an interface cannot have its ingress policing.
    fn refuse_policing(&mut self, interface: RowView<'_>) {
        let mut limits = PortOptions::default();
        set_ingress_policing(&mut limits, interface);
        if limits.ingress_policing_rate > 0 || limits.ingress_policing_kpkts_rate > 0 {
            let reason = "local ports and patch ports have no ingress policing: limit the ports \
                          at which packets arrive";
            self.refused_settings.insert(interface.uuid(), reason.to_owned());
        }
    }
}

fn set_ingress_policing(options: &mut PortOptions, interface: RowView<'_>) {
    let limit = |column| unsigned(interface.integer(column));
    options.ingress_policing_rate = limit("ingress_policing_rate");
    options.ingress_policing_burst = limit("ingress_policing_burst");
    options.ingress_policing_kpkts_rate = limit("ingress_policing_kpkts_rate");
    options.ingress_policing_kpkts_burst = limit("ingress_policing_kpkts_burst");
}

fn port_options(
    port: RowView<'_>,
    interface: RowView<'_>,
    vhost_folder: &Path,
) -> Result<PortOptions, String> {
    let kind = match interface.string("type").unwrap_or_default() {
        "" | "system" => PortType::AfPacket,
        "internal" | "tap" => PortType::Tap,
        "afxdp" => PortType::AfXdp,
        "dpdkvhostuserclient" | "dpdkvhostuser" => PortType::VhostUser,
        "dpdk" => PortType::Dpdk,
        "null" => PortType::Null,
        "patch" => PortType::Patch,
        other => {
            return Err(format!(
                "interface type {other} is not supported: use system, internal, tap, afxdp, dpdk, dpdkvhostuserclient, patch or null"
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
    let (path, mode) = vhost_socket(interface, vhost_folder)?;
    let (devargs, queues) = if kind == PortType::Dpdk { dpdk_device(interface)? } else { ("", 0) };
    let vlan = |id: i64| u16::try_from(id).ok();
    let tag = port.integer("tag").and_then(vlan);
    let trunks = port.integers("trunks").filter_map(vlan);
    let is_access = vlan_mode == Some(PortVlanMode::Access) || vlan_mode.is_none() && tag.is_some();
    Ok(PortOptions {
        name: interface.string("name").unwrap_or_default().to_owned(),
        number: unsigned(interface.integer("ofport_request")),
        kind,
        peer: if kind == PortType::Patch { peer.to_owned() } else { String::new() },
        devargs: devargs.to_owned(),
        queues,
        path,
        mode,
        vlan_mode,
        // As in Open vSwitch, a trunk port ignores its tag, and an access port its trunks.
        tag: tag.filter(|_| vlan_mode != Some(PortVlanMode::Trunk)),
        trunks: if is_access { Vec::new() } else { trunks.collect() },
        ..PortOptions::default()
    })
}

/// Returns the socket of a vhost-user port; an empty path for any other port.
///
/// A `dpdkvhostuserclient` connects to `options:vhost-server-path`. A `dpdkvhostuser` listens at a path
/// that has its name.
fn vhost_socket(interface: RowView<'_>, folder: &Path) -> Result<(PathBuf, SocketMode), String> {
    let name = interface.string("name").unwrap_or_default();
    match interface.string("type") {
        Some("dpdkvhostuser") if name.contains('/') => {
            Err("a dpdkvhostuser port listens at a socket of its name: choose one without `/`"
                .to_owned())
        }
        Some("dpdkvhostuser") => Ok((folder.join(name), SocketMode::Server)),
        Some("dpdkvhostuserclient") => {
            let path = interface.entry("options", "vhost-server-path").unwrap_or_default();
            if !path.starts_with('/') {
                return Err(
                    "a dpdkvhostuserclient port needs options:vhost-server-path: the absolute \
                            path of the socket at which the hypervisor listens"
                        .to_owned(),
                );
            }
            Ok((path.into(), SocketMode::Client))
        }
        _ => Ok((PathBuf::new(), SocketMode::default())),
    }
}

/// Returns the devargs and the number of receive queues of a DPDK port.
fn dpdk_device<'a>(interface: RowView<'a>) -> Result<(&'a str, u16), String> {
    let devargs = interface.entry("options", "dpdk-devargs").unwrap_or_default();
    if devargs.is_empty() {
        return Err("a dpdk port needs options:dpdk-devargs: a driver with a number, such as \
                    net_null0, or a PCI address, such as 0000:01:00.0"
            .to_owned());
    }
    let queues = match interface.entry("options", "n_rxq") {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            format!("options:n_rxq {text} is not a number of queues: use 1 to 65535")
        })?,
    };
    Ok((devargs, queues))
}

const fn has_mtu(kind: PortType) -> bool {
    matches!(kind, PortType::AfPacket | PortType::AfXdp | PortType::Tap | PortType::Dpdk)
}

fn unsigned(value: Option<i64>) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).unwrap_or_default()
}
