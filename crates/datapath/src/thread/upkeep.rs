//! Upkeep between bursts: versions, burials, credits, expiry, dumps. Every step is bounded.

use std::time::Duration;

use shunt_pipeline::{Pipeline, Time};

use super::PacketThread;
use crate::{
    cache::{Credit, EntryRef, Reclaimed},
    command::{DumpedEntry, Reply},
    metrics::ACK_BUCKETS,
};

/// What was asked for and takes more than a turn.
#[derive(Default)]
pub(super) struct Jobs {
    /// Pulls that are under way: how many dirty slots are still before each, and its answer.
    pulls: Vec<(usize, Reply<()>)>,
    dump: Option<Dump>,
    dumps_waiting: Vec<Reply<Vec<DumpedEntry>>>,
    /// The slot that is looked at next for expiry.
    clock_hand: u32,
}

struct Dump {
    next: u32,
    entries: Vec<DumpedEntry>,
    reply: Reply<Vec<DumpedEntry>>,
}

/// Dead entries buried in a turn.
const RECLAIMS_PER_ITERATION: usize = 64;

/// Entries credited in a turn in which packets come, if somebody pulls, and in one without.
const CREDITS_PER_ITERATION: usize = 64;
const CREDITS_PER_IDLE_ITERATION: usize = 512;

/// Slots looked at for expiry in a turn in which packets come, and in one without.
const EXPIRY_CHECKS_PER_ITERATION: u32 = 16;
const EXPIRY_CHECKS_PER_IDLE_ITERATION: u32 = 512;

/// Slots dumped in a turn.
const DUMPED_PER_ITERATION: usize = 512;

/// Time without a hit after which an entry goes when the cache is nearly full, as in Open vSwitch.
const MAX_IDLE_WHEN_FULL: Duration = Duration::from_millis(100);

impl Jobs {
    /// Whether something asked for is not answered yet.
    pub(super) fn is_idle(&self) -> bool {
        self.pulls.is_empty() && self.dump.is_none()
    }

    /// Takes on a pull: `dirty` slots may have something to credit now.
    pub(super) fn pull(&mut self, dirty: usize, reply: Reply<()>) {
        self.pulls.push((dirty, reply));
    }

    /// Takes on a dump.
    pub(super) fn dump(&mut self, reply: Reply<Vec<DumpedEntry>>) {
        self.dumps_waiting.push(reply);
        self.start_dump();
    }

    fn start_dump(&mut self) {
        if self.dump.is_none()
            && let Some(reply) = self.dumps_waiting.pop()
        {
            self.dump = Some(Dump { next: 0, entries: Vec::new(), reply });
        }
    }
}

impl PacketThread {
    /// Adopts the version that was posted, drops what it made stale, and answers it.
    #[inline]
    pub(super) fn take_invalidation(&mut self) -> bool {
        let Some((invalidation, turns)) = self.link.mailbox().take_counted() else { return false };
        let dropped = if self.repairer.is_on() {
            self.caches.owner.invalidation_to_repair(&invalidation, self.now)
        } else {
            self.caches.owner.invalidation(&invalidation)
        };
        self.check_learn_requests();
        self.link.answer(invalidation.version);
        let place = usize::try_from(turns).unwrap_or(ACK_BUCKETS).min(ACK_BUCKETS - 1);
        self.counters.answers[place].add(1);
        self.counters.evicted.add(dropped.evicted as u64);
        self.counters.install_conflicts.add(dropped.install_conflicts as u64);
        true
    }

    /// Does some of each kind of upkeep; answers whether anything was done.
    pub(super) fn keep_up(&mut self, is_idle: bool) -> bool {
        let cleared = self.caches.clear_out(RECLAIMS_PER_ITERATION);
        let given_up = self.give_up_repairs();
        let reclaimed = self.reclaim();
        let credited = self.credit(is_idle);
        let expired = self.expire(is_idle);
        let dumped = self.dump();
        cleared | given_up | reclaimed | credited | expired | dumped
    }

    /// Whether all counts are handed in and nothing that was asked for is under way.
    pub(super) fn is_kept_up(&self) -> bool {
        let entries = self.caches.owner.entries();
        let is_clean = entries.dirty() == 0 && entries.retired() == 0;
        is_clean && self.caches.is_cleared_out() && self.jobs.is_idle()
    }

