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
    /// The changes that monitors have not reported.
    state: Mutex<MonitorQueueState>,
    /// The net changes since the pause, without the pending changes.
    ///
    /// The lock of the queue is taken before that of `state`.
    coalesced: Mutex<CoalescedChanges>,
    /// Notified when a change is added.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct MonitorQueueState {
    /// The changes that monitors have not reported, oldest first.
    waiting: VecDeque<QueuedChanges>,
    /// Number of rule changes in `waiting`.
    changes_count: usize,
    /// The request that makes the next change, if it is of this connection.
    own: Option<Xid>,
    /// The newest version of which the peer receives a list of rules.
    listed: Version,
    /// The newest changes since the pause; `None` while the queue is not paused.
    paused: Option<UnreadChanges>,
}

/// Changes of a paused queue that are not coalesced yet, by version of the tables.
#[derive(Debug, Default)]
struct UnreadChanges {
    /// The changes of each version, oldest first.
    versions: Vec<Arc<[MonitoredChange]>>,
    /// Number of rule changes in `versions`.
    changes_count: usize,
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
    /// The rule changes of the version, in order.
    pub(crate) changes: Arc<[MonitoredChange]>,
    /// The own request that made the changes; `None` if another peer made them.
    pub(crate) own: Option<Xid>,
}

/// The request that makes a change, so that its own monitors can abbreviate it.
#[derive(Clone, Debug)]
pub struct ChangeOrigin {
    /// The queue of the connection; `None` if it has no flow monitor.
    queue: Option<Arc<MonitorQueue>>,
    /// The transaction id of the request.
    xid: Xid,
}

impl MonitorQueue {
    /// Creates a queue that is paused when `changes_max` rule changes wait.
    #[must_use]
    pub fn new(changes_max: usize) -> Self {
        let (state, coalesced) = (Mutex::default(), Mutex::default());
        Self { changes_max, state, coalesced, arrived: Notify::new() }
    }

