//! The learned index of one table, and its training beside the changes of the table.
//!
//! A training reads the rules under the shared lock, trains without a lock, and takes the exclusive
//! lock only to replace the index. Changes meanwhile are logged, and repeated on the new index first.
//! The former index has them too, so lookups are right at any time.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use shunt_classifier::Version;

use super::learned_rules::LearnedRules;
use crate::{id::RuleId, tables::rule::Rule};

/// The learned index of a table, if the table has one.
#[derive(Default)]
pub(crate) struct LearnedTable {
    current: Option<Box<LearnedRules>>,
    /// Set while an index is trained. Changes are logged then.
    is_training: AtomicBool,
    log: Vec<LoggedChange>,
}

/// A change of a table while an index is trained.
enum LoggedChange {
    Insert(Arc<Rule>, Version),
    Remove(RuleId, Version),
    Reclaim(Version),
}

impl LearnedTable {
    /// Returns the index.
    #[inline]
    pub(crate) fn index(&self) -> Option<&LearnedRules> {
        self.current.as_deref()
    }

    pub(crate) fn insert(&mut self, rule: &Arc<Rule>, added: Version) {
        self.change(|| LoggedChange::Insert(Arc::clone(rule), added));
    }

    pub(crate) fn remove(&mut self, id: RuleId, removed: Version) {
        self.change(|| LoggedChange::Remove(id, removed));
    }

    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.change(|| LoggedChange::Reclaim(oldest));
    }

    fn change(&mut self, change: impl Fn() -> LoggedChange) {
        if let Some(current) = &mut self.current
            && !change().apply(current)
        {
            // The table is searched without an index until the next training.
            self.current = None;
        }
        // The lock of the tables orders this load with the start of the training.
        if self.is_training.load(Ordering::Relaxed) {
            self.log.push(change());
        }
    }

    /// Begins a training: changes are logged from now on.
    ///
    /// Returns false if one is in progress.
    pub(crate) fn begin_training(&self) -> bool {
        !self.is_training.swap(true, Ordering::Relaxed)
    }

    /// Ends a training. Returns the former index, which takes time to free.
    pub(crate) fn end_training(
        &mut self,
        trained: Option<LearnedRules>,
    ) -> Option<Box<LearnedRules>> {
        self.is_training.store(false, Ordering::Relaxed);
        let log = mem::take(&mut self.log);
        let mut trained = Box::new(trained?);
        if log.iter().all(|change| change.apply(&mut trained)) {
            self.current.replace(trained)
        } else {
            Some(trained)
        }
    }

    /// Removes the index.
    pub(crate) fn clear(&mut self) -> Option<Box<LearnedRules>> {
        self.current.take()
    }
}

impl LoggedChange {
    /// Applies the change to an index. Returns false if the index cannot follow.
    fn apply(&self, index: &mut LearnedRules) -> bool {
        match self {
            Self::Insert(rule, added) => index.insert(rule, *added),
            Self::Remove(id, removed) => index.remove(*id, *removed),
            Self::Reclaim(oldest) => {
                index.reclaim(*oldest);
                true
            }
        }
    }
}
