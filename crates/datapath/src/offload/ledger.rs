//! The state of each intended entry in the offload device, and the next operation for it.
//!
//! ```text
//!   waiting ──insert──► inserting ──done──► held ──remove──► removing ──done──► gone
//!      │                   └── refused ──► refused ─┐
//!      └── unwanted ────────────────────────────────┴──► gone
//! ```
//!
//! An entry is *unwanted* when it is no longer intended: it is stale, idle, or blocks another
//! entry. The removal of an unwanted entry proceeds with the responses of the device until the
//! entry is *gone*. Only then are its tags and its key free, and a version that waits for the entry
//! can be acknowledged.
//!
//! When a version is adopted, every unwanted entry that is not gone counts as *stale*, and the
//! version waits for all of them. The eviction engine forgot such an entry when it became unwanted,
//! so the effect of the version on it is unknown.

use std::{collections::BTreeSet, ops::Bound, sync::Arc, time::Duration};

use hashbrown::HashMap;
use shunt_gigaflow::{
    ltm::{LtmEntryRef, LtmRule, Next, Tag},
    offload::{Counters, LtmIndex, OffloadError, Operation, Ticket},
    partition::StageId,
};
use shunt_pipeline::{Time, Traversal};

mod entry;
mod speculative;

pub(super) use entry::OffloadEntry;

use self::entry::{EntryKey, EntryToRemove, State, key};
use super::{OffloadRefusal, OperationCounts};
use crate::forecast::EntryForecast;

/// All entries that the device is intended to hold, or may still hold.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The entries, by their numbers in the ledger.
    offloaded_entries: HashMap<LtmIndex, OffloadEntry, Hasher>,
    /// The number of each intended entry of the owner.
    by_entry: HashMap<LtmEntryRef, LtmIndex, Hasher>,
    /// The entry that occupies each key in the device, also while it is removed.
    keys: HashMap<EntryKey, LtmIndex, Hasher>,
    /// Entries to insert, by stage, the oldest first.
    inserts: Vec<BTreeSet<LtmIndex>>,
    /// Entries to remove, first stage first.
    removals: BTreeSet<(StageId, LtmIndex)>,
    /// Removals that the device refused, to be retried.
    refused_removals: BTreeSet<(StageId, LtmIndex)>,
    /// Stale entries that are not gone, by the time at which they became stale.
    stale: BTreeSet<(Time, LtmIndex)>,
    /// Number of entries to remove.
    unwanted_count: usize,
    /// Number of unwanted entries of each stage that the device holds or may hold.
    leaving: Vec<usize>,
    /// The entry of each operation without a response.
    pending_operations: HashMap<Ticket, LtmIndex, Hasher>,
    /// Number of pending insertions.
    inserting_count: usize,
    /// Entries of each stage that the device holds or may hold.
    occupied: Vec<usize>,
    /// Maximum number of entries of each stage.
    capacity: Vec<usize>,
    /// The number of the next entry.
    next_index: u64,
    /// The number of the next operation.
    next_ticket: u64,
    /// Number of operations, by kind and result.
    pub(super) operations: OperationCounts,
}

type Hasher = foldhash::fast::FixedState;

/// An entry to insert.
pub(super) struct NewEntry {
    /// The reference to the LTM entry.
    pub(super) entry: LtmEntryRef,
    /// The stage of the device that holds the entry.
    pub(super) stage: StageId,
    /// The rule of the entry.
    pub(super) rule: LtmRule,
    /// The traversal from which the entry was made.
    pub(super) traversal: Arc<Traversal>,
    /// The number of the traversal among those of the agent.
    pub(super) traversal_no: u64,
    /// The forecast that caused the entry, if any.
    pub(super) forecast: Option<EntryForecast>,
}

/// The effects of a response of the device.
#[derive(Debug, Default)]
pub(super) struct ResponseOutcome {
    /// The traversal with an entry that was confirmed, or that will never be confirmed.
    pub(super) traversal_no: Option<(u64, InsertionResult)>,
    /// An entry that is gone.
    pub(super) gone: Option<OffloadEntry>,
    /// An entry that the device has refused, and that the owner must remove.
    pub(super) refused: Option<(LtmEntryRef, OffloadRefusal)>,
}

/// The response of the device to an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertionResult {
    Confirmed,
    Refused,
}

/// Operations to send, with their tickets.
pub(super) type Batch = Vec<(Ticket, Operation)>;

