//! The status of threads.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use shunt_thread_watch::{CurrentIteration, ThreadRecord};

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

/// A thread that is in an iteration, for a watchdog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadIteration {
    /// Name of the thread, such as `eviction thread`.
    pub name: Arc<str>,
    /// Number of the thread among threads of one name.
    pub number: u64,
    /// Time that an iteration may take, if it is longer than the limit of the watchdog.
    pub iteration_max: Duration,
    /// The present iteration.
    pub iteration: CurrentIteration,
}

impl ThreadIteration {
    /// Returns the iteration of a thread that the switch has once.
    pub(crate) fn of_switch(name: &str, iteration: CurrentIteration) -> Self {
        Self { name: name.into(), number: 0, iteration_max: Duration::ZERO, iteration }
    }

    /// Returns the present iteration of a watched thread; `None` if it waits.
    pub(crate) fn of_record(record: &ThreadRecord) -> Option<Self> {
        let ThreadRecord { name, number, iteration_max, iterations } = record;
        let (name, iteration) = (Arc::clone(name), iterations.current()?);
        Some(Self { name, number: *number, iteration_max: *iteration_max, iteration })
    }
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
