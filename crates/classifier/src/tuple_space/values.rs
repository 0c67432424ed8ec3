//! Which values rules have in some of the words of their masks.

use hashbrown::{HashTable, hash_table::Entry};

/// A counted set of hashes of values.
///
/// It counts hashes, not values. Two values with one hash make a lookup go on where it could have
/// stopped, which costs time and never an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(HashTable<Counted>);

#[derive(Clone, Debug)]
struct Counted {
    hash: u64,
    count: u32,
}

impl Values {
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.0.find(hash, |counted| counted.hash == hash).is_some()
    }

    pub(super) fn insert(&mut self, hash: u64) {
        let same = |counted: &Counted| counted.hash == hash;
        let counted = self.0.entry(hash, same, |counted| counted.hash);
        counted.or_insert(Counted { hash, count: 0 }).get_mut().count += 1;
    }

    /// Takes out one of the hashes that are `hash`. There must be one.
    pub(super) fn remove(&mut self, hash: u64) {
        let same = |counted: &Counted| counted.hash == hash;
        let Entry::Occupied(mut entry) = self.0.entry(hash, same, |counted| counted.hash) else {
            debug_assert!(false, "a hash that is removed is held");
            return;
        };
        entry.get_mut().count -= 1;
        if entry.get().count == 0 {
            entry.remove();
        }
    }
}
