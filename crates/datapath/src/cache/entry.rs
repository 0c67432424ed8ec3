//! The entry store of one owner: the actions and the counts of cached flows.
//!
//! An entry lives in a slot of a slab. The fields that a hit uses fill one cache line of the
//! processor ([`HotFields`]). The other fields (traversal, totals) are stored separately
//! ([`ColdFields`]).
//!
//! ```text
//!   free ──insert──► live ──kill──► dead ──reclaim──► free
//! ```
//!
//! *Killing* an entry happens at once: the generation of its slot grows, so lookups refuse every
//! [`EntryRef`] with the earlier generation. *Reclaiming* happens later: the counts are credited,
//! the entry is removed from the wildcard index, and the traversal is freed. A few entries are
//! reclaimed per iteration, so a version that makes ten thousand entries stale does not stop the
//! thread for a millisecond.
//!
//! Live entries are linked in the order of their install numbers, so all installs after `seq` are
//! found by a walk from the newest entry.

use std::{collections::VecDeque, iter, sync::Arc};

use shunt_pipeline::{
    DatapathAction, DatapathPort, InstallNo, QueueId, Time, Traversal, TraversalCredit,
};

use super::{
    credit::{CREDITS_MAX, Credit, TakenCredits},
    growth::grow,
    repair_queue::RepairQueue,
};
use crate::metrics::DropReason;

/// A reference to an entry: its slot and the generation of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryRef {
    /// The slot of the entry.
    pub slot: u32,
    /// Number of entries that the slot held before.
    pub generation: u32,
}

/// An entry that was taken out of its slot.
#[derive(Debug)]
pub struct Reclaimed {
    /// The reference by which indexes knew the entry.
    pub reference: EntryRef,
    /// The traversal that the entry was made from.
    pub traversal: Arc<Traversal>,
    /// Hits that are not credited yet.
    pub credit: Option<Credit>,
    /// Time of the last hit, or of the installation.
    pub used: Time,
}

/// The actions of an entry that a packet hit.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The list of actions.
    pub actions: &'a [DatapathAction],
    /// The number of the only output port; [`NONE`] for other actions.
    forward: u32,
    /// True if the packet is dropped where it would leave by its ingress port.
    unless_ingress: bool,
}

/// The store of all entries of one owner.
#[derive(Debug)]
pub struct Entries {
    /// The fields that a hit uses, by slot.
    hot: Vec<HotFields>,
    /// The fields that lookups do not read, by slot.
    cold: Vec<ColdFields>,
    free: Vec<u32>,
    /// The dead entries that wait to be reclaimed.
    retired: VecDeque<EntryRef>,
    /// Evicted entries that may be re-translated before they are reclaimed.
    repair_queue: RepairQueue,
    /// The slots with hits that are not credited yet.
    dirty: VecDeque<u32>,
    /// The slot of the oldest live entry; [`NONE`] without entries.
    oldest: u32,
    /// The slot of the newest live entry; [`NONE`] without entries.
    newest: u32,
    /// Number of entries that lookups may still match.
    live: usize,
    limit: usize,
    /// The empty list of actions, which free slots share.
    no_actions: Arc<[DatapathAction]>,
}

/// The drop reason of packets of a traversal without output actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraversalDrop {
    pub(crate) reason: DropReason,
    /// True if the traversal failed, so that its reason has precedence over later ones.
    pub(crate) is_error: bool,
}

impl TraversalDrop {
    pub(crate) fn of(traversal: &Traversal) -> Self {
        let by_cause = || DropReason::from(traversal.drop_cause);
        let reason = traversal.error.map_or_else(by_cause, DropReason::from);
        Self { reason, is_error: traversal.error.is_some() }
    }
}

/// The fields of an entry that a hit uses, in one cache line of the processor.
#[derive(Debug)]
#[repr(C, align(64))]
struct HotFields {
    /// Number of hits that are not credited yet.
    packets: u64,
    bytes: u64,
    /// Time of the last hit.
    used: Time,
    actions: Arc<[DatapathAction]>,
    /// Number of entries that have died in the slot, modulo 2^32.
    generation: u32,
    forward: u32,
    unless_ingress: bool,
    /// The drop reason is here, because the traversal is in other memory.
    drop: TraversalDrop,
    /// True while the slot is in the list of slots to credit.
    is_dirty: bool,
    state: SlotState,
}

/// The state of a slot: free, or with a live or dead entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Free,
    Live,
    Dead,
}

/// The fields of an entry that a hit does not use.
#[derive(Debug)]
struct ColdFields {
    traversal: Option<Arc<Traversal>>,
    number: InstallNo,
    /// The slot of the next older entry, or [`NONE`].
    older: u32,
    /// The slot of the next newer entry, or [`NONE`].
    newer: u32,
    packets: u64,
    bytes: u64,
}

