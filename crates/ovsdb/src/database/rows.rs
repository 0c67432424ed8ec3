//! The rows of a table in parts, of which snapshots share those that do not change.
//!
//! The owner of a server keeps a snapshot while clients change rows. Each change then copies what
//! it changes: one part of a table, and not the whole table. The parts are ranges of UUIDs. UUIDs
//! are random, so the parts have about the same size. A client that chooses the UUIDs of its rows
//! can put all of them into one part, which costs as much as a table without parts.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use super::Row;
use crate::value::RowUuid;

/// Rows of a table in the order of their UUIDs.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// The parts in the order of their UUIDs.
    parts: Vec<Arc<RowsPart>>,
}

/// Rows with the same first bits of the UUID.
pub(crate) type RowsPart = BTreeMap<RowUuid, Arc<Row>>;

/// Number of first bits of a UUID that select the part of a table.
const PART_BITS: u32 = 6;

impl Default for Rows {
    fn default() -> Self {
        // All parts are the same empty part until they change.
        Self { parts: vec![Arc::default(); 1 << PART_BITS] }
    }
}

impl Rows {
    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Returns the row with a UUID.
    pub(super) fn get(&self, uuid: RowUuid) -> Option<&Arc<Row>> {
        self.parts.get(part_of(uuid))?.get(&uuid)
    }

    /// Returns the parts, in the order of their UUIDs.
    pub(super) fn parts(&self) -> &[Arc<RowsPart>] {
        &self.parts
    }

    /// Returns all rows with their UUIDs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RowUuid, &Arc<Row>)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// Returns all rows of the table.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<Row>> {
        self.parts.iter().flat_map(|part| part.values())
    }

    /// Inserts a row, or replaces the row of the same UUID; `None` removes it.
    pub(super) fn set(&mut self, uuid: RowUuid, row: Option<Arc<Row>>) {
        let Some(part) = self.parts.get_mut(part_of(uuid)) else { return };
        let part = Arc::make_mut(part);
        match row {
            Some(row) => drop(part.insert(uuid, row)),
            None => drop(part.remove(&uuid)),
        }
    }

    /// Returns the UUIDs of rows that were inserted, removed or replaced.
    ///
    /// Parts and rows are compared by identity.
    pub(super) fn changed_from(&self, earlier: &Self) -> Vec<RowUuid> {
        let mut changed = Vec::new();
        for (old, new) in earlier.parts.iter().zip(&self.parts) {
            if !Arc::ptr_eq(old, new) {
                add_changed(old, new, &mut changed);
            }
        }
        changed
    }
}

/// Returns the position of the part for a UUID.
fn part_of(uuid: RowUuid) -> usize {
    usize::try_from(uuid.bits() >> (u128::BITS - PART_BITS)).unwrap_or_default()
}

/// Adds the keys of rows that were inserted, removed or replaced.
fn add_changed(old: &RowsPart, new: &RowsPart, changed: &mut Vec<RowUuid>) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((two, _))) => one.cmp(two),
        };
        let before = if order == Ordering::Greater { None } else { old.next() };
        let after = if order == Ordering::Less { None } else { new.next() };
        let is_same = match (before, after) {
            (Some((_, before)), Some((_, after))) => Arc::ptr_eq(before, after),
            _ => false,
        };
        if !is_same {
            changed.extend(before.or(after).map(|(uuid, _)| *uuid));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Returns a UUID of one of all parts.
    fn uuid(number: u8) -> RowUuid {
        RowUuid::from_bits(u128::from(number) << 120)
    }

    /// Returns a row with a number.
    fn row(number: u8) -> Arc<Row> {
        Arc::new(Row { uuid: uuid(number), version: RowUuid::NIL, values: Vec::new() })
    }

    proptest! {
        /// Rows in parts equal rows in one map, and a snapshot keeps the rows that it has.
        #[test]
        fn parts_equal_one_map(
            changes in prop::collection::vec((any::<u8>(), any::<bool>(), 0..4_u8), 1..60),
        ) {
            let (mut rows, mut model) = (Rows::default(), BTreeMap::new());
            let mut snapshot = (rows.clone(), model.clone());
            for (number, is_put, then) in changes {
                let new = is_put.then(|| row(number));
                rows.set(uuid(number), new.clone());
                match new {
                    Some(row) => drop(model.insert(uuid(number), row)),
                    None => drop(model.remove(&uuid(number))),
                }
                prop_assert!(rows.iter().eq(model.iter()));
                prop_assert!(rows.values().eq(model.values()));
                prop_assert_eq!(rows.len(), model.len());
                prop_assert_eq!(rows.get(uuid(number)), model.get(&uuid(number)));
                prop_assert!(snapshot.0.iter().eq(snapshot.1.iter()));
                let keys: BTreeSet<_> = model.keys().chain(snapshot.1.keys()).copied().collect();
                let place = |map: &RowsPart, key: &RowUuid| map.get(key).map(Arc::as_ptr);
                let is_changed = |key: &RowUuid| place(&model, key) != place(&snapshot.1, key);
                let changed: Vec<_> = keys.into_iter().filter(is_changed).collect();
                prop_assert_eq!(rows.changed_from(&snapshot.0), changed);
                if then == 0 {
                    snapshot = (rows.clone(), model.clone());
                }
            }
        }
    }

    /// One changed row of many copies and compares one part of the table.
    #[test]
    fn a_change_copies_one_part() {
        let mut rows = Rows::default();
        (0..=255).for_each(|number| rows.set(uuid(number), Some(row(number))));
        let snapshot = rows.clone();
        rows.set(uuid(9), Some(row(9)));
        let parts = rows.parts.iter().zip(&snapshot.parts);
        assert_eq!(parts.filter(|(one, other)| !Arc::ptr_eq(one, other)).count(), 1);
        assert_eq!(rows.changed_from(&snapshot), [uuid(9)]);
    }
}