impl Ledger {
    /// Creates an empty ledger of a device with these stages.
    pub(super) fn new(capacity: &[usize], seed: u64) -> Self {
        let hasher = Hasher::with_seed(seed);
        Self {
            offloaded_entries: HashMap::with_hasher(hasher.clone()),
            by_entry: HashMap::with_hasher(hasher.clone()),
            keys: HashMap::with_hasher(hasher.clone()),
            inserts: vec![BTreeSet::new(); capacity.len()],
            removals: BTreeSet::new(),
            refused_removals: BTreeSet::new(),
            stale: BTreeSet::new(),
            unwanted_count: 0,
            leaving: vec![0; capacity.len()],
            pending_operations: HashMap::with_hasher(hasher),
            inserting_count: 0,
            occupied: vec![0; capacity.len()],
            capacity: capacity.to_vec(),
            next_index: 1,
            next_ticket: 1,
            operations: OperationCounts::default(),
        }
    }

    /// Adds an entry that the device should have.
    pub(super) fn add(&mut self, new: NewEntry) {
        let index = LtmIndex(self.next_index);
        self.next_index += 1;
        let NewEntry { entry, stage, rule, traversal, traversal_no, forecast } = new;
        self.by_entry.insert(entry, index);
        let offloaded = OffloadEntry {
            entry,
            stage,
            rule: Arc::new(rule),
            traversal,
            traversal_no,
            state: State::Waiting,
            unwanted: None,
            counted: Counters::default(),
            counted_before: Counters::default(),
            used: Time::ZERO,
            forecast,
        };
        self.offloaded_entries.insert(index, offloaded);
        self.inserts[stage.index()].insert(index);
    }

    /// Marks an entry that the owner removed as no longer intended.
    /// Returns the entry if it is gone at once.
    ///
    /// `stale_since` is the time at which a version made the entry stale; `None` if none did.
    pub(super) fn mark_unwanted(
        &mut self,
        entry: LtmEntryRef,
        stale_since: Option<Time>,
    ) -> Option<OffloadEntry> {
        let index = self.by_entry.remove(&entry)?;
        let offloaded = self.offloaded_entries.get_mut(&index)?;
        offloaded.unwanted = Some(EntryToRemove { stale_since: None });
        self.unwanted_count += 1;
        let (state, stage) = (offloaded.state, offloaded.stage);
        match state {
            State::Waiting | State::Refused => return self.end(index),
            State::Held => {
                self.removals.insert((stage, index));
            }
            State::Inserting | State::Removing | State::Unknown => {}
        }
        self.leaving[stage.index()] += 1;
        if let Some(since) = stale_since {
            self.make_stale(index, since);
        }
        None
    }

    /// Adopts a version, which waits for all entries that are unwanted and not gone.
    pub(super) fn adopt(&mut self, now: Time) {
        if self.unwanted_count == self.stale.len() {
            return;
        }
        let is_new = |offloaded: &OffloadEntry| {
            offloaded.unwanted == Some(EntryToRemove { stale_since: None })
        };
        let unwanted = self.offloaded_entries.iter().filter(|(_, offloaded)| is_new(offloaded));
        let unwanted: Vec<LtmIndex> = unwanted.map(|(index, _)| *index).collect();
        unwanted.into_iter().for_each(|index| self.make_stale(index, now));
    }

    /// Marks an entry as stale since `since`.
    fn make_stale(&mut self, index: LtmIndex, since: Time) {
        if let Some(offloaded) = self.offloaded_entries.get_mut(&index) {
            offloaded.unwanted = Some(EntryToRemove { stale_since: Some(since) });
            self.stale.insert((since, index));
        }
    }

    /// Fills a batch with operations that are due.
    /// Returns entries for which their stage will have no room.
    ///
    /// Removals come first, in the order of stages. If no stale entry is left, insertions follow,
    /// the last stage first, up to a maximum number of pending insertions.
    pub(super) fn next(
        &mut self,
        batch: &mut Batch,
        count: usize,
        inserting_max: usize,
    ) -> Vec<LtmEntryRef> {
        while batch.len() < count
            && let Some((stage, index)) = self.removals.pop_first()
        {
            if let Some(offloaded) = self.offloaded_entries.get_mut(&index) {
                debug_assert!(offloaded.state == State::Held && offloaded.stage == stage);
                offloaded.state = State::Removing;
                batch.push((self.ticket(index), Operation::Remove { entry: index }));
                self.operations.removes += 1;
            }
        }
        let mut without_room = Vec::new();
        let left = inserting_max.saturating_sub(self.inserting_count);
        let count = count.min(batch.len() + left);
        let mut blocked_tags = BTreeSet::new();
        if self.stale.is_empty() {
            for stage in (0..self.inserts.len()).rev() {
                if !self.next_inserts(stage, batch, count, &mut without_room, &mut blocked_tags) {
                    break;
                }
            }
        }
        without_room
    }

