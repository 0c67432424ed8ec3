//! The bridges and ports after a change of rows, of which only the changed ports are read.
//!
//! A bridge may have thousands of ports, and most changes concern one of them. So the ports of
//! unchanged rows stay in place. The settings of the switch and of its bridges, and all bonds, are
//! always read, because there are few.

use std::collections::BTreeSet;

use shunt_ovsdb::{
    DatabaseSnapshot, RowView,
    value::{Atom, Datum, RowUuid},
};

use super::{
    bonds::{BondRows, interfaces},
    changed_rows::ChangedRows,
    desired::DesiredBridges,
    exports::RefusedExports,
    port_readings::PortReadings,
};

impl DesiredBridges {
    /// Returns the bridges of the second snapshot; `self` has those of the first.
    ///
    /// The result equals that of [`DesiredBridges::of`] for the second snapshot. If a change
    /// concerns other objects than separate ports, all ports are taken over or read.
    pub(super) fn after(
        mut self,
        snapshots: [&DatabaseSnapshot; 2],
        changed: &ChangedRows,
    ) -> Self {
        if let Some(ports) = self.ports_to_read(snapshots, changed) {
            self.read_again(snapshots, &ports);
            return self;
        }
        let [earlier, rows] = snapshots;
        Self::of(rows, self.readings.without(earlier, changed))
    }

    /// Returns the rows in `Port` that must be read again.
    ///
    /// `None`: a change may concern any port.
    fn ports_to_read(
        &self,
        snapshots: [&DatabaseSnapshot; 2],
        changed: &ChangedRows,
    ) -> Option<BTreeSet<RowUuid>> {
        let [earlier, rows] = snapshots;
        let changed = changed.rows_of_ports(earlier, rows)?;
        let mut roots = rows.rows("Open_vSwitch");
        let (Some(root), None) = (roots.next(), roots.next()) else { return None };
        let bridges = root.uuids("bridges").filter_map(|uuid| rows.row("Bridge", uuid));
        let names: BTreeSet<&str> = bridges.filter_map(|row| row.string("name")).collect();
        let is_known = names.iter().copied().eq(self.bridges.keys().map(String::as_str));
        if !is_known || self.bridges.values().any(|bridge| bridge.has_dependent_ports) {
            return None;
        }
        let is_port = |uuid| snapshots.iter().any(|own| own.row("Port", uuid).is_some());
        let port_of = |uuid| if is_port(uuid) { Some(uuid) } else { self.readings.port_of(uuid) };
        // The settings of a bridge are a part of its local port. A bond depends on all of its
        // members, and on the other bonds.
        let local = self.bridges.values().filter_map(|bridge| bridge.local_row);
        let bonds = self.bonds.ports.iter().copied();
        let read = changed.into_iter().filter_map(port_of);
        let ports: BTreeSet<_> = read.chain(local).chain(bonds).collect();
        let is_free = |interface: RowUuid| {
            self.readings.port_of(interface).is_none_or(|port| ports.contains(&port))
        };
        let is_separate = |uuid: &RowUuid| {
            snapshots
                .into_iter()
                .filter_map(|own| Some((own, own.row("Port", *uuid)?)))
                .all(|(own, port)| interfaces(own, port).iter().all(|own| is_free(own.uuid())))
        };
        ports.iter().all(is_separate).then(|| ports.clone())
    }

    /// Reads the settings of all bridges, and some rows in `Port`.
    fn read_again(&mut self, [earlier, rows]: [&DatabaseSnapshot; 2], ports: &BTreeSet<RowUuid>) {
        for port in ports.iter().filter_map(|uuid| earlier.row("Port", *uuid)) {
            interfaces(earlier, port).into_iter().for_each(|interface| self.forget(interface));
        }
        self.bonds = BondRows::default();
        self.refused_controllers.clear();
        self.refused_mirrors.clear();
        self.refused_exports = RefusedExports::default();
        self.waits_for_rules = false;
        for root in rows.rows("Open_vSwitch") {
            self.read_root(rows, root);
            for row in root.uuids("bridges").filter_map(|uuid| rows.row("Bridge", uuid)) {
                let (mut bridge, wrong_mac) = self.read_bridge(rows, row);
                if let Some(old) = self.bridges.remove(&bridge.options.name) {
                    bridge.ports = old.ports;
                }
                let own = row.value("ports").map(Datum::keys).unwrap_or_default();
                let is_own = |uuid: &&RowUuid| own.binary_search(&Atom::Uuid(**uuid)).is_ok();
                let read = ports.iter().filter(is_own);
                for port in read.filter_map(|uuid| rows.row("Port", *uuid)) {
                    self.add_port(rows, &mut bridge, port, &mut PortReadings::default());
                }
                self.add_bridge(bridge, wrong_mac.as_deref());
            }
        }
    }

