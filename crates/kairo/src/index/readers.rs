//! Which entries read which objects.
//!
//! Entries that read the same objects share a set: most of a bridge read its ports and nothing else.
//! A change of an object finds the sets that name it, and through them the entries.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use shunt_pipeline::Object;

/// Sets of objects, and who reads them.
#[derive(Default)]
pub(super) struct Readers {
    sets: Vec<ReadSet>,
    free: Vec<u32>,
    by_objects: HashMap<Box<[Object]>, u32, RandomState>,
    by_object: HashMap<Object, HashSet<u32, RandomState>, RandomState>,
}

#[derive(Default)]
struct ReadSet {
    objects: Box<[Object]>,
    entries: HashSet<u32, RandomState>,
}

impl Readers {
    /// An entry reads these. Answers with the number of the set.
    pub(super) fn insert(&mut self, objects: &[Object], entry: u32) -> u32 {
        let number = match self.by_objects.get(objects) {
            Some(number) => *number,
            None => self.add(objects),
        };
        self.sets[number as usize].entries.insert(entry);
        number
    }

    /// An entry that reads the objects of a set is gone.
    pub(super) fn remove(&mut self, number: u32, entry: u32) {
        let set = &mut self.sets[number as usize];
        set.entries.remove(&entry);
        if !set.entries.is_empty() {
            return;
        }
        let ReadSet { objects, .. } = std::mem::take(set);
        self.by_objects.remove(&objects);
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

    /// The entries that read an object.
    pub(super) fn of(&self, object: Object) -> impl Iterator<Item = u32> + '_ {
        let sets = self.by_object.get(&object).into_iter().flatten();
        sets.flat_map(|number| &self.sets[*number as usize].entries).copied()
    }

    /// Bytes on the heap, about.
    pub(super) fn bytes(&self) -> usize {
        let of_set = |set: &ReadSet| {
            2 * size_of_val(&*set.objects) + set.entries.capacity() * (size_of::<u32>() + 1)
        };
        let sets = self.sets.iter().map(|set| size_of::<ReadSet>() + of_set(set)).sum::<usize>();
        let named = |own: &HashSet<u32, RandomState>| own.capacity() * (size_of::<u32>() + 1);
        sets + self.by_object.values().map(named).sum::<usize>()
    }

    fn add(&mut self, objects: &[Object]) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.sets.push(ReadSet::default());
            u32::try_from(self.sets.len() - 1).unwrap_or(u32::MAX)
        });
        self.sets[number as usize].objects = objects.into();
        self.by_objects.insert(objects.into(), number);
        for object in objects {
            self.by_object.entry(*object).or_default().insert(number);
        }
        number
    }
}
