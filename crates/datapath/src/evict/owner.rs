//! The owner of cache entries: its half of the eviction protocol.
//!
//! In this protocol no race loses an eviction (invariant 5).
//!
//! Tests and comments refer to the rules of the protocol by these numbers:
//!
//! 1. `seq` is the last install of an owner *over which the evictions of an invalidation were computed*.
//! 2. The engine ignores an install that is older than its version. The owner drops the entry by the
//!    rule of `seq`.
//! 3. An owner reports `removed` for entries that it expires, never for entries that an invalidation
//!    evicted.
//! 4. Invalidations merge: newest version, union of evictions, least `seq`.
//! 5. An owner installs only traversals that were translated at its own version.
//! 6. The engine takes all queued reports before it computes evictions.
//! 7. Entry ids are (owner, slot, generation). A slot is reused only after the `removed` of its
//!    entry was sent.
//!
//! [`Owner`] enforces rules 3, 5 and 7 and the owner's half of rule 1;
//! [`crate::evict::coordinator`] enforces the other rules. An example for rule 1:
//!
//! ```text
//!   owner                          engine                      control
//!   at version 4                   at version 4
//!   translate, install no. 7 ──►   (in the ring)               publish 5: deltas
//!                                  evictions of 5, seq = 6  ◄──
//!                                  no. 7 arrives, made at 4: late, ignored
//!   invalidation(5, .., seq 6):  ◄──
//!   drops the evictions and no. 7, which was not compared with 5
//! ```
//!
//! Learn requests of packets go to the control plane, which publishes a version with the learned rules. An
//! owner numbers its [`LearnRequest`]s. An invalidation carries the number of the last request that
//! its version includes:
//!
//! 8. No packet after one that sent a learn request is forwarded before its owner has taken an
//!    invalidation that contains the request.
//! 9. The number in an invalidation grows with its version and never before it. Merged invalidations carry
//!    the greatest number. A request that changed nothing is also acknowledged.
//!
//! A sleeping thread need not be woken for a version, since it forwards nothing:
//!
//! 10. An owner that is asleep after an invalidation was posted to it counts as having acknowledged it.
//!     When the owner wakes, it takes the invalidation before it processes a packet.
//!
//! An owner never waits. If the ring to the engine is full, an entry is not installed, and an entry
//! that should expire stays until its report fits.

use std::sync::Arc;

use rtrb::Producer;
use shunt_classifier::Version;
use shunt_pipeline::{EntryId, InstallNo, Learning, OwnerId, Time, Traversal};

use crate::{
    cache::{Entries, EntryRef},
    evict::mailbox::Invalidation,
};

/// A report of an owner to the engine; the ring keeps the order of reports.
#[derive(Clone, Debug)]
pub enum Report {
    /// The owner installed an entry.
    Installed {
        /// The id of the installed entry.
        entry: EntryId,
        /// The install number; each owner counts its installs.
        number: InstallNo,
        /// The traversal of the entry.
        traversal: Arc<Traversal>,
    },
    /// The owner removed an entry by itself.
    Removed(EntryId),
}

/// Number of waiting reports from which the eviction thread is woken.
pub const REPORTS_PER_WAKE: usize = 16;

/// A request of a packet to learn rules, sent to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnRequest {
    /// The number of the request; each owner counts its requests.
    pub number: LearnSeq,
    /// The rules to learn.
    pub learnings: Vec<Learning>,
}

/// The number of a learn request; each owner counts from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LearnSeq(pub u64);

/// The ring of learn requests is full, because the control plane is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the packet is dropped, because it must learn and the queue of learn requests is full: the \
     control plane is too slow"
)]
pub struct LearnQueueFull;

/// The reason why an entry was not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The traversal was translated at another version than that of the owner (rule 5).
    #[error(
        "the traversal is of version {seen}, but the owner is at version {current}: translate it again"
    )]
    OtherVersion {
        /// The version of the traversal.
        seen: Version,
        /// The version that the owner has adopted.
        current: Version,
    },
    /// The cache has no free slot.
    #[error(
        "the cache has no free slot for another entry: {0} entries are in use, and removed \
         entries hold the other slots until they are reclaimed"
    )]
    Full(usize),
    /// The ring of reports is full, because the engine is too slow.
    #[error(
        "the cache entry is not installed: the queue of reports to the eviction thread is full"
    )]
    RingFull,
}

