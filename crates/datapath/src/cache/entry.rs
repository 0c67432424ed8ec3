//! The entries of one owner: what happens to a flow, and how often it happened.
//!
//! An entry lives in a slot of a slab. What a hit touches fills one cache line ([`Hot`]); the rest
//! (the traversal, totals) lies apart ([`Cold`]).
//!
//! ```text
//!   free ──insert──► live ──kill──► dead ──reclaim──► free
//! ```
//!
//! *Killing* is what an eviction must do at once, and it is short: the generation grows, so that
//! every [`EntryRef`] to the slot is refused from then on. *Burying* is the rest (credit what was
//! counted, unlink from the wildcard cache, free the traversal) and is done a few a turn, so that a
//! version that makes ten thousand entries stale does not stop the thread for a millisecond.
//!
//! Live entries are linked in the order of their install numbers, so that "all installs after
//! `seq`" is a walk from the end over exactly those.

use std::{collections::VecDeque, sync::Arc};

use shunt_pipeline::{DatapathAction, DatapathPort, InstallNo, Time, Traversal, TraversalError};

use super::repair_queue::RepairQueue;

/// A reference to an entry: the slot, and the generation that distinguishes its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryRef {
    /// The slot of the entry.
    pub slot: u32,
    /// Number of entries that the slot held before.
    pub generation: u32,
}

/// Counts that have not been credited to rules yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Packets.
    pub packets: u64,
    /// Their bytes, as they came in.
    pub bytes: u64,
    /// When the last of them came.
    pub used: Time,
}

/// An entry that is gone for good.
#[derive(Debug)]
pub struct Reclaimed {
    /// What the indexes called it.
    pub reference: EntryRef,
    /// What made it.
    pub traversal: Arc<Traversal>,
    /// What is still to be credited.
    pub credit: Option<Credit>,
    /// When it was last hit, or made.
    pub used: Time,
}

/// What happens to a packet that hits an entry.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// All of it.
    pub actions: &'a [DatapathAction],
    forward: u32,
    unless_ingress: bool,
}

/// All entries of one owner.
#[derive(Debug)]
pub struct Entries {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    free: Vec<u32>,
    retired: VecDeque<EntryRef>,
    /// Dead ones that may be made anew before they are buried.
    fallen: RepairQueue,
    dirty: VecDeque<u32>,
    oldest: u32,
    newest: u32,
    live: usize,
    limit: usize,
    no_actions: Arc<[DatapathAction]>,
}

/// What a hit touches: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Hot {
    packets: u64,
    bytes: u64,
    used: Time,
    actions: Arc<[DatapathAction]>,
    generation: u32,
    /// The port of [`Hit::forward`], by number; [`NONE`] if there is none.
    forward: u32,
    unless_ingress: bool,
    /// On the list of those with something to credit.
    is_dirty: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Live,
    Dead,
}

#[derive(Debug)]
struct Cold {
    traversal: Option<Arc<Traversal>>,
    number: InstallNo,
    older: u32,
    newer: u32,
    packets: u64,
    bytes: u64,
}

/// No slot.
const NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<Hot>() == 64, "a hit touches one cache line");

impl Entries {
    /// Room for `limit` entries, dead ones included. Memory is used as it is needed.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let mut entries = Self {
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            retired: VecDeque::new(),
            fallen: RepairQueue::default(),
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

