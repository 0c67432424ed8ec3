//! Bridges and ports from the rows of an OVSDB database.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::{
    ControllerEndpoint, EndpointError,
    config::{BfdOptions, BridgeOptions, FailMode, LocalPort, PortOptions, PortType, QosOptions},
    with_causes,
};
use shunt_tls::TlsFiles;

use super::{
    auto_lb::AutoLbRow,
    bfd::bfd as bfd_of,
    bonds::{BondRows, interfaces, refuse_wrong_bonds},
    bridge_rows::{
        datapath_id, fail_mode, is_protocol, set_mac_table, set_snooping, table_limits, table_names,
    },
    cache_limits::CacheLimits,
    exports::{
        DesiredCollectorSets, ExportRows, RefusedExports, collector_sets as collector_sets_of,
        exports as exports_of,
    },
    mirrors::{DesiredMirrors, mirrors as mirrors_of},
    port_readings::{PortReading, PortReadings},
    port_rows::{has_mtu, port_options, set_ingress_policing, set_vlans, unsigned, vlan_mode},
    qos::qos as qos_of,
    tls,
    vlan_limit::vlan_limit,
};

/// All bridges that the rows describe, and rows that the switch refuses.
#[derive(Debug, Default)]
pub(super) struct DesiredBridges {
    /// The described bridges by name.
    pub(super) bridges: BTreeMap<String, DesiredBridge>,
    /// Interfaces that the switch refuses as ports, with the reasons.
    pub(super) refused_interfaces: BTreeMap<RowUuid, String>,
    /// Interfaces with a setting that the switch refuses, with the reasons.
    pub(super) refused_settings: BTreeMap<RowUuid, String>,
    /// Controllers that cannot be used, with the reasons.
    pub(super) refused_controllers: BTreeMap<RowUuid, String>,
    /// Mirrors without an output, with the reasons.
    pub(super) refused_mirrors: BTreeMap<RowUuid, String>,
    /// Rows of sFlow, NetFlow and IPFIX that cannot be used, with the reasons.
    pub(super) refused_exports: RefusedExports,
    /// Directory for the sockets of `dpdkvhostuser` ports.
    vhost_folder: PathBuf,
    /// The rows of bonds.
    pub(super) bonds: BondRows,
    /// The ports that this pass has read or taken over.
    pub(super) readings: PortReadings,
    /// True while ports and controllers wait for restored rules (`flow-restore-wait`).
    pub(super) waits_for_rules: bool,
    /// Moves of receive queues by load.
    pub(super) auto_lb: AutoLbRow,
    /// The limits of the caches.
    pub(super) cache_limits: CacheLimits,
    /// The number of VLAN tags that are parsed; `None`: as configured.
    pub(super) vlan_limit: Option<u8>,
    /// Key and certificates of TLS connections.
    pub(super) tls: Option<TlsFiles>,
}

/// A bridge and its ports.
#[derive(Debug)]
pub(super) struct DesiredBridge {
    /// The options of the bridge, without its ports.
    pub(super) options: BridgeOptions,
    /// Settings of the bridge with a wrong value, which stay as they are.
    kept: KeptSettings,
    /// Row in `Interface` of the local port, if the bridge has a local port.
    pub(super) local: Option<RowUuid>,
    /// Row in `Port` of the local port.
    pub(super) local_row: Option<RowUuid>,
    /// True if rows in `Port` share an interface: ports then depend on other ports.
    pub(super) has_dependent_ports: bool,
    /// The handling of the rule for `NORMAL` that the daemon adds.
    pub(super) normal_rule: NormalRule,
    /// The ports of the bridge by name.
    pub(super) ports: BTreeMap<String, DesiredPort>,
    /// Rows in `Mirror`, by the names of the mirrors.
    pub(super) mirrors: DesiredMirrors,
    /// Rows in `sFlow`, `NetFlow` and `IPFIX` of the bridge.
    pub(super) exports: ExportRows,
    /// Sets of IPFIX collectors for the packets that rules sample.
    pub(super) collector_sets: DesiredCollectorSets,
    /// MAC addresses of active members as last reported, by bond name.
    pub(super) last_active: BTreeMap<String, String>,
}

