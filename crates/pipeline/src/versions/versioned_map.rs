//! A map from numbers to values that change by version: groups, meters, learned addresses.
//!
//! A map may have a million entries. So it lists the entries that have values to reclaim, and it is
//! read and changed in pages ([`VersionedMap::page`]). A caller with a lock releases it between two
//! pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use shunt_classifier::Version;

use super::versioned::Versioned;

/// Objects by number, with the values that retained versions see.
#[derive(Debug)]
pub(crate) struct VersionedMap<K, T> {
    /// The values of each object, by number.
    values: BTreeMap<K, Versioned<T>>,
    /// Number of values of the newest version, published or in preparation.
    count: usize,
    /// The versions that ended values, with the numbers of these values.
    retired: BTreeSet<(Version, K)>,
}

/// The values of some consecutive entries of a map.
pub(crate) struct MapPage<K, T> {
    /// The values that the requested version sees, by number.
    pub(crate) values: Vec<(K, Arc<T>)>,
    /// The last visited number; `None` after the last page.
    pub(crate) last: Option<K>,
}

impl<K: Copy + Ord, T> VersionedMap<K, T> {
    /// Returns a map without values and without retired versions.
    pub(crate) const fn new() -> Self {
        Self { values: BTreeMap::new(), count: 0, retired: BTreeSet::new() }
    }

    /// Returns the value with this number, as `version` sees it.
    pub(crate) fn find(&self, number: K, version: Version) -> Option<&Arc<T>> {
        self.values.get(&number)?.at(version)
    }

    /// Returns the values among the next `visits_max` entries after a number.
    ///
    /// `None` is before the first number. Entries without such a value are visited too.
    pub(crate) fn page(
        &self,
        after: Option<K>,
        version: Version,
        visits_max: usize,
    ) -> MapPage<K, T> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut values, mut last, mut visits) = (Vec::new(), None, 0);
        for (number, history) in self.values.range((from, Bound::Unbounded)).take(visits_max) {
            values.extend(history.at(version).map(|value| (*number, Arc::clone(value))));
            (last, visits) = (Some(*number), visits + 1);
        }
        MapPage { values, last: last.filter(|_| visits == visits_max) }
    }

    /// Returns the number of values of the newest version, published or in preparation.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Sets the value with this number, from `version` on.
    pub(crate) fn set(&mut self, number: K, value: Arc<T>, version: Version) {
        self.change(number, version, |history| history.set(value, version));
    }

    /// Removes the value with this number, from `version` on.
    pub(crate) fn end(&mut self, number: K, version: Version) {
        self.change(number, version, |history| history.end(version));
    }

    /// Undoes the changes of `version`, which is not published, to one value.
    pub(crate) fn undo(&mut self, number: K, version: Version) {
        self.change(number, version, |history| history.undo(version));
    }

    /// Drops values that only versions before `oldest` see.
    ///
    /// Visits at most `left` entries that have such values, and reduces `left` by their number.
    /// Returns whether no such value remains.
    pub(crate) fn reclaim(&mut self, oldest: Version, left: &mut usize) -> bool {
        while let Some((ended, number)) = self.retired.first().copied()
            && ended <= oldest
        {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            self.retired.pop_first();
            if let Some(history) = self.values.get_mut(&number) {
                history.reclaim(oldest);
                if history.is_empty() {
                    self.values.remove(&number);
                }
            }
        }
        true
    }

    /// Returns whether no version sees a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Changes the versions of a value, which is created if it is missing.
    fn change(&mut self, number: K, version: Version, change: impl FnOnce(&mut Versioned<T>)) {
        let history = self.values.entry(number).or_insert_with(Versioned::new);
        let before = usize::from(history.is_current_value());
        change(history);
        self.count = self.count - before + usize::from(history.is_current_value());
        if history.has_ended_values() {
            self.retired.insert((version, number));
        }
        if history.is_empty() {
            self.values.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible_values(table: &VersionedMap<char, i32>, version: Version) -> Vec<(char, i32)> {
        let page = table.page(None, version, usize::MAX);
        page.values.iter().map(|(number, value)| (*number, **value)).collect()
    }

    #[test]
    fn an_unpublished_change_is_undone_completely() {
        let [old, new] = [1, 2].map(Version::new);
        let mut table = VersionedMap::new();
        table.set('a', Arc::new(1), old);
        table.set('a', Arc::new(2), new);
        table.end('a', new);
        table.set('a', Arc::new(3), new);
        table.set('b', Arc::new(4), new);
        assert_eq!(
            (visible_values(&table, old), visible_values(&table, new)),
            (vec![('a', 1)], vec![('a', 3), ('b', 4)])
        );
        assert_eq!(table.count(), 2);
        ['a', 'b', 'a'].iter().for_each(|number| table.undo(*number, new));
        assert_eq!((visible_values(&table, new), table.count()), (vec![('a', 1)], 1));
        let mut left = usize::MAX;
        assert!(table.reclaim(new, &mut left));
        assert_eq!(visible_values(&table, new), [('a', 1)]);
        table.end('a', new);
        assert!(table.reclaim(new, &mut left));
        assert!(table.is_empty() && table.count() == 0);
    }

    #[test]
    fn a_reclaim_visits_only_entries_with_ended_values() {
        let [old, new, next] = [1, 2, 3].map(Version::new);
        let mut table = VersionedMap::new();
        (0..1000).for_each(|number| table.set(number, Arc::new(number), old));
        (0..10).for_each(|number| table.set(number, Arc::new(-1), new));
        (10..15).for_each(|number| table.end(number, next));
        let mut left = 4;
        assert!(!table.reclaim(new, &mut left), "six entries of the version are left");
        assert_eq!(left, 0);
        left = 100;
        assert!(table.reclaim(new, &mut left));
        assert_eq!((left, table.count()), (94, 995));
        assert!(table.reclaim(next, &mut left));
        assert_eq!((left, table.page(None, old, 2000).values.len()), (89, 985));
    }

    #[test]
    fn pages_visit_each_entry_once() {
        let [old, new] = [1, 2].map(Version::new);
        let mut table = VersionedMap::new();
        (0..10).for_each(|number| table.set(number, Arc::new(number), old));
        (0..10).step_by(2).for_each(|number| table.end(number, new));
        let (mut after, mut numbers, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = table.page(after, new, 4);
            assert!(page.values.len() <= 4);
            numbers.extend(page.values.into_iter().map(|(number, _)| number));
            pages += 1;
            after = page.last;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((pages, numbers), (3, vec![1, 3, 5, 7, 9]));
    }
}
