//! The publisher: makes table versions and sends them to the eviction coordinator in order.
//!
//! The control plane and the learner thread both create versions. One lock keeps the versions in
//! order on their way to the eviction coordinator, which may apply a small change in the calling
//! thread. The publisher also records removed rules, so that controllers are notified, and passes all
//! rule changes to flow monitors.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use shunt_datapath::{ChangeSender, LearnSeq, LearnedChange};
use shunt_flow::text::NoPortNames;
use shunt_ofproto::{MonitorQueue, MonitorQueues};
use shunt_pipeline::{
    BridgeId, Change, Delta, Learning, OwnerId, Pipeline, RemovedReason, RuleChange, RuleDelta,
    Time, Version,
    text::{RuleFormat, format_rule},
};
use tokio::runtime::{Handle, RuntimeFlavor};
use tracing::{Level, debug};

use crate::{
    openflow::events::{Removals, RemovedRule},
    threads::{clock::DaemonClock, rule_siblings::RuleSiblings},
};

/// Number of retired rules after which a change reclaims them.
///
/// Fewer retired rules wait for the periodic upkeep.
const RETIRED_MAX: u64 = 1024;

/// Creates versions of the tables and sends them, one at a time.
pub(crate) struct Publisher {
    pipeline: Arc<Pipeline>,
    /// Held while a version is created and sent.
    changes: Mutex<ChangeSender>,
    /// The removed rules that controllers are notified of.
    removals: Removals,
    /// The connections with flow monitors.
    monitors: MonitorQueues,
    /// Number of learn requests in all versions so far, over all packet threads.
    learned: AtomicU64,
    /// Number of changes that waited because the queue to the coordinator was full.
    delayed: AtomicU64,
    /// Number of rules removed or modified since [`Self::take_retired`] returned true.
    retired: AtomicU64,
    /// The sets of back ends that rule changes form, if a predictor needs them.
    siblings: Option<Arc<Mutex<RuleSiblings>>>,
    clock: DaemonClock,
}

impl Publisher {
    /// Returns the time of the daemon's clock.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns a publisher that sends changes to the eviction coordinator.
    pub(crate) fn new(pipeline: Arc<Pipeline>, changes: ChangeSender, clock: DaemonClock) -> Self {
        let (changes, removals) = (Mutex::new(changes), Removals::default());
        let monitors = MonitorQueues::default();
        let [learned, delayed, retired] = [const { AtomicU64::new(0) }; 3];
        let siblings = None;
        Self { pipeline, changes, removals, monitors, learned, delayed, retired, siblings, clock }
    }

    /// Collects the sets of back ends from all later changes.
    #[must_use]
    pub(crate) fn with_siblings(self, siblings: Option<Arc<Mutex<RuleSiblings>>>) -> Self {
        Self { siblings, ..self }
    }

    /// Returns the tables, rules and ports of all bridges.
    ///
    /// Only this publisher may change the tables.
    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the removed rules of which controllers must be notified.
    pub(crate) const fn removals(&self) -> &Removals {
        &self.removals
    }

    /// Records all later changes of the rules of a bridge in `queue`.
    pub(crate) fn monitor(&self, bridge: BridgeId, queue: &Arc<MonitorQueue>) {
        let _changes = self.lock();
        self.monitors.add(bridge, queue);
    }

    /// Makes a change and publishes it; returns the new version.
    pub(crate) fn change<E>(
        &self,
        make: impl FnOnce(&Pipeline) -> Result<Change, E>,
    ) -> Result<Version, E> {
        let changes = self.lock();
        let change = make(&self.pipeline)?;
        let version = change.version;
        if !change.deltas.is_empty() {
            self.siblings.iter().for_each(|siblings| siblings.lock().apply(&change.deltas));
            self.send_change(&changes, LearnedChange { change, learn_requests: Vec::new() });
        }
        Ok(version)
    }