    /// Adds the insertions of one stage.
    /// Returns whether insertions into earlier stages may follow.
    ///
    /// An entry must not lead packets to a later entry that is not inserted yet. So an entry with
    /// an occupied key waits, and entries that lead to its tag wait, too. Other entries do not
    /// wait, because a device may keep the entry of an occupied key for long.
    fn next_inserts(
        &mut self,
        stage: usize,
        batch: &mut Batch,
        count: usize,
        without_room: &mut Vec<LtmEntryRef>,
        blocked_tags: &mut BTreeSet<Tag>,
    ) -> bool {
        let mut behind = Bound::Unbounded;
        while let Some(index) =
            self.inserts[stage].range((behind, Bound::Unbounded)).next().copied()
        {
            behind = Bound::Excluded(index);
            if batch.len() >= count {
                return false;
            }
            let Some(offloaded) = self.offloaded_entries.get(&index) else { return false };
            let follows_blocked =
                matches!(&offloaded.rule.next, Next::Tag(tag) if blocked_tags.contains(tag));
            let key = key(offloaded);
            if follows_blocked || self.keys.contains_key(&key) {
                blocked_tags.insert(offloaded.rule.tag);
                continue;
            }
            if self.occupied[stage] >= self.capacity[stage] {
                if self.leaving[stage] > 0 {
                    return false;
                }
                without_room.push(offloaded.entry);
                self.inserts[stage].remove(&index);
                self.set_state(index, State::Refused);
                continue;
            }
            let (at, rule) = (offloaded.stage, Arc::clone(&offloaded.rule));
            self.inserts[stage].remove(&index);
            self.keys.insert(key, index);
            self.occupied[stage] += 1;
            self.set_state(index, State::Inserting);
            self.inserting_count += 1;
            let operation = Operation::Insert { entry: index, stage: at, rule };
            batch.push((self.ticket(index), operation));
            self.operations.inserts += 1;
        }
        true
    }

    /// Takes back the operations of a batch that the device did not accept.
    pub(super) fn return_unsent(&mut self, batch: &mut Batch) {
        for (ticket, operation) in batch.drain(..) {
            let Some(index) = self.pending_operations.remove(&ticket) else { continue };
            match operation {
                Operation::Insert { stage, .. } => {
                    self.operations.inserts -= 1;
                    self.inserting_count -= 1;
                    // No entry has become unwanted since the batch was filled.
                    self.leave(index);
                    self.set_state(index, State::Waiting);
                    self.inserts[stage.index()].insert(index);
                }
                Operation::Remove { .. } => {
                    self.operations.removes -= 1;
                    if let Some(stage) = self.set_state(index, State::Held) {
                        self.removals.insert((stage, index));
                    }
                }
                Operation::Modify { .. } | Operation::Count { .. } => {}
            }
        }
    }

    /// Handles the response to an operation; `None` if the ledger did not send it.
    pub(super) fn complete(
        &mut self,
        ticket: Ticket,
        result: &Result<(), OffloadError>,
        now: Time,
    ) -> Option<ResponseOutcome> {
        let index = self.pending_operations.remove(&ticket)?;
        match result {
            Ok(()) => self.operations.done += 1,
            Err(OffloadError::Lost(_)) => self.operations.lost += 1,
            Err(_) => self.operations.failed += 1,
        }
        let state = self.offloaded_entries.get(&index)?.state;
        Some(match state {
            State::Inserting => self.inserted(index, result, now),
            State::Removing => self.removed(index, result),
            State::Waiting | State::Held | State::Unknown | State::Refused => {
                ResponseOutcome::default()
            }
        })
    }

