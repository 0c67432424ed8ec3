//! The index of one stage of a subtable: which values its rules have in the leading words.
//!
//! It counts hashes, not values. Two values with one hash make a lookup go on to the next stage
//! where it could have stopped, which costs time and never an answer.

use hashbrown::{HashTable, hash_table::Entry};

/// A counted set of hashes of the first [`Self::words_count`] words of the rules of a subtable.
#[derive(Clone, Debug)]
pub(super) struct StageIndex {
    words_count: usize,
    hashes: HashTable<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    hash: u64,
    count: u32,
}

impl StageIndex {
    pub(super) const fn new(words_count: usize) -> Self {
        Self { words_count, hashes: HashTable::new() }
    }

    pub(super) const fn words_count(&self) -> usize {
        self.words_count
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.hashes.find(hash, |counted| counted.hash == hash).is_some()
    }

    pub(super) fn insert(&mut self, hash: u64) {
        let same = |counted: &Counted| counted.hash == hash;
        let counted = self.hashes.entry(hash, same, |counted| counted.hash);
        counted.or_insert(Counted { hash, count: 0 }).get_mut().count += 1;
    }

    /// Takes out one of the hashes that are `hash`. There must be one.
    pub(super) fn remove(&mut self, hash: u64) {
        let same = |counted: &Counted| counted.hash == hash;
        let Entry::Occupied(mut entry) = self.hashes.entry(hash, same, |counted| counted.hash)
        else {
            debug_assert!(false, "a hash that is removed is held");
            return;
        };
        entry.get_mut().count -= 1;
        if entry.get().count == 0 {
            entry.remove();
        }
    }
}
