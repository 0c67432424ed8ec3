//! The column `statistics` of `Open_vSwitch`, while `other_config:enable-statistics` is `true`.
//!
//! A file system that does not answer must not delay the task that follows the database. So a
//! blocking thread reads the statistics, and a late result is written later.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use shunt_ovsdb::DatabaseSnapshot;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep_until, timeout},
};

use crate::host_statistics;

/// The entries of the column.
type HostStatistics = BTreeMap<String, String>;

/// Reads the statistics of the host every five seconds.
pub(super) struct StatisticsReader {
    /// The run directory, with the pid files of daemons.
    run_dir: Option<PathBuf>,
    /// The entries that were read last; empty while the statistics are off.
    last: HostStatistics,
    /// A reading that has not ended.
    reading: Option<JoinHandle<HostStatistics>>,
    /// The time of the next reading; `None` while the statistics are off.
    due: Option<Instant>,
}

/// Time between two readings, as in Open vSwitch.
const PERIOD: Duration = Duration::from_secs(5);

/// Longest time that the caller waits for a reading.
///
/// A reading takes about a millisecond, unless a file system does not answer.
const WAIT_MAX: Duration = Duration::from_millis(100);

impl StatisticsReader {
    /// Creates a reader of which the statistics are off.
    pub(super) const fn new(run_dir: Option<PathBuf>) -> Self {
        Self { run_dir, last: BTreeMap::new(), reading: None, due: None }
    }

    /// Returns the entries that the column must have now.
    pub(super) async fn entries(&mut self, rows: &DatabaseSnapshot) -> &HostStatistics {
        let key = |root: shunt_ovsdb::RowView<'_>| {
            root.entry("other_config", "enable-statistics") == Some("true")
        };
        if !rows.rows("Open_vSwitch").any(key) {
            (self.last, self.due) = (BTreeMap::new(), None);
            return &self.last;
        }
        let (now, mut wait) = (Instant::now(), Duration::ZERO);
        if self.due.is_none_or(|due| due <= now) {
            self.due = Some(now + PERIOD);
            // A reading that has not ended is not repeated, and delays no further call.
            if self.reading.is_none() {
                let run_dir = self.run_dir.clone();
                let read = move || host_statistics::read(run_dir.as_deref());
                (self.reading, wait) = (Some(spawn_blocking(read)), WAIT_MAX);
            }
        }
        if let Some(reading) = &mut self.reading
            && let Ok(ended) = timeout(wait, reading).await
        {
            self.reading = None;
            // A reading that panicked has no result, and the former entries stay.
            if let Ok(entries) = ended {
                self.last = entries;
            }
        }
        &self.last
    }

    /// Waits until the next reading is due; forever while the statistics are off.
    pub(super) async fn wait(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use shunt_ovsdb::{OvsdbHandle, Server, ServerConfig, schema, value::Datum};

    use super::*;

    /// Sets the key, and returns the rows.
    async fn set_key(handle: &OvsdbHandle, value: &str) -> DatabaseSnapshot {
        let rows = handle.snapshot().await.unwrap();
        let mut change = handle.transaction("statistics");
        let config = ("other_config", Datum::string_map([("enable-statistics", value)]));
        match rows.rows("Open_vSwitch").next() {
            Some(root) => change.update("Open_vSwitch", root.uuid(), [config]),
            None => drop(change.insert("Open_vSwitch", [config])),
        }
        handle.transact(change).await.unwrap();
        handle.snapshot().await.unwrap()
    }

    #[tokio::test]
    async fn statistics_are_read_while_the_key_is_true() {
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default()).unwrap();
        let handle = server.start().unwrap();
        let mut reader = StatisticsReader::new(None);
        let off = set_key(&handle, "false").await;
        assert!(reader.entries(&off).await.is_empty() && reader.due.is_none());
        let on = set_key(&handle, "true").await;
        while reader.entries(&on).await.is_empty() {}
        assert!(reader.last.contains_key("cpu") && reader.last.contains_key("memory"));
        assert!(reader.due.is_some_and(|due| due <= Instant::now() + PERIOD));
        assert!(reader.entries(&off).await.is_empty() && reader.due.is_none());
        handle.stop().await;
    }
}
