//! The status of threads.

use serde::Serialize;

use crate::threads::load::balancer::RxQueueStatus;

/// The name of a thread, and whether it still runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadStatus {
    /// Name of the thread, such as `packet thread 0` or `eviction thread`.
    pub name: String,
    /// State of the thread.
    pub state: ThreadState,
    /// Poll loop iterations, including idle ones; `None` for other than packet threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u64>,
    /// CPUs on which a packet thread may run, such as `0-3,8`.
    ///
    /// `None` in the answer of `Switch::threads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// NUMA node of a packet thread, if all of its CPUs belong to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Receive queues of a packet thread; empty in the answer of `Switch::threads`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<RxQueueStatus>,
}

impl ThreadStatus {
    /// Creates the status of a thread that counts no iterations.
    pub(crate) const fn new(name: String, state: ThreadState) -> Self {
        Self { name, state, iterations: None, cpus: None, numa_node: None, queues: Vec::new() }
    }
}

/// The state of a thread: it runs, or it has ended for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// The thread runs as usual.
    Running,
    /// The thread panicked, which is a bug.
    Panicked,
    /// The thread was stopped: packet threads cannot run without the eviction thread.
    Stopped,
}