/// The handling of the rule `priority=0,actions=NORMAL`, which the daemon adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormalRule {
    /// No controller is set, and `fail_mode` is not `secure`: the rule is added.
    Added,
    /// A controller is set: the daemon leaves the rules to the controller.
    Kept,
    /// `fail_mode` is `secure`: the rule is removed.
    Removed,
}

/// A port of a bridge.
#[derive(Clone, Debug)]
pub(super) struct DesiredPort {
    /// The options of the port.
    pub(super) options: Arc<PortOptions>,
    /// Settings of the port with a wrong value, which stay as they are.
    kept: KeptSettings,
    /// Reason why the VLAN settings are wrong.
    ///
    /// A running port then keeps its VLANs, and a new port is not added, because it would be in
    /// VLANs that no one configured.
    pub(super) refused_vlans: Option<String>,
    /// Port number before the last stop, which the port gets again if it is free.
    pub(super) last_number: u32,
    /// Row in `Interface` of the port.
    pub(super) interface: RowUuid,
}

/// Settings of a row with a wrong value; the values in force are kept.
#[derive(Clone, Copy, Debug, Default)]
struct KeptSettings {
    /// True if the MAC address in force is kept.
    mac: bool,
    /// True if the MTU in force is kept.
    mtu: bool,
    /// True if the egress queues in force are kept.
    qos: bool,
}

impl DesiredBridge {
    /// Returns the options to set on the bridge that runs with the options `running`.
    ///
    /// A row with a wrong value leaves the setting of the running bridge.
    pub(super) fn options_for(&self, running: &BridgeOptions) -> BridgeOptions {
        let KeptSettings { mac, mtu, .. } = self.kept;
        let mut options = self.options.clone();
        self.exports.keep_wrong(&mut options, running);
        options.collector_sets = self.collector_sets.options(&running.collector_sets);
        // The database has no columns for these settings.
        options.table_rules = running.table_rules;
        options.table_overflow = running.table_overflow;
        if mac {
            options.mac.clone_from(&running.mac);
        }
        if mtu {
            options.mtu = running.mtu;
        }
        options
    }
}

impl DesiredPort {
    /// Returns the options for a port that runs with other options.
    pub(super) fn options_for(&self, running: &PortOptions) -> Arc<PortOptions> {
        let KeptSettings { mac, mtu, qos } = self.kept;
        if self.refused_vlans.is_none() && !(mac || mtu || qos) {
            return Arc::clone(&self.options);
        }
        let mut options = match &self.refused_vlans {
            None => (*self.options).clone(),
            Some(_) => self.options.with_vlans_of(running),
        };
        if mac {
            options.mac.clone_from(&running.mac);
        }
        if mtu {
            options.mtu = running.mtu;
        }
        if qos {
            options.qos.clone_from(&running.qos);
        }
        Arc::new(options)
    }
}

/// Adds a reason to the reasons of a row.
pub(super) fn add_reason(reasons: &mut BTreeMap<RowUuid, String>, row: RowUuid, reason: &str) {
    let all = reasons.entry(row).or_default();
    if !all.is_empty() {
        all.push_str("; ");
    }
    all.push_str(reason);
}

/// The key that `ovs-ctl restart` sets, in `other_config` of `Open_vSwitch`.
const FLOW_RESTORE_WAIT: &str = "flow-restore-wait";

/// The key in `other_config` of `Open_vSwitch` with the folder of sockets.
pub(super) const VHOST_FOLDER: &str = "vhost-sock-dir";

/// The directory of Open vSwitch for sockets.
const RUN_FOLDER: &str = "/var/run/openvswitch";

impl DesiredBridges {
    /// Reads the rows that the row of `Open_vSwitch` references.
    ///
    /// `earlier` has ports that were read from rows that have not changed.
    pub(super) fn of(snapshot: &DatabaseSnapshot, mut earlier: PortReadings) -> Self {
        let mut state = Self::default();
        for root in snapshot.rows("Open_vSwitch") {
            state.read_root(snapshot, root);
            state.readings = PortReadings::new(state.vhost_folder.clone());
            for row in root.uuids("bridges").filter_map(|uuid| snapshot.row("Bridge", uuid)) {
                let (mut bridge, wrong_mac) = state.read_bridge(snapshot, row);
                for port in row.uuids("ports").filter_map(|uuid| snapshot.row("Port", uuid)) {
                    state.add_port(snapshot, &mut bridge, port, &mut earlier);
                }
                state.add_bridge(bridge, wrong_mac.as_deref());
            }
        }
        state
    }

