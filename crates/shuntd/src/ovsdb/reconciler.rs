//! The bridges and ports of the rows as a desired state, which is applied to the switch.
//!
//! A pass compares the rows with the present state of the switch. So a change by another client of
//! the switch is undone: the database decides about its bridges. After a change of few rows, a pass
//! compares only the ports of these rows, unless another client has changed a port meanwhile. The
//! switch refuses a comparison that is older than such a change, and all ports are compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_switch::{
    ApplyPolicy, ApplyReport, DeclaredBridge, DeclaredPort, DesiredState, ObjectId, ObjectOutcome,
    PresentState, Switch, config::BridgeOptions,
};
use tracing::{info, warn};

use super::{
    applied_rows::{AppliedRows, PortScope},
    apply_errors::{ApplyErrors, LoggedRows},
    auto_lb::apply_auto_lb,
    bonds::keep_active_members,
    cache_limits::apply_cache_limits,
    desired::{DesiredBridge, DesiredBridges, DesiredPort, add_reason},
    exports::ExportLogs,
    normal_rule::NormalRuleState,
    row_log::RowLog,
    tls::apply_tls,
    vlan_limit::apply_vlan_limit,
};

/// The bridges and ports that exist because of rows of the database.
///
/// Bridges of the configuration file are not included, and are never changed here.
pub(super) struct Reconciler {
    switch: Arc<Switch>,
    /// The rows that were applied.
    applied: AppliedRows,
    /// Names of the ports that the last pass refused.
    ///
    /// The next pass compares these ports again. `None`: the next pass compares all ports.
    refused_ports: Option<BTreeSet<String>>,
    /// The number of changes of ports in the switch, at the end of the last pass.
    ports_revision: u64,
    /// The rule for `NORMAL` of each bridge in `applied`.
    normal_rules: BTreeMap<String, NormalRuleState>,
    /// True while packets of new ports are held until rules are restored.
    waits_for_rules: bool,
    /// Log of controllers that cannot be used.
    controller_log: RowLog,
    /// Log of mirrors that cannot be applied.
    mirror_log: RowLog,
    /// Logs of rows of sFlow, NetFlow and IPFIX that cannot be applied.
    export_logs: ExportLogs,
}

impl Reconciler {
    pub(super) fn new(switch: Arc<Switch>) -> Self {
        Self {
            switch,
            applied: AppliedRows::default(),
            refused_ports: None,
            ports_revision: 0,
            normal_rules: BTreeMap::new(),
            waits_for_rules: false,
            controller_log: RowLog::new("Controller"),
            mirror_log: RowLog::new("Mirror"),
            export_logs: ExportLogs::new(),
        }
    }