    /// From now on there is room for so many. What is there already stays, though it be more.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(NONE as usize - 1);
        let more = self.limit.saturating_sub(self.hot.len());
        self.hot.reserve_exact(more);
        self.cold.reserve_exact(more);
        let slots = self.hot.capacity();
        self.free.reserve_exact(slots - self.free.len());
        self.retired.reserve_exact(slots - self.retired.len());
        self.dirty.reserve_exact(slots - self.dirty.len());
    }

    /// Number of live entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether no entry is live.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether no slot is free; dead entries that wait to be buried hold theirs.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// How many entries more there is room for now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.live + self.retired())
    }

    /// Number of slots that were ever used: every slot lies below it.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.hot.len()
    }

    /// Makes an entry; `None` when no slot is free. Numbers must grow.
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
        debug_assert!(hot.state == State::Free && hot.packets == 0);
        hot.actions = Arc::clone(&traversal.actions);
        (hot.forward, hot.unless_ingress) = forward(&traversal.actions);
        hot.used = now;
        hot.state = State::Live;
        let generation = hot.generation;
        self.cold[index] = Cold {
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

    /// Whether the entry is still there.
    #[must_use]
    #[inline]
    pub fn is_live(&self, entry: EntryRef) -> bool {
        let hot = self.hot.get(entry.slot as usize);
        hot.is_some_and(|hot| hot.generation == entry.generation && hot.state == State::Live)
    }

    /// Counts a packet of `bytes` bytes at `now` for a live entry, and answers what happens to it.
    #[inline]
    pub fn hit(&mut self, slot: u32, bytes: u64, now: Time) -> Hit<'_> {
        let hot = &mut self.hot[slot as usize];
        debug_assert!(hot.state == State::Live);
        hot.packets += 1;
        hot.bytes += bytes;
        hot.used = now;
        if !hot.is_dirty {
            hot.is_dirty = true;
            self.dirty.push_back(slot);
        }
        Hit { actions: &hot.actions, forward: hot.forward, unless_ingress: hot.unless_ingress }
    }

    /// What happens to a packet that hits a live entry.
    #[must_use]
    pub fn actions(&self, slot: u32) -> &Arc<[DatapathAction]> {
        &self.hot[slot as usize].actions
    }

    /// A live entry is of use now, though no packet has hit it.
    pub fn touch(&mut self, slot: u32, now: Time) {
        if let Some(hot) = self.hot.get_mut(slot as usize) {
            hot.used = hot.used.max(now);
        }
    }

    /// Drops an entry at once: nothing can hit it from now on. Answers whether it was live.
    pub fn kill(&mut self, entry: EntryRef) -> bool {
        let is_killed = self.end(entry);
        if is_killed {
            self.retired.push_back(entry);
        }
        is_killed
    }

    /// Drops an entry as [`Self::kill`] does. If packets came to it until now, it waits to be
    /// [made anew](Self::reclaim_pending).
    pub fn evict_for_repair(&mut self, entry: EntryRef, now: Time) -> bool {
        let is_killed = self.end(entry);
        let used = self.hot[entry.slot as usize].used;
        if is_killed && !self.fallen.push(entry, now, now.since(used)) {
            self.retired.push_back(entry);
        }
        is_killed
    }

    fn end(&mut self, entry: EntryRef) -> bool {
        if !self.is_live(entry) {
            return false;
        }
        let index = entry.slot as usize;
        let hot = &mut self.hot[index];
        hot.state = State::Dead;
        hot.generation = hot.generation.wrapping_add(1);
        self.unlink(index);
        self.live -= 1;
        true
    }

    /// The newest live entry, by install number.
    #[must_use]
    pub fn newest(&self) -> Option<(EntryRef, InstallNo)> {
        self.numbered(self.newest)
    }

    /// The oldest live entry, by install number.
    #[must_use]
    pub fn oldest(&self) -> Option<(EntryRef, InstallNo)> {
        self.numbered(self.oldest)
    }

    /// The live entry of a slot.
    #[must_use]
    pub fn live_at(&self, slot: u32) -> Option<EntryRef> {
        let hot = self.hot.get(slot as usize)?;
        (hot.state == State::Live).then_some(EntryRef { slot, generation: hot.generation })
    }

    /// When the live entry of a slot was last hit, or made.
    #[must_use]
    pub fn used_at(&self, slot: u32) -> Option<(EntryRef, Time)> {
        self.live_at(slot).map(|entry| (entry, self.hot[slot as usize].used))
    }

    /// What made a live entry.
    #[must_use]
    pub fn traversal(&self, slot: u32) -> Option<&Arc<Traversal>> {
        self.cold.get(slot as usize)?.traversal.as_ref()
    }

    /// Why the packets of a live entry come to nothing, if the switch and not a rule decided so.
    #[must_use]
    pub fn error(&self, slot: u32) -> Option<TraversalError> {
        self.traversal(slot)?.error
    }

    /// All that a live entry has counted, credited or not.
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

    /// Number of dead entries that wait to be buried.
    #[must_use]
    pub fn retired(&self) -> usize {
        self.retired.len() + self.fallen.len()
    }

    /// Number of these that wait to be made anew.
    #[must_use]
    pub const fn fallen(&self) -> usize {
        self.fallen.len()
    }

    /// Number of dead entries that [`Self::reclaim`] would end.
    #[must_use]
    pub fn reclaimable(&self) -> usize {
        self.retired.len()
    }

    /// Lets up to so many of those that wait to be made anew be buried before all others: those first
    /// that were hit longest ago, or those alone that fell at `until` or before. Answers how many.
    pub fn give_up(&mut self, count: usize, until: Option<Time>) -> usize {
        for given_up in 0..count {
            let popped = match until {
                Some(until) => self.fallen.pop_evicted_by(until),
                None => self.fallen.pop_oldest(),
            };
            let Some(entry) = popped else { return given_up };
            self.retired.push_front(entry);
        }
        count
    }

    /// Ends a dead entry that does not wait to be made anew; `None` when there is none. Its slot is
    /// free afterwards.
    pub fn reclaim(&mut self) -> Option<Reclaimed> {
        let reference = self.retired.pop_front()?;
        self.reclaim_one(reference)
    }

    /// Ends the one that was hit last of those that wait to be made anew; `None` when there is none.
    pub fn reclaim_pending(&mut self) -> Option<Reclaimed> {
        let reference = self.fallen.pop_newest()?;
        self.reclaim_one(reference)
    }

    fn reclaim_one(&mut self, reference: EntryRef) -> Option<Reclaimed> {
        let index = reference.slot as usize;
        let credit = self.take_credit(index);
        let hot = &mut self.hot[index];
        let used = hot.used;
        hot.state = State::Free;
        hot.actions = Arc::clone(&self.no_actions);
        let traversal = self.cold[index].traversal.take();
        // A slot whose generations are used up stays free for ever: no reference comes back to
        // life.
        if hot.generation != u32::MAX {
            self.free.push(reference.slot);
        }
        traversal.map(|traversal| Reclaimed { reference, traversal, credit, used })
    }

    /// Number of slots that may have something to credit.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Takes what the slot that was hit longest ago has to credit, and hands it to `credit`.
    pub fn credit_one(&mut self, credit: impl FnOnce(&Traversal, Credit)) {
        let Some(slot) = self.dirty.pop_front() else { return };
        let index = slot as usize;
        self.hot[index].is_dirty = false;
        // A dead entry is credited too; a slot that was buried since has nothing left.
        let taken = self.take_credit(index);
        if let (Some(taken), Some(traversal)) = (taken, &self.cold[index].traversal) {
            credit(traversal, taken);
        }
    }

    fn take_credit(&mut self, index: usize) -> Option<Credit> {
        let (hot, cold) = (&mut self.hot[index], &mut self.cold[index]);
        let packets = std::mem::take(&mut hot.packets);
        let bytes = std::mem::take(&mut hot.bytes);
        cold.packets += packets;
        cold.bytes += bytes;
        (packets > 0).then_some(Credit { packets, bytes, used: hot.used })
    }

    fn numbered(&self, slot: u32) -> Option<(EntryRef, InstallNo)> {
        self.live_at(slot).map(|entry| (entry, self.cold[slot as usize].number))
    }

    #[expect(clippy::cast_possible_truncation, reason = "fewer slots than the limit, a u32")]
    fn new_slot(&mut self) -> u32 {
        let slot = self.hot.len() as u32;
        self.hot.push(Hot {
            packets: 0,
            bytes: 0,
            used: Time::ZERO,
            actions: Arc::clone(&self.no_actions),
            generation: 0,
            forward: NONE,
            unless_ingress: false,
            is_dirty: false,
            state: State::Free,
        });
        self.cold.push(Cold {
            traversal: None,
            number: InstallNo(0),
            older: NONE,
            newer: NONE,
            packets: 0,
            bytes: 0,
        });
        slot
    }

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
    /// The port, if all that happens is one output of the packet as it is.
    ///
    /// So it is with nearly every packet, and then the list of actions, which lies elsewhere in
    /// memory, is not even looked at.
    #[must_use]
    #[inline]
    pub fn forward(&self, ingress: DatapathPort) -> Option<DatapathPort> {
        let port = DatapathPort::new(self.forward);
        (self.forward != NONE && !(self.unless_ingress && port == ingress)).then_some(port)
    }
}

fn forward(actions: &[DatapathAction]) -> (u32, bool) {
    match actions {
        [DatapathAction::Output { port, unless_ingress, max_len: None }] => {
            (port.number(), *unless_ingress)
        }
        _ => (NONE, false),
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
