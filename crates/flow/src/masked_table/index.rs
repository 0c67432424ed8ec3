//! A hash table of row numbers that a burst of packets searches in steps.
//!
//! A general hash table finishes one lookup before the next, so each lookup waits for the memory
//! access of the lookup before it. A burst of 32 packets needs all its index slots loaded at once,
//! then all its rows, then all its entries. So this table returns a *candidate* from one load: the
//! first row with the right tag. The caller compares the row in its next step.
//!
//! A slot holds a row and its tag, which is 32 bits of the hash. The position of a slot is the top
//! bits of the tag, or the next free position (linear probing, at most half full). So slots move to
//! a larger table, or close a gap after a removal, without reading any row.

/// Row numbers by hash.
#[derive(Debug)]
pub(super) struct RowIndex {
    /// The slots of the hash index.
    slots: Box<[IndexSlot]>,
    /// 32 minus the number of bits of a position.
    shift: u32,
    /// Number of used slots.
    len: usize,
}

/// A slot of the hash index: the tag of a hash, and its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexSlot {
    /// The part of the hash that is compared first.
    tag: u32,
    /// The row of the key.
    row: u32,
}

/// The number of no row.
pub(super) const NO_ROW: u32 = u32::MAX;

/// A slot without a row.
const EMPTY: IndexSlot = IndexSlot { tag: 0, row: NO_ROW };

/// Number of bits of a position in the smallest table.
const BITS_MIN: u32 = 4;

impl RowIndex {
    /// Creates an empty index.
    pub(super) fn new() -> Self {
        Self::with_bits(BITS_MIN)
    }

    /// Creates an index with 2^`bits` slots.
    fn with_bits(bits: u32) -> Self {
        Self { slots: vec![EMPTY; 1 << bits].into_boxed_slice(), shift: 32 - bits, len: 0 }
    }

    /// Returns whether the index has no row.
    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the numbers of all rows, in no particular order.
    pub(super) fn rows(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|slot| slot.row).filter(|row| *row != NO_ROW)
    }

    /// Returns the tag of a hash.
    #[inline]
    pub(super) const fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    /// Returns the first row with this tag, or [`NO_ROW`].
    #[inline]
    pub(super) fn candidate(&self, tag: u32) -> u32 {
        let mut position = self.home(tag);
        loop {
            let slot = self.slots[position];
            if slot.tag == tag || slot.row == NO_ROW {
                return slot.row;
            }
            position = self.next_position(position);
        }
    }

    /// Returns the row with this tag that `is_it` accepts.
    pub(super) fn find(&self, tag: u32, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.find_position(tag, is_it).map(|position| self.slots[position].row)
    }

    /// Inserts a row under its tag.
    pub(super) fn insert(&mut self, tag: u32, row: u32) {
        if (self.len + 1) * 2 > self.slots.len() {
            let mut larger = Self::with_bits(32 - self.shift + 1);
            for slot in self.slots.iter().filter(|slot| slot.row != NO_ROW) {
                larger.insert(slot.tag, slot.row);
            }
            *self = larger;
        }
        let mut position = self.home(tag);
        while self.slots[position].row != NO_ROW {
            position = self.next_position(position);
        }
        self.slots[position] = IndexSlot { tag, row };
        self.len += 1;
    }

    /// Removes a row, and returns whether it existed.
    pub(super) fn remove(&mut self, tag: u32, row: u32) -> bool {
        let Some(mut gap) = self.find_position(tag, |own| own == row) else { return false };
        self.len -= 1;
        // Moves each later slot that would not be found any more into the gap, up to a free slot.
        let mut position = self.next_position(gap);
        while self.slots[position].row != NO_ROW {
            let distance = |from: usize| position.wrapping_sub(from) & (self.slots.len() - 1);
            if distance(self.home(self.slots[position].tag)) >= distance(gap) {
                self.slots[gap] = self.slots[position];
                gap = position;
            }
            position = self.next_position(position);
        }
        self.slots[gap] = EMPTY;
        true
    }

    /// Returns the position of the slot with this tag and an accepted row.
    fn find_position(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
        let mut position = self.home(tag);
        loop {
            let slot = self.slots[position];
            if slot.row == NO_ROW {
                return None;
            }
            if slot.tag == tag && is_it(slot.row) {
                return Some(position);
            }
            position = self.next_position(position);
        }
    }

    /// Returns the position at which the search for a tag begins.
    #[inline]
    const fn home(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    /// Returns the next position of a probe, modulo the number of slots.
    #[inline]
    const fn next_position(&self, position: usize) -> usize {
        (position + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An operation on the index and on its model.
    #[derive(Clone, Copy, Debug)]
    enum IndexOp {
        Insert(u32),
        Remove(usize),
    }

    /// Generates tags with few different positions, also at the end of the table.
    fn tags() -> impl Strategy<Value = u32> {
        (prop::sample::select(vec![0_u32, 1, 7, 14, 15]), 0..4_u32).prop_map(|(a, b)| a << 28 | b)
    }

    proptest! {
        #[test]
        fn the_index_equals_a_list(
            ops in prop::collection::vec(prop_oneof![
                3 => tags().prop_map(IndexOp::Insert),
                2 => (0..64_usize).prop_map(IndexOp::Remove),
            ], 0..150),
        ) {
            let mut index = RowIndex::new();
            let mut list: Vec<(u32, u32)> = Vec::new();
            for (row, op) in (0..).zip(ops) {
                match op {
                    IndexOp::Insert(tag) => {
                        index.insert(tag, row);
                        list.push((tag, row));
                    }
                    IndexOp::Remove(which) if !list.is_empty() => {
                        let (tag, row) = list.swap_remove(which % list.len());
                        prop_assert!(index.remove(tag, row));
                        prop_assert!(!index.remove(tag, row));
                    }
                    IndexOp::Remove(_) => {}
                }
                prop_assert_eq!(index.is_empty(), list.is_empty());
                for (tag, row) in &list {
                    prop_assert_eq!(index.find(*tag, |own| own == *row), Some(*row));
                    let candidate = index.candidate(*tag);
                    prop_assert!(list.contains(&(*tag, candidate)));
                }
                for absent in [5 << 28, 15 << 28 | 9] {
                    prop_assert_eq!(index.candidate(absent), NO_ROW);
                }
            }
        }
    }
}
