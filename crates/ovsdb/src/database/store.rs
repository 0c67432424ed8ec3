//! A database: the rows of its tables, with their reference counts and indexes.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    ChangeSet, DatabaseSnapshot, Row, WorkingSet,
    rows::{Rows, RowsPart},
};
use crate::{
    schema::DatabaseSchema,
    value::{Datum, RowUuid, UuidGenerator},
};

/// A database in memory.
#[derive(Debug)]
pub struct Database {
    state: DatabaseState,
    uuids: UuidGenerator,
}

/// The part of a database that a transaction only reads.
#[derive(Debug)]
pub(super) struct DatabaseState {
    pub(super) schema: Arc<DatabaseSchema>,
    /// The tables, in the order of the schema.
    pub(super) tables: Vec<TableState>,
}

/// The rows of a table, with their references and indexes.
#[derive(Debug, Default)]
pub(super) struct TableState {
    /// The rows, which snapshots share until the next change.
    pub(super) rows: Arc<Rows>,
    /// Number of strong references to rows from other rows; absent if zero.
    pub(super) references: BTreeMap<RowUuid, i64>,
    /// For each index of the table, the row of each combination of values.
    pub(super) indexes: Vec<BTreeMap<Vec<Datum>, RowUuid>>,
}

impl Database {
    /// Creates an empty database; the seed determines the UUIDs of its rows.
    #[must_use]
    pub fn new(schema: DatabaseSchema, seed: [u8; 20]) -> Self {
        let table = |definition: &crate::schema::TableDefinition| TableState {
            indexes: vec![BTreeMap::new(); definition.indexes().len()],
            ..TableState::default()
        };
        let tables = schema.tables().iter().map(table).collect();
        let state = DatabaseState { schema: Arc::new(schema), tables };
        Self { state, uuids: UuidGenerator::new(seed) }
    }

    /// Returns the schema of the database.
    #[must_use]
    pub const fn schema(&self) -> &Arc<DatabaseSchema> {
        &self.state.schema
    }

    /// Starts a transaction, with the generator of UUIDs for its rows.
    pub fn begin(&mut self) -> (WorkingSet<'_>, &mut UuidGenerator) {
        (WorkingSet::new(&self.state), &mut self.uuids)
    }

    /// Returns the row of a table with this UUID.
    #[must_use]
    pub fn row(&self, table: usize, uuid: RowUuid) -> Option<&Arc<Row>> {
        self.state.tables.get(table)?.rows.get(uuid)
    }

    /// Returns the rows of a table, in the order of their UUIDs.
    pub fn rows(&self, table: usize) -> impl Iterator<Item = &Arc<Row>> {
        self.state.tables.get(table).into_iter().flat_map(|table| table.rows.values())
    }

    /// Returns the rows of a table in parts.
    ///
    /// A part with a changed row is another value than before the change.
    pub(crate) fn parts(&self, table: usize) -> &[Arc<RowsPart>] {
        self.state.tables.get(table).map_or(&[], |table| table.rows.parts())
    }

    /// Returns all current rows; the cost depends only on the number of tables.
    #[must_use]
    pub fn snapshot(&self) -> DatabaseSnapshot {
        let tables = self.state.tables.iter().map(|table| Arc::clone(&table.rows)).collect();
        DatabaseSnapshot::new(Arc::clone(&self.state.schema), tables)
    }

    /// Applies the checked result of a transaction.
    pub fn apply(&mut self, change: &ChangeSet) {
        for (index, changes) in &change.tables {
            let Some(table) = self.state.tables.get_mut(*index) else { continue };
            let definition = self.state.schema.tables().get(*index);
            let indexes = definition.map(|table| table.indexes()).unwrap_or_default();
            // All old keys are removed from the indexes first, because two rows may exchange their
            // keys.
            for old in changes.values().filter_map(|change| change.old.as_deref()) {
                for (columns, entries) in indexes.iter().zip(&mut table.indexes) {
                    entries.remove(&index_key(columns, old));
                }
            }
            let rows = Arc::make_mut(&mut table.rows);
            for (uuid, change) in changes {
                rows.set(*uuid, change.new.clone());
            }
            for new in changes.values().filter_map(|change| change.new.as_deref()) {
                for (columns, entries) in indexes.iter().zip(&mut table.indexes) {
                    entries.insert(index_key(columns, new), new.uuid);
                }
            }
        }
        for ((table, uuid), delta) in &change.references {
            let Some(table) = self.state.tables.get_mut(*table) else { continue };
            let count = table.references.entry(*uuid).or_default();
            *count = count.saturating_add(*delta);
            if *count == 0 {
                table.references.remove(uuid);
            }
        }
    }
}

/// Returns the values of a row in the columns of an index.
pub(super) fn index_key(columns: &[usize], row: &Row) -> Vec<Datum> {
    columns.iter().filter_map(|column| row.values.get(*column).cloned()).collect()
}
