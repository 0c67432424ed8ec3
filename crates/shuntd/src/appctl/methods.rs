//! The handler of all requests on the control socket.

use std::sync::Arc;

use shunt_switch::Switch;
use tokio::sync::Notify;

use super::{command::CommandEffect, coverage::CoverageHistory, table};
use crate::{daemon::reload::Reloader, rpc::Methods};

/// The objects that the commands of a running daemon use.
pub(crate) struct DaemonMethods {
    pub(super) switch: Arc<Switch>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) stop: Arc<Notify>,
    pub(super) coverage: Arc<CoverageHistory>,
}

impl DaemonMethods {
    /// Creates the handler, and starts the sampling of event counters.
    pub(crate) fn start(switch: Arc<Switch>, reloader: Arc<Reloader>, stop: Arc<Notify>) -> Self {
        let coverage = CoverageHistory::start(&switch);
        Self { switch, reloader, stop, coverage }
    }
}

impl Methods for DaemonMethods {
    fn is_change(&self, method: &str) -> bool {
        table::find(method).is_some_and(|command| command.effect == CommandEffect::Change)
    }

    async fn call(&self, method: &str, parameters: Vec<String>) -> Result<String, String> {
        let command = table::find(method).ok_or_else(|| table::unknown(method))?;
        command.check_count(parameters.len())?;
        (command.handler)(self, &parameters).await
    }
}