/// Number of entries that an invalidation dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Entries that the invalidation named as stale.
    pub evicted: usize,
    /// Entries that were installed after `seq`, and that the change may not affect.
    pub install_conflicts: usize,
}

/// Number of entries that were not installed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Refused because no slot was free.
    pub full: u64,
    /// Refused because the ring of reports was full.
    pub ring: u64,
}

/// The entries and the version of one owner, and its ring to the engine.
#[derive(Debug)]
pub struct Owner {
    /// The number of the owner.
    id: OwnerId,
    /// The version that the owner has adopted.
    version: Version,
    /// The number of the last install.
    last: InstallNo,
    /// Number of reports that were made.
    reported: u64,
    /// Number of refused installs, by reason.
    refused: Refused,
    /// The store of the entries.
    entries: Entries,
    /// The ring of installs and removals, to the engine.
    reports: Producer<Report>,
    /// The last learn request that was sent.
    requested: LearnSeq,
    /// The last learn request that is applied.
    learned: LearnSeq,
    /// The ring of learn requests, to the engine.
    learn_requests: Producer<LearnRequest>,
}

impl Owner {
    /// Creates an owner without entries, at the version for which its link was created.
    #[must_use]
    pub fn new(
        id: OwnerId,
        version: Version,
        limit: usize,
        reports: Producer<Report>,
        learn_requests: Producer<LearnRequest>,
    ) -> Self {
        Self {
            id,
            version,
            last: InstallNo(0),
            reported: 0,
            refused: Refused::default(),
            entries: Entries::new(limit),
            reports,
            requested: LearnSeq(0),
            learned: LearnSeq(0),
            learn_requests,
        }
    }

