//! The state of the switch, as columns of database rows.

use std::collections::{BTreeMap, BTreeSet};

use shunt_datapath::port::{DpdkState, DriverInfo};
use shunt_ovsdb::{
    DatabaseSnapshot, RowTransaction, RowView,
    value::{Atom, Datum, RowUuid},
};
use shunt_switch::{
    BondMemberStatus, BondStatus, BridgePortStatus, BridgeStatus, ControllerEndpoint,
    ControllerState, ControllerStatus, MirrorStatus, config::PortType, mac_text,
};

use super::{
    apply_errors::ApplyErrors,
    bfd::bfd_status,
    bonds::interfaces,
    datapaths::{capabilities, datapath_rows},
    ignored::{self, IgnoredSettings},
    managers::{Managers, manager_rows, states_differ},
    mirrors::mirrors,
    port_rows::interface_types,
};

/// The columns that differ from the database, as a transaction.
pub(super) struct RowReport<'a> {
    /// The rows in the database.
    pub(super) snapshot: &'a DatabaseSnapshot,
    /// The status of the bridges, which the rows must have.
    pub(super) bridges: &'a [BridgeStatus],
    /// The errors of the last pass, for the columns `error`.
    pub(super) errors: &'a ApplyErrors,
    /// The settings in the rows that have no effect.
    pub(super) ignored: &'a IgnoredSettings,
    /// The connections of the rows in `Manager`.
    pub(super) managers: &'a Managers,
    /// The statistics of the host, for the row of `Open_vSwitch`.
    pub(super) host: &'a BTreeMap<String, String>,
    /// The statistics that the report contains.
    pub(super) statistics: StatisticsColumns,
    /// The rows in `Port` and `Interface` that are written; `None`: all.
    pub(super) scope: Option<&'a BTreeSet<RowUuid>>,
    /// The transaction with the changed columns.
    pub(super) transaction: &'a mut RowTransaction,
}

/// The statistics that a report contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatisticsColumns {
    /// All statistics that have changed.
    All,
    /// Statistics of interfaces that had none before.
    Empty,
}

/// The number of the local port of a bridge in OVSDB.
const LOCAL_NUMBER: i64 = 65534;

/// The largest port number that is not reserved (`OFPP_MAX`).
///
/// A port with a larger number is the local port.
const NUMBER_MAX: u32 = 0xffff_ff00;

impl<'a> RowReport<'a> {
    /// Adds the state of bridges, interfaces and controllers.
    pub(super) fn write(&mut self) {
        let snapshot = self.snapshot;
        let mut ports = BTreeMap::new();
        let mut bridges = BTreeMap::new();
        for bridge in self.bridges {
            bridges.insert(bridge.name.as_str(), bridge);
            ports.extend(bridge.ports.iter().map(|port| (port.name.as_str(), port)));
        }
        for row in self.rows("Interface") {
            let port = row.string("name").and_then(|name| ports.get(name)).copied();
            self.interface(row, port);
        }
        for (table, _) in ignored::TABLES {
            if ignored::TABLES_WITH_STATE.contains(&table) {
                continue;
            }
            for row in self.rows(table) {
                self.ignored(table, row);
            }
        }
        self.manager_states();
        for row in snapshot.rows("Bridge") {
            let bridge = row.string("name").and_then(|name| bridges.get(name)).copied();
            if let Some(bridge) = bridge {
                self.set("Bridge", row, "datapath_id", Datum::string(&bridge.datapath_id));
                self.set("Bridge", row, "datapath_version", Datum::string("<built-in>"));
                self.controllers(row, bridge);
                self.bonds(row, bridge);
                self.mirrors(row, bridge);
            }
        }
    }