    /// Changes the switch where it differs from the desired bridges and ports.
    ///
    /// `changed` has the names of the ports of which a row has changed; `None`: any port. The next
    /// call retries a failed change. Unchanged objects are left alone. The function also returns
    /// the objects that were changed, or could not be changed.
    pub(super) async fn apply(
        &mut self,
        desired: &DesiredBridges,
        changed: Option<&BTreeSet<String>>,
    ) -> (ApplyErrors, BTreeSet<ObjectId>) {
        let mut errors = ApplyErrors {
            interfaces: desired.refused_interfaces.clone(),
            settings: desired.refused_settings.clone(),
            controllers: desired.refused_controllers.clone(),
            ..ApplyErrors::default()
        };
        let of_rows = errors.clone();
        let waited_for_rules = self.waits_for_rules;
        if desired.waits_for_rules != self.waits_for_rules {
            self.waits_for_rules = desired.waits_for_rules;
            let state = if self.waits_for_rules { "wait" } else { "no longer wait" };
            info!("ovsdb: new ports and controllers {state} for the end of flow-restore-wait");
            self.switch.hold_packets(self.waits_for_rules).await;
        }
        apply_auto_lb(&self.switch, desired.auto_lb).await;
        apply_cache_limits(&self.switch, desired.cache_limits).await;
        apply_vlan_limit(&self.switch, desired.vlan_limit).await;
        apply_tls(self.switch.tls(), desired.tls.as_ref()).await;
        let pass = self.pass(desired, changed, &mut errors).await;
        let Pass { scope, present, wanted, report, is_last } = pass;
        let in_force = report.in_force(&present, &wanted);
        self.applied.replace(&scope, in_force.clone());
        self.normal_rules.retain(|name, _| self.applied.has_bridge(name));
        let reasons = self.normal_rules.iter();
        let reasons = reasons.filter_map(|(name, rule)| Some((name.clone(), rule.refusal()?)));
        errors.normal_rules.extend(reasons.map(|(name, reason)| (name, reason.to_owned())));
        log_changes(&report);
        keep_active_members(&self.switch, &bond_names(&present), &desired.last_active()).await;
        let mut logged = LoggedRows {
            mirrors: desired.refused_mirrors.clone(),
            exports: desired.refused_exports.clone(),
        };
        errors.add_refused(&report, desired, &in_force, &mut logged);
        self.ports_revision = report.ports_revision;
        let refused = refused_ports([&of_rows, &errors], &report, desired, &scope);
        self.refused_ports = refused.filter(|_| !is_last);
        if waited_for_rules && !self.waits_for_rules {
            // By now, the listeners of bridges have the sockets of the earlier process.
            self.switch.listening_sockets().release_unused();
        }
        self.controller_log.update(errors.controllers.clone());
        self.mirror_log.update(logged.mirrors);
        self.export_logs.update(logged.exports);
        (errors, report.objects.into_iter().map(|own| own.object).collect())
    }

    /// Returns the names of the bridges that exist because of rows of the database.
    pub(super) fn bridges(&self) -> BTreeSet<&str> {
        self.applied.names().collect()
    }

    /// Compares the switch with the desired bridges, and applies the differences.
    ///
    /// A comparison is repeated if another client changes a port before the changes begin.
    async fn pass(
        &mut self,
        desired: &DesiredBridges,
        changed: Option<&BTreeSet<String>>,
        errors: &mut ApplyErrors,
    ) -> Pass {
        let of_rows = errors.clone();
        let mut attempt = 1;
        loop {
            let (scope, present) = self.present(desired, changed);
            errors.clone_from(&of_rows);
            let wanted = state_of(desired, &scope, &present.state, errors);
            self.change_normal_rules(desired, &present.state).await;
            let is_last = attempt >= ATTEMPTS_MAX;
            if let Some(report) = self.apply_state(desired, &present, &wanted, is_last).await {
                log_missing(present.missing);
                return Pass { scope, present: present.state, wanted, report, is_last };
            }
            attempt += 1;
        }
    }

    /// Returns the ports that a pass compares, and the present state of the bridges
    /// of the database with these ports.
    ///
    /// Objects that another client of the switch has removed are added again by the same pass.
    fn present(
        &self,
        desired: &DesiredBridges,
        changed: Option<&BTreeSet<String>>,
    ) -> (PortScope, PresentState) {
        let present = |scope: &PortScope| self.switch.present_state(&self.applied.state(scope));
        if let (Some(changed), Some(refused)) = (changed, &self.refused_ports)
            && self.applied.allows_parts(desired)
        {
            let mut names: BTreeSet<String> = changed.union(refused).cloned().collect();
            names.extend(self.applied.bond_members(desired));
            let scope = PortScope::Named(names);
            let present = present(&scope);
            // A change by another client is undone, so all ports are compared.
            if present.ports_revision == self.ports_revision {
                return (scope, present);
            }
        }
        (PortScope::All, present(&PortScope::All))
    }

    /// Adds or removes the rule for `NORMAL` on the bridges that stay.
    async fn change_normal_rules(&mut self, desired: &DesiredBridges, present: &DesiredState) {
        for bridge in &present.bridges {
            let name = &bridge.options.name;
            if let Some(new) = desired.bridges.get(name)
                && let Some(rule) = self.normal_rules.get_mut(name)
            {
                rule.apply(&self.switch, new).await;
            }
        }
    }

