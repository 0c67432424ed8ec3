//! The rows that have changed since the last pass.
//!
//! A pass reads only these rows of `Port` and `Interface`, of which a switch may have thousands.
//! All other tables are small, and are read as a whole.

use std::{cmp::Ordering, collections::BTreeSet};

use shunt_ovsdb::{
    DatabaseSnapshot, RowView,
    value::{Atom, Datum, RowUuid},
};

use super::{columns::TABLES, desired::VHOST_FOLDER};

/// The rows that have changed since the last pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangedRows {
    /// Any row may have changed.
    All,
    /// Only the listed rows have changed.
    ///
    /// None of these tables describes a part of several ports.
    Ports(BTreeSet<RowUuid>),
}

/// The tables of which a row describes only itself and rows that reference it.
///
/// A row of any other table, such as `Queue`, is part of several ports.
const SEPARATE_TABLES: [&str; 4] = ["Bridge", "Interface", "Open_vSwitch", "Port"];

/// Returns whether two rows are equal in all columns that the daemon reads.
fn is_equal(table: &str, old: RowView<'_>, new: RowView<'_>) -> bool {
    let followed = TABLES.iter().find(|own| own.name == table);
    // A new port gets the number in `ofport` if it is free.
    let mut columns = followed.into_iter().flat_map(|own| own.read).chain(&["ofport"]);
    columns.all(|column| old.value(column) == new.value(column))
}

impl ChangedRows {
    /// Returns the rows that differ between two snapshots.
    ///
    /// Columns that the daemon only writes, such as `statistics`, are not compared.
    pub(super) fn between(earlier: &DatabaseSnapshot, rows: &DatabaseSnapshot) -> Self {
        let Some(mut changed) = rows.changed_rows(earlier) else { return Self::All };
        changed.retain(|(table, uuid)| {
            let [old, new] = [earlier, rows].map(|rows| rows.row(table, *uuid));
            !matches!((old, new), (Some(old), Some(new)) if is_equal(table, old, new))
        });
        if changed.iter().any(|(table, _)| !SEPARATE_TABLES.contains(table)) {
            return Self::All;
        }
        Self::Ports(changed.into_iter().map(|(_, uuid)| uuid).collect())
    }

    /// Returns the changed rows, and the rows of ports that a bridge gained or lost.
    ///
    /// `None`: any port may have changed.
    pub(super) fn rows_of_ports(
        &self,
        earlier: &DatabaseSnapshot,
        rows: &DatabaseSnapshot,
    ) -> Option<BTreeSet<RowUuid>> {
        let Self::Ports(changed) = self else { return None };
        let mut ports = BTreeSet::new();
        for uuid in changed {
            let values = |table, column| {
                [earlier, rows].map(|rows| rows.row(table, *uuid).and_then(|row| row.value(column)))
            };
            let [old, new] = values("Open_vSwitch", "bridges");
            if old != new {
                return None;
            }
            // The folder is a part of the options of every `dpdkvhostuser` port.
            let [old, new] = [earlier, rows].map(|rows| {
                let root = rows.row("Open_vSwitch", *uuid);
                root.and_then(|root| root.entry("other_config", VHOST_FOLDER))
            });
            if old != new {
                return None;
            }
            // A port may have moved to another bridge.
            let [old, new] =
                values("Bridge", "ports").map(|own| own.map(Datum::keys).unwrap_or_default());
            ports.extend(different_atoms(old, new).into_iter().filter_map(Atom::as_uuid));
            ports.insert(*uuid);
        }
        Some(ports)
    }