    /// Returns the rows of a table that are written.
    fn rows(&self, table: &str) -> Vec<RowView<'a>> {
        match self.scope {
            Some(scope) if table == "Port" || table == "Interface" => {
                scope.iter().filter_map(|uuid| self.snapshot.row(table, *uuid)).collect()
            }
            Some(_) | None => self.snapshot.rows(table).collect(),
        }
    }

    /// Adds the columns about the switch, and the number of the applied configuration.
    pub(super) fn finish(&mut self) {
        let version = self.snapshot.schema().version();
        let dpdk = DpdkState::read();
        let is_built = |kind: &PortType| *kind != PortType::Dpdk || dpdk != DpdkState::NotBuilt;
        let built = || PortType::ALL.into_iter().filter(&is_built);
        let host = || self.host.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let host = Datum::string_map(host());
        for root in self.snapshot.rows("Open_vSwitch") {
            self.set("Open_vSwitch", root, "statistics", host.clone());
            for (column, value) in [
                ("iface_types", Datum::strings(built().flat_map(interface_types).copied())),
                ("datapath_types", Datum::strings(["netdev", "system"])),
                ("db_version", Datum::string(version)),
                ("ovs_version", Datum::string(env!("CARGO_PKG_VERSION"))),
                ("dpdk_initialized", Datum::boolean(dpdk.is_started())),
                ("dpdk_version", dpdk.version().map_or_else(Datum::empty, Datum::string)),
            ] {
                self.set("Open_vSwitch", root, column, value);
            }
            for row in datapath_rows(self.snapshot, root) {
                self.set("Datapath", row, "capabilities", capabilities());
            }
            let next = root.integer("next_cfg").unwrap_or_default();
            self.set("Open_vSwitch", root, "cur_cfg", Datum::integer(next));
        }
    }

    /// Reports the state of a row of `Interface`.
    fn interface(&mut self, row: RowView<'_>, port: Option<&BridgePortStatus>) {
        let uuid = row.uuid();
        let refused = self.errors.interfaces.get(&uuid);
        // A refused interface has no port: a port with its name belongs to another interface.
        let port = port.filter(|_| refused.is_none());
        let settings = self.errors.settings.get(&uuid);
        let problem = port.and_then(|port| port.problem.as_ref());
        let error = refused.or(settings).or(problem);
        let reasons = match refused {
            Some(refused) => vec![refused.as_str()],
            None => reasons(settings, port),
        };
        let text = reasons.join("; ");
        let error_column = if text.is_empty() { Datum::empty() } else { Datum::string(&text) };
        self.set("Interface", row, "error", error_column);
        let number = match (port, row.integer("ofport")) {
            (Some(port), _) if problem.is_none() => Some(open_vswitch_number(port.number)),
            // The port gets its previous number again when it can be added, and keeps it without a
            // device.
            (_, Some(last)) if last > 0 => Some(last),
            // `ovs-vsctl` prints the error of an interface only if its number is -1.
            _ => error.map(|_| -1),
        };
        self.set("Interface", row, "ofport", number.map_or_else(Datum::empty, Datum::integer));
        let state = port.map_or_else(Datum::empty, |port| {
            Datum::string(if port.link == "up" { "up" } else { "down" })
        });
        self.set("Interface", row, "link_state", state);
        let is_empty = |column| row.value(column).is_some_and(Datum::is_empty);
        let is_due = port.is_none() || self.statistics == StatisticsColumns::All;
        if is_due || is_empty("statistics") {
            let counters = port.map_or_else(Datum::empty, statistics);
            self.set("Interface", row, "statistics", counters);
        }
        self.set("Interface", row, "bfd_status", bfd_status(port));
        let mut entries = self.ignored_entries(row);
        entries.extend(driver_entries(port));
        self.set("Interface", row, "status", Datum::string_map(pairs(&entries)));
        for (column, value) in device_columns(port) {
            self.set("Interface", row, column, value);
        }
    }

    /// Adds settings of a row without effect.
    ///
    /// For a bridge it also adds a rule for `NORMAL` that could not be changed.
    fn ignored(&mut self, table: &str, row: RowView<'_>) {
        let mut entries = self.ignored_entries(row);
        if table == "Bridge" {
            let name = row.string("name").unwrap_or_default();
            let reason = self.errors.normal_rules.get(name);
            entries.extend(reason.map(|reason| ("normal_rule", reason.clone())));
        }
        self.set(table, row, "status", Datum::string_map(pairs(&entries)));
    }

    /// Returns the entries of `status` for the settings of a row that have no effect.
    fn ignored_entries(&self, row: RowView<'_>) -> Vec<(&'a str, String)> {
        let settings = self.ignored.get(&row.uuid()).into_iter().flatten();
        let entry = |(setting, reason): (&'a String, &&'static str)| {
            (setting.as_str(), format!("no effect: {reason}"))
        };
        settings.map(entry).collect()
    }

    /// Adds the states of the managers of the embedded server.
    ///
    /// Times in these states always grow, so they are written only with a new state or with
    /// statistics.
    fn manager_states(&mut self) {
        for row in manager_rows(self.snapshot) {
            let status = row.string("target").and_then(|target| self.managers.status(target));
            if let Some(status) = status {
                let ignored = self.ignored_entries(row);
                let entries = status.entries.iter().map(|(key, value)| (*key, value.as_str()));
                let entries: BTreeMap<&str, &str> = entries.chain(pairs(&ignored)).collect();
                let differs = states_differ(&entries, &row.string_map("status"));
                if differs || self.statistics == StatisticsColumns::All {
                    self.set("Manager", row, "status", Datum::string_map(entries));
                }
                self.set("Manager", row, "is_connected", Datum::boolean(status.is_connected));
            }
        }
    }

    /// Reports the state of the controllers of a bridge.
    fn controllers(&mut self, bridge: RowView<'_>, status: &BridgeStatus) {
        let snapshot = self.snapshot;
        let common = self.errors.bridge_controllers.get(&status.name);
        let rows = bridge.uuids("controller");
        for row in rows.filter_map(|uuid| snapshot.row("Controller", uuid)) {
            let target = row.string("target").unwrap_or_default();
            let refused = self.errors.controllers.get(&row.uuid());
            let state = find_controller(status, target).filter(|_| refused.is_none());
            let error = refused.or(common).map(String::as_str);
            let (word, role, reason) = match state.map(|status| &status.state) {
                None => ("VOID", None, None),
                Some(ControllerState::Connecting) => ("CONNECTING", None, None),
                Some(ControllerState::Connected { role }) => ("ACTIVE", Some(*role), None),
                Some(ControllerState::Waiting { reason, .. }) => {
                    ("BACKOFF", None, Some(reason.as_str()))
                }
                Some(ControllerState::Listening { problem, .. }) => {
                    ("LISTENING", None, problem.as_deref())
                }
            };
            let mut entries = vec![("state", word)];
            entries.extend(error.or(reason).map(|error| ("last_error", error)));
            let ignored = self.ignored_entries(row);
            entries.extend(pairs(&ignored));
            self.set("Controller", row, "status", Datum::string_map(entries));
            self.set("Controller", row, "is_connected", Datum::boolean(word == "ACTIVE"));
            let role = role.map(|role| if role == "equal" { "other" } else { role });
            self.set("Controller", row, "role", role.map_or_else(Datum::empty, Datum::string));
        }
    }

    /// Adds the active member of each bond, and which members have an LACP partner.
    ///
    /// For other ports both columns are empty.
    fn bonds(&mut self, bridge: RowView<'_>, status: &BridgeStatus) {
        let snapshot = self.snapshot;
        let scope = self.scope;
        let ports = bridge.uuids("ports");
        let ports = ports.filter(|uuid| scope.is_none_or(|scope| scope.contains(uuid)));
        for row in ports.filter_map(|uuid| snapshot.row("Port", uuid)) {
            let is_own =
                |bond: &&BondStatus| row.string("name") == Some(bond.options.name.as_str());
            let bond = status.bonds.iter().find(is_own);
            let mut members = bond.into_iter().flat_map(|bond| &bond.member_status);
            let active = members.find(|member| member.active);
            let address =
                active.map_or_else(Datum::empty, |member| Datum::string(&mac_text(member.mac)));
            self.set("Port", row, "bond_active_slave", address);
            for interface in interfaces(snapshot, row) {
                let is_own =
                    |own: &&BondMemberStatus| interface.string("name") == Some(own.name.as_str());
                let mut members = bond.into_iter().flat_map(|bond| &bond.member_status);
                let current = members.find(is_own).and_then(|own| Some(own.lacp?.is_current()));
                let current = current.map_or_else(Datum::empty, Datum::boolean);
                self.set("Interface", interface, "lacp_current", current);
            }
        }
    }

    /// Adds the counters of the mirrors of a bridge;
    /// empty for a mirror that copies nothing.
    fn mirrors(&mut self, bridge: RowView<'_>, status: &BridgeStatus) {
        let snapshot = self.snapshot;
        let (_, rows) = mirrors(snapshot, bridge, &mut BTreeMap::new());
        for row in bridge.uuids("mirrors").filter_map(|uuid| snapshot.row("Mirror", uuid)) {
            let is_empty = row.value("statistics").is_none_or(Datum::is_empty);
            if !is_empty && self.statistics == StatisticsColumns::Empty {
                continue;
            }
            let is_own = |own: &&MirrorStatus| rows.get(&own.options.name) == Some(&row.uuid());
            let own = status.mirrors.iter().find(is_own);
            let counters = own.map_or_else(Datum::empty, |own| {
                counters([("tx_packets", own.tx_packets), ("tx_bytes", own.tx_bytes)])
            });
            self.set("Mirror", row, "statistics", counters);
        }
    }

    /// Sets a column if its value differs, and if the schema of the server has it.
    fn set(&mut self, table: &str, row: RowView<'_>, column: &str, value: Datum) {
        if row.value(column).is_some_and(|old| *old != value) {
            self.transaction.update(table, row.uuid(), [(column, value)]);
        }
    }
}

