//! The task that makes the switch follow the database, and reports the results in its rows.

#[cfg(test)]
mod two_clients;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    path::Path,
    sync::Arc,
    time::Duration,
};

use shunt_ovsdb::{DatabaseSnapshot, OvsdbServerError, RowTransaction, value::RowUuid};
use shunt_switch::{ObjectId, PortChanges, Switch};
use tokio::{
    sync::oneshot,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tracing::warn;

use super::{
    apply_errors::ApplyErrors,
    changed_rows::ChangedRows,
    database::{DatabaseRows, SwitchDatabase},
    desired::DesiredBridges,
    ignored::{IgnoredLog, IgnoredSettings, ignored_settings},
    managers::Managers,
    port_readings::PortReadings,
    problem::DatabaseProblem,
    reconciler::Reconciler,
    report::{RowReport, StatisticsColumns},
    statistics_reader::StatisticsReader,
};

/// The state of the task that follows the database.
pub(super) struct Follower {
    /// The rows, and the transactions that change these.
    database: SwitchDatabase,
    /// Makes the switch equal to the rows.
    reconciler: Reconciler,
    /// The connections of the rows in `Manager`.
    managers: Managers,
    switch: Arc<Switch>,
    /// The reason why the switch does not follow its database.
    problem: DatabaseProblem,
    /// Receiver of changes of links and devices, which the next report contains.
    port_changes: PortChanges,
    /// The time of the last report of changed ports.
    ports_reported: Instant,
    /// The time of the next report of changed ports; `None` while no port has changed.
    ports_due: Option<Instant>,
    /// The time at which all statistics are written next.
    statistics_due: Instant,
    /// Reads the statistics of the host.
    host: StatisticsReader,
    /// The reason why the last report was refused; empty if it was accepted.
    refusal: String,
    /// The logged reasons why interfaces, or some of their columns, have no effect.
    refused: BTreeMap<RowUuid, String>,
    /// The logged settings without effect.
    ignored_log: IgnoredLog,
    /// The last pass; `None` before the first.
    last: Option<LastPass>,
}

/// The rows of the last pass, and what was read from them.
struct LastPass {
    /// The rows that the last pass read.
    rows: DatabaseSnapshot,
    /// The bridges that the rows describe.
    desired: DesiredBridges,
    /// The settings of these rows without effect.
    ignored: IgnoredSettings,
    /// The reasons why objects of these rows could not be applied.
    errors: ApplyErrors,
}

/// The ports that a pass reports in their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReportedPorts {
    All,
    /// Ports of changed rows, ports that the pass has changed, and these.
    Changed(BTreeSet<String>),
}

/// Time between two attempts to apply rows that could not be applied.
const REFRESH_PERIOD: Duration = Duration::from_secs(2);

/// Time between the change of a port and the report of this change.
///
/// Other ports may change in this time, and are reported together.
const REPORT_PAUSE: Duration = Duration::from_millis(20);

/// Shortest time between two reports of changed ports.
///
/// The period limits the reports of a link that changes all the time.
const PORT_REPORT_PERIOD: Duration = Duration::from_millis(200);

/// Shortest time between two reports of statistics, and the default.
const STATISTICS_PERIOD_MIN: Duration = Duration::from_secs(5);

impl Follower {
    pub(super) fn new(
        database: SwitchDatabase,
        switch: Arc<Switch>,
        problem: DatabaseProblem,
    ) -> Self {
        let port_changes = switch.port_changes();
        let listening = Arc::clone(switch.listening_sockets());
        let run_dir = switch.run_dir().map(Path::to_owned);
        let managers = Managers::new(&database, switch.tls().clone(), listening);
        Self {
            database,
            managers,
            reconciler: Reconciler::new(Arc::clone(&switch)),
            switch,
            problem,
            port_changes,
            ports_reported: Instant::now(),
            ports_due: None,
            statistics_due: Instant::now(),
            host: StatisticsReader::new(run_dir),
            refusal: String::new(),
            refused: BTreeMap::new(),
            ignored_log: IgnoredLog::default(),
            last: None,
        }
    }

