//! Timeouts of rules (OpenFlow 1.3.5, 5.5).
//!
//! A queue holds every rule that has a timeout, by a time before which it cannot expire. A rule
//! that was hit, refreshed or modified has a later deadline than the queued one. When the queued
//! deadline passes, the rule is queued again by its later deadline. A rule is queued again before
//! the next sweep if a packet has lowered its timeouts. So a hit does not touch the queue, and a
//! sweep visits only rules with a passed deadline.
//!
//! Before a sweep, the caller collects the counters of all threads. So a rule that was hit in time
//! does not expire.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::rule::Rule;
use crate::{
    id::RuleId,
    time::Time,
    versions::delta::{Delta, RemovedReason, RuleChange},
};

/// The queue of rules that have timeouts.
#[derive(Default)]
pub(crate) struct Deadlines {
    /// The rules, by the time of their next check.
    queue: BTreeMap<(Time, RuleId), Arc<Rule>>,
    /// The time under which each rule is queued.
    queued: HashMap<RuleId, Time, foldhash::fast::FixedState>,
}

impl Deadlines {
    /// Updates the queue by the changes of a version.
    pub(crate) fn follow(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            let Delta::Rule(delta) = delta else { continue };
            match delta.change {
                RuleChange::Added => self.insert(&delta.rule),
                RuleChange::Removed(_) => self.remove(delta.rule.id),
                RuleChange::Modified(_) => self.requeue(&delta.rule),
            }
        }
    }

    /// Takes out the rules that have expired.
    pub(crate) fn take_expired(&mut self, now: Time) -> Vec<(Arc<Rule>, RemovedReason)> {
        let mut expired = Vec::new();
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= now) {
            let rule = entry.remove();
            self.queued.remove(&rule.id);
            match deadline(&rule) {
                Some((time, reason)) if time <= now => expired.push((rule, reason)),
                Some(_) => self.insert(&rule),
                None => {}
            }
        }
        expired
    }

    /// Queues a rule by its current deadline.
    pub(crate) fn requeue(&mut self, rule: &Arc<Rule>) {
        self.remove(rule.id);
        self.insert(rule);
    }

    /// Adds the deadline of a rule, if the rule has a timeout.
    fn insert(&mut self, rule: &Arc<Rule>) {
        if let Some((time, _)) = deadline(rule) {
            self.queue.insert((time, rule.id), Arc::clone(rule));
            self.queued.insert(rule.id, time);
        }
    }

    /// Removes the deadline of a rule.
    fn remove(&mut self, rule: RuleId) {
        if let Some(time) = self.queued.remove(&rule) {
            self.queue.remove(&(time, rule));
        }
    }
}

/// Returns the time at which a rule expires without further hits, and the reason.
pub(crate) fn deadline(rule: &Rule) -> Option<(Time, RemovedReason)> {
    let after = |from: Time, timeout: std::time::Duration, reason| {
        (!timeout.is_zero()).then(|| (from.after(timeout), reason))
    };
    let used = rule.stats.totals().used.max(rule.created);
    let hard = after(rule.refreshed(), rule.hard_timeout_now(), RemovedReason::HardTimeout);
    let idle = after(used, rule.idle_timeout_now(), RemovedReason::IdleTimeout);
    hard.into_iter().chain(idle).min_by_key(|(time, _)| *time)
}
