//! The cache entries that an engine watches, by slot and by id.

use std::{collections::VecDeque, sync::Arc};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_pipeline::{EntryId, OwnerId, Traversal};

use crate::positions::last_position;

/// The record of an entry that is watched, or is retired and not yet reclaimed.
pub(crate) struct EntryRecord<L> {
    pub(crate) traversal: Arc<Traversal>,
    /// The positions of the rows that the engine keeps for the entry.
    pub(crate) links: L,
}

/// The entry that uses a slot now, or used it last.
#[derive(Clone, Copy)]
struct SlotOwner {
    /// The id of the entry.
    id: EntryId,
    /// False once the entry is retired or reclaimed.
    is_watched: bool,
}

const _: () = assert!(
    size_of::<SlotOwner>() == 16,
    "an eviction reads the owner of each entry's slot, so it is small"
);

/// All entries of an engine, watched or retired.
pub(crate) struct WatchedEntries<L> {
    /// The owner of each slot.
    ///
    /// Owners are stored apart from the records. A change that evicts thousands of entries reads
    /// one owner per entry, in random order, and the owners of a million entries fit into the
    /// processor cache.
    owners: Vec<SlotOwner>,
    /// The record of the entry of each slot.
    records: Vec<Option<EntryRecord<L>>>,
    /// The slots that hold no entry.
    free: Vec<u32>,
    /// The slots of entries by their ids.
    /// A retired entry stays in this map until it is reclaimed, because removing thousands of ids
    /// would delay the change that retires the entries.
    by_id: HashMap<EntryId, u32, FixedState>,
    /// Number of entries that are watched.
    watched: usize,
    /// The slots of retired entries, first retired first.
    retired: VecDeque<u32>,
}

impl<L> WatchedEntries<L> {
    /// Creates a set without entries, with `hashes` as the hash function of entry ids.
    pub(crate) fn new(hashes: FixedState) -> Self {
        Self {
            owners: Vec::new(),
            records: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::with_hasher(hashes),
            watched: 0,
            retired: VecDeque::new(),
        }
    }

    /// Watches an entry, with links that `links` makes, and returns its slot.
    pub(crate) fn insert(
        &mut self,
        id: EntryId,
        traversal: &Arc<Traversal>,
        links: impl FnOnce(u32) -> L,
    ) -> u32 {
        let owner_of_slot = SlotOwner { id, is_watched: true };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.owners.push(owner_of_slot);
            self.records.push(None);
            last_position(&self.owners)
        });
        let (traversal, links) = (Arc::clone(traversal), links(slot));
        self.owners[slot as usize] = owner_of_slot;
        self.records[slot as usize] = Some(EntryRecord { traversal, links });
        self.by_id.insert(id, slot);
        self.watched += 1;
        slot
    }

    /// Returns the record of an entry, watched or retired.
    pub(crate) fn get(&self, slot: u32) -> Option<&EntryRecord<L>> {
        self.records.get(slot as usize)?.as_ref()
    }

    /// Returns the record of an entry, watched or retired, to change its links.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut EntryRecord<L>> {
        self.records.get_mut(slot as usize)?.as_mut()
    }

    /// Returns the record of a watched entry.
    pub(crate) fn watched(&self, slot: u32) -> Option<&EntryRecord<L>> {
        if self.is_watched(slot) { self.get(slot) } else { None }
    }

    /// Returns whether the entry in a slot is watched.
    fn is_watched(&self, slot: u32) -> bool {
        self.owners.get(slot as usize).is_some_and(|owner_of_slot| owner_of_slot.is_watched)
    }

    /// Returns the slot of a watched entry.
    pub(crate) fn slot(&self, id: EntryId) -> Option<u32> {
        let slot = *self.by_id.get(&id)?;
        self.is_watched(slot).then_some(slot)
    }

    /// Returns the slots of all watched entries of an owner.
    pub(crate) fn slots_of_owner(&self, owner: OwnerId) -> Vec<u32> {
        self.all().filter(|(id, _)| id.owner == owner).map(|(_, slot)| slot).collect()
    }

    /// Retires an entry and returns its id, or `None` if it was not watched.
    pub(crate) fn unwatch(&mut self, slot: u32) -> Option<EntryId> {
        let owner_of_slot =
            self.owners.get_mut(slot as usize).filter(|owner_of_slot| owner_of_slot.is_watched)?;
        owner_of_slot.is_watched = false;
        self.watched -= 1;
        self.retired.push_back(slot);
        Some(owner_of_slot.id)
    }

    /// Returns the entry that was retired first and is not reclaimed yet.
    pub(crate) fn next_retired(&mut self) -> Option<u32> {
        self.retired.pop_front()
    }

    /// Reclaims a retired entry, so that its slot may be used again.
    pub(crate) fn release(&mut self, slot: u32) -> Option<EntryRecord<L>> {
        let owner_of_slot =
            self.owners.get(slot as usize).filter(|owner_of_slot| !owner_of_slot.is_watched)?;
        let record = self.records.get_mut(slot as usize)?.take()?;
        // A newer entry may have the same id by now.
        if self.by_id.get(&owner_of_slot.id) == Some(&slot) {
            self.by_id.remove(&owner_of_slot.id);
        }
        if self.by_id.is_empty() {
            self.by_id.shrink_to_fit();
        }
        self.free.push(slot);
        Some(record)
    }

    /// Returns the ids and slots of all watched entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = (EntryId, u32)> + '_ {
        let is_watched = |(_, slot): &(&EntryId, &u32)| self.is_watched(**slot);
        self.by_id.iter().filter(is_watched).map(|(id, slot)| (*id, *slot))
    }

    /// Returns the number of watched entries.
    pub(crate) const fn len(&self) -> usize {
        self.watched
    }

    /// Returns the number of retired entries that wait to be reclaimed.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// Returns the number of bytes on the heap.
    /// Traversals and the heap memory of links are not counted.
    pub(crate) fn bytes(&self) -> usize {
        let by_id = self.by_id.capacity() * (size_of::<(EntryId, u32)>() + 1);
        let lists = (self.free.capacity() + self.retired.capacity()) * size_of::<u32>();
        let owners = self.owners.capacity() * size_of::<SlotOwner>();
        self.records.capacity() * size_of::<Option<EntryRecord<L>>>() + owners + lists + by_id
    }
}
