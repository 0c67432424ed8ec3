//! A hand that visits the entries of a map in turn, to find one to remove.

use std::{collections::BTreeMap, ops::Bound};

/// The last visited key of a scan that starts again at the end of the map.
///
/// A table with a hand finds an entry to remove in bounded time: it examines a few entries, and the next
/// search continues after them.
#[derive(Debug)]
pub(super) struct ScanHand<K>(Option<K>);

impl<K: Copy + Ord> ScanHand<K> {
    /// Returns a hand at the start of the map.
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Moves to the next entry, and returns its key; `None` if the map is empty.
    pub(super) fn advance<V>(&mut self, map: &BTreeMap<K, V>) -> Option<K> {
        let from = self.0.map_or(Bound::Unbounded, Bound::Excluded);
        let next = map.range((from, Bound::Unbounded)).next().or_else(|| map.first_key_value());
        self.0 = next.map(|(key, _)| *key);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scan_hand_visits_all_entries_in_turn() {
        let mut map = BTreeMap::from([(1, ()), (4, ()), (6, ())]);
        let mut hand = ScanHand::new();
        let mut next = |map: &_| hand.advance(map);
        assert_eq!([next(&map), next(&map)], [Some(1), Some(4)]);
        // The last visited entry, and new ones, do not disturb it.
        map.remove(&4);
        map.insert(5, ());
        assert_eq!([next(&map), next(&map), next(&map)], [Some(5), Some(6), Some(1)]);
        assert_eq!(next(&BTreeMap::new()), None);
    }
}
