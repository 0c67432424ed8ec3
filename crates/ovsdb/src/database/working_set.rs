//! The rows during a transaction: the database, with the changes of the transaction so far.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{ChangeSet, Row, RowChange, integrity, store::DatabaseState};
use crate::{
    error::TransactionError,
    schema::{DatabaseSchema, TableDefinition},
    value::RowUuid,
};

/// The changes of an unfinished transaction over an unchanged database.
#[derive(Debug)]
pub struct WorkingSet<'a> {
    pub(super) state: &'a DatabaseState,
    pub(super) change: ChangeSet,
}

impl<'a> WorkingSet<'a> {
    /// Returns a working set without changes.
    pub(super) fn new(state: &'a DatabaseState) -> Self {
        Self { state, change: ChangeSet::default() }
    }

    /// Returns the schema of the database.
    #[must_use]
    pub fn schema(&self) -> &'a DatabaseSchema {
        &self.state.schema
    }

    /// Returns the definition of a table.
    #[must_use]
    pub fn definition(&self, table: usize) -> Option<&'a TableDefinition> {
        self.state.schema.tables().get(table)
    }

    /// Returns a row with the changes of the transaction.
    #[must_use]
    pub fn row(&self, table: usize, uuid: RowUuid) -> Option<&Arc<Row>> {
        match self.change.tables.get(&table).and_then(|rows| rows.get(&uuid)) {
            Some(change) => change.new.as_ref(),
            None => self.state.tables.get(table)?.rows.get(uuid),
        }
    }

    /// Returns all rows of a table with the changes of the transaction.
    #[must_use]
    pub fn rows(&self, table: usize) -> Vec<Arc<Row>> {
        let changed = self.change.tables.get(&table);
        let is_unchanged = |uuid| changed.is_none_or(|changed| !changed.contains_key(uuid));
        let base = self.state.tables.get(table).into_iter().flat_map(|table| table.rows.iter());
        let unchanged = base.filter(|(uuid, _)| is_unchanged(uuid)).map(|(_, row)| row);
        let new = changed.into_iter().flatten().filter_map(|(_, change)| change.new.as_ref());
        unchanged.chain(new).cloned().collect()
    }

    /// Returns whether a UUID names a row, or named one when the transaction started.
    #[must_use]
    pub fn is_taken(&self, table: usize, uuid: RowUuid) -> bool {
        let is_changed =
            self.change.tables.get(&table).is_some_and(|rows| rows.contains_key(&uuid));
        is_changed || self.row(table, uuid).is_some()
    }

    /// Inserts a row, or replaces the row of the same UUID.
    pub fn put(&mut self, table: usize, row: Row) {
        let uuid = row.uuid;
        let new = Some(Arc::new(row));
        self.set(table, uuid, new);
    }

    /// Deletes a row of a table.
    pub fn delete(&mut self, table: usize, uuid: RowUuid) {
        self.set(table, uuid, None);
    }

    /// Replaces a row; `None` deletes it.
    pub(super) fn set(&mut self, table: usize, uuid: RowUuid, new: Option<Arc<Row>>) {
        match self.change.tables.entry(table).or_default().entry(uuid) {
            Entry::Occupied(mut entry) => entry.get_mut().new = new,
            Entry::Vacant(entry) => {
                let state = self.state.tables.get(table);
                let old = state.and_then(|table| table.rows.get(uuid)).cloned();
                entry.insert(RowChange { old, new });
            }
        }
    }

    /// Checks the whole transaction, and completes it.
    ///
    /// Unreferenced rows and dangling weak references are removed.
    ///
    /// # Errors
    ///
    /// If a reference, the number of rows or an index would break the schema.
    pub fn finish(
        mut self,
        fresh: &mut dyn FnMut() -> RowUuid,
    ) -> Result<ChangeSet, TransactionError> {
        self.drop_unchanged();
        if self.change.is_empty() {
            return Ok(ChangeSet::default());
        }
        integrity::count_references(&mut self)?;
        integrity::collect_garbage(&mut self);
        integrity::check_row_limits(&self)?;
        integrity::prune_weak_references(&mut self)?;
        self.drop_unchanged();
        integrity::check_indexes(&self)?;
        for rows in self.change.tables.values_mut() {
            for row in rows.values_mut().filter_map(|change| change.new.as_mut()) {
                Arc::make_mut(row).version = fresh();
            }
        }
        Ok(self.change)
    }

    /// Returns the changed rows so far, without checks.
    ///
    /// Reading a log uses this function, because a log holds checked results.
    #[must_use]
    pub fn finish_replay(mut self) -> ChangeSet {
        self.drop_unchanged();
        integrity::count_references_unchecked(&mut self);
        self.change
    }

    /// Removes the rows that the transaction leaves as they were.
    fn drop_unchanged(&mut self) {
        let is_real = |change: &RowChange| match (&change.old, &change.new) {
            (None, None) => false,
            (Some(old), Some(new)) => old.values != new.values,
            _ => true,
        };
        for rows in self.change.tables.values_mut() {
            rows.retain(|_, change| is_real(change));
        }
        self.change.tables.retain(|_, rows: &mut BTreeMap<_, _>| !rows.is_empty());
    }
}
