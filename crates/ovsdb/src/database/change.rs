//! The checked result of a transaction.

use std::{collections::BTreeMap, sync::Arc};

use super::Row;
use crate::value::RowUuid;

/// A row before and after a transaction.
#[derive(Clone, Debug)]
pub struct RowChange {
    /// The row before the transaction, or `None` for an inserted row.
    pub old: Option<Arc<Row>>,
    /// The row after the transaction, or `None` for a deleted row.
    pub new: Option<Arc<Row>>,
}

/// Changed rows, for each table of a schema.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// The changed rows, by the position of their table in the schema.
    pub(crate) tables: BTreeMap<usize, BTreeMap<RowUuid, RowChange>>,
    /// Changes of the number of strong references, by referenced table and row.
    pub(super) references: BTreeMap<(usize, RowUuid), i64>,
}

impl ChangeSet {
    /// Returns whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(BTreeMap::is_empty)
    }

    /// Returns the changed rows with the position of their table.
    pub fn rows(&self) -> impl Iterator<Item = (usize, RowUuid, &RowChange)> {
        self.tables.iter().flat_map(|(table, rows)| {
            rows.iter().map(move |(uuid, change)| (*table, *uuid, change))
        })
    }

    /// Merges a later change into this change set.
    pub(crate) fn append(&mut self, later: &Self) {
        for (table, uuid, change) in later.rows() {
            let rows = self.tables.entry(table).or_default();
            let old = rows.get(&uuid).map_or_else(|| change.old.clone(), |first| first.old.clone());
            if old.is_none() && change.new.is_none() {
                rows.remove(&uuid);
            } else {
                rows.insert(uuid, RowChange { old, new: change.new.clone() });
            }
        }
    }
}