    /// Applies the differences; a new bridge gets its rule before it has ports.
    ///
    /// Returns `None` if another client has changed a port since `present`, and this is not the
    /// last attempt.
    async fn apply_state(
        &mut self,
        desired: &DesiredBridges,
        present: &PresentState,
        wanted: &DesiredState,
        is_last: bool,
    ) -> Option<ApplyReport> {
        let (switch, normal_rules) = (&self.switch, &mut self.normal_rules);
        let mut fill = |name: &str| {
            if let Some(bridge) = desired.bridges.get(name) {
                let rule = NormalRuleState::of_new_bridge(switch, bridge);
                normal_rules.insert(name.to_owned(), rule);
            }
        };
        let policy = ApplyPolicy::Continuous;
        if is_last {
            return Some(switch.apply_difference(&present.state, wanted, policy, &mut fill).await);
        }
        switch.apply_to_present(present, wanted, policy, &mut fill).await
    }
}

/// The states that a pass has compared, and the result.
struct Pass {
    /// The ports that were compared.
    scope: PortScope,
    /// The state of the switch before the pass.
    present: DesiredState,
    /// The state that the rows describe.
    wanted: DesiredState,
    /// The result for each object.
    report: ApplyReport,
    /// True if other clients changed ports during all earlier attempts.
    ///
    /// The present state may be older than a change of theirs, so the next pass compares all ports.
    is_last: bool,
}

/// Maximum number of comparisons of a pass, while other clients change ports.
const ATTEMPTS_MAX: u8 = 8;

/// Returns the bridges of the rows, with their ports in `scope`, as a desired
/// state.
///
/// A setting with a wrong value is as in `present`. The error of a port that is left out is
/// recorded.
fn state_of(
    desired: &DesiredBridges,
    scope: &PortScope,
    present: &DesiredState,
    errors: &mut ApplyErrors,
) -> DesiredState {
    let bridges = desired.bridges.iter().map(|(name, bridge)| {
        let old = present.bridge(name);
        let ports_of_old: BTreeMap<&str, &DeclaredPort> = old
            .into_iter()
            .flat_map(|old| &old.ports)
            .map(|port| (port.options.name.as_str(), port))
            .collect();
        let port = |(name, port): (&String, &DesiredPort)| {
            declared_port(port, ports_of_old.get(name.as_str()).copied(), errors)
        };
        let ports = scope.select(&bridge.ports).into_iter().filter_map(port).collect();
        DeclaredBridge { options: declared_options(bridge, old), ports }
    });
    DesiredState { settings: None, bridges: bridges.collect() }
}

/// Returns the options of a bridge, shared with `old` if they are equal.
fn declared_options(bridge: &DesiredBridge, old: Option<&DeclaredBridge>) -> Arc<BridgeOptions> {
    let Some(old) = old else {
        return Arc::new(bridge.options_for(&BridgeOptions::default()));
    };
    let options = bridge.options_for(&old.options);
    if options == *old.options { Arc::clone(&old.options) } else { Arc::new(options) }
}

/// Returns a port with the options of its row, or with those of `old` that stay.
///
/// The next pass shares these options, and compares only pointers. A new port with wrong VLANs is left out.
fn declared_port(
    port: &DesiredPort,
    old: Option<&DeclaredPort>,
    errors: &mut ApplyErrors,
) -> Option<DeclaredPort> {
    let Some(old) = old else {
        if let Some(reason) = &port.refused_vlans {
            errors.interfaces.insert(port.interface, reason.clone());
            return None;
        }
        let options = Arc::clone(&port.options);
        return Some(DeclaredPort { options, last_number: port.last_number });
    };
    if let Some(reason) = &port.refused_vlans {
        add_reason(&mut errors.settings, port.interface, reason);
    }
    let options = port.options_for(&old.options);
    Some(DeclaredPort { options, last_number: port.last_number })
}

