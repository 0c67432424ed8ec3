//! Upkeep between bursts, in bounded steps: credits to rules, expiry and dumps.

use std::time::Duration;

use shunt_pipeline::{Pipeline, Time};

use super::flows::TableDecisions;
use crate::{
    cache::{CREDITS_MAX, Caches, Credit, EntryRef},
    command::{DumpedEntry, Reply},
    evict::owner::Owner,
    forecast::Speculation,
};

/// Requests that take more than one iteration, and the position of the expiry scan.
#[derive(Default)]
pub(super) struct UpkeepJobs {
    /// Pulls of counters in progress: the counts left to credit, and the reply.
    pulls: Vec<(DirtyCounts, Reply<()>)>,
    /// The dump that is in progress, if any.
    dump: Option<EntryDump>,
    /// Requests for dumps that wait for the current dump.
    dumps_waiting: Vec<Reply<Vec<DumpedEntry>>>,
    /// The next cache slot to check for expiry.
    clock_hand: u32,
}

/// Numbers of counts that are not yet credited to rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtyCounts {
    /// Number of cache entries with uncredited hits.
    pub(super) entries: usize,
    /// Number of uncredited counts of packets that the tables decided.
    pub(super) decisions: usize,
}

/// A dump of cache entries that takes several iterations.
struct EntryDump {
    /// The next slot to read.
    next: u32,
    /// The entries that were dumped so far.
    entries: Vec<DumpedEntry>,
    /// The channel for the result.
    reply: Reply<Vec<DumpedEntry>>,
}

/// Maximum number of entries with hits to credit in one iteration.
///
/// The first limit applies to iterations with packets, while a pull is pending; the second limit
/// applies to idle iterations.
const CREDITS_PER_ITERATION: usize = 64;
/// Maximum number of entries that an idle iteration credits.
const CREDITS_PER_IDLE_ITERATION: usize = 512;

/// Longest time that a thread waits for the lock of the tables to credit entries.
///
/// A change of the tables releases the lock far more often, unless the machine has too few
/// processors.
pub(super) const CREDIT_WAIT_MAX: Duration = Duration::from_millis(1);

/// Maximum number of slots checked for expiry in a busy, and in an idle, iteration.
const EXPIRY_CHECKS_PER_ITERATION: u32 = 16;
/// Maximum number of entries that an idle iteration checks for expiry.
const EXPIRY_CHECKS_PER_IDLE_ITERATION: u32 = 512;

/// Maximum number of slots dumped in an iteration.
const DUMPED_PER_ITERATION: usize = 512;

/// Idle time before expiry in a nearly full cache, as in Open vSwitch.
const MAX_IDLE_WHEN_FULL: Duration = Duration::from_millis(100);

