//! Where the entries of a chain live, and what a chain asks of that place.
//!
//! A chain finds entries; whether one is live, when it was used, and what it has counted is known to
//! the [`Store`] that made it. A packet thread has one store for everything it caches, with one
//! generation for each slot, so that whatever drops an entry there (a version that makes it stale,
//! idleness, the chain itself) does so by one store to memory, and the chain finds it dead from then
//! on. The chain unlinks what is dead when it is told, or when it comes across it.
//!
//! [`VecStore`] is the store of a chain that stands alone.

use std::sync::Arc;

use shunt_pipeline::{Time, Traversal};

use super::{LtmRule, Walk};

/// Names an entry for as long as it lives: a slot is used again with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LtmEntryRef {
    /// Where it lies.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// Hits that have not been credited yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// When the last of them came.
    pub used: Time,
}

/// Makes and ends the entries of a chain, and knows when they were used.
pub trait Store {
    /// Whether a rule may be an entry at all. One that may not makes no room, and neither do those that
    /// lead to it.
    fn admits(&mut self, _rule: &LtmRule) -> bool {
        true
    }

    /// Makes an entry of a piece. `None`: it is refused, and there is none.
    fn make(&mut self, traversal: &Arc<Traversal>, now: Time) -> Option<LtmEntryRef>;

    /// Whether it could make an entry more.
    fn has_room(&self) -> bool {
        true
    }

    /// Ends a live entry at once. `false`: it may not go now, and lives on.
    fn end(&mut self, entry: LtmEntryRef) -> bool;

    /// Whether an entry is still there.
    fn is_live(&self, entry: LtmEntryRef) -> bool;

    /// When the live entry of a slot was used last, or made.
    fn used(&self, slot: u32) -> Time;

    /// The live entry of a slot is of use now, though no packet has hit it.
    fn touch(&mut self, slot: u32, now: Time);
}

/// The store of a chain that stands alone: it takes whatever comes, and notes what came and went.
#[derive(Debug, Default)]
pub struct VecStore {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Entries that were made since it was last emptied, with what they stand for.
    pub made: Vec<(LtmEntryRef, Arc<Traversal>)>,
    /// Entries that went, with hits that were not credited yet.
    pub gone: Vec<(LtmEntryRef, Arc<Traversal>, Hits)>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    held: Option<(Arc<Traversal>, Hits)>,
}

impl VecStore {
    /// Counts a packet for every entry of its walk.
    pub fn hit(&mut self, walk: &Walk, bytes: u64, now: Time) {
        for slot in walk.slots() {
            if let Some((_, hits)) = self.held_mut(*slot) {
                hits.packets += 1;
                hits.bytes += bytes;
                hits.used = now;
            }
        }
    }

    /// Hands over what was counted since it was last asked.
    pub fn take_hits(&mut self, mut credit: impl FnMut(&Traversal, Hits)) {
        let held = self.slots.iter_mut().filter_map(|slot| slot.held.as_mut());
        for (traversal, hits) in held.filter(|(_, hits)| hits.packets > 0) {
            let counted = std::mem::replace(hits, Hits { used: hits.used, ..Hits::default() });
            credit(traversal, counted);
        }
    }

    /// What made the live entry of a slot.
    #[must_use]
    pub fn traversal(&self, slot: u32) -> Option<&Arc<Traversal>> {
        self.slots.get(slot as usize)?.held.as_ref().map(|(traversal, _)| traversal)
    }

    /// The entries that are there, in the order of their slots, with what made each.
    pub fn live(&self) -> impl Iterator<Item = (LtmEntryRef, &Arc<Traversal>)> {
        (0..).zip(&self.slots).filter_map(|(slot, place)| {
            let (traversal, _) = place.held.as_ref()?;
            Some((LtmEntryRef { slot, generation: place.generation }, traversal))
        })
    }

    /// Forgets what came and went so far.
    pub fn clear_notes(&mut self) {
        self.made.clear();
        self.gone.clear();
    }

    fn held_mut(&mut self, slot: u32) -> Option<&mut (Arc<Traversal>, Hits)> {
        self.slots.get_mut(slot as usize)?.held.as_mut()
    }
}

impl Store for VecStore {
    fn make(&mut self, traversal: &Arc<Traversal>, now: Time) -> Option<LtmEntryRef> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
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
