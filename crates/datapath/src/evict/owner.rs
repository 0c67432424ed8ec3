//! What the owner of a cache keeps in order so that no race loses an eviction (law 5).
//!
//! The protocol, with the numbers by which tests and comments call its rules:
//!
//! 1. `seq` is the last install of an owner *over which the evictions of an advance were computed*.
//! 2. An install older than the engine's version is ignored by the engine: its owner drops it, by
//!    the rule of `seq`.
//! 3. An owner reports `removed` for what it expires, never for what an advance took.
//! 4. Advances merge: newest version, union of evictions, least `seq`.
//! 5. An owner installs only what was translated under the version it is at.
//! 6. Before it computes, the engine takes in what is queued.
//! 7. Entry ids are (owner, slot, generation); a slot is used again only after its `removed` was
//!    sent.
//!
//! [`Owner`] keeps 3, 5 and 7 and the owner's half of 1; [`crate::evict::coordinator`] the rest. An example of
//! what 1 is for:
//!
//! ```text
//!   owner                          engine                      control
//!   at version 4                   at version 4
//!   translate, install no. 7 ──►   (on the way)                publish 5: deltas
//!                                  evictions of 5, seq = 6  ◄──
//!                                  no. 7 arrives, made under 4: late, ignored
//!   invalidation(5, .., seq 6):  ◄──
//!   drops the evictions and no. 7, which nobody tested against 5
//! ```
//!
//! What packets teach goes to control, which makes a version of it. An owner counts its [`LearnRequest`]s,
//! and an advance says up to which of them its version has learned (or found that all was known):
//!
//! 8. Nothing that came behind a packet that taught is forwarded before its owner has taken an
//!    advance that contains the lesson.
//! 9. The number of an advance grows with its version and never before it; merged advances carry
//!    the greatest; and a lesson that changed nothing is answered too.
//!
//! A thread that sleeps need not be woken to adopt a version that nobody can catch it without:
//!
//! 10. An owner that is found asleep after an advance was posted to it has answered the advance: when
//!     it wakes it takes what was posted before it meets a packet.
//!
//! Nothing here waits: if the ring to the engine is full, an entry is not made, and one that should
//! expire lives on until its report fits.

use std::sync::Arc;

use rtrb::Producer;
use shunt_classifier::Version;
use shunt_pipeline::{EntryId, InstallNo, Learning, OwnerId, Time, Traversal};

use crate::{
    cache::{Entries, EntryRef},
    evict::mailbox::Invalidation,
};

/// What an owner tells the engine, in order.
#[derive(Clone, Debug)]
pub enum Report {
    /// It made an entry.
    Installed {
        /// The entry.
        entry: EntryId,
        /// Its number among the installs of this owner.
        number: InstallNo,
        /// What made it.
        traversal: Arc<Traversal>,
    },
    /// It lost an entry of its own accord.
    Removed(EntryId),
}

/// What a packet taught, on its way to control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnRequest {
    /// Its number among the lessons of its owner.
    pub number: LearnSeq,
    /// What is to be learned.
    pub learnings: Vec<Learning>,
}

/// The number of a lesson: each owner counts its own, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LearnSeq(pub u64);

/// Control does not keep up with lessons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring of lessons to control is full")]
pub struct LearnQueueFull;

/// Why an entry was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// It was translated under another version than the owner is at (rule 5).
    #[error("the traversal saw version {seen}, the cache is at {current}")]
    OtherVersion {
        /// The version that the traversal saw.
        seen: Version,
        /// The owner's version.
        current: Version,
    },
    /// No slot is free.
    #[error("the cache holds {0} entries, its limit")]
    Full(usize),
    /// The engine does not keep up with reports.
    #[error("the ring to the eviction thread is full")]
    RingFull,
}

/// How many entries an advance took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Named as stale.
    pub evicted: usize,
    /// Installed after `seq`: the price of the race, not of the update.
    pub install_conflicts: usize,
}

/// How many entries were not made, by why not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// No slot was free.
    pub full: u64,
    /// The engine did not keep up with reports.
    pub ring: u64,
}

/// The entries of one owner, its version, and its end of the ring to the engine.
#[derive(Debug)]
pub struct Owner {
    id: OwnerId,
    version: Version,
    last: InstallNo,
    reported: u64,
    refused: Refused,
    entries: Entries,
    reports: Producer<Report>,
    taught: LearnSeq,
    learned: LearnSeq,
    learn_requests: Producer<LearnRequest>,
}