/// Returns the names of the ports in `scope` that a pass refused.
///
/// `errors` has the errors of the rows before and after the pass. The result is `None` if the pass
/// refused another object than a port.
fn refused_ports(
    errors: [&ApplyErrors; 2],
    report: &ApplyReport,
    desired: &DesiredBridges,
    scope: &PortScope,
) -> Option<BTreeSet<String>> {
    let [before, after] = errors;
    if after.differs_beside_ports(before) {
        return None;
    }
    let mut names = BTreeSet::new();
    for (own, _) in report.refused() {
        let ObjectId::Port(name) = &own.object else { return None };
        names.insert(name.clone());
    }
    for bridge in desired.bridges.values() {
        let ports = scope.select(&bridge.ports).into_iter();
        let refused = ports.filter(|(_, port)| after.differs_at(before, port.interface));
        names.extend(refused.map(|(name, _)| name.clone()));
    }
    Some(names)
}

/// Returns the names of the bonds of a state.
fn bond_names(state: &DesiredState) -> BTreeSet<String> {
    let bonds = state.bridges.iter().flat_map(|bridge| &bridge.options.bonds);
    bonds.map(|bond| bond.name.clone()).collect()
}

/// Logs the objects that another client of the switch had removed.
fn log_missing(missing: Vec<ObjectId>) {
    for object in missing {
        match object {
            ObjectId::Bridge(name) => warn!(
                "bridge {name}: added again, because it is still in \
                 OVSDB: delete it there with `ovs-vsctl del-br`"
            ),
            ObjectId::Port(name) => warn!(
                "port {name}: added again, because it is still in \
                 OVSDB: delete it there with `ovs-vsctl del-port`"
            ),
            object => warn!(
                ?object,
                "ovsdb: an object is added again, because another client \
                 removed it, and it is still in the database"
            ),
        }
    }
}