    /// Ends some of the entries that are dead.
    pub(super) fn reclaim(&mut self) -> bool {
        for count in 0..RECLAIMS_PER_ITERATION {
            let Some(reclaimed) = self.caches.reclaim() else { return count > 0 };
            self.credit_reclaimed(&reclaimed);
        }
        true
    }

    /// Credits what an entry that is gone has counted.
    pub(super) fn credit_reclaimed(&self, reclaimed: &Reclaimed) {
        if let Some(credit) = reclaimed.credit {
            credit_to(&self.pipeline, &reclaimed.traversal, credit);
        }
    }

    fn credit(&mut self, is_idle: bool) -> bool {
        if !is_idle && self.jobs.pulls.is_empty() {
            return false;
        }
        let limit = if is_idle { CREDITS_PER_IDLE_ITERATION } else { CREDITS_PER_ITERATION };
        let entries = self.caches.owner.entries_mut();
        let count = entries.dirty().min(limit);
        for _ in 0..count {
            entries.credit_one(|traversal, credit| credit_to(&self.pipeline, traversal, credit));
        }
        let answered = self.answer_pulls(count);
        count > 0 || answered
    }

    /// `count` slots were credited, those first that were dirty first.
    fn answer_pulls(&mut self, count: usize) -> bool {
        let pulls = &mut self.jobs.pulls;
        pulls.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(count));
        let done = pulls.extract_if(.., |(left, _)| *left == 0);
        done.map(|(_, reply)| reply(())).count() > 0
    }

    fn expire(&mut self, is_idle: bool) -> bool {
        let checks =
            if is_idle { EXPIRY_CHECKS_PER_IDLE_ITERATION } else { EXPIRY_CHECKS_PER_ITERATION };
        let is_crowded = self.caches.is_crowded();
        let max_idle = if is_crowded { MAX_IDLE_WHEN_FULL } else { self.config.max_idle };
        let mut expired = 0;
        for _ in 0..checks {
            let entries = self.caches.owner.entries();
            if self.jobs.clock_hand as usize >= entries.slots() {
                self.jobs.clock_hand = 0;
                break;
            }
            let found = entries.used_at(self.jobs.clock_hand);
            if let Some(entry) = idle_entry(found, self.now, max_idle) {
                if !self.caches.owner.expire(entry) {
                    // The eviction thread does not keep up; the entry lives on until it does.
                    break;
                }
                expired += 1;
            }
            self.jobs.clock_hand += 1;
        }
        self.counters.expired.add(expired);
        expired > 0
    }

    fn dump(&mut self) -> bool {
        for _ in 0..DUMPED_PER_ITERATION {
            let Some(next) = self.jobs.dump.as_ref().map(|dump| dump.next) else { return false };
            let found = self.entry(next);
            let Some(dump) = &mut self.jobs.dump else { return false };
            if next as usize >= self.caches.owner.entries().slots() {
                if let Some(Dump { entries, reply, .. }) = self.jobs.dump.take() {
                    reply(entries);
                }
                self.jobs.start_dump();
                return true;
            }
            dump.entries.extend(found);
            dump.next += 1;
        }
        true
    }

    /// The live entry in a slot.
    pub(super) fn entry(&self, slot: u32) -> Option<DumpedEntry> {
        let entries = self.caches.owner.entries();
        let (entry, traversal) = (entries.live_at(slot)?, entries.traversal(slot)?);
        let Credit { packets, bytes, used } = entries.totals(slot);
        Some(DumpedEntry {
            entry: self.caches.owner.name(entry),
            traversal: traversal.clone(),
            packets,
            bytes,
            used,
            link: self.caches.link(entry),
        })
    }
}

fn credit_to(pipeline: &Pipeline, traversal: &shunt_pipeline::Traversal, credit: Credit) {
    pipeline.credit(traversal, credit.packets, credit.bytes, credit.used);
}

/// The entry, if it was idle for longer than it may.
fn idle_entry(found: Option<(EntryRef, Time)>, now: Time, max_idle: Duration) -> Option<EntryRef> {
    found.filter(|(_, used)| now.since(*used) > max_idle).map(|(entry, _)| entry)
}