    /// Reads the settings of the switch from the row of `Open_vSwitch`.
    pub(super) fn read_root(&mut self, snapshot: &DatabaseSnapshot, root: RowView<'_>) {
        let folder = root.entry("other_config", VHOST_FOLDER).unwrap_or_default();
        // The directory must be a subdirectory, so `..` and a leading `/` are ignored.
        let parts = Path::new(folder).components();
        let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
        self.vhost_folder = Path::new(RUN_FOLDER).join(parts.collect::<PathBuf>());
        self.waits_for_rules |= root.entry("other_config", FLOW_RESTORE_WAIT) == Some("true");
        self.auto_lb = AutoLbRow::of(root);
        self.cache_limits = CacheLimits::of(root);
        self.vlan_limit = vlan_limit(root);
        self.tls = tls::files(snapshot, root);
    }

    /// Returns the row in `Interface` of a port or local port.
    pub(super) fn interface(&self, port: &str) -> Option<RowUuid> {
        let local = self.bridges.get(port).and_then(|bridge| bridge.local);
        local.or_else(|| {
            self.bridges.values().find_map(|bridge| Some(bridge.ports.get(port)?.interface))
        })
    }

    /// Returns the MAC addresses of active members as last reported, by bond name.
    pub(super) fn last_active(&self) -> BTreeMap<String, String> {
        let bonds = self.bridges.values().flat_map(|bridge| &bridge.last_active);
        bonds.map(|(bond, address)| (bond.clone(), address.clone())).collect()
    }

    /// Reads the options of a bridge without its ports.
    ///
    /// The function also returns the reason if the MAC address is wrong.
    pub(super) fn read_bridge(
        &mut self,
        snapshot: &DatabaseSnapshot,
        row: RowView<'_>,
    ) -> (DesiredBridge, Option<String>) {
        let name = row.string("name").unwrap_or_default();
        let text = |key| row.entry("other_config", key).unwrap_or_default().to_owned();
        let mut options = BridgeOptions {
            name: name.to_owned(),
            datapath_id: datapath_id(row),
            ..BridgeOptions::default()
        };
        // A wrong MAC address must not cost a bridge its ports and rules.
        set_mac_table(&mut options, row);
        // If the row has no version that the switch supports, the switch uses all supported
        // versions.
        let protocols = row.strings("protocols").filter(|name| is_protocol(name));
        options.protocols = protocols.map(str::to_owned).collect();
        options.table_limits = table_limits(snapshot, row);
        options.table_names = table_names(snapshot, row);
        set_snooping(&mut options, row);
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
        options.fail_mode = fail_mode(row);
        let normal_rule = match options.fail_mode {
            FailMode::Secure => NormalRule::Removed,
            FailMode::Standalone if has_controller => NormalRule::Kept,
            FailMode::Standalone => NormalRule::Added,
        };
        if self.waits_for_rules {
            // Controllers could change the rules that are being restored.
            options.controllers.clear();
        }
        let mirrors;
        (options.mirrors, mirrors) = mirrors_of(snapshot, row, &mut self.refused_mirrors);
        let exports = exports_of(snapshot, row, &mut options, &mut self.refused_exports);
        let refused = &mut self.refused_exports.collector_sets;
        let collector_sets = collector_sets_of(snapshot, row, refused);
        let bridge = DesiredBridge {
            options,
            kept: KeptSettings { mac: wrong_mac.is_some(), ..KeptSettings::default() },
            local: None,
            local_row: None,
            has_dependent_ports: false,
            normal_rule,
            ports: BTreeMap::new(),
            mirrors,
            exports,
            collector_sets,
            last_active: BTreeMap::new(),
        };
        (bridge, wrong_mac)
    }

    /// Adds a bridge with all of its ports.
    pub(super) fn add_bridge(&mut self, mut bridge: DesiredBridge, wrong_mac: Option<&str>) {
        if let (Some(local), Some(reason)) = (bridge.local, wrong_mac) {
            self.refuse_setting(local, reason);
        }
        refuse_wrong_bonds(&mut bridge, &mut self.refused_interfaces);
        self.bridges.insert(bridge.options.name.clone(), bridge);
    }

