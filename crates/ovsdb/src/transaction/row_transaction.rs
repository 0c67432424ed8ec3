//! Transactions of a program, without JSON.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    database::{ChangeSet, Database, Row},
    error::{ErrorTag, TransactionError},
    value::{Datum, RowUuid, UuidGenerator},
};

/// A transaction that a program builds from rows and values.
///
/// The owner of a server executes it in its own process, and a client sends it to a server. The
/// transaction must keep the constraints of the schema. Only the owner of a server may change
/// columns that are not `mutable`.
#[derive(Debug)]
pub struct RowTransaction {
    uuids: Arc<Mutex<UuidGenerator>>,
    /// The comment for the log.
    comment: String,
    operations: Vec<RowOperation>,
}

/// The change of one row.
#[derive(Debug)]
pub(crate) struct RowOperation {
    pub(crate) table: String,
    /// The UUID of the row.
    pub(crate) uuid: RowUuid,
    pub(crate) effect: RowEffect,
}

/// The kind of the change of a row, with its columns.
#[derive(Debug)]
pub(crate) enum RowEffect {
    Insert(OwnedColumns),
    Update(OwnedColumns),
    InsertMembers(OwnedColumns),
    DeleteMembers(OwnedColumns),
    Delete,
}

/// Columns by name, with their values.
pub(crate) type OwnedColumns = Vec<(String, Datum)>;

impl RowTransaction {
    /// Returns a transaction without changes. The log gets `comment`.
    pub(crate) fn new(comment: &str, uuids: Arc<Mutex<UuidGenerator>>) -> Self {
        Self { uuids, comment: comment.to_owned(), operations: Vec::new() }
    }

    /// Inserts a row, and returns its UUID. Later operations may refer to the row.
    ///
    /// A foreign server chooses another UUID, so the returned UUID is valid in this transaction
    /// only.
    pub fn insert<'a>(
        &mut self,
        table: &str,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) -> RowUuid {
        let uuid = self.uuids.lock().unwrap_or_else(PoisonError::into_inner).generate();
        self.push(table, uuid, RowEffect::Insert(owned_columns(columns)));
        uuid
    }

    /// Sets columns of a row; has no effect on a deleted row.
    pub fn update<'a>(
        &mut self,
        table: &str,
        uuid: RowUuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) {
        self.push(table, uuid, RowEffect::Update(owned_columns(columns)));
    }

    /// Adds members to sets and maps of a row. A key that exists keeps its value.
    pub fn insert_members<'a>(
        &mut self,
        table: &str,
        uuid: RowUuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) {
        self.push(table, uuid, RowEffect::InsertMembers(owned_columns(columns)));
    }

    /// Removes members of sets and maps of a row.
    pub fn delete_members<'a>(
        &mut self,
        table: &str,
        uuid: RowUuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) {
        self.push(table, uuid, RowEffect::DeleteMembers(owned_columns(columns)));
    }

    /// Deletes a row; has no effect if the row is already deleted.
    pub fn delete(&mut self, table: &str, uuid: RowUuid) {
        self.push(table, uuid, RowEffect::Delete);
    }

    /// Returns whether the transaction has no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the comment for the log.
    pub(crate) fn comment(&self) -> &str {
        &self.comment
    }

    /// Returns the changes of rows, in the order of execution.
    pub(crate) fn operations(&self) -> &[RowOperation] {
        &self.operations
    }

    /// Appends an operation on a row.
    fn push(&mut self, table: &str, uuid: RowUuid, effect: RowEffect) {
        self.operations.push(RowOperation { table: table.to_owned(), uuid, effect });
    }

    /// Computes the change of the transaction.
    pub(crate) fn execute(&self, database: &mut Database) -> Result<ChangeSet, TransactionError> {
        let (mut set, uuids) = database.begin();
        for operation in &self.operations {
            let RowOperation { table: name, uuid, effect } = operation;
            let (index, table) = set.schema().find_table(name).ok_or_else(|| {
                TransactionError::new(ErrorTag::Syntax, format!("No table named {name}."))
            })?;
            let current = set.row(index, *uuid).map(|row| Row::clone(row));
            let (columns, mut row) = match (effect, current) {
                (RowEffect::Insert(columns), _) => (columns, Row::new(*uuid, table)),
                (RowEffect::Delete, _) => {
                    set.delete(index, *uuid);
                    continue;
                }
                (_, None) => continue,
                (
                    RowEffect::Update(columns)
                    | RowEffect::InsertMembers(columns)
                    | RowEffect::DeleteMembers(columns),
                    Some(row),
                ) => (columns, row),
            };
            for (name, datum) in columns {
                let (column, definition) = table.find_column(name).ok_or_else(|| {
                    let details = format!("No column {name} in table {}.", table.name());
                    TransactionError::new(ErrorTag::UnknownColumn, details)
                })?;
                let mut value = row.values().get(column).cloned().unwrap_or_default();
                match effect {
                    RowEffect::InsertMembers(_) => value.unite(datum),
                    RowEffect::DeleteMembers(_) => value.subtract(datum),
                    _ => value = datum.clone(),
                }
                value.check(definition.kind())?;
                row.set(column, value);
            }
            set.put(index, row);
        }
        set.finish(&mut || uuids.generate())
    }
}

/// Copies the names of columns with their values.
fn owned_columns<'a>(columns: impl IntoIterator<Item = (&'a str, Datum)>) -> OwnedColumns {
    columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
