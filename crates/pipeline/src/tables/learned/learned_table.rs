//! The learned index of one table, and its training while the table changes.
//!
//! A training reads the rules in steps under the shared lock, trains without a lock, and takes the
//! exclusive lock only to begin and to replace the index. Changes during the training are logged,
//! and repeated on the new index without a lock before it is used. The former index gets the
//! changes during a training as well, so lookups are right at any time.

use std::{mem, sync::Arc, time::Duration};

use shunt_classifier::Version;

use super::learned_rules::LearnedRules;
use crate::{id::RuleId, tables::rule::Rule, time::Time};

/// The learned index of a table, if the table has one.
#[derive(Default)]
pub(crate) struct LearnedTable {
    /// The index in use; `None` before the first training.
    current: Option<Box<LearnedRules>>,
    /// Indexes that a change made useless. The next training frees them without a lock.
    retired: Vec<LearnedRules>,
    /// The training in progress, during which changes are logged.
    training: Option<TrainingToken>,
    /// The changes since the training began.
    log: Vec<LoggedChange>,
    /// Number of changes since the last training; `None` if a training is due at once.
    changes: Option<usize>,
    /// The pause after the last training, if the training failed.
    pause: Option<TrainingPause>,
}

/// The pause of a table after a failed training.
#[derive(Clone, Copy)]
struct TrainingPause {
    /// The time at which training is tried again.
    until: Time,
    /// The length of the pause, which doubles after each failure.
    length: Duration,
}

/// The pause after the first failed training.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause after a failed training.
const PAUSE_MAX: Duration = Duration::from_secs(64);

/// Identifies a training among all trainings.
///
/// A training may last longer than its bridge. The next bridge may have the number of this one, and
/// a training of its own.
#[derive(Clone)]
pub(crate) struct TrainingToken(Arc<()>);

impl PartialEq for TrainingToken {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A change of the table during a training.
pub(crate) enum LoggedChange {
    Insert(Arc<Rule>, Version),
    Remove(RuleId, Version),
    Reclaim(Version),
}

/// The time that a change of an index may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeTime {
    /// As much time for a large index as for a small one, since lookups wait.
    Bounded,
    /// Any time, since nobody else uses the index.
    Unbounded,
}

impl LearnedTable {
    /// Returns the learned index of the rules, if the table has one now.
    #[inline]
    pub(crate) fn index(&self) -> Option<&LearnedRules> {
        self.current.as_deref()
    }

    /// Returns the number of changes since the last training.
    ///
    /// A removed rule counts again when it is reclaimed, since a training before includes it.
    /// The result is `None` if there was no training, or a change made its index useless.
    pub(crate) const fn changes(&self) -> Option<usize> {
        self.changes
    }

    /// Returns the earliest time of the next training, if the last one failed.
    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.pause.map(|pause| pause.until)
    }

    /// Notes a failed training; returns the earliest time of the next one.
    ///
    /// Each further failure doubles the pause.
    pub(crate) fn pause_after_failure(&mut self, now: Time) -> Time {
        let length = self.pause.map_or(PAUSE_MIN, |pause| (pause.length * 2).min(PAUSE_MAX));
        let until = now.after(length);
        self.pause = Some(TrainingPause { until, length });
        until
    }

    /// Returns whether an index waits to be freed.
    pub(crate) const fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Adds a rule to the index.
    pub(crate) fn insert(&mut self, rule: &Arc<Rule>, added: Version) {
        self.change(|| LoggedChange::Insert(Arc::clone(rule), added));
    }

    /// Marks a rule as removed from a version on.
    pub(crate) fn remove(&mut self, id: RuleId, removed: Version) {
        self.change(|| LoggedChange::Remove(id, removed));
    }

    /// Counts reclaimed rules of the table, which the next training will not include.
    pub(crate) fn count_reclaimed(&mut self, rules: usize) {
        self.changes = self.changes.map(|count| count.saturating_add(rules));
    }

    /// Calls [`LearnedRules::reclaim`] on the learned index.
    pub(crate) fn reclaim(&mut self, oldest: Version, removals_max: usize) -> usize {
        let is_logged =
            matches!(self.log.last(), Some(LoggedChange::Reclaim(own)) if *own == oldest);
        if self.training.is_some() && !is_logged {
            self.log.push(LoggedChange::Reclaim(oldest));
        }
        self.current.as_mut().map_or(0, |index| index.reclaim(oldest, removals_max))
    }

    /// Applies a change to the index, and logs it for the training.
    fn change(&mut self, change: impl Fn() -> LoggedChange) {
        self.changes = self.changes.map(|count| count.saturating_add(1));
        if let Some(current) = &mut self.current
            && !change().apply(current, ChangeTime::Bounded)
        {
            // The table is searched without an index until the next training. To free an index
            // takes as long as it has rules, and lookups wait for this change.
            self.retired.extend(self.current.take().map(|index| *index));
            self.changes = None;
        }
        if self.training.is_some() {
            self.log.push(change());
        }
    }

    /// Begins a training: changes are logged from now on.
    ///
    /// Returns `None` if a training is in progress.
    pub(crate) fn begin_training(&mut self) -> Option<TrainingToken> {
        if self.training.is_some() {
            return None;
        }
        self.training = Some(TrainingToken(Arc::new(())));
        self.training.clone()
    }

    /// Takes the changes that were logged since the begin, or since the last call.
    ///
    /// The list is empty if the table has no such training.
    pub(crate) fn take_log(&mut self, token: &TrainingToken) -> Vec<LoggedChange> {
        if self.is_training(token) { mem::take(&mut self.log) } else { Vec::new() }
    }

    /// Ends a training; returns an index to be freed without a lock.
    ///
    /// `trained` has all logged changes. Without a trained index, the former index stays.
    pub(crate) fn end_training(
        &mut self,
        token: &TrainingToken,
        trained: Option<Box<LearnedRules>>,
    ) -> Option<Box<LearnedRules>> {
        if !self.is_training(token) {
            // The bridge was removed and added again, and this is a new table.
            return trained;
        }
        self.training = None;
        let trained = trained?;
        (self.changes, self.pause) = (Some(0), None);
        self.current.replace(trained)
    }

    /// Ends a training that failed; returns its log, to be freed without a lock.
    ///
    /// Does nothing after the end of the training.
    pub(crate) fn abandon_training(&mut self, token: &TrainingToken) -> Vec<LoggedChange> {
        let log = self.take_log(token);
        if self.is_training(token) {
            self.training = None;
        }
        log
    }

    /// Returns whether the training with this token is in progress.
    fn is_training(&self, token: &TrainingToken) -> bool {
        self.training.as_ref() == Some(token)
    }

    /// Removes the learned index of the table.
    pub(crate) fn clear(&mut self) -> Option<Box<LearnedRules>> {
        self.current.take()
    }

    /// Takes the indexes that changes made useless, to be freed without a lock.
    pub(crate) fn take_retired(&mut self) -> Vec<LearnedRules> {
        mem::take(&mut self.retired)
    }
}

impl LoggedChange {
    /// Applies the change to an index; returns false if the index cannot hold it.
    pub(crate) fn apply(&self, index: &mut LearnedRules, time: ChangeTime) -> bool {
        match self {
            Self::Insert(rule, added) => index.insert(rule, *added, time),
            Self::Remove(id, removed) => index.remove(*id, *removed),
            Self::Reclaim(oldest) => {
                index.reclaim(*oldest, usize::MAX);
                true
            }
        }
    }
}