    /// Returns the names of the ports that changed rows describe in either snapshot.
    ///
    /// `None`: any port may have changed.
    pub(super) fn port_names(
        &self,
        earlier: &DatabaseSnapshot,
        rows: &DatabaseSnapshot,
    ) -> Option<BTreeSet<String>> {
        let ports = self.rows_of_ports(earlier, rows)?;
        let mut names = BTreeSet::new();
        for snapshot in [earlier, rows] {
            for uuid in &ports {
                let port = snapshot.row("Port", *uuid);
                let interfaces = port.into_iter().flat_map(|port| port.uuids("interfaces"));
                let rows =
                    interfaces.chain([*uuid]).filter_map(|own| snapshot.row("Interface", own));
                names.extend(rows.filter_map(|row| row.string("name")).map(str::to_owned));
            }
        }
        Some(names)
    }

    /// Returns the rows of a table that must be read again.
    pub(super) fn rows_to_read<'a>(
        &self,
        rows: &'a DatabaseSnapshot,
        table: &'a str,
    ) -> Vec<RowView<'a>> {
        match self {
            Self::Ports(changed) if table == "Port" || table == "Interface" => {
                changed.iter().filter_map(|uuid| rows.row(table, *uuid)).collect()
            }
            Self::Ports(_) | Self::All => rows.rows(table).collect(),
        }
    }
}