    /// Records the response to an insertion.
    fn inserted(
        &mut self,
        index: LtmIndex,
        result: &Result<(), OffloadError>,
        now: Time,
    ) -> ResponseOutcome {
        self.inserting_count -= 1;
        let Some(offloaded) = self.offloaded_entries.get_mut(&index) else {
            return ResponseOutcome::default();
        };
        let (entry, stage, traversal_no) =
            (offloaded.entry, offloaded.stage, offloaded.traversal_no);
        let is_unwanted = offloaded.unwanted.is_some();
        match result {
            Ok(()) => {
                (offloaded.state, offloaded.used) = (State::Held, now);
                if is_unwanted {
                    self.removals.insert((stage, index));
                }
                ResponseOutcome {
                    traversal_no: Some((traversal_no, InsertionResult::Confirmed)),
                    ..ResponseOutcome::default()
                }
            }
            Err(OffloadError::Lost(_)) => {
                offloaded.state = State::Unknown;
                ResponseOutcome::default()
            }
            Err(error) => {
                offloaded.state = State::Refused;
                self.leave(index);
                let gone = if is_unwanted { self.end(index) } else { None };
                let refused = (!is_unwanted).then(|| (entry, error.into()));
                ResponseOutcome {
                    traversal_no: Some((traversal_no, InsertionResult::Refused)),
                    gone,
                    refused,
                }
            }
        }
    }

    /// Records the response to a removal.
    fn removed(&mut self, index: LtmIndex, result: &Result<(), OffloadError>) -> ResponseOutcome {
        match result {
            Ok(()) | Err(OffloadError::NoSuchEntry) => {
                ResponseOutcome { gone: self.end(index), ..ResponseOutcome::default() }
            }
            Err(error) => {
                if let Some(stage) = self.set_state(index, State::Held) {
                    let is_lost = matches!(error, OffloadError::Lost(_));
                    let again =
                        if is_lost { &mut self.removals } else { &mut self.refused_removals };
                    again.insert((stage, index));
                }
                ResponseOutcome::default()
            }
        }
    }

    /// Records that the device holds exactly the entries that it confirmed.
    /// Returns entries that are gone.
    ///
    /// Insertions without a response are repeated, or dropped if their entry is unwanted.
    pub(super) fn restored(&mut self, now: Time) -> Vec<OffloadEntry> {
        let unknown = self
            .offloaded_entries
            .iter()
            .filter(|(_, offloaded)| offloaded.state == State::Unknown);
        let mut unknown: Vec<LtmIndex> = unknown.map(|(index, _)| *index).collect();
        unknown.sort_unstable();
        let mut gone = Vec::new();
        for index in unknown {
            self.leave(index);
            let Some(offloaded) = self.offloaded_entries.get_mut(&index) else { continue };
            if offloaded.unwanted.is_some() {
                offloaded.state = State::Refused;
                gone.extend(self.end(index));
            } else {
                offloaded.state = State::Waiting;
                let stage = offloaded.stage.index();
                self.inserts[stage].insert(index);
            }
        }
        // The time limit for confirmations restarts.
        for (_, index) in std::mem::take(&mut self.stale) {
            self.make_stale(index, now);
        }
        self.retry_refused();
        gone
    }

    /// Retries removals that the device refused.
    pub(super) fn retry_refused(&mut self) {
        self.removals.append(&mut self.refused_removals);
    }

    /// Takes the count of an entry.
    /// Returns the hits since the last reading, and the entry.
    pub(super) fn counted(
        &mut self,
        index: LtmIndex,
        counters: Counters,
        now: Time,
    ) -> Option<(LtmEntryRef, Arc<Traversal>, Counters)> {
        let offloaded = self.offloaded_entries.get_mut(&index)?;
        if counters.packets < offloaded.counted.packets || counters.bytes < offloaded.counted.bytes
        {
            // The device has restarted its counter at zero.
            offloaded.counted_before = offloaded.totals();
            offloaded.counted = Counters::default();
        }
        let hits = Counters {
            packets: counters.packets - offloaded.counted.packets,
            bytes: counters.bytes - offloaded.counted.bytes,
        };
        offloaded.counted = counters;
        if hits.packets == 0 {
            return None;
        }
        offloaded.used = now;
        Some((offloaded.entry, Arc::clone(&offloaded.traversal), hits))
    }

    /// Returns the index of an intended entry.
    pub(super) fn index(&self, entry: LtmEntryRef) -> Option<LtmIndex> {
        self.by_entry.get(&entry).copied()
    }

    /// Returns the entry of an index that is still intended.
    pub(super) fn entry(&self, index: LtmIndex) -> Option<LtmEntryRef> {
        self.offloaded_entries
            .get(&index)
            .filter(|offloaded| offloaded.unwanted.is_none())
            .map(|offloaded| offloaded.entry)
    }

