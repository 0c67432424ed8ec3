//! Entries by slot and by name.

use std::{collections::VecDeque, sync::Arc};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_pipeline::{EntryId, OwnerId, Traversal};

use crate::positions::last_position;

/// An entry that is watched, or was until lately.
pub(crate) struct EntryRecord<L> {
    pub(crate) traversal: Arc<Traversal>,
    /// Where the engine keeps what it depends on.
    pub(crate) links: L,
}

/// Who has a slot, or had it last.
#[derive(Clone, Copy)]
struct SlotOwner {
    id: EntryId,
    /// Otherwise it is not watched any more, and waits to be taken out; or has been.
    is_watched: bool,
}

const _: () = assert!(size_of::<SlotOwner>() == 16, "it is all that is read of an entry that ends");

/// All entries.
pub(crate) struct WatchedEntries<L> {
    /// By slot. They are apart from the rest, as a change that ends thousands of entries reads this
    /// of each, from anywhere in memory: of a million it is as much as a cache holds.
    owners: Vec<SlotOwner>,
    /// By slot.
    records: Vec<Option<EntryRecord<L>>>,
    free: Vec<u32>,
    /// Also those that are not watched any more, until they are taken out: whoever ends thousands
    /// at once has no time to forget their names.
    by_id: HashMap<EntryId, u32, FixedState>,
    watched: usize,
    /// Slots of entries that are not watched any more, the oldest first.
    retired: VecDeque<u32>,
}

impl<L> WatchedEntries<L> {
    /// None, and the hashes that their names are to have.
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

    /// Watches an entry, with what links it to its slot. Answers with that.
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

    /// An entry, whether it is watched or was until lately.
    pub(crate) fn get(&self, slot: u32) -> Option<&EntryRecord<L>> {
        self.records.get(slot as usize)?.as_ref()
    }

    /// The same, to change its rows.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut EntryRecord<L>> {
        self.records.get_mut(slot as usize)?.as_mut()
    }

    /// An entry that is watched.
    pub(crate) fn watched(&self, slot: u32) -> Option<&EntryRecord<L>> {
        if self.is_watched(slot) { self.get(slot) } else { None }
    }

    fn is_watched(&self, slot: u32) -> bool {
        self.owners.get(slot as usize).is_some_and(|owner_of_slot| owner_of_slot.is_watched)
    }

    /// The slot of an entry that is watched.
    pub(crate) fn slot(&self, id: EntryId) -> Option<u32> {
        let slot = *self.by_id.get(&id)?;
        self.is_watched(slot).then_some(slot)
    }

    /// The slots of an owner's entries.
    pub(crate) fn slots_of_owner(&self, owner: OwnerId) -> Vec<u32> {
        self.all().filter(|(id, _)| id.owner == owner).map(|(_, slot)| slot).collect()
    }

    /// Watches an entry no longer. Answers with its name, unless it was not watched.
    pub(crate) fn unwatch(&mut self, slot: u32) -> Option<EntryId> {
        let owner_of_slot =
            self.owners.get_mut(slot as usize).filter(|owner_of_slot| owner_of_slot.is_watched)?;
        owner_of_slot.is_watched = false;
        self.watched -= 1;
        self.retired.push_back(slot);
        Some(owner_of_slot.id)
    }

    /// The entry that has not been watched for longest, and whose turn has not come yet.
    pub(crate) fn next_retired(&mut self) -> Option<u32> {
        self.retired.pop_front()
    }

    /// Takes an entry out that is not watched any more. Its slot may be used again.
    pub(crate) fn release(&mut self, slot: u32) -> Option<EntryRecord<L>> {
        let owner_of_slot =
            self.owners.get(slot as usize).filter(|owner_of_slot| !owner_of_slot.is_watched)?;
        let record = self.records.get_mut(slot as usize)?.take()?;
        // Another may have its name by now.
        if self.by_id.get(&owner_of_slot.id) == Some(&slot) {
            self.by_id.remove(&owner_of_slot.id);
        }
        if self.by_id.is_empty() {
            self.by_id.shrink_to_fit();
        }
        self.free.push(slot);
        Some(record)
    }

    /// The names and slots of all entries that are watched.
    pub(crate) fn all(&self) -> impl Iterator<Item = (EntryId, u32)> + '_ {
        let is_watched = |(_, slot): &(&EntryId, &u32)| self.is_watched(**slot);
        self.by_id.iter().filter(is_watched).map(|(id, slot)| (*id, *slot))
    }

    /// Entries that are watched.
    pub(crate) const fn len(&self) -> usize {
        self.watched
    }

    /// Entries whose turn to be taken out has not come yet.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.len()
    }

    /// Bytes on the heap, apart from traversals and from what links have there.
    pub(crate) fn bytes(&self) -> usize {
        let by_id = self.by_id.capacity() * (size_of::<(EntryId, u32)>() + 1);
        let lists = (self.free.capacity() + self.retired.capacity()) * size_of::<u32>();
        let owners = self.owners.capacity() * size_of::<SlotOwner>();
        self.records.capacity() * size_of::<Option<EntryRecord<L>>>() + owners + lists + by_id
    }
}
