//! The handler of all requests on the control socket.

use std::sync::Arc;

use serde_json::Value;
use shunt_switch::{DatapathReader, PacketThreadCounters, Switch};
use tokio::sync::Notify;

use super::{
    cleared_counters::ClearedCounters, command::CommandEffect, coverage::CoverageHistory, dpif,
    fdb, table,
};
use crate::{daemon::reload::Reloader, rpc::Methods};

/// The objects that the commands of a running daemon use.
pub(crate) struct DaemonMethods {
    pub(super) switch: Arc<Switch>,
    pub(super) reloader: Arc<Reloader>,
    /// Notified when the daemon must end.
    pub(super) stop: Arc<Notify>,
    /// The counters of `coverage/show`, over time.
    pub(super) coverage: Arc<CoverageHistory>,
    /// The counters at the last clear.
    pub(super) cleared: ClearedCounters,
}

impl DaemonMethods {
    /// Creates the handler, and starts the sampling of event counters.
    pub(crate) fn start(switch: Arc<Switch>, reloader: Arc<Reloader>, stop: Arc<Notify>) -> Self {
        let coverage = CoverageHistory::start(&switch);
        let cleared = ClearedCounters::default();
        Self { switch, reloader, stop, coverage, cleared }
    }

    /// Returns the counters of all packet threads since they were cleared.
    pub(super) fn packet_threads(&self) -> Vec<PacketThreadCounters> {
        let threads = DatapathReader::new(&self.switch).packet_threads();
        let numbered = threads.iter().enumerate();
        numbered.map(|(number, now)| self.cleared.of_thread(number, now)).collect()
    }
}

impl Methods for DaemonMethods {
    fn is_change(&self, method: &str) -> bool {
        table::find(method).is_some_and(|command| command.effect == CommandEffect::Change)
    }

    async fn call_json(
        &self,
        method: &str,
        parameters: &[String],
    ) -> Option<Result<Value, String>> {
        let command = table::find(method)?;
        // Of a wrong number of arguments, the call with a text has the error.
        command.check_count(parameters.len()).ok()?;
        match command.name {
            "dpif/show" => Some(Ok(dpif::show_json(self))),
            "fdb/show" => Some(fdb::show_json(self, parameters).await),
            "fdb/stats-show" => Some(fdb::show_stats_json(self, parameters)),
            "list-commands" => Some(Ok(table::list_json())),
            _ => None,
        }
    }

    async fn call(&self, method: &str, parameters: Vec<String>) -> Result<String, String> {
        let command = table::find(method).ok_or_else(|| table::unknown(method))?;
        command.check_count(parameters.len())?;
        (command.handler)(self, &parameters).await
    }
}
