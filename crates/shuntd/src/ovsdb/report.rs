//! The state of the switch as columns of rows.

use std::collections::BTreeMap;

use shunt_ovsdb::{
    DatabaseSnapshot, OwnerTransaction, RowView,
    value::{Atom, Datum},
};
use shunt_switch::{BridgePortStatus, BridgeStatus, ControllerState};

use super::reconciler::ApplyErrors;

/// The columns that differ from the rows, as a transaction.
pub(super) struct RowReport<'a> {
    pub(super) snapshot: &'a DatabaseSnapshot,
    pub(super) bridges: &'a [BridgeStatus],
    pub(super) errors: &'a ApplyErrors,
    pub(super) transaction: &'a mut OwnerTransaction,
}

/// The number of the local port of a bridge, as OVSDB has it.
const LOCAL_NUMBER: i64 = 65534;

impl RowReport<'_> {
    /// Adds the state of bridges, interfaces and controllers.
    pub(super) fn write(&mut self) {
        let snapshot = self.snapshot;
        let mut ports = BTreeMap::new();
        let mut bridges = BTreeMap::new();
        for bridge in self.bridges {
            bridges.insert(bridge.name.as_str(), bridge);
            ports.extend(bridge.ports.iter().map(|port| (port.name.as_str(), port)));
        }
        for row in snapshot.rows("Interface") {
            let port = row.string("name").and_then(|name| ports.get(name)).copied();
            self.interface(row, port);
        }
        for row in snapshot.rows("Bridge") {
            let bridge = row.string("name").and_then(|name| bridges.get(name)).copied();
            if let Some(bridge) = bridge {
                self.set("Bridge", row, "datapath_id", Datum::string(&bridge.datapath_id));
                self.set("Bridge", row, "datapath_version", Datum::string("<built-in>"));
                self.controllers(row, bridge);
            }
        }
    }

    /// Adds the number of the configuration that is in force.
    pub(super) fn finish(&mut self) {
        for root in self.snapshot.rows("Open_vSwitch") {
            let next = root.integer("next_cfg").unwrap_or_default();
            self.set("Open_vSwitch", root, "cur_cfg", Datum::integer(next));
        }
    }

    fn interface(&mut self, row: RowView<'_>, port: Option<&BridgePortStatus>) {
        let error = self.errors.interfaces.get(&row.uuid());
        let error_column = error.map_or_else(Datum::empty, |error| Datum::string(error));
        self.set("Interface", row, "error", error_column);
        let number = match (port, error) {
            (_, Some(_)) => Datum::integer(-1),
            (None, None) => Datum::empty(),
            (Some(port), None) => {
                Datum::integer(i64::from(port.number).min(if port.number > 0xffff_ff00 {
                    LOCAL_NUMBER
                } else {
                    i64::MAX
                }))
            }
        };
        self.set("Interface", row, "ofport", number);
        let port = port.filter(|_| error.is_none());
        let state = port.map_or_else(Datum::empty, |port| {
            Datum::string(if port.link == "up" { "up" } else { "down" })
        });
        self.set("Interface", row, "link_state", state.clone());
        self.set("Interface", row, "admin_state", state);
        let counters = port.map_or_else(Datum::empty, statistics);
        self.set("Interface", row, "statistics", counters);
    }

    fn controllers(&mut self, bridge: RowView<'_>, status: &BridgeStatus) {
        let snapshot = self.snapshot;
        let common = self.errors.bridge_controllers.get(&status.name);
        let rows = bridge.uuids("controller");
        for row in rows.filter_map(|uuid| snapshot.row("Controller", uuid)) {
            let target = row.string("target").unwrap_or_default();
            let state = status.controllers.iter().find(|other| other.target.starts_with(target));
            let error = self.errors.controllers.get(&row.uuid()).or(common).map(String::as_str);
            let (word, role, reason) = match state.map(|status| &status.state) {
                None => ("VOID", None, None),
                Some(ControllerState::Connecting) => ("CONNECTING", None, None),
                Some(ControllerState::Connected { role }) => ("ACTIVE", Some(*role), None),
                Some(ControllerState::Waiting { reason, .. }) => {
                    ("BACKOFF", None, Some(reason.as_str()))
                }
                Some(ControllerState::Listening) => ("LISTENING", None, None),
            };
            let mut entries = vec![("state", word)];
            entries.extend(error.or(reason).map(|error| ("last_error", error)));
            self.set("Controller", row, "status", Datum::string_map(entries));
            self.set("Controller", row, "is_connected", Datum::boolean(word == "ACTIVE"));
            let role = role.map(|role| if role == "equal" { "other" } else { role });
            self.set("Controller", row, "role", role.map_or_else(Datum::empty, Datum::string));
        }
    }

    /// Sets a column if its value differs.
    fn set(&mut self, table: &str, row: RowView<'_>, column: &str, value: Datum) {
        if row.value(column) != Some(&value) {
            self.transaction.update(table, row.uuid(), [(column, value)]);
        }
    }
}

fn statistics(port: &BridgePortStatus) -> Datum {
    let counters = [
        ("rx_packets", port.rx_packets),
        ("rx_bytes", port.rx_bytes),
        ("rx_dropped", port.rx_dropped),
        ("tx_packets", port.tx_packets),
        ("tx_bytes", port.tx_bytes),
        ("tx_dropped", port.tx_dropped),
    ];
    // A counter that exceeds the type of the column stays at its largest value.
    let count = |count: u64| Atom::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    Datum::map(counters.map(|(name, value)| (Atom::String(name.into()), count(value))))
}