    /// Returns the entries that the device holds, to read their counters.
    pub(super) fn held(&self) -> Vec<LtmIndex> {
        let held =
            self.offloaded_entries.iter().filter(|(_, offloaded)| offloaded.state == State::Held);
        held.map(|(index, _)| *index).collect()
    }

    /// Returns the tickets of pending removals; the responses contain counts.
    pub(super) fn pending_removals(&self) -> impl Iterator<Item = Ticket> {
        let is_removal = |index: &LtmIndex| {
            self.offloaded_entries
                .get(index)
                .is_some_and(|offloaded| offloaded.state == State::Removing)
        };
        self.pending_operations
            .iter()
            .filter(move |(_, index)| is_removal(index))
            .map(|(ticket, _)| *ticket)
    }

    /// Returns entries without a recent hit.
    /// The reading that began at `read` has found no hit since `max_idle`, or since their forecast
    /// expired.
    pub(super) fn idle(&self, read: Time, max_idle: Duration) -> Vec<LtmEntryRef> {
        let is_idle = |offloaded: &&OffloadEntry| {
            offloaded.unwanted.is_none()
                && offloaded.state == State::Held
                && offloaded.is_idle(read, max_idle)
        };
        self.offloaded_entries.values().filter(is_idle).map(|offloaded| offloaded.entry).collect()
    }

    /// Returns the intended entries, with their counts.
    pub(super) fn offloaded_entries(&self) -> impl Iterator<Item = (&OffloadEntry, Counters)> {
        let offloaded_entries =
            self.offloaded_entries.values().filter(|offloaded| offloaded.unwanted.is_none());
        offloaded_entries.map(|offloaded| (offloaded, offloaded.totals()))
    }

    /// Returns the time at which the oldest stale entry became stale.
    pub(super) fn stale_since(&self) -> Option<Time> {
        self.stale.first().map(|(since, _)| *since)
    }

    /// Returns the number of stale entries that are not gone.
    pub(super) fn stale_count(&self) -> usize {
        self.stale.len()
    }

    /// Returns the number of entries to insert.
    pub(super) fn waiting_count(&self) -> usize {
        self.inserts.iter().map(BTreeSet::len).sum()
    }

    /// Returns the number of operations without a response.
    pub(super) fn pending_count(&self) -> usize {
        self.pending_operations.len()
    }

    /// Returns the number of entries of each stage that the device holds or may hold.
    pub(super) fn occupied(&self) -> &[usize] {
        &self.occupied
    }

    /// Sets the capacity of each stage, which the device has reported.
    pub(super) fn set_capacity(&mut self, capacity: &[usize]) {
        self.capacity.iter_mut().zip(capacity).for_each(|(own, stage)| *own = *stage);
    }

    /// Takes the ticket of the next operation, which no operation had before.
    pub(super) const fn new_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        ticket
    }

    /// Returns a ticket for a new operation on an entry.
    fn ticket(&mut self, index: LtmIndex) -> Ticket {
        let ticket = self.new_ticket();
        self.pending_operations.insert(ticket, index);
        ticket
    }

    /// Sets the state of an entry, and returns its stage.
    fn set_state(&mut self, index: LtmIndex, state: State) -> Option<StageId> {
        let offloaded = self.offloaded_entries.get_mut(&index)?;
        offloaded.state = state;
        Some(offloaded.stage)
    }

    /// Subtracts an entry from the counts of its stage, and releases its key.
    fn leave(&mut self, index: LtmIndex) {
        let Some(offloaded) = self.offloaded_entries.get(&index) else { return };
        let (stage, key, is_unwanted) =
            (offloaded.stage.index(), key(offloaded), offloaded.unwanted.is_some());
        if self.keys.get(&key) == Some(&index) {
            self.keys.remove(&key);
            self.occupied[stage] -= 1;
            self.leaving[stage] -= usize::from(is_unwanted);
        }
    }

    /// Removes an entry that the device has no longer.
    fn end(&mut self, index: LtmIndex) -> Option<OffloadEntry> {
        self.leave(index);
        let offloaded = self.offloaded_entries.remove(&index)?;
        self.inserts[offloaded.stage.index()].remove(&index);
        if let Some(EntryToRemove { stale_since }) = offloaded.unwanted {
            self.unwanted_count -= 1;
            stale_since.map(|since| self.stale.remove(&(since, index)));
        }
        Some(offloaded)
    }
}