/// Returns pairs of borrowed texts for the entries.
fn pairs<'a>(entries: &'a [(&str, String)]) -> impl Iterator<Item = (&'a str, &'a str)> {
    entries.iter().map(|(key, value)| (*key, value.as_str()))
}

/// Returns the controller with a target; the target may omit the port.
fn find_controller<'a>(status: &'a BridgeStatus, target: &str) -> Option<&'a ControllerStatus> {
    let endpoint: ControllerEndpoint = target.parse().ok()?;
    status.controllers.iter().find(|other| other.target.parse() == Ok(endpoint))
}

/// Returns a port number as in OVSDB: 16 bits, as in OpenFlow 1.0.
fn open_vswitch_number(number: u32) -> i64 {
    if number > NUMBER_MAX { LOCAL_NUMBER } else { i64::from(number) }
}

/// Returns the problems of an interface that has a port.
fn reasons<'a>(settings: Option<&'a String>, port: Option<&'a BridgePortStatus>) -> Vec<&'a str> {
    let mut reasons: Vec<_> = settings.into_iter().map(String::as_str).collect();
    let of_port = port.into_iter().flat_map(|port| {
        [&port.problem, &port.peer_problem, &port.mtu_problem, &port.mac_problem]
            .map(Option::as_deref)
    });
    reasons.extend(of_port.flatten());
    reasons
}