    /// Returns the version of the owner.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the cache entries of this owner.
    #[must_use]
    pub const fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Returns the entries, to count hits, to credit hits and to reclaim entries.
    ///
    /// Only [`Self::expire`] and [`Self::apply`] may kill entries.
    #[inline]
    pub const fn entries_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }

    /// Returns the number of reports sent.
    #[must_use]
    pub const fn reported(&self) -> u64 {
        self.reported
    }

    /// Returns whether enough reports wait for a wake-up of the eviction thread.
    ///
    /// A wake-up costs more than a report, so a few reports wait. The eviction thread takes waiting
    /// reports with the next change, or after its longest sleep.
    #[must_use]
    pub fn has_report_batch(&self) -> bool {
        let capacity = self.reports.buffer().capacity();
        let unread = capacity.saturating_sub(self.reports.slots());
        unread >= REPORTS_PER_WAKE.min(capacity.div_ceil(2))
    }

    /// Returns the number of entries that were not installed.
    #[must_use]
    pub const fn refused(&self) -> Refused {
        self.refused
    }

    /// Returns the number of the newest entry that the owner installed.
    #[must_use]
    pub const fn last_install(&self) -> InstallNo {
        self.last
    }

    /// Returns the id of an entry, as other threads use it.
    #[must_use]
    pub const fn entry_id(&self, entry: EntryRef) -> EntryId {
        EntryId { owner: self.id, slot: entry.slot, generation: entry.generation }
    }

    /// Returns whether a slot is free and the ring to the engine takes a report.
    #[must_use]
    pub fn can_install(&self) -> bool {
        !self.entries.is_full() && !self.reports.is_full()
    }

    /// Installs an entry and reports it.
    ///
    /// # Errors
    ///
    /// Fails if the traversal is of another version (rule 5), no slot is free, or the report does
    /// not fit. After an error, no entry is installed, and nothing is reported.
    pub fn install(
        &mut self,
        traversal: Arc<Traversal>,
        now: Time,
    ) -> Result<EntryRef, InstallError> {
        if traversal.version != self.version {
            let (seen, current) = (traversal.version, self.version);
            return Err(InstallError::OtherVersion { seen, current });
        }
        if self.reports.is_full() {
            self.refused.ring += 1;
            return Err(InstallError::RingFull);
        }
        let number = InstallNo(self.last.0 + 1);
        let Some(entry) = self.entries.insert(number, Arc::clone(&traversal), now) else {
            self.refused.full += 1;
            return Err(InstallError::Full(self.entries.len()));
        };
        self.last = number;
        let report = Report::Installed { entry: self.entry_id(entry), number, traversal };
        let sent = self.reports.push(report);
        debug_assert!(sent.is_ok(), "the ring has room, because only this end fills it");
        self.reported += 1;
        Ok(entry)
    }

    /// Marks an entry as used at `now` if it is live, without counting a packet.
    pub fn touch(&mut self, entry: EntryRef, now: Time) {
        if self.entries.is_live(entry) {
            self.entries.touch(entry.slot, now);
        }
    }

    /// Returns the number of the owner.
    #[must_use]
    pub const fn id(&self) -> OwnerId {
        self.id
    }

    /// Removes an entry and reports it (rule 3).
    ///
    /// Returns `false`, and keeps the entry, if the report does not fit.
    pub fn expire(&mut self, entry: EntryRef) -> bool {
        if self.reports.is_full() || !self.entries.kill(entry) {
            return false;
        }
        let sent = self.reports.push(Report::Removed(self.entry_id(entry)));
        debug_assert!(sent.is_ok(), "the ring has room, because only this end fills it");
        self.reported += 1;
        true
    }

    /// Sends a learn request. Returns its number, for [`Self::has_learned`].
    ///
    /// # Errors
    ///
    /// Fails if the ring is full; then nothing was sent.
    pub fn learn(&mut self, learnings: Vec<Learning>) -> Result<LearnSeq, LearnQueueFull> {
        let number = LearnSeq(self.requested.0 + 1);
        self.learn_requests.push(LearnRequest { number, learnings }).map_err(|_| LearnQueueFull)?;
        self.requested = number;
        Ok(number)
    }

    /// Returns the number of the newest learn request that the owner sent.
    #[must_use]
    pub const fn last_learn_request(&self) -> LearnSeq {
        self.requested
    }

    /// Returns whether the owner's version includes a learn request (rule 8).
    #[must_use]
    pub fn has_learned(&self, learn_request: LearnSeq) -> bool {
        learn_request <= self.learned
    }

    /// Applies an invalidation: drops entries and adopts its version.
    ///
    /// Drops the entries that the invalidation names, and the entries installed after its `seq`.
    ///
    /// No removal is reported: the engine has forgotten the named entries, and ignores the later
    /// installs.
    pub fn apply(&mut self, invalidation: &Invalidation) -> Dropped {
        self.apply_and(invalidation, Entries::kill)
    }

    /// Applies an invalidation; queues recently hit entries for repair.
    ///
    /// Named entries that packets hit shortly before `now` enter the [repair
    /// queue](Entries::reclaim_pending).
    pub fn apply_with_repair(&mut self, invalidation: &Invalidation, now: Time) -> Dropped {
        self.apply_and(invalidation, |entries, entry| entries.evict_for_repair(entry, now))
    }

    /// Applies an invalidation, with `drop` for each stale entry.
    fn apply_and(
        &mut self,
        invalidation: &Invalidation,
        mut drop: impl FnMut(&mut Entries, EntryRef) -> bool,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        for id in invalidation.evictions.iter().flatten() {
            debug_assert!(id.owner == self.id, "an invalidation names entries of its owner");
            let entry = EntryRef { slot: id.slot, generation: id.generation };
            dropped.evicted += usize::from(drop(&mut self.entries, entry));
        }
        while let Some((entry, number)) = self.entries.newest()
            && number > invalidation.seq
        {
            self.entries.kill(entry);
            dropped.install_conflicts += 1;
        }
        debug_assert!(self.version <= invalidation.version, "versions only grow");
        self.version = invalidation.version;
        self.learned = self.learned.max(invalidation.learned);
        dropped
    }
}
