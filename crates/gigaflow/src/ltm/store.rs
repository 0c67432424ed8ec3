//! The store of the entries of a chain: the contract, and a simple implementation.
//!
//! A chain finds entries. The [`Store`] that made an entry knows the hits of the entry, its last
//! use, and whether it is live. A packet thread has one store for all of its caches, with one
//! generation per slot. An entry ends because it is stale, because it is idle, or because the chain
//! evicts it. A single write to memory ends the entry, and later lookups of the chain do not match
//! it. The chain unlinks ended entries when it is notified, or when it finds them.
//!
//! [`VecStore`] is the store of a chain that no packet thread has, for example in tests.

use std::sync::Arc;

use shunt_pipeline::{Time, Traversal};

use super::{LtmRule, Walk};

/// A reference to an entry of a store, valid while the entry is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LtmEntryRef {
    /// The slot of the entry in the store.
    pub slot: u32,
    /// Number of earlier entries of the slot.
    pub generation: u32,
}

/// The hits of an entry that are not credited yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Number of packets that hit the entry.
    pub packets: u64,
    /// Number of bytes of the frames that hit the entry.
    pub bytes: u64,
    /// The time of the last hit of the entry.
    pub used: Time,
}

/// Makes and ends the entries of a chain, and knows when they were used.
pub trait Store {
    /// Returns whether a rule may become an entry.
    ///
    /// If one rule of a partition is not admitted, the partition is not installed and evicts no
    /// entry.
    fn admits(&mut self, _rule: &LtmRule) -> bool {
        true
    }

    /// Makes the entry of a sub-traversal; `None` means that the store refuses it.
    fn make(&mut self, traversal: &Arc<Traversal>, now: Time) -> Option<LtmEntryRef>;

    /// Returns whether the store has a free slot for one more entry.
    fn has_room(&self) -> bool {
        true
    }

    /// Ends a live entry. Returns false if the store must keep the entry for now.
    fn end(&mut self, entry: LtmEntryRef) -> bool;

    /// Returns whether an entry is live.
    fn is_live(&self, entry: LtmEntryRef) -> bool;

    /// Returns the last use of the live entry in a slot, or the time when it was made.
    fn used(&self, slot: u32) -> Time;

    /// Marks the live entry in a slot as used now, although no packet has hit it.
    fn touch(&mut self, slot: u32, now: Time);
}

/// A store without a packet thread, which records made and ended entries.
#[derive(Debug, Default)]
pub struct VecStore {
    slots: Vec<VecSlot>,
    /// The numbers of the free slots.
    free: Vec<u32>,
    /// Entries that were made since [`VecStore::clear_notes`], with sub-traversals.
    pub made: Vec<(LtmEntryRef, Arc<Traversal>)>,
    /// Entries that ended since [`VecStore::clear_notes`], with uncredited hits.
    pub gone: Vec<(LtmEntryRef, Arc<Traversal>, Hits)>,
}

/// A slot of the store: its generation, and its entry if not free.
#[derive(Debug, Default)]
struct VecSlot {
    /// Number of entries that the slot had before.
    generation: u32,
    /// The traversal and the hits of the entry.
    held: Option<(Arc<Traversal>, Hits)>,
}

impl VecStore {
    /// Counts a packet as a hit of every entry that it matched.
    pub fn hit(&mut self, walk: &Walk, bytes: u64, now: Time) {
        for slot in walk.slots() {
            if let Some((_, hits)) = self.held_mut(*slot) {
                hits.packets += 1;
                hits.bytes += bytes;
                hits.used = now;
            }
        }
    }

    /// Passes the hits of each entry since the last call to the function `credit`.
    pub fn take_hits(&mut self, mut credit: impl FnMut(&Traversal, Hits)) {
        let held = self.slots.iter_mut().filter_map(|slot| slot.held.as_mut());
        for (traversal, hits) in held.filter(|(_, hits)| hits.packets > 0) {
            let counted = std::mem::replace(hits, Hits { used: hits.used, ..Hits::default() });
            credit(traversal, counted);
        }
    }

    /// Returns the sub-traversal of the live entry in a slot.
    #[must_use]
    pub fn traversal(&self, slot: u32) -> Option<&Arc<Traversal>> {
        self.slots.get(slot as usize)?.held.as_ref().map(|(traversal, _)| traversal)
    }

    /// Returns the live entries in the order of their slots, with their sub-traversals.
    pub fn live(&self) -> impl Iterator<Item = (LtmEntryRef, &Arc<Traversal>)> {
        (0..).zip(&self.slots).filter_map(|(slot, place)| {
            let (traversal, _) = place.held.as_ref()?;
            Some((LtmEntryRef { slot, generation: place.generation }, traversal))
        })
    }

    /// Clears the records of made and ended entries.
    pub fn clear_notes(&mut self) {
        self.made.clear();
        self.gone.clear();
    }

    /// Returns the traversal and the hits in a slot, to change them.
    fn held_mut(&mut self, slot: u32) -> Option<&mut (Arc<Traversal>, Hits)> {
        self.slots.get_mut(slot as usize)?.held.as_mut()
    }
}

impl Store for VecStore {
    fn make(&mut self, traversal: &Arc<Traversal>, now: Time) -> Option<LtmEntryRef> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(VecSlot::default());
            #[expect(clippy::expect_used, reason = "that many slots would fill 160 GiB")]
            u32::try_from(self.slots.len() - 1).expect("the store has fewer than 2^32 slots")
        });
        let own = self.slots.get_mut(slot as usize)?;
        own.held = Some((Arc::clone(traversal), Hits { used: now, ..Hits::default() }));
        let entry = LtmEntryRef { slot, generation: own.generation };
        self.made.push((entry, Arc::clone(traversal)));
        Some(entry)
    }

    fn end(&mut self, entry: LtmEntryRef) -> bool {
        let own = self.slots.get_mut(entry.slot as usize);
        let own = own.filter(|own| own.generation == entry.generation);
        let Some((own, (traversal, hits))) =
            own.and_then(|own| own.held.take().map(|held| (own, held)))
        else {
            return false;
        };
        own.generation = own.generation.wrapping_add(1);
        self.free.push(entry.slot);
        self.gone.push((entry, traversal, hits));
        true
    }

    fn is_live(&self, entry: LtmEntryRef) -> bool {
        let own = self.slots.get(entry.slot as usize);
        own.is_some_and(|own| own.generation == entry.generation && own.held.is_some())
    }

    fn used(&self, slot: u32) -> Time {
        let held = self.slots.get(slot as usize).and_then(|own| own.held.as_ref());
        held.map_or(Time::ZERO, |(_, hits)| hits.used)
    }

    fn touch(&mut self, slot: u32, now: Time) {
        if let Some((_, hits)) = self.held_mut(slot) {
            hits.used = hits.used.max(now);
        }
    }
}