/// Returns the entries of `status` about the driver of a port.
fn driver_entries(port: Option<&BridgePortStatus>) -> Vec<(&'static str, String)> {
    let Some(driver) = port.and_then(|port| port.driver.as_ref()) else { return Vec::new() };
    let DriverInfo { name, version, firmware_version } = &**driver;
    vec![
        ("driver_name", name.clone()),
        ("driver_version", version.clone()),
        ("firmware_version", firmware_version.clone()),
    ]
}

/// Returns the columns about the device and the link of a port.
///
/// Unknown values are empty columns.
fn device_columns(port: Option<&BridgePortStatus>) -> [(&'static str, Datum); 7] {
    let device = port.and_then(|port| port.device);
    let mode = port.map(|port| port.link_mode).unwrap_or_default();
    let state = device.map(|device| if device.is_up { "up" } else { "down" });
    let duplex = mode.is_full_duplex.map(|is_full| if is_full { "full" } else { "half" });
    let speed = mode.speed_bps.and_then(|speed| i64::try_from(speed).ok());
    let resets = port.map(|port| i64::try_from(port.link_resets).unwrap_or(i64::MAX));
    let text = |value: Option<&str>| value.map_or_else(Datum::empty, Datum::string);
    let integer = |value: Option<i64>| value.map_or_else(Datum::empty, Datum::integer);
    [
        ("admin_state", text(state)),
        ("duplex", text(duplex)),
        ("ifindex", integer(device.map(|device| device.index.into()))),
        ("link_resets", integer(resets)),
        ("link_speed", integer(speed)),
        ("mac_in_use", text(device.map(|device| mac_text(device.mac)).as_deref())),
        ("mtu", integer(device.map(|device| device.mtu.into()))),
    ]
}

/// Returns the counters of a port; counters of its driver have other names.
fn statistics(port: &BridgePortStatus) -> Datum {
    let own = [
        ("rx_packets", port.rx_packets),
        ("rx_bytes", port.rx_bytes),
        ("rx_dropped", port.rx_dropped),
        ("tx_packets", port.tx_packets),
        ("tx_bytes", port.tx_bytes),
        ("tx_dropped", port.tx_dropped),
    ];
    let driver = port.driver_counters.iter().map(|(name, value)| (name.as_str(), *value));
    let is_other = |(name, _): &(&str, u64)| own.iter().all(|(other, _)| name != other);
    counters(own.into_iter().chain(driver.filter(is_other)))
}

/// Returns counters as a map with their names.
fn counters<'a>(counters: impl IntoIterator<Item = (&'a str, u64)>) -> Datum {
    // A counter that exceeds the type of the column is written as the largest value.
    let count = |count: u64| Atom::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    let pair = |(name, value): (&str, u64)| (Atom::String(name.into()), count(value));
    Datum::map(counters.into_iter().map(pair))
}

