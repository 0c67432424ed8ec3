//! The relation of objects and the entries with traversals that read them.
//!
//! Entries that read the same objects share a set of objects. Most entries of a bridge read only
//! the ports of the bridge. For a change of an object, the index finds the sets with the object,
//! and then the entries of the found sets.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use shunt_pipeline::Object;

use crate::positions::last_position;

/// Sets of objects, and the entries that read them.
pub(super) struct Readers {
    /// The sets by their numbers, with the unused ones.
    sets: Vec<ReadSet>,
    /// The numbers of the unused sets.
    free: Vec<u32>,
    /// The number of the set with exactly these objects.
    by_objects: HashMap<Box<[Object]>, u32, FixedState>,
    /// The numbers of the sets that have the object.
    by_object: HashMap<Object, HashSet<u32, FixedState>, FixedState>,
    /// Number of objects, summed over all sets.
    objects: usize,
    /// Number of entries in all sets.
    members: usize,
    hashes: FixedState,
}

/// Approximate number of hash table buckets per row.
const ROOM: usize = 2;

/// A set of objects, and the entries that read exactly these objects.
struct ReadSet {
    /// The objects, which every entry of the set reads.
    objects: Box<[Object]>,
    /// The slots of the entries.
    entries: HashSet<u32, FixedState>,
}

impl ReadSet {
    /// Returns the set of these objects, which no entry reads yet.
    fn new(objects: &[Object], hashes: &FixedState) -> Self {
        Self { objects: objects.into(), entries: HashSet::with_hasher(hashes.clone()) }
    }
}

impl Readers {
    /// Creates an empty relation; its hash tables use `hashes`.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            sets: Vec::new(),
            free: Vec::new(),
            by_objects: HashMap::with_hasher(hashes.clone()),
            by_object: HashMap::with_hasher(hashes.clone()),
            objects: 0,
            members: 0,
            hashes: hashes.clone(),
        }
    }

    /// Records that an entry reads these objects, and returns the number of their set.
    pub(super) fn insert(&mut self, objects: &[Object], entry: u32) -> u32 {
        let number = match self.by_objects.get(objects) {
            Some(number) => *number,
            None => self.add(objects),
        };
        self.members += usize::from(self.sets[number as usize].entries.insert(entry));
        number
    }

    /// Removes an entry from the set of objects that it reads.
    pub(super) fn remove(&mut self, number: u32, entry: u32) {
        let set = &mut self.sets[number as usize];
        self.members -= usize::from(set.entries.remove(&entry));
        if !set.entries.is_empty() {
            return;
        }
        let ReadSet { objects, .. } = std::mem::replace(set, ReadSet::new(&[], &self.hashes));
        self.by_objects.remove(&objects);
        self.objects -= objects.len();
        for object in &objects {
            if let Some(sets) = self.by_object.get_mut(object) {
                sets.remove(&number);
                if sets.is_empty() {
                    self.by_object.remove(object);
                }
            }
        }
        self.free.push(number);
    }

    /// Returns the entries that read an object.
    pub(super) fn of(&self, object: Object) -> impl Iterator<Item = u32> + '_ {
        let sets = self.by_object.get(&object).into_iter().flatten();
        sets.flat_map(|number| &self.sets[*number as usize].entries).copied()
    }

    /// Returns the number of entries that read an object.
    pub(super) fn count(&self, object: Object) -> usize {
        let sets = self.by_object.get(&object).into_iter().flatten();
        sets.map(|number| self.sets[*number as usize].entries.len()).sum()
    }

    /// Returns the number of sets of objects.
    pub(super) fn len(&self) -> usize {
        self.by_objects.len()
    }

    /// Returns the approximate number of bytes on the heap.
    /// The estimate assumes hash tables of average load.
    pub(super) const fn bytes(&self) -> usize {
        let of_set = size_of::<ReadSet>() + size_of::<(Box<[Object]>, u32)>();
        // A set stores each of its objects twice, and each object refers back to the set once.
        let of_object = 2 * size_of::<Object>() + ROOM * (size_of::<u32>() + 1);
        let of_member = ROOM * (size_of::<u32>() + 1);
        self.sets.capacity() * of_set + self.objects * of_object + self.members * of_member
    }

    /// Returns the number of a set of objects; adds a new set.
    fn add(&mut self, objects: &[Object]) -> u32 {
        let set = ReadSet::new(objects, &self.hashes);
        let number = if let Some(number) = self.free.pop() {
            self.sets[number as usize] = set;
            number
        } else {
            self.sets.push(set);
            last_position(&self.sets)
        };
        self.objects += objects.len();
        self.by_objects.insert(objects.into(), number);
        for object in objects {
            let sets = self.by_object.entry(*object);
            let sets = sets.or_insert_with(|| HashSet::with_hasher(self.hashes.clone()));
            sets.insert(number);
        }
        number
    }
}
