//! The sizes and counters of a live classifier.

use std::time::Duration;

use crate::NuevoMatchStatistics;

/// The state of the trainer thread, which rebuilds a live classifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrainerState {
    /// No trainer thread was started, or it was stopped.
    #[default]
    Absent,
    /// The trainer thread waits until a rebuild is due.
    Idle,
    /// The trainer thread builds a classifier.
    Building,
    /// The trainer thread panicked.
    /// Lookups and changes continue without rebuilds, until another trainer is started.
    Died,
}

/// The sizes and counters of a [`LiveNuevoMatch`](crate::LiveNuevoMatch).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveStatistics {
    /// The sizes of the classifier that readers use.
    pub current: NuevoMatchStatistics,
    /// Number of delayed rules that are not visible yet.
    pub pending: usize,
    /// Number of completed rebuilds.
    pub rebuilds: u64,
    /// Number of rebuilds that ended with an error.
    pub rebuild_errors: u64,
    /// Time of the last rebuild by a trainer with a clock, training included.
    pub rebuild_time: Option<Duration>,
    /// The state of the trainer thread.
    pub trainer: TrainerState,
}
