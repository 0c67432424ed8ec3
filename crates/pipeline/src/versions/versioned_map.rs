//! A map from numbers to values that change by version: groups, meters.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;

use super::versioned::Versioned;

/// Objects by number, with the values that retained versions see.
#[derive(Debug)]
pub(crate) struct VersionedMap<K, T> {
    values: BTreeMap<K, Versioned<T>>,
    /// Number of values of the newest version, published or in preparation.
    count: usize,
}

impl<K: Copy + Ord, T> VersionedMap<K, T> {
    pub(crate) const fn new() -> Self {
        Self { values: BTreeMap::new(), count: 0 }
    }

    /// Returns the value with this number, as `version` sees it.
    pub(crate) fn find(&self, number: K, version: Version) -> Option<&Arc<T>> {
        self.values.get(&number)?.at(version)
    }

    /// Returns all values, by number.
    pub(crate) fn iter(&self, version: Version) -> impl Iterator<Item = (K, &Arc<T>)> {
        self.values
            .iter()
            .filter_map(move |(number, history)| Some((*number, history.at(version)?)))
    }

    /// Returns the number of values of the newest version, published or in preparation.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Sets the value with this number, from `version` on.
    pub(crate) fn set(&mut self, number: K, value: Arc<T>, version: Version) {
        self.change(number, |history| history.set(value, version));
    }

    /// Removes the value with this number, from `version` on.
    pub(crate) fn end(&mut self, number: K, version: Version) {
        self.change(number, |history| history.end(version));
    }

    /// Removes all values, from `version` on.
    pub(crate) fn end_all(&mut self, version: Version) {
        self.values.values_mut().for_each(|history| history.end(version));
        self.count = 0;
    }

    /// Undoes the changes of `version`, which is not published, to one value.
    pub(crate) fn undo(&mut self, number: K, version: Version) {
        self.change(number, |history| history.undo(version));
    }

    /// Drops the values that only versions before `oldest` see.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.values.retain(|_, history| {
            history.reclaim(oldest);
            !history.is_empty()
        });
    }

    /// Returns whether no version sees a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn change(&mut self, number: K, change: impl FnOnce(&mut Versioned<T>)) {
        let history = self.values.entry(number).or_insert_with(Versioned::new);
        let before = usize::from(history.is_current_value());
        change(history);
        self.count = self.count - before + usize::from(history.is_current_value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpublished_change_is_undone_completely() {
        let [old, new] = [1, 2].map(Version::new);
        let mut table = VersionedMap::new();
        table.set('a', Arc::new(1), old);
        table.set('a', Arc::new(2), new);
        table.end('a', new);
        table.set('a', Arc::new(3), new);
        table.set('b', Arc::new(4), new);
        let seen = |table: &VersionedMap<char, i32>, version| {
            table.iter(version).map(|(number, value)| (number, **value)).collect::<Vec<_>>()
        };
        assert_eq!(
            (seen(&table, old), seen(&table, new)),
            (vec![('a', 1)], vec![('a', 3), ('b', 4)])
        );
        assert_eq!(table.count(), 2);
        ['a', 'b', 'a'].iter().for_each(|number| table.undo(*number, new));
        assert_eq!((seen(&table, new), table.count()), (vec![('a', 1)], 1));
        table.reclaim(new);
        assert_eq!(seen(&table, new), [('a', 1)]);
        table.end_all(new);
        table.reclaim(new);
        assert!(table.is_empty() && table.count() == 0);
    }
}
