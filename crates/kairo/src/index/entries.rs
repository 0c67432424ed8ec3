//! Entries by slot and by name.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use shunt_pipeline::{EntryId, OwnerId, Traversal};

/// An entry that is watched, or was until lately.
pub(super) struct Held {
    pub(super) id: EntryId,
    pub(super) traversal: Arc<Traversal>,
    /// Its visits, by group and position there.
    pub(super) rows: Box<[(u32, u32)]>,
    /// The set of objects that it reads.
    pub(super) reads: u32,
    /// It is not watched any more: its rows wait to be taken out.
    is_dead: bool,
}

impl Held {
    /// An entry that is watched.
    pub(super) fn new(
        id: EntryId,
        traversal: &Arc<Traversal>,
        rows: Vec<(u32, u32)>,
        reads: u32,
    ) -> Self {
        let traversal = Arc::clone(traversal);
        Self { id, traversal, rows: rows.into(), reads, is_dead: false }
    }
}

/// All entries.
#[derive(Default)]
pub(super) struct Entries {
    slots: Vec<Option<Held>>,
    free: Vec<u32>,
    by_id: HashMap<EntryId, u32, RandomState>,
    /// Slots of entries that are not watched any more, the oldest first.
    dead: std::collections::VecDeque<u32>,
}

impl Entries {
    /// A slot for an entry to come.
    pub(super) fn reserve(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Puts an entry into the slot that was reserved for it.
    pub(super) fn put(&mut self, slot: u32, held: Held) {
        self.by_id.insert(held.id, slot);
        self.slots[slot as usize] = Some(held);
    }

    /// An entry, whether it is watched or was until lately.
    pub(super) fn get(&self, slot: u32) -> Option<&Held> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// An entry that is watched.
    pub(super) fn watched(&self, slot: u32) -> Option<&Held> {
        self.get(slot).filter(|held| !held.is_dead)
    }

    /// The slot of an entry that is watched.
    pub(super) fn slot(&self, id: EntryId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The slots of an owner's entries.
    pub(super) fn of_owner(&self, owner: OwnerId) -> Vec<u32> {
        let own = self.by_id.iter().filter(|(id, _)| id.owner == owner);
        own.map(|(_, slot)| *slot).collect()
    }

    /// Watches an entry no longer. Answers with its name, unless it was not watched.
    pub(super) fn end(&mut self, slot: u32) -> Option<EntryId> {
        let held = self.slots.get_mut(slot as usize)?.as_mut().filter(|held| !held.is_dead)?;
        held.is_dead = true;
        self.by_id.remove(&held.id);
        self.dead.push_back(slot);
        Some(held.id)
    }

    /// Takes out the entry that has not been watched for longest.
    pub(super) fn take_dead(&mut self) -> Option<(u32, Held)> {
        let slot = self.dead.pop_front()?;
        let held = self.slots[slot as usize].take()?;
        Some((slot, held))
    }

    /// A slot is empty and may be used again.
    pub(super) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Entries that are watched.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Entries that wait to be taken out.
    pub(super) fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// Bytes on the heap, traversals apart.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.slots.iter().flatten().map(|held| size_of_val(&*held.rows)).sum::<usize>();
        let names = self.by_id.capacity() * (size_of::<(EntryId, u32)>() + 1);
        self.slots.capacity() * size_of::<Option<Held>>() + rows + names
    }
}