impl Owner {
    /// An owner without entries, at the version at which the engine knows it.
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
            taught: LearnSeq(0),
            learned: LearnSeq(0),
            learn_requests,
        }
    }

    /// The version that it is at.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Its entries.
    #[must_use]
    pub const fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Its entries, to count hits, credit and bury. Killing goes through [`Self::expire`] and
    /// [`Self::invalidation`] alone.
    #[inline]
    pub const fn entries_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }

    /// Number of reports sent so far.
    #[must_use]
    pub const fn reported(&self) -> u64 {
        self.reported
    }

    /// Number of entries that were not made so far.
    #[must_use]
    pub const fn refused(&self) -> Refused {
        self.refused
    }

    /// The number of its last install.
    #[must_use]
    pub const fn last_install(&self) -> InstallNo {
        self.last
    }

    /// How an entry is called outside of this owner.
    #[must_use]
    pub const fn name(&self, entry: EntryRef) -> EntryId {
        EntryId { owner: self.id, slot: entry.slot, generation: entry.generation }
    }

    /// Returns whether a slot is free and the ring to the engine takes a report.
    #[must_use]
    pub fn can_install(&self) -> bool {
        !self.entries.is_full() && !self.reports.is_full()
    }

    /// Makes an entry and reports it.
    ///
    /// # Errors
    ///
    /// When the traversal saw another version (rule 5), no slot is free, or the report does not
    /// fit; then there is no entry and nothing was reported.
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
        let report = Report::Installed { entry: self.name(entry), number, traversal };
        let sent = self.reports.push(report);
        debug_assert!(sent.is_ok(), "only this end fills the ring");
        self.reported += 1;
        Ok(entry)
    }

    /// An entry is of use now, if it lives, though no packet has hit it.
    pub fn touch(&mut self, entry: EntryRef, now: Time) {
        if self.entries.is_live(entry) {
            self.entries.touch(entry.slot, now);
        }
    }

    /// Drops an entry of its own accord and reports it (rule 3). Answers `false`, and the entry
    /// lives on, if the report does not fit now.
    pub fn expire(&mut self, entry: EntryRef) -> bool {
        if self.reports.is_full() || !self.entries.kill(entry) {
            return false;
        }
        let sent = self.reports.push(Report::Removed(self.name(entry)));
        debug_assert!(sent.is_ok(), "only this end fills the ring");
        self.reported += 1;
        true
    }

    /// Hands on what a packet teaches. Answers with the number of the lesson, to wait for.
    ///
    /// # Errors
    ///
    /// When it does not fit; then nothing was taught.
    pub fn learn(&mut self, learnings: Vec<Learning>) -> Result<LearnSeq, LearnQueueFull> {
        let number = LearnSeq(self.taught.0 + 1);
        self.learn_requests.push(LearnRequest { number, learnings }).map_err(|_| LearnQueueFull)?;
        self.taught = number;
        Ok(number)
    }

    /// The last lesson that it handed on.
    #[must_use]
    pub const fn taught(&self) -> LearnSeq {
        self.taught
    }

    /// Whether its version has learned a lesson (rule 8).
    #[must_use]
    pub fn has_learned(&self, learn_request: LearnSeq) -> bool {
        learn_request <= self.learned
    }

    /// Drops what an advance names and what was installed after its `seq`, and adopts its version.
    /// Nothing is reported: the engine has forgotten the former and ignores the latter.
    pub fn invalidation(&mut self, invalidation: &Invalidation) -> Dropped {
        self.invalidation_and(invalidation, Entries::kill)
    }

    /// The same at `now`; of what it names as stale, that which packets came to until then waits to be
    /// [made anew](Entries::reclaim_pending).
    pub fn invalidation_to_repair(&mut self, invalidation: &Invalidation, now: Time) -> Dropped {
        self.invalidation_and(invalidation, |entries, entry| entries.evict_for_repair(entry, now))
    }

    fn invalidation_and(
        &mut self,
        invalidation: &Invalidation,
        mut drop: impl FnMut(&mut Entries, EntryRef) -> bool,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        for id in invalidation.evictions.iter().flatten() {
            debug_assert!(id.owner == self.id, "an advance names entries of its owner");
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