#[cfg(test)]
mod tests {
    use shunt_switch::PacketInTotals;

    use super::*;

    /// Returns the status of a bridge with some targets.
    fn bridge(targets: &[&str]) -> BridgeStatus {
        let controllers = targets.iter().map(|target| ControllerStatus {
            target: (*target).to_owned(),
            state: ControllerState::Connecting,
        });
        BridgeStatus {
            name: "br0".to_owned(),
            datapath_id: String::new(),
            datapath_id_problem: None,
            management_problem: None,
            fail_open: false,
            controllers: controllers.collect(),
            connections: Vec::new(),
            packet_ins: PacketInTotals::default(),
            rules: 0,
            nic: None,
            ports: Vec::new(),
            bonds: Vec::new(),
            mirrors: Vec::new(),
            multicast: None,
            sflow: None,
            netflow: None,
            ipfix: None,
            collector_sets: Vec::new(),
        }
    }

    #[test]
    fn a_manager_target_is_compared_whole() {
        let bridge = bridge(&["tcp:10.0.0.10:6653", "tcp:10.0.0.1:6653", "ptcp:6653:0.0.0.0"]);
        let check = |target: &str, expected: Option<&str>| {
            let found = find_controller(&bridge, target).map(|other| other.target.as_str());
            assert_eq!(found, expected, "{target}");
        };
        check("tcp:10.0.0.1", Some("tcp:10.0.0.1:6653"));
        check("tcp:10.0.0.10:6653", Some("tcp:10.0.0.10:6653"));
        check("ptcp:", Some("ptcp:6653:0.0.0.0"));
        check("tcp:10.0.0.1:665", None);
    }
}
