//! An object that changes by version, with the values that retained versions see.
//!
//! Values are in the order of versions. Few versions are retained at a time, so a search from the
//! end is short.

use std::sync::Arc;

use shunt_classifier::{Lifetime, Version};

/// The values of one object, oldest first.
#[derive(Debug)]
pub(crate) struct Versioned<T: ?Sized> {
    /// The values, each with the versions that see it.
    values: Vec<(Lifetime, Arc<T>)>,
}

impl<T: ?Sized> Versioned<T> {
    /// Creates an object that has never had a value.
    pub(crate) const fn new() -> Self {
        Self { values: Vec::new() }
    }

    /// Returns the value that `version` sees.
    ///
    /// For the newest version, the search ends at the first value.
    pub(crate) fn at(&self, version: Version) -> Option<&Arc<T>> {
        // Each value ended at the latest when the next value was added, so only the newest
        // candidate matters.
        let (lifetime, value) =
            self.values.iter().rev().find(|(lifetime, _)| lifetime.added <= version)?;
        lifetime.is_visible(version).then_some(value)
    }

    /// Replaces the value from `version` on.
    ///
    /// `version` is not published. The new version keeps only its last value, since no thread can
    /// see an earlier one.
    pub(crate) fn set(&mut self, value: Arc<T>, version: Version) {
        self.end(version);
        self.values.push((Lifetime::since(version), value));
    }

    /// Returns the value that `version`, which is not published, has set; else `None`.
    pub(crate) fn own_mut(&mut self, version: Version) -> Option<&mut T> {
        let (lifetime, value) = self.values.last_mut()?;
        if lifetime.added == version { Arc::get_mut(value) } else { None }
    }

    /// Removes the value from `version` on.
    ///
    /// `version` is not published, so a value that it has set is dropped.
    pub(crate) fn end(&mut self, version: Version) {
        match self.values.last_mut() {
            Some((lifetime, _)) if lifetime.added == version => drop(self.values.pop()),
            Some((lifetime, _)) => lifetime.end(Some(lifetime.removed().unwrap_or(version))),
            None => {}
        }
    }

    /// Undoes all changes of `version`, which is not published.
    pub(crate) fn undo(&mut self, version: Version) {
        self.values.retain(|(lifetime, _)| lifetime.added < version);
        if let Some((lifetime, _)) = self.values.last_mut() {
            lifetime.end(lifetime.removed().filter(|removed| *removed < version));
        }
    }

    /// Returns whether the newest version, published or in preparation, sees a value.
    pub(crate) fn is_current_value(&self) -> bool {
        self.values.last().is_some_and(|(lifetime, _)| lifetime.removed().is_none())
    }

    /// Drops the values that only versions before `oldest` see.
    pub(crate) fn reclaim(&mut self, oldest: Version) {
        self.values.retain(|(lifetime, _)| !lifetime.is_over(oldest));
    }

    /// Returns all retained values, oldest first.
    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, value)| &**value)
    }

    /// Returns whether [`Self::reclaim`] will have values to drop.
    pub(crate) fn has_ended_values(&self) -> bool {
        self.values.len() > 1 || !self.is_empty() && !self.is_current_value()
    }

    /// Returns whether no value is retained.
    pub(crate) const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_sees_the_value_of_its_time() {
        let mut history = Versioned::new();
        history.set(Arc::new('a'), Version::new(2));
        history.set(Arc::new('b'), Version::new(4));
        history.end(Version::new(6));
        let seen =
            |history: &Versioned<char>, number| history.at(Version::new(number)).map(|v| **v);
        let all: Vec<_> = (1..8).map(|number| seen(&history, number)).collect();
        let (a, b) = (Some('a'), Some('b'));
        assert_eq!(all, [None, a, a, b, b, None, None]);
        history.set(Arc::new('c'), Version::new(7));
        history.end(Version::new(7));
        let all: Vec<_> = (1..9).map(|number| seen(&history, number)).collect();
        assert_eq!(all, [None, a, a, b, b, None, None, None], "the value ended in its own version");
        history.reclaim(Version::new(4));
        assert_eq!((seen(&history, 3), seen(&history, 4)), (None, b));
        history.reclaim(Version::new(7));
        assert!(history.is_empty());
    }

    #[test]
    fn a_version_keeps_only_its_last_value() {
        let [old, new] = [1, 2].map(Version::new);
        let mut history = Versioned::new();
        history.set(Arc::new(0), old);
        (1..1000).for_each(|value| history.set(Arc::new(value), new));
        assert_eq!(history.values().collect::<Vec<_>>(), [&0, &999]);
        assert_eq!(
            [old, new].map(|version| history.at(version).map(|v| **v)),
            [Some(0), Some(999)]
        );
        history.end(new);
        assert_eq!(history.values().collect::<Vec<_>>(), [&0]);
        assert_eq!([old, new].map(|version| history.at(version).map(|v| **v)), [Some(0), None]);
        history.undo(new);
        assert_eq!(history.at(new).map(|v| **v), Some(0));
    }

    #[test]
    fn a_change_within_a_version_can_be_undone() {
        let [old, new] = [1, 2].map(Version::new);
        let mut history = Versioned::new();
        history.set(Arc::new('a'), old);
        assert_eq!(history.own_mut(new), None);
        history.set(Arc::new('b'), new);
        history.own_mut(new).map(|own| *own = 'c').unwrap();
        assert_eq!(history.values().collect::<Vec<_>>(), [&'a', &'c']);
        assert_eq!(
            [old, new].map(|version| history.at(version).map(|v| **v)),
            [Some('a'), Some('c')]
        );
        history.undo(new);
        assert_eq!(history.at(new).map(|v| **v), Some('a'));
    }
}
