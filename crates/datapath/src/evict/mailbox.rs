//! Advances: how evictions reach the owner of a cache, merged so that they always fit.
//!
//! An [`Invalidation`] says: these entries of yours are stale from `version` on, and so are your own
//! installs after `seq`, because nobody has looked at those. The eviction thread posts them, the
//! owner takes them between two batches.
//!
//! A queue of advances would need a bound, and a full queue would block one of its two ends. So
//! there is one [`Mailbox`] per owner with one advance in it, and posting merges: newest version,
//! union of evictions, *least* `seq`. The least, because the evictions of the older advance were
//! computed over fewer installs: what was installed between the two was tested against the newer
//! version's deltas only. The lessons that it has learned are those of the later one, the greatest
//! number.
//!
//! **No packet thread ever waits here.** To see that nothing came costs the owner one load of a
//! flag that nobody writes meanwhile. When the flag is set it *tries* the lock; the poster holds it
//! for a few moves (evictions are merged as a list of lists, nothing is copied), and if it was
//! interrupted right then, the owner turns once more and finds the flag still set. No thread sleeps
//! while the flag is set.
//!
//! An owner that works in turns says when it begins one, so that it is known in how many of them an
//! advance was taken: what a change costs in turns tells of the design, where time tells of the
//! machine, too.

use std::sync::{PoisonError, TryLockError};

use shunt_classifier::Version;
use shunt_pipeline::{EntryId, InstallNo};

use crate::{
    evict::owner::LearnSeq,
    sync::{AtomicBool, AtomicU64, Mutex, Ordering},
};

/// Adopt a version, and drop what it made stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// The version to adopt.
    pub version: Version,
    /// Entries that are stale from that version on, in lists of one change each.
    pub evictions: Vec<Vec<EntryId>>,
    /// The last install over which the evictions were computed: the owner drops what it installed
    /// after it.
    pub seq: InstallNo,
    /// The last lesson of the owner that the version has learned.
    pub learned: LearnSeq,
}

impl Invalidation {
    /// Adds a later advance: newest version, union of evictions, least `seq`, last lesson.
    pub fn merge(&mut self, later: Self) {
        self.version = self.version.max(later.version);
        self.evictions.extend(later.evictions);
        self.seq = self.seq.min(later.seq);
        self.learned = self.learned.max(later.learned);
    }
}

/// At most one advance, on its way from the eviction thread to one owner.
#[derive(Debug)]
pub struct Mailbox {
    flagged: AtomicBool,
    /// Turns that the owner has begun. Only the owner writes it.
    turns: AtomicU64,
    pending: Mutex<Option<Posted>>,
}

/// An advance that was posted.
#[derive(Debug)]
struct Posted {
    invalidation: Invalidation,
    /// Turns that the owner had begun by then; if several were merged, when the first was posted.
    turn: u64,
}

impl Mailbox {
    /// An empty mailbox.
    #[must_use]
    pub fn new() -> Self {
        Self {
            flagged: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            pending: Mutex::new(None),
        }
    }

    /// Posts an advance, merging it with one that was not taken yet.
    ///
    /// The caller wakes the owner afterwards.
    pub fn post(&self, invalidation: Invalidation) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *pending {
            Some(earlier) => earlier.invalidation.merge(invalidation),
            // Relaxed: a count for people, which may be of a moment ago.
            None => {
                *pending = Some(Posted { invalidation, turn: self.turns.load(Ordering::Relaxed) });
            }
        }
        // Release: an owner that sees the flag finds the lock taken or the advance there.
        self.flagged.store(true, Ordering::Release);
    }

    /// The owner begins a turn.
    #[inline]
    pub fn begin_iteration(&self) {
        // Relaxed, and no read-modify-write: nobody else writes it.
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes what was posted; never waits.
    pub fn take(&self) -> Option<Invalidation> {
        self.take_counted().map(|(invalidation, _)| invalidation)
    }

    /// Takes what was posted, with the turns that the owner has begun since; never waits.
    pub fn take_counted(&self) -> Option<(Invalidation, u64)> {
        if !self.is_flagged() {
            return None;
        }
        let mut pending = match self.pending.try_lock() {
            Ok(pending) => pending,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // Relaxed: under the lock, so no post is lost between the flag and the advance.
        self.flagged.store(false, Ordering::Relaxed);
        let Posted { invalidation, turn } = pending.take()?;
        Some((invalidation, self.turns.load(Ordering::Relaxed).wrapping_sub(turn)))
    }

    /// Keeps the lock, as a poster does that was interrupted.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something to take.
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

    fn invalidation(version: u64, slot: u32, seq: u64) -> Invalidation {
        let entry = EntryId { owner: OwnerId(0), slot, generation: 0 };
        Invalidation {
            version: Version::new(version),
            evictions: vec![vec![entry]],
            seq: InstallNo(seq),
            learned: LearnSeq(10 * seq),
        }
    }

    #[test]
    fn turns_are_counted_from_the_first_of_those_that_were_merged() {
        let mailbox = Mailbox::new();
        mailbox.post(invalidation(1, 10, 3));
        assert_eq!(mailbox.take_counted().map(|(_, turns)| turns), Some(0), "in the same turn");
        mailbox.begin_iteration();
        mailbox.post(invalidation(2, 20, 5));
        mailbox.begin_iteration();
        mailbox.post(invalidation(3, 30, 7));
        mailbox.begin_iteration();
        assert_eq!(mailbox.take_counted().map(|(_, turns)| turns), Some(2));
        mailbox.post(invalidation(4, 40, 9));
        mailbox.begin_iteration();
        assert_eq!(mailbox.take_counted().map(|(_, turns)| turns), Some(1));
    }

    #[test]
    fn merged_advances_are_the_newest_version_the_union_and_the_least_seq() {
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
    fn a_taken_advance_is_gone() {
        let mailbox = Mailbox::new();
        assert_eq!(mailbox.take(), None);
        mailbox.post(invalidation(1, 0, 0));
        assert!(mailbox.take().is_some());
        assert!(!mailbox.is_flagged());
        assert_eq!(mailbox.take(), None);
    }
}