    /// Removes the port of an interface, and the reasons why it has no effect.
    fn forget(&mut self, interface: RowView<'_>) {
        let uuid = interface.uuid();
        self.refused_interfaces.remove(&uuid);
        self.refused_settings.remove(&uuid);
        self.readings.remove(uuid);
        if let Some(name) = interface.string("name") {
            for bridge in self.bridges.values_mut() {
                bridge.ports.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shunt_ovsdb::{OvsdbHandle, RowTransaction, Server, ServerConfig, schema};

    use super::*;

    /// A database with the bridges `br0` and `br1`.
    struct TwoBridges {
        handle: OvsdbHandle,
        root: RowUuid,
        bridges: [RowUuid; 2],
    }

    /// Pseudo-random numbers of a seed (xorshift).
    struct Numbers(u64);

    impl Numbers {
        /// Returns a random number below `end`.
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
        }

        /// Returns a random element.
        fn choose<T: Clone>(&mut self, all: &[T]) -> T {
            all[self.below(all.len())].clone()
        }
    }

    /// The last two ports are the local ports of the bridges.
    const NAMES: [&str; 6] = ["p0", "p1", "p2", "p3", "br0", "br1"];

    impl TwoBridges {
        async fn start() -> Self {
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            let handle = server.unwrap().start().unwrap();
            let mut rows = handle.transaction("two bridges");
            let bridges =
                ["br0", "br1"].map(|name| rows.insert("Bridge", [("name", Datum::string(name))]));
            let all = Datum::set(bridges.map(Atom::Uuid));
            let root = rows.insert("Open_vSwitch", [("bridges", all)]);
            handle.transact(rows).await.unwrap();
            Self { handle, root, bridges }
        }

        /// Returns a snapshot of the database.
        async fn rows(&self) -> DatabaseSnapshot {
            self.handle.snapshot().await.unwrap()
        }

        /// Makes a random change, and returns its description.
        async fn change(&self, numbers: &mut Numbers) -> String {
            let before = self.rows().await;
            let name = numbers.choose(&NAMES);
            let row = before.rows("Port").find(|row| row.string("name") == Some(name));
            let port = row.map(|row| row.uuid());
            let mut rows = self.handle.transaction("a change");
            let kind = numbers.below(9);
            let interfaces: Vec<RowUuid> =
                row.into_iter().flat_map(|row| row.uuids("interfaces")).collect();
            let interface = (!interfaces.is_empty()).then(|| numbers.choose(&interfaces));
            match (kind, port, interface) {
                (0, Some(port), _) => self.put(&before, &mut rows, port, None),
                (1..4, None, _) => {
                    let interface = rows.insert("Interface", [("name", Datum::string(name))]);
                    let columns =
                        [("name", Datum::string(name)), ("interfaces", Datum::uuid(interface))];
                    let port = rows.insert("Port", columns);
                    let bridge = numbers.choose(&self.bridges);
                    self.put(&before, &mut rows, port, Some(bridge));
                }
                // Moves the port to another bridge, with a change of its own.
                (1, Some(port), _) => {
                    let bridge = numbers.choose(&self.bridges);
                    self.put(&before, &mut rows, port, Some(bridge));
                    rows.update("Port", port, [("tag", Datum::integer(9))]);
                }
                (2, Some(port), _) if numbers.below(3) == 0 => {
                    change_bond(&mut rows, name, before.row("Port", port).unwrap());
                }
                // Both bridges may have the port then.
                (3, Some(port), _) if numbers.below(4) == 0 => {
                    let bridge = numbers.choose(&self.bridges);
                    rows.insert_members("Bridge", bridge, [("ports", Datum::uuid(port))]);
                }
                (2..5, Some(port), _) => rows.update("Port", port, [port_column(numbers)]),
                (5..7, _, Some(interface)) => {
                    rows.update("Interface", interface, [interface_column(numbers)]);
                }
                (7, ..) => {
                    let bridge = numbers.choose(&self.bridges);
                    rows.update("Bridge", bridge, [bridge_column(numbers)]);
                }
                _ => rows.update("Open_vSwitch", self.root, [root_column(numbers)]),
            }
            self.handle.transact(rows).await.unwrap();
            format!("{kind} {name}")
        }

        /// Moves a port to a bridge, or removes the port.
        fn put(
            &self,
            before: &DatabaseSnapshot,
            rows: &mut RowTransaction,
            port: RowUuid,
            to: Option<RowUuid>,
        ) {
            for bridge in self.bridges {
                let row = before.row("Bridge", bridge).unwrap();
                let others = row.uuids("ports").filter(|own| *own != port);
                let new = (to == Some(bridge)).then_some(port);
                let all = Datum::set(others.chain(new).map(Atom::Uuid));
                rows.update("Bridge", bridge, [("ports", all)]);
            }
        }
    }

    /// Makes a port a bond, or a bond a port.
    ///
    /// A bond has another name than its members.
    fn change_bond(rows: &mut RowTransaction, name: &str, port: RowView<'_>) {
        let is_bond = port.uuids("interfaces").count() > 1;
        let endings: &[&str] = if is_bond { &[""] } else { &["-1", "-2"] };
        let members = Datum::set(endings.iter().map(|ending| {
            let member = format!("{name}{ending}");
            Atom::Uuid(rows.insert("Interface", [("name", Datum::string(&member))]))
        }));
        rows.update("Port", port.uuid(), [("interfaces", members)]);
    }

    /// Returns the ports as text, by the names of their bridge and of themselves.
    fn ports_of(bridges: &DesiredBridges) -> BTreeMap<(&str, &str), String> {
        let all = bridges.bridges.iter().flat_map(|(bridge, own)| {
            let ports = own.ports.iter();
            ports.map(move |(name, port)| ((bridge.as_str(), name.as_str()), format!("{port:?}")))
        });
        all.collect()
    }

    /// Returns the names of the members of all bonds, which each pass compares.
    fn members(bridges: &DesiredBridges) -> impl Iterator<Item = &str> {
        let bonds = bridges.bridges.values().flat_map(|bridge| &bridge.options.bonds);
        bonds.flat_map(|bond| &bond.members).map(String::as_str)
    }

    /// Returns the names of different ports that a pass over `names` does not compare.
    fn left_out(
        states: [&DesiredBridges; 2],
        names: Option<&BTreeSet<String>>,
    ) -> BTreeSet<String> {
        let Some(names) = names else { return BTreeSet::new() };
        let compared: BTreeSet<&str> =
            names.iter().map(String::as_str).chain(states.into_iter().flat_map(members)).collect();
        let [old, new] = states.map(ports_of);
        let keys = old.keys().chain(new.keys());
        let different = keys.filter(|key| old.get(*key) != new.get(*key));
        let names = different.map(|(_, name)| *name).filter(|name| !compared.contains(name));
        names.map(str::to_owned).collect()
    }

    /// A column with its value.
    type Column = (&'static str, Datum);

    fn port_column(numbers: &mut Numbers) -> Column {
        numbers.choose(&[
            ("tag", Datum::integer(7)),
            ("tag", Datum::empty()),
            ("lacp", Datum::string("active")),
            ("lacp", Datum::empty()),
            ("vlan_mode", Datum::string("dot1q-tunnel")),
            ("vlan_mode", Datum::empty()),
        ])
    }

    fn interface_column(numbers: &mut Numbers) -> Column {
        numbers.choose(&[
            ("type", Datum::string("null")),
            ("type", Datum::string("gre")),
            ("type", Datum::string("internal")),
            ("mtu_request", Datum::integer(1)),
            ("mtu_request", Datum::integer(1400)),
            ("mac", Datum::string("x")),
            ("mac", Datum::empty()),
            ("ofport", Datum::integer(3)),
        ])
    }

    fn bridge_column(numbers: &mut Numbers) -> Column {
        let address = numbers.choose(&["x", "02:00:00:00:00:01"]);
        numbers.choose(&[
            ("other_config", Datum::string_map([("hwaddr", address)])),
            ("other_config", Datum::empty()),
            ("fail_mode", Datum::string("secure")),
        ])
    }

    fn root_column(numbers: &mut Numbers) -> Column {
        let value = numbers.choose(&["true", "false"]);
        numbers.choose(&[
            ("next_cfg", Datum::integer(3)),
            ("other_config", Datum::string_map([("flow-restore-wait", value)])),
            ("other_config", Datum::string_map([("vhost-sock-dir", value)])),
        ])
    }

    /// After random changes, the bridges are those that all rows describe.
    ///
    /// The names of changed rows include each port that differs.
    #[tokio::test]
    async fn changed_bridges_equal_bridges_read_whole() {
        for seed in 1..30 {
            let (database, mut numbers) = (TwoBridges::start().await, Numbers(seed));
            let mut earlier = database.rows().await;
            let mut bridges = DesiredBridges::of(&earlier, PortReadings::default());
            let mut before = DesiredBridges::of(&earlier, PortReadings::default());
            let mut done = Vec::new();
            for _ in 0..40 {
                done.push(database.change(&mut numbers).await);
                let rows = database.rows().await;
                let changed = ChangedRows::between(&earlier, &rows);
                bridges = bridges.after([&earlier, &rows], &changed);
                let whole = DesiredBridges::of(&rows, PortReadings::default());
                let texts = [&bridges, &whole].map(|own| format!("{own:#?}"));
                assert!(
                    texts[0] == texts[1],
                    "seed {seed}, {done:?}: the update gives {}\nand a whole reading {}",
                    texts[0],
                    texts[1]
                );
                let names = changed.port_names(&earlier, &rows);
                let missing = left_out([&before, &whole], names.as_ref());
                assert!(missing.is_empty(), "seed {seed}, {done:?}: ports left out: {missing:?}");
                (earlier, before) = (rows, whole);
            }
            database.handle.stop().await;
        }
    }

    /// A reason why a local port has no effect is not in the reading of another.
    #[tokio::test]
    async fn a_shared_interface_keeps_no_old_reason() {
        let database = TwoBridges::start().await;
        let mut rows = database.handle.transaction("ports of both bridges");
        let ports = ["br0", "br1", "p0"].map(|name| {
            let interface = rows.insert("Interface", [("name", Datum::string(name))]);
            let columns = [("name", Datum::string(name)), ("interfaces", Datum::uuid(interface))];
            rows.insert("Port", columns)
        });
        for bridge in database.bridges {
            let ports = ("ports", Datum::set(ports.map(Atom::Uuid)));
            let wrong = ("other_config", Datum::string_map([("hwaddr", "x")]));
            rows.update("Bridge", bridge, [ports, wrong]);
        }
        database.handle.transact(rows).await.unwrap();
        let earlier = database.rows().await;
        let bridges = DesiredBridges::of(&earlier, PortReadings::default());
        assert!(!bridges.refused_settings.is_empty());
        let mut rows = database.handle.transaction("no address");
        for bridge in database.bridges {
            rows.update("Bridge", bridge, [("other_config", Datum::empty())]);
        }
        database.handle.transact(rows).await.unwrap();
        let rows = database.rows().await;
        let changed = ChangedRows::between(&earlier, &rows);
        let bridges = bridges.after([&earlier, &rows], &changed);
        assert!(bridges.refused_settings.is_empty(), "{:?}", bridges.refused_settings);
        database.handle.stop().await;
    }

    /// An AF_XDP port has a lower limit than other ports.
    #[tokio::test]
    async fn an_mtu_beyond_the_limit_is_refused() {
        let database = TwoBridges::start().await;
        let mut rows = database.handle.transaction("large MTUs");
        let ports = ["afxdp", "system"].map(|kind| {
            let mtu = ("mtu_request", Datum::integer(9300));
            let columns = [("name", Datum::string(kind)), ("type", Datum::string(kind)), mtu];
            let interface = rows.insert("Interface", columns);
            let columns = [("name", Datum::string(kind)), ("interfaces", Datum::uuid(interface))];
            rows.insert("Port", columns)
        });
        let ports = ("ports", Datum::set(ports.map(Atom::Uuid)));
        rows.update("Bridge", database.bridges[0], [ports]);
        database.handle.transact(rows).await.unwrap();
        let bridges = DesiredBridges::of(&database.rows().await, PortReadings::default());
        let reasons: Vec<&str> = bridges.refused_settings.values().map(String::as_str).collect();
        assert_eq!(reasons, ["mtu_request 9300 has no effect: it must be 68 to 9216"]);
        database.handle.stop().await;
    }

    /// The settings of a local port are then those of the last row.
    #[tokio::test]
    async fn rows_of_one_local_port_are_dependent() {
        let database = TwoBridges::start().await;
        let mut rows = database.handle.transaction("two rows");
        let interface = rows.insert("Interface", [("name", Datum::string("br0"))]);
        for name in ["br0", "again"] {
            let columns = [("name", Datum::string(name)), ("interfaces", Datum::uuid(interface))];
            let port = Datum::uuid(rows.insert("Port", columns));
            rows.insert_members("Bridge", database.bridges[0], [("ports", port)]);
        }
        database.handle.transact(rows).await.unwrap();
        let bridges = DesiredBridges::of(&database.rows().await, PortReadings::default());
        assert!(bridges.bridges["br0"].has_dependent_ports);
        database.handle.stop().await;
    }

    /// A new port of a bridge is read alone, and so is a changed one.
    #[tokio::test]
    async fn only_rows_of_the_changed_port_are_read() {
        let database = TwoBridges::start().await;
        let mut rows = database.handle.transaction("ports");
        let add = |rows: &mut RowTransaction, name: &str| {
            let interface = rows.insert("Interface", [("name", Datum::string(name))]);
            let columns = [("name", Datum::string(name)), ("interfaces", Datum::uuid(interface))];
            let port = rows.insert("Port", columns);
            rows.insert_members("Bridge", database.bridges[0], [("ports", Datum::uuid(port))]);
            port
        };
        let ports: Vec<_> = (0..200).map(|number| add(&mut rows, &format!("p{number}"))).collect();
        database.handle.transact(rows).await.unwrap();
        let before = database.rows().await;
        let bridges = DesiredBridges::of(&before, PortReadings::default());
        let mut rows = database.handle.transaction("one more");
        let new = add(&mut rows, "new");
        rows.update("Port", ports[7], [("tag", Datum::integer(7))]);
        database.handle.transact(rows).await.unwrap();
        let after = database.rows().await;
        let changed = ChangedRows::between(&before, &after);
        let read = bridges.ports_to_read([&before, &after], &changed);
        assert_eq!(read, Some(BTreeSet::from([new, ports[7]])));

        // A bond is always read as well, and leaves all other ports in place.
        let bridges = bridges.after([&before, &after], &changed);
        let mut rows = database.handle.transaction("a bond");
        change_bond(&mut rows, "bond", after.row("Port", ports[9]).unwrap());
        database.handle.transact(rows).await.unwrap();
        let bonded = database.rows().await;
        let changed = ChangedRows::between(&after, &bonded);
        let read = bridges.ports_to_read([&after, &bonded], &changed);
        assert_eq!(read, Some(BTreeSet::from([ports[9]])));
        let bridges = bridges.after([&after, &bonded], &changed);
        assert_eq!(bridges.bridges["br0"].options.bonds.len(), 1);
        let mut rows = database.handle.transaction("a tag");
        rows.update("Port", ports[7], [("tag", Datum::integer(8))]);
        database.handle.transact(rows).await.unwrap();
        let tagged = database.rows().await;
        let changed = ChangedRows::between(&bonded, &tagged);
        let read = bridges.ports_to_read([&bonded, &tagged], &changed);
        assert_eq!(read, Some(BTreeSet::from([ports[7], ports[9]])));
        database.handle.stop().await;
    }
}