    /// Adds the controllers of a bridge,
    /// each in the form in which the status prints it.
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
                Ok(endpoint @ ControllerEndpoint::Connect(..)) => {
                    options.controllers.push(endpoint.to_string());
                }
                Ok(endpoint @ ControllerEndpoint::Listen(..)) => {
                    options.listen.push(endpoint.to_string());
                }
                Err(error) => {
                    self.refused_controllers.insert(row.uuid(), error.to_string());
                }
            }
        }
    }

    /// Adds the port or bond of a row in `Port` to a bridge.
    ///
    /// `earlier` has ports that were read from rows that have not changed.
    pub(super) fn add_port(
        &mut self,
        snapshot: &DatabaseSnapshot,
        bridge: &mut DesiredBridge,
        port: RowView<'_>,
        earlier: &mut PortReadings,
    ) {
        let interfaces = interfaces(snapshot, port);
        let [interface] = interfaces.as_slice() else {
            return self.add_bond(snapshot, bridge, port, &interfaces);
        };
        bridge.has_dependent_ports |= self.bonds.interfaces.contains(&interface.uuid());
        let name = interface.string("name").unwrap_or_default();
        if name == bridge.options.name {
            bridge.local = Some(interface.uuid());
            bridge.has_dependent_ports |= bridge.local_row.replace(port.uuid()).is_some();
            bridge.options.local = LocalPort::Tap;
            (bridge.options.mtu, bridge.kept.mtu) = self.mtu(*interface, PortType::Tap);
            self.refuse_policing(*interface);
            if interface.string("mac").is_some() {
                let reason = "mac has no effect: set other_config:hwaddr of the bridge";
                self.refuse_setting(interface.uuid(), reason);
            }
            if port.uuids("qos").next().is_some() {
                let reason = "local ports have no QoS: set it on the other ports of the bridge";
                self.refuse_setting(interface.uuid(), reason);
            }
            if bfd_of(*interface).0.is_some() {
                let reason = "local ports have no BFD: set it on the ports to other switches";
                self.refuse_setting(interface.uuid(), reason);
            }
            return;
        }
        let uuid = interface.uuid();
        let reading = match earlier.take(&self.vhost_folder, port.uuid(), uuid) {
            Some(reading) => {
                self.refused_interfaces.extend(reading.refused.clone().map(|own| (uuid, own)));
                if let Some(reason) = &reading.settings {
                    self.refuse_setting(uuid, reason);
                }
                reading
            }
            None => self.read_port(snapshot, port, *interface),
        };
        let own = reading.port.clone();
        bridge.ports.extend(own.map(|port| (name.to_owned(), port)));
        bridge.has_dependent_ports |= self.readings.insert(uuid, reading).is_some();
    }

    /// Reads a row in `Port` with one interface.
    fn read_port(
        &mut self,
        snapshot: &DatabaseSnapshot,
        row: RowView<'_>,
        interface: RowView<'_>,
    ) -> PortReading {
        let uuid = interface.uuid();
        // Another port may share the interface. Its settings are no part of this reading.
        let of_others = self.refused_settings.remove(&uuid);
        if let Some(mode @ ("active" | "passive")) = row.string("lacp") {
            let reason =
                format!("lacp {mode} has no effect: it needs a port with several interfaces");
            self.refuse_setting(uuid, &reason);
        }
        let port = self.desired_port(snapshot, row, interface);
        let settings = self.refused_settings.remove(&uuid);
        for reason in of_others.iter().chain(&settings) {
            self.refuse_setting(uuid, reason);
        }
        let refused = self.refused_interfaces.get(&uuid).cloned();
        PortReading { row: row.uuid(), port, refused, settings }
    }

    /// Returns the port of an interface; `None` if the switch refuses the port.
    ///
    /// Records the reason of a refusal.
    pub(super) fn desired_port(
        &mut self,
        snapshot: &DatabaseSnapshot,
        port: RowView<'_>,
        interface: RowView<'_>,
    ) -> Option<DesiredPort> {
        let mut options = match port_options(interface, &self.vhost_folder) {
            Ok(options) => options,
            Err(reason) => {
                self.refused_interfaces.insert(interface.uuid(), reason);
                return None;
            }
        };
        let mut kept = KeptSettings::default();
        if has_mtu(options.kind) {
            (options.mtu, kept.mtu) = self.mtu(interface, options.kind);
        }
        (options.mac, kept.mac) = self.mac(interface);
        if options.kind == PortType::Patch {
            self.refuse_policing(interface);
        } else {
            set_ingress_policing(&mut options, interface);
        }
        (options.qos, kept.qos) = self.qos(snapshot, port, interface);
        options.bfd = self.bfd(interface, options.kind);
        let refused_vlans = match vlan_mode(port) {
            Ok(mode) => {
                set_vlans(&mut options, mode, port);
                None
            }
            Err(reason) => Some(reason),
        };
        let last_number = unsigned(interface.integer("ofport"));
        let options = Arc::new(options);
        Some(DesiredPort { options, kept, refused_vlans, last_number, interface: interface.uuid() })
    }

    /// Returns the MAC address to set on the device of a port; empty: none.
    ///
    /// The function also returns whether the value is wrong; the reason is then recorded.
    fn mac(&mut self, interface: RowView<'_>) -> (String, bool) {
        let Some(text) = interface.string("mac") else { return (String::new(), false) };
        let bridge = BridgeOptions { mac: text.to_owned(), ..BridgeOptions::default() };
        let reason = match bridge.mac() {
            Err(error) => with_causes(&error),
            Ok(_) if interface.string("type") == Some("internal") => return (bridge.mac, false),
            Ok(_) => "only an internal port gets an address: use `ip link set`".to_owned(),
        };
        self.refuse_setting(interface.uuid(), &format!("mac has no effect: {reason}"));
        (String::new(), true)
    }

    /// Returns the MTU to set on the device of a port; 0: none.
    ///
    /// The function also returns whether the value is wrong; the reason is then recorded.
    fn mtu(&mut self, interface: RowView<'_>, kind: PortType) -> (u32, bool) {
        let Some(request) = interface.integer("mtu_request") else { return (0, false) };
        let range = PortOptions::mtus(kind);
        let mtu = u32::try_from(request).ok().filter(|mtu| range.contains(mtu));
        if let Some(mtu) = mtu {
            return (mtu, false);
        }
        let (min, max) = (range.start(), range.end());
        let reason = format!("mtu_request {request} has no effect: it must be {min} to {max}");
        self.refuse_setting(interface.uuid(), &reason);
        (0, true)
    }

    /// Returns the QoS of a port, and whether it is wrong; records the reason if it is.
    fn qos(
        &mut self,
        snapshot: &DatabaseSnapshot,
        port: RowView<'_>,
        interface: RowView<'_>,
    ) -> (Option<QosOptions>, bool) {
        let reason = match qos_of(snapshot, port) {
            Ok(Some(_)) if interface.string("type") == Some("patch") => {
                "patch ports have no QoS: set it on the ports from which packets leave".to_owned()
            }
            Ok(qos) => return (qos, false),
            Err(reason) => format!("qos has no effect: {reason}"),
        };
        self.refuse_setting(interface.uuid(), &reason);
        (None, true)
    }

    /// Returns the BFD session of a port; records settings without effect.
    fn bfd(&mut self, interface: RowView<'_>, kind: PortType) -> Option<BfdOptions> {
        let (session, reasons) = bfd_of(interface);
        if kind == PortType::Patch && session.is_some() {
            let reason = "patch ports have no BFD: their peers are in the same switch";
            self.refuse_setting(interface.uuid(), reason);
            return None;
        }
        for reason in reasons {
            self.refuse_setting(interface.uuid(), &reason);
        }
        session
    }

    /// Records the reason why the switch refuses a setting of a port.
    pub(super) fn refuse_setting(&mut self, interface: RowUuid, reason: &str) {
        add_reason(&mut self.refused_settings, interface, reason);
    }

    /// Records that the switch refuses the ingress policing of an interface.
    fn refuse_policing(&mut self, interface: RowView<'_>) {
        let mut limits = PortOptions::default();
        set_ingress_policing(&mut limits, interface);
        if limits.ingress_policing_rate > 0 || limits.ingress_policing_kpkts_rate > 0 {
            let reason = "local ports and patch ports have no ingress policing: limit the ports \
                          at which packets arrive";
            self.refuse_setting(interface.uuid(), reason);
        }
    }
}