/// Logs the bridges and ports that were added or removed.
fn log_changes(report: &ApplyReport) {
    for own in &report.objects {
        let done = match own.outcome {
            ObjectOutcome::Added | ObjectOutcome::AddedDown(_) => "added",
            ObjectOutcome::Removed => "removed",
            ObjectOutcome::Changed
            | ObjectOutcome::NotAdded(_)
            | ObjectOutcome::NotRemoved(_)
            | ObjectOutcome::NotChanged(_)
            | ObjectOutcome::AtRestart => continue,
        };
        match &own.object {
            ObjectId::Bridge(name) => info!("bridge {name}: {done} by OVSDB"),
            ObjectId::Port(name) => info!("port {name}: {done} by OVSDB"),
            ObjectId::Settings
            | ObjectId::Controllers(_)
            | ObjectId::Sflow(_)
            | ObjectId::Netflow(_)
            | ObjectId::Ipfix(_)
            | ObjectId::CollectorSets(_)
            | ObjectId::Bonds(_)
            | ObjectId::Bond(_)
            | ObjectId::Mirror { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use shunt_ovsdb::{
        OvsdbHandle, RowTransaction, Server, ServerConfig, schema,
        value::{Atom, Datum, RowUuid},
    };
    use shunt_switch::{Config, ObjectReport, config::FailMode};

    use super::*;
    use crate::ovsdb::{changed_rows::ChangedRows, port_readings::PortReadings};

    /// Returns the bridge `br0` of a database with the ports `p1` and `p2`.
    async fn two_ports() -> DesiredBridges {
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
        let handle = server.unwrap().start().unwrap();
        let mut rows = handle.transaction("two ports");
        let ports = ["p1", "p2"].map(|name| {
            let interface = rows.insert("Interface", [("name", Datum::string(name))]);
            let columns = [("name", Datum::string(name)), ("interfaces", Datum::uuid(interface))];
            rows.insert("Port", columns)
        });
        let ports = Datum::set(ports.map(Atom::Uuid));
        let bridge = rows.insert("Bridge", [("name", Datum::string("br0")), ("ports", ports)]);
        rows.insert("Open_vSwitch", [("bridges", Datum::uuid(bridge))]);
        handle.transact(rows).await.unwrap();
        let rows = handle.snapshot().await.unwrap();
        handle.stop().await;
        DesiredBridges::of(&rows, PortReadings::default())
    }

    /// Returns the report about one object.
    fn report(object: ObjectId, outcome: ObjectOutcome) -> ApplyReport {
        let mut report = ApplyReport::default();
        report.objects.push(ObjectReport { object, change: String::new(), outcome });
        report
    }

    /// An empty column means `standalone`, as in Open vSwitch.
    #[tokio::test]
    async fn bridge_without_fail_mode_is_standalone() {
        let desired = two_ports().await;
        assert_eq!(desired.bridges["br0"].options.fail_mode, FailMode::Standalone);
    }

    /// The next pass compares the refused ports of this pass, and no others.
    #[tokio::test]
    async fn refused_ports_are_compared_again() {
        let desired = two_ports().await;
        let none = ApplyErrors::default();
        let refused = |errors: &ApplyErrors, report: &ApplyReport, scope: &PortScope| {
            let names = refused_ports([&none, errors], report, &desired, scope);
            names.map(|names| names.into_iter().collect::<Vec<_>>())
        };
        let (port, bridge) = (ObjectId::Port("p3".into()), ObjectId::Bridge("br0".into()));
        let all = PortScope::All;
        let done = report(port.clone(), ObjectOutcome::Added);
        assert_eq!(refused(&none, &done, &all), Some(Vec::new()));
        // `p3` has no row any more, and cannot be removed.
        let kept = report(port, ObjectOutcome::NotRemoved("busy".to_owned()));
        assert_eq!(refused(&none, &kept, &all), Some(vec!["p3".to_owned()]));
        let refusal = ObjectOutcome::NotChanged("wrong".to_owned());
        assert_eq!(refused(&none, &report(bridge, refusal), &all), None);

        let row = desired.bridges["br0"].ports["p2"].interface;
        let mut errors = none.clone();
        errors.settings.insert(row, "wrong VLANs".to_owned());
        assert_eq!(refused(&errors, &done, &all), Some(vec!["p2".to_owned()]));
        let other = PortScope::Named(BTreeSet::from(["p1".to_owned()]));
        assert_eq!(refused(&errors, &done, &other), Some(Vec::new()));
        errors.normal_rules.insert("br0".to_owned(), "the table is full".to_owned());
        assert_eq!(refused(&errors, &done, &all), None);
    }

    /// The ports of the test, none of which needs a device.
    const NAMES: [&str; 4] = ["p0", "p1", "p2", "p3"];

    /// Inserts the row of an interface.
    fn interface(rows: &mut RowTransaction, name: &str) -> RowUuid {
        let columns = [("name", Datum::string(name)), ("type", Datum::string("null"))];
        rows.insert("Interface", columns)
    }

    /// Changes the rows of a port; `kind` is below 6, and `value` below 3.
    async fn change(handle: &OvsdbHandle, kind: usize, name: &str, value: usize) {
        let before = handle.snapshot().await.unwrap();
        let old = before.rows("Port").find(|row| row.string("name") == Some(name));
        let mut rows = handle.transaction("a change");
        match (kind, old) {
            // Adds the port, moves it to another bridge, or removes it.
            (0 | 1, _) => {
                let add = || {
                    let interfaces = Datum::uuid(interface(&mut rows, name));
                    let columns = [("name", Datum::string(name)), ("interfaces", interfaces)];
                    rows.insert("Port", columns)
                };
                let port = old.map_or_else(add, |old| old.uuid());
                for (place, bridge) in before.rows("Bridge").enumerate() {
                    let others = bridge.uuids("ports").filter(|own| *own != port);
                    let new = (place == value).then_some(port);
                    let ports = Datum::set(others.chain(new).map(Atom::Uuid));
                    rows.update("Bridge", bridge.uuid(), [("ports", ports)]);
                }
            }
            (2, Some(old)) => {
                let tag = [Datum::empty(), Datum::integer(7), Datum::integer(8)][value].clone();
                rows.update("Port", old.uuid(), [("tag", tag)]);
            }
            // Without a tag, the VLANs are refused.
            (3, Some(old)) => {
                let tunnel = Datum::string("dot1q-tunnel");
                let mode = if value == 0 { tunnel } else { Datum::empty() };
                rows.update("Port", old.uuid(), [("vlan_mode", mode)]);
            }
            (4, Some(old)) => {
                let of_type = ("type", Datum::string(["null", "gre", "patch"][value]));
                let peer = ("options", Datum::string_map([("peer", "p9")]));
                for uuid in old.uuids("interfaces").take(1) {
                    rows.update("Interface", uuid, [of_type.clone(), peer.clone()]);
                }
            }
            // Makes the port a bond, or the bond a port.
            (5, Some(old)) => {
                let is_bond = old.uuids("interfaces").count() > 1;
                let endings: &[&str] = if is_bond { &[""] } else { &["-1", "-2"] };
                let members =
                    Datum::set(endings.iter().map(|ending| {
                        Atom::Uuid(interface(&mut rows, &format!("{name}{ending}")))
                    }));
                rows.update("Port", old.uuid(), [("interfaces", members)]);
            }
            _ => return,
        }
        handle.transact(rows).await.unwrap();
    }

    /// Returns the bridges of a switch, without the numbers of ports.
    fn bridges_of(switch: &Switch) -> Vec<BridgeOptions> {
        let mut bridges = switch.running_config().bridges;
        for bridge in &mut bridges {
            bridge.ports.iter_mut().for_each(|port| port.number = 0);
            bridge.ports.sort_by(|one, two| one.name.cmp(&two.name));
            bridge.bonds.sort_by(|one, two| one.name.cmp(&two.name));
        }
        bridges
    }

    /// A pass over changed rows has the effect and the errors of a pass over all.
    ///
    /// Another client of the switch removes ports as well.
    #[tokio::test]
    async fn pass_over_changed_rows_equals_whole_pass() {
        for seed in 1..7_u64 {
            let mut state = seed;
            let mut below = |end: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                usize::try_from((state >> 33) % end).unwrap()
            };
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            let handle = server.unwrap().start().unwrap();
            let mut rows = handle.transaction("two bridges");
            let bridges =
                ["br0", "br1"].map(|name| rows.insert("Bridge", [("name", Datum::string(name))]));
            let bridges = Datum::set(bridges.map(Atom::Uuid));
            rows.insert("Open_vSwitch", [("bridges", bridges)]);
            handle.transact(rows).await.unwrap();
            let start =
                async || Arc::new(Switch::start(&Config::default(), None, 1).await.unwrap());
            let switches = [start().await, start().await];
            let [mut part, mut whole] =
                switches.each_ref().map(|own| Reconciler::new(Arc::clone(own)));
            let mut earlier = handle.snapshot().await.unwrap();
            let mut desired = DesiredBridges::of(&earlier, PortReadings::default());
            part.apply(&desired, None).await;
            whole.apply(&desired, None).await;
            let mut done = Vec::new();
            for _ in 0..30 {
                let (kind, name, value) = (below(7), NAMES[below(4)], below(3));
                done.push((kind, name, value));
                change(&handle, kind, name, value).await;
                for switch in switches.iter().filter(|_| kind == 6) {
                    let _ = switch.remove_port(name).await;
                }
                let rows = handle.snapshot().await.unwrap();
                let changed = ChangedRows::between(&earlier, &rows);
                let names = changed.port_names(&earlier, &rows).unwrap();
                desired = desired.after([&earlier, &rows], &changed);
                let all = DesiredBridges::of(&rows, PortReadings::default());
                let (errors, _) = part.apply(&desired, Some(&names)).await;
                let (expected, _) = whole.apply(&all, None).await;
                assert_eq!(errors, expected, "seed {seed}: {done:?}");
                let [one, two] = switches.each_ref().map(|own| bridges_of(own));
                assert_eq!(one, two, "seed {seed}: {done:?}");
                earlier = rows;
            }
            handle.stop().await;
        }
    }
}
