//! Upkeep between bursts: versions, reclaims, credits, expiry, dumps. Every step is bounded.

use std::time::Duration;

use shunt_pipeline::{Pipeline, Time};

use super::PacketThread;
use crate::{
    cache::{Credit, EntryRef, Reclaimed},
    command::{DumpedEntry, Reply},
    metrics::ACK_BUCKETS,
};

/// Requests that take more than one iteration, and the position of the expiry scan.
#[derive(Default)]
pub(super) struct UpkeepJobs {
    /// Pulls in progress: the number of slots left to credit, and the reply.
    pulls: Vec<(usize, Reply<()>)>,
    dump: Option<EntryDump>,
    dumps_waiting: Vec<Reply<Vec<DumpedEntry>>>,
    /// The next slot to check for expiry.
    clock_hand: u32,
}

struct EntryDump {
    next: u32,
    entries: Vec<DumpedEntry>,
    reply: Reply<Vec<DumpedEntry>>,
}

/// Maximum number of entries reclaimed in an iteration.
const RECLAIMS_PER_ITERATION: usize = 64;

/// Maximum number of entries credited in an iteration.
///
/// The first applies to iterations with packets while a pull is pending, the second to idle ones.
const CREDITS_PER_ITERATION: usize = 64;
const CREDITS_PER_IDLE_ITERATION: usize = 512;

/// Maximum number of slots checked for expiry in an iteration, busy or idle.
const EXPIRY_CHECKS_PER_ITERATION: u32 = 16;
const EXPIRY_CHECKS_PER_IDLE_ITERATION: u32 = 512;

/// Maximum number of slots dumped in an iteration.
const DUMPED_PER_ITERATION: usize = 512;

/// Idle time before expiry in a nearly full cache, as in Open vSwitch.
const MAX_IDLE_WHEN_FULL: Duration = Duration::from_millis(100);

impl UpkeepJobs {
    /// Returns whether no request is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.pulls.is_empty() && self.dump.is_none()
    }

    /// Adds a pull: it is done when the `dirty` slots of now are credited.
    pub(super) fn pull(&mut self, dirty: usize, reply: Reply<()>) {
        self.pulls.push((dirty, reply));
    }

    /// Adds a dump.
    pub(super) fn dump(&mut self, reply: Reply<Vec<DumpedEntry>>) {
        self.dumps_waiting.push(reply);
        self.start_dump();
    }

    fn start_dump(&mut self) {
        if self.dump.is_none()
            && let Some(reply) = self.dumps_waiting.pop()
        {
            self.dump = Some(EntryDump { next: 0, entries: Vec::new(), reply });
        }
    }
}

impl PacketThread {
    /// Adopts a posted version, drops its stale entries, and acknowledges it.
    #[inline]
    pub(super) fn take_invalidation(&mut self) -> bool {
        let Some((invalidation, iterations)) = self.link.mailbox().take_with_iterations() else {
            return false;
        };
        let dropped = if self.repairer.is_on() {
            self.caches.owner.apply_with_repair(&invalidation, self.now)
        } else {
            self.caches.owner.apply(&invalidation)
        };
        self.end_learn_stalls();
        self.link.ack(invalidation.version);
        let bucket = usize::try_from(iterations).unwrap_or(ACK_BUCKETS).min(ACK_BUCKETS - 1);
        self.counters.acks[bucket].add(1);
        self.counters.evicted.add(dropped.evicted as u64);
        self.counters.install_conflicts.add(dropped.install_conflicts as u64);
        true
    }

    /// Does a bounded part of each kind of upkeep. Returns whether there was work.
    pub(super) fn run_upkeep(&mut self, is_idle: bool) -> bool {
        let cleared = self.caches.clear_out(RECLAIMS_PER_ITERATION);
        let given_up = self.give_up_repairs();
        let reclaimed = self.reclaim();
        let credited = self.credit(is_idle);
        let expired = self.expire(is_idle);
        let dumped = self.dump();
        cleared | given_up | reclaimed | credited | expired | dumped
    }

    /// Returns whether all hits are credited and no request is pending.
    pub(super) fn is_upkeep_done(&self) -> bool {
        let entries = self.caches.owner.entries();
        let is_clean = entries.dirty() == 0 && entries.retired() == 0;
        is_clean && self.caches.is_cleared_out() && self.jobs.is_idle()
    }

    /// Reclaims some of the dead entries.
    pub(super) fn reclaim(&mut self) -> bool {
        for count in 0..RECLAIMS_PER_ITERATION {
            let Some(reclaimed) = self.caches.reclaim() else { return count > 0 };
            self.credit_reclaimed(&reclaimed);
        }
        true
    }

    /// Credits the last hits of a reclaimed entry.
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
        let answered = self.reply_to_pulls(count);
        count > 0 || answered
    }

    /// Replies to pulls after `count` more slots were credited.
    fn reply_to_pulls(&mut self, count: usize) -> bool {
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
                    // The ring to the eviction thread is full: the entry lives until its report fits.
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
                if let Some(EntryDump { entries, reply, .. }) = self.jobs.dump.take() {
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

    /// Returns the live entry in a slot.
    pub(super) fn entry(&self, slot: u32) -> Option<DumpedEntry> {
        let entries = self.caches.owner.entries();
        let (entry, traversal) = (entries.live_at(slot)?, entries.traversal(slot)?);
        let Credit { packets, bytes, used } = entries.totals(slot);
        Some(DumpedEntry {
            entry: self.caches.owner.entry_id(entry),
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

/// Returns the entry if it was idle for longer than `max_idle`.
fn idle_entry(found: Option<(EntryRef, Time)>, now: Time, max_idle: Duration) -> Option<EntryRef> {
    found.filter(|(_, used)| now.since(*used) > max_idle).map(|(entry, _)| entry)
}