    /// Publishes a version of `count` learn requests and acknowledges them.
    ///
    /// A version is also published if the requests change nothing.
    ///
    /// `learn_requests` contains the sequence number of the last request of each thread.
    pub(crate) fn learn(
        &self,
        learnings: &[Learning],
        learn_requests: Vec<(OwnerId, LearnSeq)>,
        count: u64,
    ) {
        let changes = self.lock();
        let change = self.pipeline.learn(learnings, self.clock.now());
        log_rules(&self.pipeline, &change, "learned from a packet");
        self.send_change(&changes, LearnedChange { change, learn_requests });
        // Release: a thread that reads the new number also sees the version.
        self.learned.fetch_add(count, Ordering::Release);
    }

    /// Returns the number of learn requests in all versions so far.
    pub(crate) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// Returns the number of changes that waited because the queue was full.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Returns whether many rules were retired since the last call that returned true.
    ///
    /// Tables keep retired rules until these are reclaimed, and changes of rules with the same
    /// match become slower with their number.
    pub(crate) fn take_retired(&self) -> bool {
        let has_many = self.retired.load(Ordering::Relaxed) >= RETIRED_MAX;
        if has_many {
            self.retired.store(0, Ordering::Relaxed);
        }
        has_many
    }

    /// Sends a change to the eviction thread.
    ///
    /// The queue holds thousands of versions. If it is full, the caller waits until the coordinator
    /// has made space. All other callers wait too, because versions are sent in order.
    fn send_change(&self, changes: &ChangeSender, learned: LearnedChange) {
        self.monitors.record(&learned.change);
        self.removals.add(removed_rules(&learned.change));
        let retired = learned.change.deltas.iter().filter(|delta| retires(delta)).count() as u64;
        self.retired.fetch_add(retired, Ordering::Relaxed);
        if let Err(back) = changes.send_learned(learned) {
            self.delayed.fetch_add(1, Ordering::Relaxed);
            wait_outside_tasks(|| changes.send_waiting(back));
        }
    }

    /// Takes the lock that orders versions.
    fn lock(&self) -> MutexGuard<'_, ChangeSender> {
        self.changes.try_lock().unwrap_or_else(|| wait_outside_tasks(|| self.changes.lock()))
    }
}

/// Blocks the calling thread in `wait`,
/// and lets other threads run the tasks meanwhile.
///
/// The call that makes a change returns only after its version is sent. A task that blocks in such
/// a call must not hold a worker thread of the runtime, because timers and sockets would stop.
fn wait_outside_tasks<T>(wait: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        // The learner thread has no runtime. A runtime with a single thread has no other thread for
        // its tasks.
        _ => wait(),
    }
}

/// Logs, at level debug, the rules of a change that the switch itself has caused.
pub(crate) fn log_rules(pipeline: &Pipeline, change: &Change, cause: &str) {
    if !tracing::enabled!(Level::DEBUG) {
        return;
    }
    for delta in &change.deltas {
        let Delta::Rule(RuleDelta { rule, change: what }) = delta else { continue };
        let what = match what {
            RuleChange::Added => "added",
            RuleChange::Removed(_) => "removed",
            RuleChange::Modified(_) => "modified",
        };
        let bridge = pipeline.settings(rule.bridge).map_or_else(String::new, |own| own.name);
        let rule = format_rule(rule, RuleFormat { ports: &NoPortNames, stats_at: None });
        debug!("bridge {bridge}: rule {what} ({cause}): {rule}");
    }
}

/// Returns whether a delta removes or modifies a rule, which retires it.
const fn retires(delta: &Delta) -> bool {
    matches!(
        delta,
        Delta::Rule(RuleDelta { change: RuleChange::Removed(_) | RuleChange::Modified(_), .. })
    )
}

/// Returns the removed rules with the flag `send_flow_removed`.
fn removed_rules(change: &Change) -> Vec<RemovedRule> {
    let removed = change.deltas.iter().filter_map(|delta| match delta {
        Delta::Rule(RuleDelta { rule, change: RuleChange::Removed(reason) })
            if rule.flags.send_flow_removed && *reason != RemovedReason::Replaced =>
        {
            Some(RemovedRule { version: change.version, rule: Arc::clone(rule), reason: *reason })
        }
        Delta::Rule(_) | Delta::Changed(_) => None,
    });
    removed.collect()
}