/// The number of no slot, and of no port.
const NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<HotFields>() == 64, "a hit touches one cache line");

impl Entries {
    /// Creates a store for `limit` entries, dead entries included.
    /// Memory is allocated as slots are used.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let mut entries = Self {
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            retired: VecDeque::new(),
            repair_queue: RepairQueue::default(),
            dirty: VecDeque::new(),
            oldest: NONE,
            newest: NONE,
            live: 0,
            limit: 0,
            no_actions: Arc::new([]),
        };
        entries.set_limit(limit);
        entries
    }

    /// Changes the maximum number of entries, without eviction of existing entries.
    ///
    /// A larger limit copies the slots that were used, and touches no others.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(NONE as usize - 1);
        grow(&mut self.hot, self.limit);
        grow(&mut self.cold, self.limit);
        let slots = self.hot.capacity();
        self.free.reserve_exact(slots - self.free.len());
        self.retired.reserve_exact(slots - self.retired.len());
        self.dirty.reserve_exact(slots - self.dirty.len());
    }

    /// Returns the number of live entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Returns whether no entry is live.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns whether no slot is free.
    ///
    /// Dead entries hold their slots until they are reclaimed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Returns the number of free slots.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.live + self.retired())
    }

    /// Returns the number of live entries above a limit that was lowered.
    #[must_use]
    pub const fn excess(&self) -> usize {
        self.live.saturating_sub(self.limit)
    }

    /// Returns the number of slots that were ever used; every slot number is lower.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.hot.len()
    }

    /// Adds an entry; `None` if no slot is free. Install numbers must grow.
    pub fn insert(
        &mut self,
        number: InstallNo,
        traversal: Arc<Traversal>,
        now: Time,
    ) -> Option<EntryRef> {
        if self.is_full() {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| self.new_slot());
        let index = slot as usize;
        let hot = &mut self.hot[index];
        debug_assert!(hot.state == SlotState::Free && hot.packets == 0);
        hot.actions = Arc::clone(&traversal.actions);
        (hot.forward, hot.unless_ingress) = only_output(&traversal.actions);
        hot.drop = TraversalDrop::of(&traversal);
        hot.used = now;
        hot.state = SlotState::Live;
        let generation = hot.generation;
        self.cold[index] = ColdFields {
            traversal: Some(traversal),
            number,
            older: self.newest,
            newer: NONE,
            packets: 0,
            bytes: 0,
        };
        match self.cold.get_mut(self.newest as usize) {
            Some(before) => {
                debug_assert!(before.number < number, "install numbers grow");
                before.newer = slot;
            }
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.live += 1;
        Some(EntryRef { slot, generation })
    }

    /// Returns whether the entry is live.
    #[must_use]
    #[inline]
    pub fn is_live(&self, entry: EntryRef) -> bool {
        let hot = self.hot.get(entry.slot as usize);
        hot.is_some_and(|hot| hot.generation == entry.generation && hot.state == SlotState::Live)
    }

    /// Counts a packet for a live entry, and returns the actions of the entry.
    #[inline]
    pub fn hit(&mut self, slot: u32, bytes: u64, now: Time) -> Hit<'_> {
        let hot = &mut self.hot[slot as usize];
        debug_assert!(hot.state == SlotState::Live);
        hot.packets += 1;
        hot.bytes += bytes;
        hot.used = now;
        if !hot.is_dirty {
            hot.is_dirty = true;
            self.dirty.push_back(slot);
        }
        Hit { actions: &hot.actions, forward: hot.forward, unless_ingress: hot.unless_ingress }
    }

    /// Returns the actions of a live entry.
    #[must_use]
    pub fn actions(&self, slot: u32) -> &Arc<[DatapathAction]> {
        &self.hot[slot as usize].actions
    }

    /// Returns the drop reason of a live entry.
    pub(crate) fn drop_of(&self, slot: u32) -> TraversalDrop {
        self.hot[slot as usize].drop
    }

    /// Marks a live entry as used at `now` without counting a packet.
    pub fn touch(&mut self, slot: u32, now: Time) {
        if let Some(hot) = self.hot.get_mut(slot as usize) {
            hot.used = hot.used.max(now);
        }
    }

    /// Marks an entry as dead at once: no packet can hit it from now on.
    ///
    /// Returns whether the entry was live.
    pub fn kill(&mut self, entry: EntryRef) -> bool {
        let is_killed = self.end(entry);
        if is_killed {
            self.retired.push_back(entry);
        }
        is_killed
    }

    /// Marks an entry as dead at once; returns whether the entry was live.
    ///
    /// An entry that packets have hit recently enters the [repair queue](Self::reclaim_pending).
    pub fn evict_for_repair(&mut self, entry: EntryRef, now: Time) -> bool {
        let is_killed = self.end(entry);
        let used = self.hot[entry.slot as usize].used;
        if is_killed && !self.repair_queue.push(entry, now, now.since(used)) {
            self.retired.push_back(entry);
        }
        is_killed
    }

    /// Makes an entry dead, so that no packet hits it; returns whether it was live.
    fn end(&mut self, entry: EntryRef) -> bool {
        if !self.is_live(entry) {
            return false;
        }
        let index = entry.slot as usize;
        let hot = &mut self.hot[index];
        hot.state = SlotState::Dead;
        hot.generation = hot.generation.wrapping_add(1);
        self.unlink(index);
        self.live -= 1;
        true
    }

    /// Returns the newest live entry by install number.
    #[must_use]
    pub fn newest(&self) -> Option<(EntryRef, InstallNo)> {
        self.find_with_number(self.newest)
    }

    /// Returns the live entries that were installed after `number`, the newest first.
    pub fn installed_after(&self, number: InstallNo) -> impl Iterator<Item = EntryRef> {
        let newest = self.find_with_number(self.newest);
        iter::successors(newest, |(entry, _)| {
            self.find_with_number(self.cold[entry.slot as usize].older)
        })
        .take_while(move |(_, own)| *own > number)
        .map(|(entry, _)| entry)
    }

    /// Returns whether a live entry was installed after `number`.
    #[must_use]
    pub fn is_installed_after(&self, entry: EntryRef, number: InstallNo) -> bool {
        self.is_live(entry) && self.cold[entry.slot as usize].number > number
    }

    /// Returns the number of the install of a live entry.
    #[must_use]
    pub fn install_no(&self, slot: u32) -> Option<InstallNo> {
        self.find_with_number(slot).map(|(_, number)| number)
    }

    /// Returns the oldest live entry by install number.
    #[must_use]
    pub fn oldest(&self) -> Option<(EntryRef, InstallNo)> {
        self.find_with_number(self.oldest)
    }

    /// Returns the live entry of a slot.
    #[must_use]
    pub fn live_at(&self, slot: u32) -> Option<EntryRef> {
        let hot = self.hot.get(slot as usize)?;
        (hot.state == SlotState::Live).then_some(EntryRef { slot, generation: hot.generation })
    }

    /// Returns the live entry of a slot with the time of its last hit or installation.
    #[must_use]
    pub fn used_at(&self, slot: u32) -> Option<(EntryRef, Time)> {
        self.live_at(slot).map(|entry| (entry, self.hot[slot as usize].used))
    }

    /// Returns the traversal of a live entry.
    #[must_use]
    pub fn traversal(&self, slot: u32) -> Option<&Arc<Traversal>> {
        self.cold.get(slot as usize)?.traversal.as_ref()
    }

    /// Returns all hits of a live entry, credited or not.
    #[must_use]
    pub fn totals(&self, slot: u32) -> Credit {
        match (self.hot.get(slot as usize), self.cold.get(slot as usize)) {
            (Some(hot), Some(cold)) => Credit {
                packets: hot.packets + cold.packets,
                bytes: hot.bytes + cold.bytes,
                used: hot.used,
            },
            _ => Credit::default(),
        }
    }

    /// Returns the number of dead entries, including the repair queue.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.retired.len() + self.repair_queue.len()
    }

    /// Returns the number of entries in the repair queue.
    #[must_use]
    pub const fn pending_repairs(&self) -> usize {
        self.repair_queue.len()
    }

    /// Returns the number of dead entries that [`Self::reclaim`] can take.
    #[must_use]
    pub fn reclaimable(&self) -> usize {
        self.retired.len()
    }

    /// Moves up to `count` entries from the repair queue to the reclaim queue.
    ///
    /// With `until`, only entries that were evicted at `until` or before are moved. Otherwise the
    /// entries that were hit longest ago are moved first. Returns the number of moved entries.
    pub fn abandon_repairs(&mut self, count: usize, until: Option<Time>) -> usize {
        for abandoned in 0..count {
            let popped = match until {
                Some(until) => self.repair_queue.pop_evicted_by(until),
                None => self.repair_queue.pop_oldest(),
            };
            let Some(entry) = popped else { return abandoned };
            self.retired.push_front(entry);
        }
        count
    }

    /// Frees the slot of a dead entry; `None` if no entry can be reclaimed.
    ///
    /// Entries in the repair queue are left there.
    pub fn reclaim(&mut self) -> Option<Reclaimed> {
        let reference = self.retired.pop_front()?;
        self.reclaim_one(reference)
    }

    /// Frees the slot of the most recently hit entry of the repair queue.
    ///
    /// `None` if the queue is empty.
    pub fn reclaim_pending(&mut self) -> Option<Reclaimed> {
        let reference = self.repair_queue.pop_newest()?;
        self.reclaim_one(reference)
    }

    /// Frees the slot of a dead entry; returns its traversal and its last counts.
    fn reclaim_one(&mut self, reference: EntryRef) -> Option<Reclaimed> {
        let index = reference.slot as usize;
        let credit = self.take_credit(index);
        let hot = &mut self.hot[index];
        let used = hot.used;
        hot.state = SlotState::Free;
        hot.actions = Arc::clone(&self.no_actions);
        let traversal = self.cold[index].traversal.take();
        // A slot that has used all generations is never used again, so no old reference becomes
        // live.
        if hot.generation != u32::MAX {
            self.free.push(reference.slot);
        }
        traversal.map(|traversal| Reclaimed { reference, traversal, credit, used })
    }

    /// Returns the number of slots that may have hits to credit.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Takes the uncredited hits of the next slots in the list.
    ///
    /// Takes those of at most [`CREDITS_MAX`] slots. Then [`Self::credits`] returns their
    /// traversals.
    pub fn take_credits(&mut self, slots_max: usize) -> TakenCredits {
        let mut taken = TakenCredits::NONE;
        for _ in 0..slots_max.min(CREDITS_MAX) {
            let Some(slot) = self.dirty.pop_front() else { break };
            let index = slot as usize;
            self.hot[index].is_dirty = false;
            // A dead entry is credited, too; a reclaimed slot has no hits left.
            if let Some(credit) = self.take_credit(index) {
                taken.push(slot, credit);
            }
        }
        taken
    }

    /// Returns the hits that were taken just now, with their traversals.
    pub fn credits<'a>(
        &'a self,
        taken: &'a TakenCredits,
    ) -> impl Iterator<Item = TraversalCredit<'a>> + Clone {
        taken.iter().filter_map(|(slot, credit)| {
            let traversal = self.cold[slot as usize].traversal.as_deref()?;
            Some(credit.of(traversal))
        })
    }

    /// Takes the counts of a slot that were not credited yet.
    fn take_credit(&mut self, index: usize) -> Option<Credit> {
        let (hot, cold) = (&mut self.hot[index], &mut self.cold[index]);
        let packets = std::mem::take(&mut hot.packets);
        let bytes = std::mem::take(&mut hot.bytes);
        cold.packets += packets;
        cold.bytes += bytes;
        (packets > 0).then_some(Credit { packets, bytes, used: hot.used })
    }

    /// Returns the live entry of a slot with its number of installation.
    fn find_with_number(&self, slot: u32) -> Option<(EntryRef, InstallNo)> {
        self.live_at(slot).map(|entry| (entry, self.cold[slot as usize].number))
    }

    /// Adds a slot; returns its index.
    #[expect(clippy::cast_possible_truncation, reason = "the limit of slots is a u32")]
    fn new_slot(&mut self) -> u32 {
        let slot = self.hot.len() as u32;
        self.hot.push(HotFields {
            packets: 0,
            bytes: 0,
            used: Time::ZERO,
            actions: Arc::clone(&self.no_actions),
            generation: 0,
            forward: NONE,
            unless_ingress: false,
            drop: TraversalDrop { reason: DropReason::RuleWithoutOutput, is_error: false },
            is_dirty: false,
            state: SlotState::Free,
        });
        self.cold.push(ColdFields {
            traversal: None,
            number: InstallNo(0),
            older: NONE,
            newer: NONE,
            packets: 0,
            bytes: 0,
        });
        slot
    }

    /// Takes a slot out of the list of entries by age.
    fn unlink(&mut self, index: usize) {
        let (older, newer) = (self.cold[index].older, self.cold[index].newer);
        match self.cold.get_mut(older as usize) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.cold.get_mut(newer as usize) {
            Some(after) => after.older = older,
            None => self.newest = older,
        }
    }
}

impl Hit<'_> {
    /// Returns the port if the only action is one output of the unchanged packet.
    ///
    /// Nearly every packet hits such an entry, and then the list of actions need not be read from
    /// memory.
    #[must_use]
    #[inline]
    pub fn forward(&self, ingress: DatapathPort) -> Option<DatapathPort> {
        let port = DatapathPort::new(self.forward);
        (self.forward != NONE && !(self.unless_ingress && port == ingress)).then_some(port)
    }
}

/// Returns the port of the only action and whether it spares the ingress port.
fn only_output(actions: &[DatapathAction]) -> (u32, bool) {
    match actions {
        [
            DatapathAction::Output { port, queue: QueueId::DEFAULT, unless_ingress, max_len: None },
        ] => (port.number(), *unless_ingress),
        _ => (NONE, false),
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
