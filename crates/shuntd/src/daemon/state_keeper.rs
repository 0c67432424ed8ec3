//! The task that keeps the state file up to date while the switch runs.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use shunt_switch::Switch;
use tracing::{info, warn};

use super::{
    reload::Reloader,
    state_file::{StateFile, write_whole},
    trace_log,
};

/// Shortest time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);

/// Longest time from a write to the next.
///
/// So a slow write delays later changes little.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Ratio of a pause to the write before it, up to [`PAUSE_MAX`].
const PAUSE_RATIO: u32 = 20;

/// Returns the time from a write to the next.
fn pause_after(written_in: Duration) -> Duration {
    written_in.saturating_mul(PAUSE_RATIO).clamp(WRITE_INTERVAL, PAUSE_MAX)
}

/// Keeps the state file of a switch up to date.
pub(crate) struct StateKeeper {
    /// The path of the state file.
    path: PathBuf,
    switch: Arc<Switch>,
    reloader: Arc<Reloader>,
    /// Held while the file is written; a write continues when its task is cancelled.
    writing: Arc<Mutex<()>>,
    /// The last failed write, until a write succeeds.
    failure: Mutex<WriteFailure>,
}

/// The last failed write of the state file, which is logged once.
#[derive(Default)]
struct WriteFailure(Option<String>);

impl WriteFailure {
    /// Records the result of a write; returns a log line if the result has changed.
    fn note(&mut self, written: &Result<(), String>) -> Option<String> {
        let failure = written.as_ref().err();
        if self.0.as_ref() == failure {
            return None;
        }
        self.0 = failure.cloned();
        let line = |error: &String| format!("cannot be written: {error}");
        Some(failure.map_or_else(|| "written again".to_owned(), line))
    }
}

impl StateKeeper {
    pub(crate) fn new(path: PathBuf, switch: Arc<Switch>, reloader: Arc<Reloader>) -> Self {
        Self { path, switch, reloader, writing: Arc::default(), failure: Mutex::default() }
    }

    /// Writes the file after changes of the state, as long as the switch runs.
    pub(crate) async fn run(&self) {
        let mut written = None;
        let mut pause = WRITE_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let now = (self.switch.version(), self.switch.running_config(), trace_log::filter());
            if written.as_ref() == Some(&now) {
                continue;
            }
            let begun = tokio::time::Instant::now();
            if self.write().await {
                written = Some(now);
            }
            pause = pause_after(begun.elapsed());
        }
    }

    /// Writes the file now; returns whether the write succeeded.
    pub(crate) async fn write(&self) -> bool {
        let loaded = self.reloader.loaded().await;
        let (switch, path) = (Arc::clone(&self.switch), self.path.clone());
        let writing = Arc::clone(&self.writing);
        // The write runs on a blocking thread: the state may be large, and a disk may be slow.
        let written = tokio::task::spawn_blocking(move || {
            let _writing = writing.lock();
            let text = StateFile::of(&switch, loaded).text()?;
            write_whole(&path, &text).map_err(|error| error.to_string())
        });
        let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
        let line = self.failure.lock().unwrap_or_else(PoisonError::into_inner).note(&written);
        let path = self.path.display();
        match line {
            Some(line) if written.is_ok() => info!("state file {path}: {line}"),
            Some(line) => warn!("state file {path}: {line}"),
            None => {}
        }
        written.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_write_delays_the_next_by_seconds() {
        assert_eq!(pause_after(Duration::from_millis(1)), WRITE_INTERVAL);
        assert_eq!(pause_after(Duration::from_millis(100)), Duration::from_secs(2));
        // A disk stood still for a minute.
        assert_eq!(pause_after(Duration::from_secs(60)), PAUSE_MAX);
        assert_eq!(pause_after(Duration::MAX), PAUSE_MAX);
    }

    /// The keeper tries again four times a second, as while the disk is full.
    #[test]
    fn an_unchanged_failure_is_logged_once() {
        let (mut failure, full) = (WriteFailure::default(), Err("disk full".to_owned()));
        assert_eq!(failure.note(&Ok(())), None);
        assert_eq!(failure.note(&full).as_deref(), Some("cannot be written: disk full"));
        assert_eq!(failure.note(&full), None);
        let other = failure.note(&Err("no such directory".to_owned()));
        assert_eq!(other.as_deref(), Some("cannot be written: no such directory"));
        assert_eq!(failure.note(&Ok(())).as_deref(), Some("written again"));
        assert_eq!(failure.note(&Ok(())), None);
    }
}