    /// Adds the rule changes of one version; there may be none.
    ///
    /// All changes of the tables wait for this call. So a paused queue only keeps a reference, and
    /// its connection coalesces the changes, unless too many are pending.
    pub(super) fn record(&self, changes: &Arc<[MonitoredChange]>) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let own = state.own.take();
        if changes.is_empty() {
            return;
        }
        if state.paused.is_none() && state.changes_count >= self.changes_max {
            state.waiting.push_back(QueuedChanges::Paused);
            state.paused = Some(UnreadChanges::default());
        }
        let mut is_full = false;
        if let Some(pending) = &mut state.paused {
            pending.versions.push(Arc::clone(changes));
            pending.changes_count = pending.changes_count.saturating_add(changes.len());
            is_full = pending.changes_count > self.changes_max;
        } else {
            state.push(RecordedChanges { changes: Arc::clone(changes), own });
        }
        drop(guard);
        if is_full {
            self.coalesce();
        }
        self.arrived.notify_one();
    }

    /// Coalesces the pending changes of a paused queue.
    pub(crate) fn coalesce(&self) {
        drop(self.coalesced());
    }

    /// Returns the net changes since the pause, with all changes until now.
    ///
    /// Removals that the peer must receive are queued. Only the moves of changes hold the lock that
    /// [`Self::record`] takes.
    fn coalesced(&self) -> MutexGuard<'_, CoalescedChanges> {
        let mut coalesced = self.coalesced.lock().unwrap_or_else(PoisonError::into_inner);
        let (pending, listed) = {
            let mut state = self.lock();
            (state.paused.as_mut().map(std::mem::take).unwrap_or_default(), state.listed)
        };
        let mut removals = Vec::new();
        for changes in pending.versions {
            let removal = |change| coalesced.add(change, listed);
            let removed: Arc<[_]> = changes.iter().filter_map(removal).collect();
            if !removed.is_empty() {
                removals.push(RecordedChanges { changes: removed, own: None });
            }
        }
        if !removals.is_empty() {
            let mut state = self.lock();
            removals.into_iter().for_each(|removed| state.push(removed));
        }
        coalesced
    }

    /// Returns the rules that `list` lists, and records that the peer knows them.
    ///
    /// So a paused queue also reports the removals of these rules.
    pub(crate) fn list(&self, list: impl FnOnce() -> RuleListing) -> RuleListing {
        // Until the version is known, the list may have any rule.
        self.set_listed(Version::new(u64::MAX));
        let listing = list();
        self.set_listed(listing.version);
        listing
    }

    /// Sets the version of the list for all later changes.
    fn set_listed(&self, version: Version) {
        loop {
            let coalesced = self.coalesced();
            let mut state = self.lock();
            if state.has_no_pending() {
                state.listed = version;
                return;
            }
            drop(state);
            drop(coalesced);
        }
    }

    /// Takes the next item.
    ///
    /// A paused queue is resumed when it is empty and `is_read` is true: the peer has read all
    /// earlier updates.
    pub(crate) fn take(&self, is_read: bool) -> Option<QueuedChanges> {
        let mut coalesced = self.coalesced();
        let mut state = self.lock();
        if let Some(first) = state.waiting.pop_front() {
            if let QueuedChanges::Changes(recorded) = &first {
                state.changes_count = state.changes_count.saturating_sub(recorded.changes.len());
            }
            return Some(first);
        }
        // A change that arrives in this moment notifies the connection again.
        if !is_read || state.paused.is_none() || !state.has_no_pending() {
            return None;
        }
        state.paused = None;
        state.waiting.push_back(QueuedChanges::Resumed);
        // The changes may be many, and no change of the tables waits while they are sorted.
        drop(state);
        let changes = std::mem::take(&mut *coalesced).into_changes().into();
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
    pub(crate) async fn wait_for_changes(&self) {
        self.arrived.notified().await;
    }

    /// Locks the state, also after a panic, which leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, MonitorQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MonitorQueueState {
    /// Returns whether no change waits for the connection.
    fn has_no_pending(&self) -> bool {
        self.paused.as_ref().is_none_or(|pending| pending.versions.is_empty())
    }

    /// Queues the changes of a version.
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

#[cfg(test)]
mod tests {
    use shunt_flow::text::NoPortNames;
    use shunt_pipeline::{
        BridgeId, BridgeSettings, FlowMod, FlowModCommand, Pipeline, Time, text::parse_rule,
    };

    use super::*;

    const BRIDGE: BridgeId = BridgeId::new(1);

    /// Returns a pipeline with a bridge.
    fn tables() -> Pipeline {
        let pipeline = Pipeline::new(0);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline
    }

    /// Changes one of few rules, and returns the changes.
    fn change(pipeline: &Pipeline, kind: u64, rule: u64, port: u64) -> Arc<[MonitoredChange]> {
        let text = format!("priority={rule},actions=output:{}", port + 1);
        let added = parse_rule(FlowModCommand::Add, &text, &NoPortNames).unwrap();
        let command = match kind {
            0 => FlowModCommand::DeleteStrict,
            1 => FlowModCommand::ModifyStrict,
            _ => FlowModCommand::Add,
        };
        let request = FlowMod { command, ..added };
        let change = pipeline.modify(BRIDGE, [request.into()], Time::ZERO).unwrap();
        MonitoredChange::all_of(BRIDGE, &change).into()
    }

    /// Takes all items, as text.
    fn taken(queue: &MonitorQueue, is_read: bool) -> Vec<String> {
        let of_change = |own: &MonitoredChange| {
            let previous = own.previous.as_ref().map(|rule| rule.id);
            let (event, rule) = (own.event, &own.rule);
            let (id, version, is_net) = (rule.id, own.version, own.is_net);
            format!("{event:?} {id:?} {version:?} {is_net} {previous:?}")
        };
        let text = |item: QueuedChanges| match item {
            QueuedChanges::Changes(own) => {
                own.changes.iter().map(of_change).collect::<Vec<_>>().join("; ")
            }
            QueuedChanges::Paused => "paused".to_owned(),
            QueuedChanges::Resumed => "resumed".to_owned(),
        };
        std::iter::from_fn(|| queue.take(is_read)).map(text).collect()
    }

    /// A change of the tables shares its changes with a paused queue.
    #[test]
    fn a_paused_queue_shares_recorded_changes() {
        let (pipeline, queue) = (tables(), MonitorQueue::new(2));
        let changes: Vec<_> = (0..4).map(|rule| change(&pipeline, 2, rule, 0)).collect();
        changes.iter().for_each(|own| queue.record(own));
        let references = || changes.iter().map(Arc::strong_count).collect::<Vec<_>>();
        assert_eq!(references(), [2; 4], "two are queued, and two are pending");
        assert_eq!(queue.lock().paused.as_ref().unwrap().changes_count, 2);
        queue.coalesce();
        assert_eq!(references(), [2, 2, 1, 1], "the net changes have the rules alone");
        // The third pending change is one too many.
        let more: Vec<_> = (4..7).map(|rule| change(&pipeline, 2, rule, 0)).collect();
        more.iter().for_each(|own| queue.record(own));
        assert!(queue.lock().has_no_pending());
    }

    /// The peer gets the same items whenever pending changes are coalesced.
    #[test]
    fn pending_changes_are_reported_in_order() {
        for seed in 1..200_u64 {
            let mut state = seed;
            let mut below = |end: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                (state >> 33) % end
            };
            let pipeline = tables();
            let [at_once, later] = [4, 4].map(MonitorQueue::new);
            let mut items = [Vec::new(), Vec::new()];
            for _ in 0..60 {
                match below(8) {
                    0 => {
                        let is_read = below(2) == 0;
                        items[0].extend(taken(&at_once, is_read));
                        items[1].extend(taken(&later, is_read));
                    }
                    1 => {
                        for queue in [&at_once, &later] {
                            let version = pipeline.version();
                            queue.list(|| RuleListing { version, rules: Vec::new() });
                        }
                    }
                    _ => {
                        let changes = change(&pipeline, below(4), below(5), below(3));
                        at_once.record(&changes);
                        at_once.coalesce();
                        later.record(&changes);
                    }
                }
            }
            items[0].extend(taken(&at_once, true));
            items[1].extend(taken(&later, true));
            assert_eq!(items[0], items[1], "seed {seed}");
        }
    }
}
