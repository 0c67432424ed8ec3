//! Exporters that were switched off or changed, and still report their remaining flows.

use std::mem;

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// The tasks that report the remaining flows of ended exporters.
///
/// A change of the configuration does not wait for these tasks, but the end of the daemon does.
#[derive(Debug, Default)]
pub(super) struct EndingExporters(Mutex<JoinSet<()>>);

impl EndingExporters {
    /// Runs a task that reports the remaining flows of an exporter.
    pub(super) fn spawn(&self, ending: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(ending);
    }

    /// Waits until all tasks have ended.
    pub(super) async fn finished(&self) {
        let mut tasks = mem::take(&mut *self.0.lock());
        while tasks.join_next().await.is_some() {}
    }
}
