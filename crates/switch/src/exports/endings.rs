//! Exporters that were switched off or changed, and still report the rest.

use std::mem;

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// The tasks of such exporters.
///
/// A change of the configuration does not wait for them, but the end of the daemon does.
#[derive(Debug, Default)]
pub(super) struct EndingExporters(Mutex<JoinSet<()>>);

impl EndingExporters {
    /// Runs a task that reports the rest.
    pub(super) fn spawn(&self, ending: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(ending);
    }

    /// Waits for all tasks.
    pub(super) async fn finished(&self) {
        let mut tasks = mem::take(&mut *self.0.lock());
        while tasks.join_next().await.is_some() {}
    }
}
