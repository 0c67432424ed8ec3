//! The state of a live classifier.

use crate::NuevoMatchStatistics;

/// The state of the thread that rebuilds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TrainerState {
    /// No thread was started, or it was stopped.
    #[default]
    Absent,
    /// The thread waits for work.
    Idle,
    /// The thread builds a classifier.
    Building,
    /// The thread died. Lookups and changes go on without rebuilds: start another.
    Died,
}

/// Sizes and counters of a [`LiveNuevoMatch`](crate::LiveNuevoMatch).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveStatistics {
    /// Sizes of the classifier that readers use.
    pub current: NuevoMatchStatistics,
    /// Delayed rules that are not visible yet.
    pub pending: usize,
    /// Number of completed rebuilds.
    pub rebuilds: u64,
    /// Number of refused rebuilds.
    pub rebuild_errors: u64,
    /// The state of the thread that rebuilds.
    pub trainer: TrainerState,
}
