//! Entries by slot and by name.

use std::{collections::VecDeque, sync::Arc};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_pipeline::{EntryId, OwnerId, Traversal};

/// An entry that is watched, or was until lately.
pub(crate) struct Held<L> {
    pub(crate) id: EntryId,
    pub(crate) traversal: Arc<Traversal>,
    /// Where the engine keeps what it depends on.
    pub(crate) links: L,
    /// It is not watched any more: it waits to be taken out.
    is_dead: bool,
}

impl<L> Held<L> {
    /// An entry that is watched.
    pub(crate) fn new(id: EntryId, traversal: &Arc<Traversal>, links: L) -> Self {
        Self { id, traversal: Arc::clone(traversal), links, is_dead: false }
    }
}

/// All entries.
pub(crate) struct Entries<L> {
    slots: Vec<Option<Held<L>>>,
    free: Vec<u32>,
    /// Also those that are not watched any more, until they are taken out: whoever ends thousands
    /// at once has no time to forget their names.
    by_id: HashMap<EntryId, u32, FixedState>,
    watched: usize,
    /// Slots of entries that are not watched any more, the oldest first.
    dead: VecDeque<u32>,
}

impl<L> Entries<L> {
    /// None, and the hashes that their names are to have.
    pub(crate) fn new(hashes: FixedState) -> Self {
        let (slots, free, dead) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { slots, free, by_id: HashMap::with_hasher(hashes), watched: 0, dead }
    }

    /// A slot for an entry to come.
    pub(crate) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Puts an entry into the slot that was reserved for it.
    pub(crate) fn put(&mut self, slot: u32, held: Held<L>) {
        self.by_id.insert(held.id, slot);
        self.slots[slot as usize] = Some(held);
        self.watched += 1;
    }

    /// An entry, whether it is watched or was until lately.
    pub(crate) fn get(&self, slot: u32) -> Option<&Held<L>> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The same, to change its rows.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Held<L>> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// An entry that is watched.
    pub(crate) fn watched(&self, slot: u32) -> Option<&Held<L>> {
        self.get(slot).filter(|held| !held.is_dead)
    }

    /// The slot of an entry that is watched.
    pub(crate) fn slot(&self, id: EntryId) -> Option<u32> {
        let slot = *self.by_id.get(&id)?;
        self.watched(slot).map(|_| slot)
    }

    /// The slots of an owner's entries.
    pub(crate) fn of_owner(&self, owner: OwnerId) -> Vec<u32> {
        self.all().filter(|(id, _)| id.owner == owner).map(|(_, slot)| slot).collect()
    }

    /// Watches an entry no longer. Answers with its name, unless it was not watched.
    pub(crate) fn end(&mut self, slot: u32) -> Option<EntryId> {
        let held = self.slots.get_mut(slot as usize)?.as_mut().filter(|held| !held.is_dead)?;
        held.is_dead = true;
        self.watched -= 1;
        self.dead.push_back(slot);
        Some(held.id)
    }

    /// The entry that has not been watched for longest, and whose turn has not come yet.
    pub(crate) fn next_dead(&mut self) -> Option<u32> {
        self.dead.pop_front()
    }

    /// Takes an entry out that is not watched any more. Its slot may be used again.
    pub(crate) fn release(&mut self, slot: u32) -> Option<Held<L>> {
        let held = self.slots.get_mut(slot as usize)?.take_if(|held| held.is_dead)?;
        // Another may have its name by now.
        if self.by_id.get(&held.id) == Some(&slot) {
            self.by_id.remove(&held.id);
        }
        if self.by_id.is_empty() {
            self.by_id.shrink_to_fit();
        }
        self.free.push(slot);
        Some(held)
    }

    /// The names and slots of all entries that are watched.
    pub(crate) fn all(&self) -> impl Iterator<Item = (EntryId, u32)> + '_ {
        let is_watched = |(_, slot): &(&EntryId, &u32)| self.watched(**slot).is_some();
        self.by_id.iter().filter(is_watched).map(|(id, slot)| (*id, *slot))
    }

    /// Entries that are watched.
    pub(crate) const fn len(&self) -> usize {
        self.watched
    }

    /// Entries whose turn to be taken out has not come yet.
    pub(crate) fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// Bytes on the heap, apart from traversals and from what links have there.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.by_id.capacity() * (size_of::<(EntryId, u32)>() + 1);
        let lists = (self.free.capacity() + self.dead.capacity()) * size_of::<u32>();
        self.slots.capacity() * size_of::<Option<Held<L>>>() + lists + names
    }
}
