//! Invalidations: how evictions reach the owner of a cache.
//!
//! An [`Invalidation`] names entries of the owner that are stale from `version` on. The owner's
//! installs after `seq` may be stale, too, because the engine has not checked them. The eviction
//! thread posts invalidations, and the owner takes them between two bursts.
//!
//! A queue of invalidations would need a bound, and a full queue would block one of its two ends. So
//! each owner has a [`Mailbox`] that holds one invalidation. A second invalidation is merged into a
//! waiting one: the newest version, the union of evictions, the *least* `seq`, and the greatest
//! learn request. The `seq` is the least one, because installs between the two posts were checked
//! only against the deltas of the newer version.
//!
//! **No packet thread ever waits for the mailbox.** An empty mailbox costs the owner one load of a
//! flag. When the flag is set, the owner *tries* the lock. The poster holds the lock only to move
//! lists of evictions, and copies none. If the poster is interrupted while it holds the lock, the
//! owner finds the flag still set in its next iteration. No thread sleeps while the flag is set.
//!
//! The owner counts its iterations, so that the mailbox can report how many iterations passed until
//! an invalidation was taken. Unlike a time, this number does not depend on the machine.

use std::sync::{PoisonError, TryLockError};

use shunt_classifier::Version;
use shunt_pipeline::{EntryId, InstallNo};

use crate::{
    evict::owner::LearnSeq,
    sync::{AtomicBool, AtomicU64, Mutex, Ordering},
};

/// A request to adopt a version and to drop the entries that it made stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// The version to adopt.
    pub version: Version,
    /// Entries that are stale from `version` on, in one list for each change.
    pub evictions: Vec<Vec<EntryId>>,
    /// The last install that the engine knew; the owner drops all later installs.
    pub seq: InstallNo,
    /// The last learn request of the owner that `version` includes.
    pub learned: LearnSeq,
}

impl Invalidation {
    /// Merges a later invalidation into this one: see the [module](self).
    pub fn merge(&mut self, later: Self) {
        self.version = self.version.max(later.version);
        self.evictions.extend(later.evictions);
        self.seq = self.seq.min(later.seq);
        self.learned = self.learned.max(later.learned);
    }
}

/// A mailbox for one invalidation from the eviction thread to one owner.
#[derive(Debug)]
pub struct Mailbox {
    /// True while an invalidation waits.
    flagged: AtomicBool,
    /// Iterations that the owner has begun.
    /// Only the owner of the mailbox writes the number.
    iterations: AtomicU64,
    /// The invalidation that the owner has not taken yet.
    pending: Mutex<Option<PendingInvalidation>>,
}

/// A posted invalidation that the owner has not taken yet.
#[derive(Debug)]
struct PendingInvalidation {
    /// The invalidation that was posted.
    invalidation: Invalidation,
    /// Number of iterations that the owner had begun at the oldest of the merged posts.
    iteration: u64,
}

impl Mailbox {
    /// Creates an empty mailbox.
    #[must_use]
    pub fn new() -> Self {
        Self {
            flagged: AtomicBool::new(false),
            iterations: AtomicU64::new(0),
            pending: Mutex::new(None),
        }
    }

    /// Posts an invalidation; merges it with an invalidation that was not taken yet.
    ///
    /// The caller wakes the owner afterwards.
    pub fn post(&self, invalidation: Invalidation) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *pending {
            Some(earlier) => earlier.invalidation.merge(invalidation),
            // Relaxed: the number is a statistic, and may be slightly old.
            None => {
                *pending = Some(PendingInvalidation {
                    invalidation,
                    iteration: self.iterations.load(Ordering::Relaxed),
                });
            }
        }
        // Release: an owner that sees the flag finds the lock held or the invalidation present.
        self.flagged.store(true, Ordering::Release);
    }

    /// Records that the owner begins an iteration.
    #[inline]
    pub fn begin_iteration(&self) {
        // Relaxed, and no atomic addition: only the owner writes the number.
        self.iterations
            .store(self.iterations.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes the posted invalidation, if there is one; never waits.
    pub fn take(&self) -> Option<Invalidation> {
        self.take_with_iterations().map(|(invalidation, _)| invalidation)
    }

    /// Takes the invalidation; never waits.
    /// The function also returns the number of iterations that the owner has begun since the post.
    pub fn take_with_iterations(&self) -> Option<(Invalidation, u64)> {
        if !self.is_flagged() {
            return None;
        }
        let mut pending = match self.pending.try_lock() {
            Ok(pending) => pending,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // Relaxed: the lock is held, so no post comes between the flag and the invalidation.
        self.flagged.store(false, Ordering::Relaxed);
        let PendingInvalidation { invalidation, iteration } = pending.take()?;
        Some((invalidation, self.iterations.load(Ordering::Relaxed).wrapping_sub(iteration)))
    }

    /// Holds the lock, as an interrupted poster does.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is an invalidation to take.
    #[must_use]
    pub fn is_flagged(&self) -> bool {
        // Acquire: partner of the Release in `post`.
        self.flagged.load(Ordering::Acquire)
    }
}

impl Default for Mailbox {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use shunt_pipeline::OwnerId;

    /// Returns an invalidation of one entry.
    fn invalidation(version: u64, slot: u32, seq: u64) -> Invalidation {
        let entry = EntryId { owner: OwnerId(0), slot, generation: 0 };
        Invalidation {
            version: Version::new(version),
            evictions: vec![vec![entry]],
            seq: InstallNo(seq),
            learned: LearnSeq(10 * seq),
        }
    }

    /// The iterations until the take are counted from the oldest waiting invalidation.
    #[test]
    fn iterations_count_from_the_first_merged_post() {
        let mailbox = Mailbox::new();
        mailbox.post(invalidation(1, 10, 3));
        assert_eq!(
            mailbox.take_with_iterations().map(|(_, iterations)| iterations),
            Some(0),
            "in the same iteration"
        );
        mailbox.begin_iteration();
        mailbox.post(invalidation(2, 20, 5));
        mailbox.begin_iteration();
        mailbox.post(invalidation(3, 30, 7));
        mailbox.begin_iteration();
        assert_eq!(mailbox.take_with_iterations().map(|(_, iterations)| iterations), Some(2));
        mailbox.post(invalidation(4, 40, 9));
        mailbox.begin_iteration();
        assert_eq!(mailbox.take_with_iterations().map(|(_, iterations)| iterations), Some(1));
    }

    #[test]
    fn merging_keeps_newest_version_and_least_seq() {
        let mailbox = Mailbox::new();
        mailbox.post(invalidation(1, 10, 3));
        mailbox.post(invalidation(2, 20, 5));
        let merged = mailbox.take().unwrap();
        assert_eq!(merged.version, Version::new(2));
        assert_eq!((merged.seq, merged.learned), (InstallNo(3), LearnSeq(50)));
        let slots: Vec<u32> = merged.evictions.iter().flatten().map(|entry| entry.slot).collect();
        assert_eq!(slots, [10, 20]);
    }

    #[test]
    fn an_invalidation_is_taken_once() {
        let mailbox = Mailbox::new();
        assert_eq!(mailbox.take(), None);
        mailbox.post(invalidation(1, 0, 0));
        assert!(mailbox.take().is_some());
        assert!(!mailbox.is_flagged());
        assert_eq!(mailbox.take(), None);
    }
}
