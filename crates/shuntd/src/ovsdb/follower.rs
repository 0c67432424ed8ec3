//! The task that makes the switch follow the database, and reports the results in its rows.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use shunt_ovsdb::{DatabaseSnapshot, OvsdbServerError, value::RowUuid};
use shunt_switch::{PortChanges, Switch};
use tokio::{
    sync::oneshot,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tracing::warn;

use super::{
    database::{DatabaseRows, SwitchDatabase},
    desired::DesiredBridges,
    ignored::{IgnoredLog, ignored_settings},
    managers::Managers,
    problem::DatabaseProblem,
    reconciler::{ApplyErrors, Reconciler},
    report::{RowReport, StatisticsColumns},
};

/// The state of the task that follows the database.
pub(super) struct Follower {
    database: SwitchDatabase,
    reconciler: Reconciler,
    managers: Managers,
    switch: Arc<Switch>,
    problem: DatabaseProblem,
    /// Receiver of changes of links and devices, which the next report contains.
    port_changes: PortChanges,
    /// The time of the last report of changed ports.
    ports_reported: Instant,
    /// The time at which all statistics are written next.
    statistics_due: Instant,
    /// The reason why the last report was refused; empty if it was accepted.
    refusal: String,
    /// The logged reasons why interfaces, or some of their columns, have no effect.
    refused: BTreeMap<RowUuid, String>,
    ignored_log: IgnoredLog,
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
        let managers = Managers::new(&database, switch.tls().clone(), listening);
        Self {
            database,
            managers,
            reconciler: Reconciler::new(Arc::clone(&switch)),
            switch,
            problem,
            port_changes,
            ports_reported: Instant::now(),
            statistics_due: Instant::now(),
            refusal: String::new(),
            refused: BTreeMap::new(),
            ignored_log: IgnoredLog::default(),
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
        loop {
            let rows = self.database.rows().await?;
            self.problem.set(self.database.problem(&rows));
            match &rows {
                DatabaseRows::Current(rows) => self.update(rows).await?,
                DatabaseRows::Away | DatabaseRows::OfOtherSwitch => {
                    self.statistics_due = Instant::now() + STATISTICS_PERIOD_MIN;
                }
            }
            if let Some(applied) = applied.take_if(|_| !matches!(rows, DatabaseRows::Away)) {
                // The receiver is dropped if the start was cancelled.
                let _ = applied.send(());
            }
            // Each of these events causes a report of all results. So no event is lost if another
            // is handled first.
            tokio::select! {
                changed = self.database.changed() => changed?,
                _ = ticks.tick() => {}
                () = sleep_until(self.statistics_due) => {}
                () = ports_changed(&mut self.port_changes, self.ports_reported) => {
                    self.ports_reported = Instant::now();
                }
            }
        }
    }

    /// Applies the rows, and writes the results into the rows.
    async fn update(&mut self, rows: &DatabaseSnapshot) -> Result<(), OvsdbServerError> {
        let desired = DesiredBridges::of(rows);
        let errors = self.reconciler.apply(&desired).await;
        // The reconciler has applied the row of `SSL`, which managers need.
        self.managers.update(rows).await;
        self.log_refused(rows, &errors);
        let ignored = ignored_settings(rows);
        self.ignored_log.update(rows, &ignored);
        let own = self.reconciler.bridges();
        let mut bridges = self.switch.bridges();
        bridges.retain(|bridge| own.contains(bridge.name.as_str()));
        let statistics = if Instant::now() >= self.statistics_due {
            self.statistics_due = Instant::now() + statistics_period(rows);
            StatisticsColumns::All
        } else {
            StatisticsColumns::Empty
        };
        let mut transaction = self.database.transaction("shuntd: state of the switch");
        let mut report = RowReport {
            snapshot: rows,
            bridges: &bridges,
            errors: &errors,
            ignored: &ignored,
            managers: &self.managers,
            statistics,
            transaction: &mut transaction,
        };
        report.write();
        report.finish();
        if transaction.is_empty() {
            return Ok(());
        }
        let refusal = self.database.transact(transaction).await?.unwrap_or_default();
        if !refusal.is_empty() && refusal != self.refusal {
            warn!(error = refusal, "ovsdb: cannot write the state of the switch, retrying");
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
async fn ports_changed(changes: &mut PortChanges, last_report: Instant) {
    changes.changed().await;
    let soon = Instant::now() + REPORT_PAUSE;
    sleep_until(soon.max(last_report + PORT_REPORT_PERIOD)).await;
}

/// Returns the time between two reports of statistics.
///
/// The key `stats-update-interval` has the time in milliseconds.
fn statistics_period(rows: &DatabaseSnapshot) -> Duration {
    let entry = |key| rows.rows("Open_vSwitch").find_map(|row| row.entry("other_config", key));
    let period = entry("stats-update-interval").and_then(|text| text.parse().ok());
    period.map_or(STATISTICS_PERIOD_MIN, Duration::from_millis).max(STATISTICS_PERIOD_MIN)
}
