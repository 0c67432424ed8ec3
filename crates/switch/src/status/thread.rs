//! The status of a thread.

use serde::Serialize;

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadStatus {
    /// What it is called: `packet thread 0`, `eviction thread`.
    pub name: String,
    /// How it is.
    pub state: ThreadState,
}

/// How a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// It runs.
    Running,
    /// It has ended by a panic, which is a bug.
    Panicked,
    /// It was stopped: no packet thread goes on without the eviction thread.
    Stopped,
}
