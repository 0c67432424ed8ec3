//! Things of a bridge that have numbers and change with versions: groups, meters.

use std::{collections::BTreeMap, sync::Arc};

use shunt_classifier::Version;

use super::versioned::History;

/// Values by number, each as every living version sees it.
#[derive(Debug)]
pub(crate) struct Numbered<K, T> {
    values: BTreeMap<K, History<T>>,
    /// How many values the newest version sees, one in the making included.
    count: usize,
}

impl<K: Copy + Ord, T> Numbered<K, T> {
    pub(crate) const fn new() -> Self {
        Self { values: BTreeMap::new(), count: 0 }
    }

    /// The value of a number.
    pub(crate) fn find(&self, number: K, version: Version) -> Option<&Arc<T>> {
        self.values.get(&number)?.at(version)
    }

    /// All values, by number.
    pub(crate) fn iter(&self, version: Version) -> impl Iterator<Item = (K, &Arc<T>)> {
        self.values
            .iter()
            .filter_map(move |(number, history)| Some((*number, history.at(version)?)))
    }

    /// How many values the newest version sees, one in the making included.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Gives a number a value, from `version` on.
    pub(crate) fn set(&mut self, number: K, value: Arc<T>, version: Version) {
        self.change(number, |history| history.set(value, version));
    }

    /// Takes the value of a number away, from `version` on.
    pub(crate) fn end(&mut self, number: K, version: Version) {
        self.change(number, |history| history.end(version));
    }

    /// Takes all values away, from `version` on.
    pub(crate) fn end_all(&mut self, version: Version) {
        self.values.values_mut().for_each(|history| history.end(version));
        self.count = 0;
    }

    /// Undoes all that `version`, which nobody has seen, did to a number.
    pub(crate) fn undo(&mut self, number: K, version: Version) {
        self.change(number, |history| history.undo(version));
    }

    /// Forgets what no version from `oldest` on sees.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.values.retain(|_, history| {
            history.reclaim(oldest);
            !history.is_empty()
        });
    }

    /// Whether no version sees anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    fn change(&mut self, number: K, change: impl FnOnce(&mut History<T>)) {
        let history = self.values.entry(number).or_insert_with(History::new);
        let before = usize::from(history.goes_on());
        change(history);
        self.count = self.count - before + usize::from(history.goes_on());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_saw_is_undone_as_if_it_had_never_been() {
        let [old, new] = [1, 2].map(Version::new);
        let mut table = Numbered::new();
        table.set('a', Arc::new(1), old);
        table.set('a', Arc::new(2), new);
        table.end('a', new);
        table.set('a', Arc::new(3), new);
        table.set('b', Arc::new(4), new);
        let seen = |table: &Numbered<char, i32>, version| {
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
