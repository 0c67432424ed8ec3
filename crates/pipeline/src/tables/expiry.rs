//! Timeouts of rules (OpenFlow 1.3.5, 5.5).
//!
//! A queue holds every rule that has a timeout, by a moment before which it cannot expire. A rule
//! that was hit, refreshed or modified since has a later deadline than the queue says; this is noticed when
//! its turn comes, and it is queued again. One whose timeouts a packet has lowered is queued again
//! before the next sweep. So a hit costs nothing here, and a sweep looks only at
//! rules whose turn it is.
//!
//! The caller has pulled the counts of all threads before: nothing expires that was hit in time.

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

/// The rules that have timeouts.
#[derive(Default)]
pub(crate) struct Deadlines {
    queue: BTreeMap<(Time, RuleId), Arc<Rule>>,
    queued: HashMap<RuleId, Time, foldhash::fast::FixedState>,
}

impl Deadlines {
    /// Takes in what a version changed.
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
    pub(crate) fn expired(&mut self, now: Time) -> Vec<(Arc<Rule>, RemovedReason)> {
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

    /// Gives a rule its place anew.
    pub(crate) fn requeue(&mut self, rule: &Arc<Rule>) {
        self.remove(rule.id);
        self.insert(rule);
    }

    fn insert(&mut self, rule: &Arc<Rule>) {
        if let Some((time, _)) = deadline(rule) {
            self.queue.insert((time, rule.id), Arc::clone(rule));
            self.queued.insert(rule.id, time);
        }
    }

    fn remove(&mut self, rule: RuleId) {
        if let Some(time) = self.queued.remove(&rule) {
            self.queue.remove(&(time, rule));
        }
    }
}

/// When a rule expires if nothing hits it any more, and why.
pub(crate) fn deadline(rule: &Rule) -> Option<(Time, RemovedReason)> {
    let after = |from: Time, timeout: std::time::Duration, reason| {
        (!timeout.is_zero()).then(|| (from.after(timeout), reason))
    };
    let used = rule.stats.totals().used.max(rule.created);
    let hard = after(rule.refreshed(), rule.hard_timeout_now(), RemovedReason::HardTimeout);
    let idle = after(used, rule.idle_timeout_now(), RemovedReason::IdleTimeout);
    hard.into_iter().chain(idle).min_by_key(|(time, _)| *time)
}