/// Returns the atoms that only one of two sorted lists has.
fn different_atoms<'a>(old: &'a [Atom], new: &'a [Atom]) -> Vec<&'a Atom> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut different = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return different,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(two)) => one.cmp(two),
        };
        match order {
            Ordering::Less => different.extend(old.next()),
            Ordering::Greater => different.extend(new.next()),
            Ordering::Equal => {
                old.next();
                new.next();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use shunt_ovsdb::{Server, ServerConfig, schema};
    use shunt_switch::config::PortOptions;

    use super::*;
    use crate::ovsdb::{
        desired::DesiredBridges,
        ignored::{IgnoredSettings, ignored_settings},
        port_readings::PortReadings,
    };

    /// A database with the bridge `br0` and the ports `p1` and `p2`.
    struct TwoPorts {
        handle: shunt_ovsdb::OvsdbHandle,
        interface: RowUuid,
        port: RowUuid,
    }

    impl TwoPorts {
        async fn start() -> Self {
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            let handle = server.unwrap().start().unwrap();
            let mut rows = handle.transaction("two ports");
            let [one, two] = ["p1", "p2"].map(|name| {
                let kind = ("type", Datum::string("null"));
                let interface = rows.insert("Interface", [("name", Datum::string(name)), kind]);
                let columns =
                    [("name", Datum::string(name)), ("interfaces", Datum::uuid(interface))];
                (interface, rows.insert("Port", columns))
            });
            let ports = Datum::set([one.1, two.1].map(Atom::Uuid));
            let bridge = rows.insert("Bridge", [("name", Datum::string("br0")), ("ports", ports)]);
            rows.insert("Open_vSwitch", [("bridges", Datum::uuid(bridge))]);
            handle.transact(rows).await.unwrap();
            Self { handle, interface: one.0, port: one.1 }
        }

        /// Returns a snapshot of the database.
        async fn rows(&self) -> DatabaseSnapshot {
            self.handle.snapshot().await.unwrap()
        }

        /// Changes a column of a row, and returns the snapshots before and after.
        async fn set(
            &self,
            table: &'static str,
            row: RowUuid,
            column: (&'static str, Datum),
        ) -> [DatabaseSnapshot; 2] {
            let before = self.rows().await;
            let mut rows = self.handle.transaction("a change");
            rows.update(table, row, [column]);
            self.handle.transact(rows).await.unwrap();
            [before, self.rows().await]
        }
    }

    /// The options of ports by name.
    type OptionsByName = BTreeMap<String, Arc<PortOptions>>;

    /// Checks that a pass over changed rows has the result of a pass over all rows.
    ///
    /// Returns the options of the ports before and after the change.
    fn check_pass([before, after]: &[DatabaseSnapshot; 2]) -> [OptionsByName; 2] {
        let options = |state: &DesiredBridges| -> OptionsByName {
            let ports = state.bridges.values().flat_map(|bridge| &bridge.ports);
            ports.map(|(name, port)| (name.clone(), Arc::clone(&port.options))).collect()
        };
        let state = DesiredBridges::of(before, PortReadings::default());
        let old = options(&state);
        let changed = ChangedRows::between(before, after);
        let new = state.after([before, after], &changed);
        let whole = DesiredBridges::of(after, PortReadings::default());
        assert_eq!(format!("{new:?}"), format!("{whole:?}"));
        let all = |rows| ignored_settings(rows, &ChangedRows::All, IgnoredSettings::new());
        assert_eq!(ignored_settings(after, &changed, all(before)), all(after));
        [old, options(&new)]
    }

    #[tokio::test]
    async fn only_changed_ports_are_read_again() {
        let database = TwoPorts::start().await;
        let rows = database.set("Port", database.port, ("tag", Datum::integer(7))).await;
        let [old, new] = check_pass(&rows);
        assert_eq!(new["p1"].tag, Some(7));
        assert!(Arc::ptr_eq(&old["p2"], &new["p2"]));
        for column in [
            ("type", Datum::string("gre")),
            ("mtu_request", Datum::integer(1)),
            ("ofport", Datum::integer(9)),
            ("other_config", Datum::string_map([("no-such-key", "1")])),
            ("other_config", Datum::string_map([])),
            ("type", Datum::string("null")),
        ] {
            check_pass(&database.set("Interface", database.interface, column).await);
        }
        database.handle.stop().await;
    }

    /// A change names its own port alone; a removed port is still named.
    #[tokio::test]
    async fn changed_rows_name_their_ports() {
        let database = TwoPorts::start().await;
        let names = |[before, after]: &[DatabaseSnapshot; 2]| {
            let names = ChangedRows::between(before, after).port_names(before, after);
            names.map(|names| names.into_iter().collect::<Vec<_>>())
        };
        let one = Some(vec!["p1".to_owned()]);
        let tag = ("tag", Datum::integer(7));
        assert_eq!(names(&database.set("Port", database.port, tag).await), one);
        let mtu = ("mtu_request", Datum::integer(1400));
        assert_eq!(names(&database.set("Interface", database.interface, mtu).await), one);
        let rows = database.rows().await;
        let bridge = rows.rows("Bridge").next().unwrap().uuid();
        let other = rows.rows("Port").find(|row| row.uuid() != database.port).unwrap().uuid();
        let rest = ("ports", Datum::uuid(other));
        assert_eq!(names(&database.set("Bridge", bridge, rest).await), one);
        let root = rows.rows("Open_vSwitch").next().unwrap().uuid();
        let number = ("next_cfg", Datum::integer(7));
        assert_eq!(names(&database.set("Open_vSwitch", root, number).await), Some(Vec::new()));
        let folder = ("other_config", Datum::string_map([("vhost-sock-dir", "vhost")]));
        assert_eq!(names(&database.set("Open_vSwitch", root, folder).await), None);
        let none = ("bridges", Datum::empty());
        assert_eq!(names(&database.set("Open_vSwitch", root, none).await), None);
        database.handle.stop().await;
    }

    #[tokio::test]
    async fn written_columns_are_no_changes() {
        let database = TwoPorts::start().await;
        let state = ("link_state", Datum::string("up"));
        let [before, after] = database.set("Interface", database.interface, state).await;
        assert_eq!(ChangedRows::between(&before, &after), ChangedRows::Ports(BTreeSet::new()));
        // A queue may be part of several ports.
        let mut rows = database.handle.transaction("a QoS");
        let qos = rows.insert("QoS", [("type", Datum::string("linux-noop"))]);
        rows.update("Port", database.port, [("qos", Datum::uuid(qos))]);
        database.handle.transact(rows).await.unwrap();
        let whole = database.rows().await;
        assert_eq!(ChangedRows::between(&after, &whole), ChangedRows::All);
        check_pass(&[after, whole]);
        database.handle.stop().await;
    }
}