    /// Applies the rows, notifies `applied`, then follows all changes of the rows.
    ///
    /// If another switch owns the database, `applied` is notified without waiting for it.
    ///
    /// # Errors
    ///
    /// If the database cannot be used any more.
    pub(super) async fn run(
        mut self,
        applied: oneshot::Sender<()>,
    ) -> Result<Infallible, OvsdbServerError> {
        let mut applied = Some(applied);
        let mut ticks = interval_at(Instant::now() + REFRESH_PERIOD, REFRESH_PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = ReportedPorts::All;
        loop {
            let rows = self.database.rows().await?;
            self.problem.set(self.database.problem(&rows));
            match &rows {
                DatabaseRows::Current(rows) => self.update(rows, &reported).await?,
                DatabaseRows::Away | DatabaseRows::OfOtherSwitch => {
                    self.statistics_due = Instant::now() + STATISTICS_PERIOD_MIN;
                }
            }
            if let Some(applied) = applied.take_if(|_| !matches!(rows, DatabaseRows::Away)) {
                // The receiver is dropped if the start was cancelled.
                let _ = applied.send(());
            }
            // Changed rows and ports cause a report of these ports, and each other event a report
            // of all ports. An event that is not handled first is still there in the next
            // iteration.
            reported = tokio::select! {
                changed = self.database.changed() => {
                    changed?;
                    ReportedPorts::Changed(BTreeSet::new())
                }
                _ = ticks.tick() => ReportedPorts::All,
                () = sleep_until(self.statistics_due) => ReportedPorts::All,
                () = self.host.wait() => ReportedPorts::Changed(BTreeSet::new()),
                () = wait_for_port_changes(
                    &self.port_changes,
                    &mut self.ports_due,
                    self.ports_reported,
                ) => {
                    self.ports_reported = Instant::now();
                    self.ports_due = None;
                    let ports = self.switch.take_changed_ports(&self.port_changes);
                    ports.map_or(ReportedPorts::All, ReportedPorts::Changed)
                }
            };
        }
    }

    /// Applies the rows, and writes the results into the rows.
    ///
    /// Without other events, the cost depends on the changed rows and on the bonds.
    async fn update(
        &mut self,
        rows: &DatabaseSnapshot,
        reported: &ReportedPorts,
    ) -> Result<(), OvsdbServerError> {
        let last = self.last.take();
        let changed =
            last.as_ref().map_or(ChangedRows::All, |last| ChangedRows::between(&last.rows, rows));
        let names = match (&last, reported) {
            (Some(last), ReportedPorts::Changed(ports)) => {
                changed.port_names(&last.rows, rows).map(|own| own.union(ports).cloned().collect())
            }
            (Some(_), ReportedPorts::All)
            | (None, ReportedPorts::All | ReportedPorts::Changed(_)) => None,
        };
        let (desired, ignored, last_errors) = match last {
            Some(LastPass { rows: earlier, desired, ignored, errors }) => {
                (desired.after([&earlier, rows], &changed), ignored, errors)
            }
            None => {
                let desired = DesiredBridges::of(rows, PortReadings::default());
                (desired, IgnoredSettings::new(), ApplyErrors::default())
            }
        };
        let (errors, objects) = self.reconciler.apply(&desired, names.as_ref()).await;
        // The reconciler has applied the row of `SSL`, which managers need.
        self.managers.update(rows).await;
        self.log_refused(rows, &errors);
        let ignored = ignored_settings(rows, &changed, ignored);
        self.ignored_log.update(rows, &ignored);
        let is_statistics_due = Instant::now() >= self.statistics_due;
        let scope = match (changed, reported) {
            (ChangedRows::Ports(mut changed), ReportedPorts::Changed(ports))
                if !is_statistics_due =>
            {
                changed.extend(ports.iter().filter_map(|name| desired.interface(name)));
                Some(report_scope(changed, &desired, &objects, [&last_errors, &errors]))
            }
            _ => None,
        };
        let own = self.reconciler.bridges();
        let mut bridges = match &scope {
            None => self.switch.bridges(),
            Some(scope) => self.switch.bridges_with_ports(&port_names(rows, scope)),
        };
        bridges.retain(|bridge| own.contains(bridge.name.as_str()));
        let statistics = if is_statistics_due {
            self.statistics_due = Instant::now() + statistics_period(rows);
            StatisticsColumns::All
        } else {
            StatisticsColumns::Empty
        };
        let host = self.host.entries(rows).await;
        let mut transaction = self.database.transaction("shuntd: state of the switch");
        let mut report = RowReport {
            snapshot: rows,
            bridges: &bridges,
            errors: &errors,
            ignored: &ignored,
            managers: &self.managers,
            host,
            statistics,
            scope: scope.as_ref(),
            transaction: &mut transaction,
        };
        report.write();
        report.finish();
        self.last = Some(LastPass { rows: rows.clone(), desired, ignored, errors });
        self.write(transaction).await
    }

    /// Writes the state of the switch into the rows.
    async fn write(&mut self, transaction: RowTransaction) -> Result<(), OvsdbServerError> {
        if transaction.is_empty() {
            return Ok(());
        }
        let refusal = self.database.transact(transaction).await?.unwrap_or_default();
        if !refusal.is_empty() && refusal != self.refusal {
            warn!(
                error = refusal,
                "ovsdb: the state of the switch cannot be written to the \
                 database, retrying"
            );
        }
        self.refusal = refusal;
        Ok(())
    }

    /// Logs why interfaces, or some of their columns, have no effect; each reason once.
    fn log_refused(&mut self, rows: &DatabaseSnapshot, errors: &ApplyErrors) {
        let reasons = errors.settings.iter().chain(&errors.interfaces);
        let refused: BTreeMap<_, _> = reasons.map(|(row, own)| (*row, own.clone())).collect();
        let is_new = |(row, own): &(&RowUuid, &String)| self.refused.get(row) != Some(*own);
        for (row, reason) in refused.iter().filter(is_new) {
            let name = rows.row("Interface", *row).and_then(|row| row.string("name"));
            warn!("interface {}: {reason}", name.unwrap_or_default());
        }
        self.refused = refused;
    }
}

/// Waits for the change of a port, and then a short time for further changes.
///
/// Cancelling the call loses no change: `due` then has the time of the report.
async fn wait_for_port_changes(
    changes: &PortChanges,
    due: &mut Option<Instant>,
    last_report: Instant,
) {
    let at = match *due {
        Some(at) => at,
        None => {
            changes.changed().await;
            let soon = Instant::now() + REPORT_PAUSE;
            *due.insert(soon.max(last_report + PORT_REPORT_PERIOD))
        }
    };
    sleep_until(at).await;
}

/// Returns the rows in `Port` and `Interface` that a pass reports.
///
/// The result has the changed rows, and the rows of ports with a new result. A changed port also
/// concerns the patch ports that have it as a peer, and a changed bridge all patch ports.
fn report_scope(
    mut scope: BTreeSet<RowUuid>,
    desired: &DesiredBridges,
    objects: &BTreeSet<ObjectId>,
    [last_errors, errors]: [&ApplyErrors; 2],
) -> BTreeSet<RowUuid> {
    scope.extend(changed_keys(&last_errors.interfaces, &errors.interfaces));
    scope.extend(changed_keys(&last_errors.settings, &errors.settings));
    for object in objects {
        match object {
            ObjectId::Port(name) => {
                scope.extend(desired.interface(name));
                scope.extend(desired.readings.patches_to(name));
            }
            ObjectId::Bridge(_) => scope.extend(desired.readings.patches()),
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
    scope
}

/// Returns the rows with different reasons.
fn changed_keys(
    old: &BTreeMap<RowUuid, String>,
    new: &BTreeMap<RowUuid, String>,
) -> BTreeSet<RowUuid> {
    let is_changed = |uuid: &&RowUuid| old.get(*uuid) != new.get(*uuid);
    old.keys().chain(new.keys()).filter(is_changed).copied().collect()
}

/// Returns the names of the ports of rows in `Interface`.
fn port_names(rows: &DatabaseSnapshot, scope: &BTreeSet<RowUuid>) -> BTreeSet<String> {
    let rows = scope.iter().filter_map(|uuid| rows.row("Interface", *uuid));
    rows.filter_map(|row| row.string("name")).map(str::to_owned).collect()
}

/// Returns the time between two reports of statistics.
///
/// The key `stats-update-interval` has the time in milliseconds.
fn statistics_period(rows: &DatabaseSnapshot) -> Duration {
    let entry = |key| rows.rows("Open_vSwitch").find_map(|row| row.entry("other_config", key));
    let period = entry("stats-update-interval").and_then(|text| text.parse().ok());
    period.map_or(STATISTICS_PERIOD_MIN, Duration::from_millis).max(STATISTICS_PERIOD_MIN)
}

#[cfg(test)]
mod tests {
    use shunt_ovsdb::{
        Server, ServerConfig, schema,
        value::{Atom, Datum},
    };

    use super::*;

    /// A changed port is reported with the patch ports that name it alone.
    #[tokio::test]
    async fn a_port_is_reported_with_its_patches() {
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
        let handle = server.unwrap().start().unwrap();
        let mut rows = handle.transaction("patch ports");
        let mut interfaces = BTreeMap::new();
        let mut ports = Vec::new();
        for number in 0..200 {
            let (name, peer) = (format!("p{number}"), format!("p{}", number ^ 1));
            let columns = [
                ("name", Datum::string(&name)),
                ("type", Datum::string("patch")),
                ("options", Datum::string_map([("peer", peer.as_str())])),
            ];
            let interface = rows.insert("Interface", columns);
            let columns = [("name", Datum::string(&name)), ("interfaces", Datum::uuid(interface))];
            ports.push(Atom::Uuid(rows.insert("Port", columns)));
            interfaces.insert(name, interface);
        }
        let columns = [("name", Datum::string("br0")), ("ports", Datum::set(ports))];
        let bridge = rows.insert("Bridge", columns);
        rows.insert("Open_vSwitch", [("bridges", Datum::uuid(bridge))]);
        handle.transact(rows).await.unwrap();
        let rows = handle.snapshot().await.unwrap();
        let desired = DesiredBridges::of(&rows, PortReadings::default());
        let scope = |object: ObjectId| {
            let errors = ApplyErrors::default();
            report_scope(BTreeSet::new(), &desired, &BTreeSet::from([object]), [&errors; 2])
        };
        let both = ["p6", "p7"].map(|name| interfaces[name]);
        assert_eq!(scope(ObjectId::Port("p7".to_owned())), BTreeSet::from(both));
        // The port is not in the database any more.
        assert_eq!(scope(ObjectId::Port("p999".to_owned())), BTreeSet::new());
        let all: BTreeSet<_> = interfaces.into_values().collect();
        assert_eq!(scope(ObjectId::Bridge("br0".to_owned())), all);
        handle.stop().await;
    }
}
