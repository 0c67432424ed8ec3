//! Where versions are made: in the tables, and then for the eviction thread, in one order.
//!
//! Control and the thread that learns from packets both make versions. One lock keeps them in order
//! on their way to the eviction desk, which may apply a small one in the hands of who made it; and here is noted which rules each of them took: whoever took
//! them, controllers hear of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use shunt_datapath::{ChangeSender, LearnSeq, LearnedChange};
use shunt_pipeline::{
    Change, Delta, Learning, OwnerId, Pipeline, RemovedReason, RuleChange, RuleDelta, Version,
};

use crate::{
    openflow::events::{Removals, Removed},
    threads::clock::Clock,
};

/// Pause before a queue that was full is tried again.
pub(crate) const FULL_QUEUE_PAUSE: Duration = Duration::from_micros(100);

/// Makes versions, one at a time.
pub(crate) struct Publisher {
    pipeline: Arc<Pipeline>,
    changes: Mutex<ChangeSender>,
    pub(crate) removals: Removals,
    /// Lessons that versions have learned, of all packet threads together.
    learned: AtomicU64,
    /// Changes that found the queue full, and waited.
    delayed: AtomicU64,
    clock: Clock,
}

impl Publisher {
    pub(crate) fn new(pipeline: Arc<Pipeline>, changes: ChangeSender, clock: Clock) -> Self {
        let (changes, removals) = (Mutex::new(changes), Removals::default());
        let [learned, delayed] = [const { AtomicU64::new(0) }; 2];
        Self { pipeline, changes, removals, learned, delayed, clock }
    }

    /// Makes a change and hands it on; answers with its version.
    pub(crate) fn change<E>(
        &self,
        make: impl FnOnce(&Pipeline) -> Result<Change, E>,
    ) -> Result<Version, E> {
        let changes = self.changes.lock();
        let change = make(&self.pipeline)?;
        let version = change.version;
        if !change.deltas.is_empty() {
            self.hand_on(&changes, LearnedChange { change, learn_requests: Vec::new() });
        }
        Ok(version)
    }

    /// Makes a version of what `count` lessons teach, and answers them, also where all was known:
    /// `learn_requests` names the last of each thread.
    pub(crate) fn learn(
        &self,
        learnings: &[Learning],
        learn_requests: Vec<(OwnerId, LearnSeq)>,
        count: u64,
    ) {
        let changes = self.changes.lock();
        let change = self.pipeline.learn(learnings, self.clock.now());
        self.hand_on(&changes, LearnedChange { change, learn_requests });
        // Release: who sees the number finds the version published.
        self.learned.fetch_add(count, Ordering::Release);
    }

    /// Number of lessons that versions have learned, of all packet threads together.
    pub(crate) fn learned(&self) -> u64 {
        self.learned.load(Ordering::Acquire)
    }

    /// Number of changes that found the queue full, and waited.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// The queue holds thousands of versions. Who makes more waits for the eviction thread, and so
    /// does everybody else who makes one: versions are handed on in their order.
    fn hand_on(&self, changes: &ChangeSender, learned: LearnedChange) {
        self.removals.add(removed(&learned.change));
        let mut refused = changes.send_learned(learned);
        if refused.is_err() {
            self.delayed.fetch_add(1, Ordering::Relaxed);
        }
        while let Err(back) = refused {
            std::thread::sleep(FULL_QUEUE_PAUSE);
            refused = changes.send_learned(back);
        }
    }
}

/// The rules that a change took and of which controllers want to hear.
fn removed(change: &Change) -> Vec<Removed> {
    let removed = change.deltas.iter().filter_map(|delta| match delta {
        Delta::Rule(RuleDelta { rule, change: RuleChange::Removed(reason) })
            if rule.flags.send_flow_removed && *reason != RemovedReason::Replaced =>
        {
            Some(Removed { version: change.version, rule: Arc::clone(rule), reason: *reason })
        }
        Delta::Rule(_) | Delta::Changed(_) => None,
    });
    removed.collect()
}
