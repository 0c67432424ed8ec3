//! The values that rules have in some words of their masks.

use hashbrown::{HashTable, hash_table::Entry};

/// A set of hashes of values with counts, which stores 32 bits of each hash.
///
/// The set counts hashes, and does not store values. If two values have one hash, a lookup may
/// continue although it could have stopped. The additional search costs time, but the result is
/// correct.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueSet(HashTable<CountedHash>);

/// One half of a hash, and the number of values with this hash.
#[derive(Clone, Debug)]
struct CountedHash {
    /// The half of the hash that is compared.
    half: u32,
    /// Number of values with this half.
    count: u32,
}

impl ValueSet {
    /// Returns whether the set has a value with this hash.
    pub(super) fn contains(&self, hash: u64) -> bool {
        let half = half(hash);
        self.0.find(spread(half), |counted_hash| counted_hash.half == half).is_some()
    }

    /// Counts a value by its hash.
    pub(super) fn insert(&mut self, hash: u64) {
        let half = half(hash);
        let same = |counted_hash: &CountedHash| counted_hash.half == half;
        let counted_hash =
            self.0.entry(spread(half), same, |counted_hash| spread(counted_hash.half));
        counted_hash.or_insert(CountedHash { half, count: 0 }).get_mut().count += 1;
    }

    /// Removes one of the copies of `hash`, which must be in the set.
    pub(super) fn remove(&mut self, hash: u64) {
        let half = half(hash);
        let same = |counted_hash: &CountedHash| counted_hash.half == half;
        let found = self.0.entry(spread(half), same, |counted_hash| spread(counted_hash.half));
        let Entry::Occupied(mut entry) = found else {
            debug_assert!(false, "a hash that is removed is in the set");
            return;
        };
        entry.get_mut().count -= 1;
        if entry.get().count == 0 {
            entry.remove();
        }
    }
}

/// Returns the 32 bits of a hash that are stored: both halves combined.
#[expect(clippy::cast_possible_truncation, reason = "the function returns one half")]
const fn half(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}

/// Returns a hash for the hash table, which uses the low bits and the highest bits.
fn spread(half: u32) -> u64 {
    u64::from(half) << 32 | u64::from(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_hash_depends_on_both_halves() {
        assert_eq!(half(0x1234_5678_0000_0000), 0x1234_5678);
        assert_eq!(half(0x0000_0000_1234_5678), 0x1234_5678);
        assert_eq!(half(u64::MAX), 0);
    }

    #[test]
    fn hash_spreads_over_low_and_high_bits() {
        assert_eq!(spread(0x8000_0001), 0x8000_0001_8000_0001);
    }
}
