//! Algebra of sets and maps: union, subtraction, and the differences of `update2` and of the log.

use super::{Atom, Datum};
use crate::schema::ColumnType;

impl Datum {
    /// Returns whether this set or map contains all members of `other`.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        other.pairs().all(|pair| self.has(pair))
    }

    /// Returns whether this set or map contains no member of `other`.
    #[must_use]
    pub fn excludes(&self, other: &Self) -> bool {
        !other.pairs().any(|pair| self.has(pair))
    }

    /// Adds the members of `other`; existing keys keep their values.
    pub fn unite(&mut self, other: &Self) {
        for (key, value) in other.pairs() {
            self.put(key, value, ExistingKey::Keep);
        }
    }

    /// Removes the members of `other` from this set or map.
    ///
    /// A set as argument removes keys of a map. A map removes pairs, which must have equal values.
    pub fn subtract(&mut self, other: &Self) {
        for (key, value) in other.pairs() {
            let is_same = value.is_none() || self.find_value(key) == value;
            if is_same {
                self.remove(key);
            }
        }
    }

    /// Returns the keys that `other` does not have, in one pass over both.
    pub(crate) fn keys_beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Atom> {
        let mut others = other.keys.iter().peekable();
        self.keys.iter().filter(move |key| {
            while others.next_if(|own| own < key).is_some() {}
            others.next_if(|own| own == key).is_none()
        })
    }

    /// Returns the difference between this value and `new`.
    ///
    /// For a column of at most one member the difference is the new value. For a set it has the
    /// members of exactly one of the two values. For a map it has the removed pairs, the added
    /// pairs, and the new values of keys in both.
    #[must_use]
    pub fn difference_to(&self, new: &Self, kind: &ColumnType) -> Self {
        if kind.max == 1 {
            return new.clone();
        }
        if kind.value.is_none() {
            return Self::set(self.keys_beyond(new).chain(new.keys_beyond(self)).cloned());
        }
        let mut difference = Self::empty();
        let removed = self.pairs().filter(|(key, _)| !new.has_key(key));
        let added = new.pairs().filter(|pair| !self.has(*pair));
        for (key, value) in removed.chain(added) {
            difference.put(key, value, ExistingKey::Replace);
        }
        difference
    }

    /// Returns this value after a difference is applied.
    #[must_use]
    pub fn with_difference(&self, difference: &Self, kind: &ColumnType) -> Self {
        if kind.max == 1 {
            return difference.clone();
        }
        let mut result = self.clone();
        for (key, value) in difference.pairs() {
            if self.has((key, value)) {
                result.remove(key);
            } else {
                result.put(key, value, ExistingKey::Replace);
            }
        }
        result
    }

    /// Keeps the members that a function accepts; returns how many were removed.
    pub fn retain(&mut self, keep: impl Fn(&Atom, Option<&Atom>) -> bool) -> usize {
        let before = self.len();
        let keys: Vec<Atom> = self
            .pairs()
            .filter(|(key, value)| !keep(key, *value))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.remove(key);
        }
        before - self.len()
    }

    /// Returns whether the set has an element, or the map a pair.
    fn has(&self, (key, value): (&Atom, Option<&Atom>)) -> bool {
        match value {
            Some(value) => self.find_value(key) == Some(value),
            None => self.has_key(key),
        }
    }

    /// Returns whether the set or map has a key.
    fn has_key(&self, key: &Atom) -> bool {
        self.keys.binary_search(key).is_ok()
    }

    /// Adds a key; `existing` selects if a present value is replaced.
    fn put(&mut self, key: &Atom, value: Option<&Atom>, existing: ExistingKey) {
        match self.keys.binary_search(key) {
            Ok(index) => {
                let slot = self.values.get_mut(index);
                if let (ExistingKey::Replace, Some(slot), Some(value)) = (existing, slot, value) {
                    *slot = value.clone();
                }
            }
            Err(index) => {
                self.keys.insert(index, key.clone());
                if let Some(value) = value {
                    self.values.insert(index, value.clone());
                }
            }
        }
    }

    /// Removes a key with its value.
    fn remove(&mut self, key: &Atom) {
        if let Ok(index) = self.keys.binary_search(key) {
            self.keys.remove(index);
            if index < self.values.len() {
                self.values.remove(index);
            }
        }
    }
}

/// The treatment of a key that exists already.
#[derive(Clone, Copy)]
enum ExistingKey {
    Keep,
    Replace,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses the type of a column.
    fn kind(text: &str) -> ColumnType {
        ColumnType::from_json(&serde_json::from_str(text).unwrap()).unwrap()
    }

    /// Generates a set of atoms.
    fn set() -> impl Strategy<Value = Datum> {
        proptest::collection::vec(0..6_i64, 0..6)
            .prop_map(|atoms| Datum::set(atoms.into_iter().map(Atom::Integer)))
    }

    /// Generates a map of atoms.
    fn map() -> impl Strategy<Value = Datum> {
        let pairs = proptest::collection::vec((0..6_i64, 0..3_i64), 0..6);
        pairs.prop_map(|pairs| {
            let atoms = |(key, value)| (Atom::Integer(key), Atom::Integer(value));
            Datum::map(pairs.into_iter().map(atoms))
        })
    }

    proptest! {
        #[test]
        fn a_difference_leads_to_the_new_value(old in set(), new in set(), a in map(), b in map()) {
            let sets = kind(r#"{"key": "integer", "min": 0, "max": "unlimited"}"#);
            prop_assert_eq!(old.with_difference(&old.difference_to(&new, &sets), &sets), new);
            let maps = kind(r#"{"key": "integer", "value": "integer", "min": 0, "max": "unlimited"}"#);
            prop_assert_eq!(a.with_difference(&a.difference_to(&b, &maps), &maps), b);
        }

        #[test]
        fn set_algebra_agrees_with_its_definition(one in set(), other in set()) {
            let (mut union, mut rest) = (one.clone(), one.clone());
            union.unite(&other);
            rest.subtract(&other);
            prop_assert!(union.includes(&one) && union.includes(&other));
            prop_assert!(rest.excludes(&other) && one.includes(&rest));
            prop_assert_eq!(union.len(), rest.len() + other.len());
            let beyond: Vec<Atom> = one.keys_beyond(&other).cloned().collect();
            prop_assert_eq!(beyond.as_slice(), rest.keys());
        }
    }
}
