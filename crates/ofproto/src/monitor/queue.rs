//! The queue of rule changes of one connection.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use shunt_pipeline::{Change, RuleListing, Version};
use tokio::sync::Notify;

use super::{MonitoredChange, coalesced::CoalescedChanges};
use crate::message::Xid;

/// The rule changes that wait for the flow monitors of one connection.
#[derive(Debug)]
pub struct MonitorQueue {
    /// Number of waiting changes at which the queue is paused.
    changes_max: usize,
    state: Mutex<MonitorQueueState>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct MonitorQueueState {
    waiting: VecDeque<QueuedChanges>,
    /// Number of rule changes in `waiting`.
    changes_count: usize,
    /// The request of the connection that makes the next recorded change.
    own: Option<Xid>,
    /// The newest version of which the peer receives a list of rules.
    listed: Version,
    /// The net changes since the pause; `None` while the queue is not paused.
    paused: Option<CoalescedChanges>,
}

/// An item of the queue.
#[derive(Debug)]
pub(crate) enum QueuedChanges {
    /// Rule changes to report.
    Changes(RecordedChanges),
    /// The queue was paused: later changes are not reported until [`Self::Resumed`].
    Paused,
    /// All changes until here are reported.
    Resumed,
}

/// The rule changes of one version of the tables.
#[derive(Debug)]
pub(crate) struct RecordedChanges {
    pub(crate) changes: Arc<[MonitoredChange]>,
    /// The own request that made the changes; `None` if another peer made them.
    pub(crate) own: Option<Xid>,
}

/// The request that makes a change, so that its own monitors can abbreviate it.
#[derive(Clone, Debug)]
pub struct ChangeOrigin {
    /// The queue of the connection; `None` if it has no flow monitor.
    queue: Option<Arc<MonitorQueue>>,
    xid: Xid,
}

impl MonitorQueue {
    /// Creates a queue that is paused when `changes_max` rule changes wait.
    #[must_use]
    pub fn new(changes_max: usize) -> Self {
        Self { changes_max, state: Mutex::default(), arrived: Notify::new() }
    }

    /// Adds the rule changes of one version; there may be none.
    pub(super) fn record(&self, changes: &Arc<[MonitoredChange]>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let own = state.own.take();
        if changes.is_empty() {
            return;
        }
        if state.paused.is_none() && state.changes_count >= self.changes_max {
            state.waiting.push_back(QueuedChanges::Paused);
            state.paused = Some(CoalescedChanges::default());
        }
        if let Some(paused) = &mut state.paused {
            let removal = |change| paused.add(change, state.listed);
            let removed: Arc<[_]> = changes.iter().filter_map(removal).collect();
            if !removed.is_empty() {
                state.push(RecordedChanges { changes: removed, own: None });
            }
        } else {
            state.push(RecordedChanges { changes: Arc::clone(changes), own });
        }
        drop(guard);
        self.arrived.notify_one();
    }

    /// Returns the list of rules of `list`, which the peer receives.
    ///
    /// A paused queue then reports the removals of these rules, too.
    pub(crate) fn list(&self, list: impl FnOnce() -> RuleListing) -> RuleListing {
        // Until the version is known, the list may have any rule.
        self.lock().listed = Version::new(u64::MAX);
        let listing = list();
        self.lock().listed = listing.version;
        listing
    }

    /// Takes the next item.
    ///
    /// A paused queue is resumed when it is empty and `is_read` is true: the peer has read all
    /// earlier updates.
    pub(crate) fn take(&self, is_read: bool) -> Option<QueuedChanges> {
        let mut state = self.lock();
        if let Some(first) = state.waiting.pop_front() {
            if let QueuedChanges::Changes(recorded) = &first {
                state.changes_count = state.changes_count.saturating_sub(recorded.changes.len());
            }
            return Some(first);
        }
        let paused = state.paused.take_if(|_| is_read)?;
        state.waiting.push_back(QueuedChanges::Resumed);
        // The changes may be many, and no change of the tables waits while they are sorted.
        drop(state);
        let changes = paused.into_changes().into();
        Some(QueuedChanges::Changes(RecordedChanges { changes, own: None }))
    }

    /// Returns whether the queue is paused, or a notice of a pause waits.
    pub(crate) fn is_paused(&self) -> bool {
        let state = self.lock();
        let is_notice =
            |item: &QueuedChanges| matches!(item, QueuedChanges::Paused | QueuedChanges::Resumed);
        state.paused.is_some() || state.waiting.iter().any(is_notice)
    }

    /// Waits until changes arrive; a cancelled wait loses none.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Locks the state, also after a panic, which leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, MonitorQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitorQueueState {
    fn push(&mut self, recorded: RecordedChanges) {
        self.changes_count = self.changes_count.saturating_add(recorded.changes.len());
        self.waiting.push_back(QueuedChanges::Changes(recorded));
    }
}

impl ChangeOrigin {
    /// Returns the origin of the changes of request `xid`.
    pub(crate) const fn new(queue: Option<Arc<MonitorQueue>>, xid: Xid) -> Self {
        Self { queue, xid }
    }

    /// Marks `change` as a change of this request, before it is recorded.
    ///
    /// No other change may be recorded between this call and
    /// [`MonitorQueues::record`](super::MonitorQueues::record) for `change`.
    pub fn claim(&self, change: &Change) {
        if let Some(queue) = self.queue.as_ref().filter(|_| !change.deltas.is_empty()) {
            queue.lock().own = Some(self.xid);
        }
    }
}