impl UpkeepJobs {
    /// Returns whether no pull and no dump is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.pulls.is_empty() && self.dump.is_none()
    }

    /// Adds a pull, which is done when the current `dirty` counts are credited.
    pub(super) fn pull(&mut self, dirty: DirtyCounts, reply: Reply<()>) {
        self.pulls.push((dirty, reply));
    }

    /// Adds a dump of all entries.
    pub(super) fn dump(&mut self, reply: Reply<Vec<DumpedEntry>>) {
        self.dumps_waiting.push(reply);
        self.start_dump();
    }

    /// Starts the next requested dump of entries, unless one is running.
    fn start_dump(&mut self) {
        if self.dump.is_none()
            && let Some(reply) = self.dumps_waiting.pop()
        {
            self.dump = Some(EntryDump { next: 0, entries: Vec::new(), reply });
        }
    }

    /// Credits the hits of some entries to rules, and replies to pulls that are done.
    ///
    /// Returns whether there was work. A busy thread credits hits only while a pull is pending. If
    /// a change locks the tables for long, the remaining hits are credited later, because packets
    /// must not wait for the lock.
    pub(super) fn credit(
        &mut self,
        owner: &mut Owner,
        decisions: &mut TableDecisions,
        pipeline: &Pipeline,
        is_idle: bool,
    ) -> bool {
        if !is_idle && self.pulls.is_empty() {
            return false;
        }
        let limit = if is_idle { CREDITS_PER_IDLE_ITERATION } else { CREDITS_PER_ITERATION };
        let entries = owner.entries_mut();
        let most = entries.dirty().min(limit);
        let mut count = 0;
        while count < most {
            let Some(tables) = pipeline.try_crediting(CREDIT_WAIT_MAX) else { break };
            // The lock is released after each batch, so changes of the tables wait for one batch at
            // most.
            let batch = (most - count).min(CREDITS_MAX);
            let taken = entries.take_credits(batch);
            tables.credit_all(entries.credits(&taken));
            count += batch;
        }
        let has_decisions = decisions.dirty() > 0;
        let decided =
            if has_decisions { decisions.credit(pipeline, limit, CREDIT_WAIT_MAX) } else { 0 };
        let decided = if decisions.dirty() == 0 { usize::MAX } else { decided };
        let replied = self.reply_to_pulls(DirtyCounts { entries: count, decisions: decided });
        count > 0 || has_decisions || replied
    }

    /// Replies to pulls when all their counts are credited.
    fn reply_to_pulls(&mut self, credited: DirtyCounts) -> bool {
        for (left, _) in &mut self.pulls {
            left.entries = left.entries.saturating_sub(credited.entries);
            left.decisions = left.decisions.saturating_sub(credited.decisions);
        }
        let done = self.pulls.extract_if(.., |(left, _)| left.entries + left.decisions == 0);
        done.map(|(_, reply)| reply(())).count() > 0
    }

    /// Checks some slots, and expires their idle entries.
    ///
    /// Returns the number of expired entries. Speculative entries have their own idle time.
    pub(super) fn expire(
        &mut self,
        caches: &mut Caches,
        speculation: Option<&Speculation>,
        max_idle: Duration,
        now: Time,
        is_idle: bool,
    ) -> u64 {
        let checks =
            if is_idle { EXPIRY_CHECKS_PER_IDLE_ITERATION } else { EXPIRY_CHECKS_PER_ITERATION };
        let max_idle = if caches.is_crowded() { MAX_IDLE_WHEN_FULL } else { max_idle };
        let mut expired = 0;
        for _ in 0..checks {
            let entries = caches.owner.entries();
            if self.clock_hand as usize >= entries.slots() {
                self.clock_hand = 0;
                break;
            }
            let found = entries.used_at(self.clock_hand);
            let is_speculative = |entry: &EntryRef| {
                speculation.is_some_and(|own| own.is_speculative(entries, *entry))
            };
            let idle = idle_entry(found, now, max_idle);
            if let Some(entry) = idle.filter(|entry| !is_speculative(entry)) {
                if !caches.owner.expire(entry) {
                    // The ring of reports to the eviction thread is full: the entry expires later.
                    break;
                }
                expired += 1;
            }
            self.clock_hand += 1;
        }
        expired
    }

    /// Dumps some slots; returns whether there was work.
    pub(super) fn continue_dump(
        &mut self,
        caches: &Caches,
        speculation: Option<&Speculation>,
    ) -> bool {
        for _ in 0..DUMPED_PER_ITERATION {
            let Some(dump) = &mut self.dump else { return false };
            if dump.next as usize >= caches.owner.entries().slots() {
                if let Some(EntryDump { entries, reply, .. }) = self.dump.take() {
                    reply(entries);
                }
                self.start_dump();
                return true;
            }
            dump.entries.extend(dumped_entry(caches, speculation, dump.next));
            dump.next += 1;
        }
        true
    }
}

/// Returns a snapshot of the live entry in a slot.
pub(super) fn dumped_entry(
    caches: &Caches,
    speculation: Option<&Speculation>,
    slot: u32,
) -> Option<DumpedEntry> {
    let entries = caches.owner.entries();
    let (entry, traversal) = (entries.live_at(slot)?, entries.traversal(slot)?);
    let Credit { packets, bytes, used } = entries.totals(slot);
    // A chain marks new entries of forecasts as least recently used, so `used` may be too early.
    let installed = speculation.and_then(|own| own.installed_at(entry));
    Some(DumpedEntry {
        entry: caches.owner.entry_id(entry),
        traversal: traversal.clone(),
        packets,
        bytes,
        used: installed.map_or(used, |installed| used.max(installed)),
        link: caches.link(entry),
        forecast: speculation.and_then(|own| own.origin_of(entry)),
    })
}

/// Returns an entry that was idle for longer than `max_idle`.
fn idle_entry(found: Option<(EntryRef, Time)>, now: Time, max_idle: Duration) -> Option<EntryRef> {
    found.filter(|(_, used)| now.since(*used) > max_idle).map(|(entry, _)| entry)
}
