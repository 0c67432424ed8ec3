//! Transactions of the owner, without JSON.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    database::{ChangeSet, Database, Row},
    error::{ErrorTag, TransactionError},
    value::{Datum, RowUuid, UuidGenerator},
};

/// A transaction of the owner.
///
/// It obeys the same rules as those of clients, apart from `mutable`.
#[derive(Debug)]
pub struct OwnerTransaction {
    uuids: Arc<Mutex<UuidGenerator>>,
    comment: String,
    operations: Vec<OwnerOperation>,
}

#[derive(Debug)]
struct OwnerOperation {
    table: String,
    uuid: RowUuid,
    effect: OwnerEffect,
}

#[derive(Debug)]
enum OwnerEffect {
    Insert(OwnedColumns),
    Update(OwnedColumns),
    InsertMembers(OwnedColumns),
    DeleteMembers(OwnedColumns),
    Delete,
}

type OwnedColumns = Vec<(String, Datum)>;

impl OwnerTransaction {
    pub(super) fn new(comment: &str, uuids: Arc<Mutex<UuidGenerator>>) -> Self {
        Self { uuids, comment: comment.to_owned(), operations: Vec::new() }
    }

    /// Inserts a row, and returns its UUID. Later operations may refer to it.
    pub fn insert<'a>(
        &mut self,
        table: &str,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) -> RowUuid {
        let uuid = self.uuids.lock().unwrap_or_else(PoisonError::into_inner).generate();
        self.push(table, uuid, OwnerEffect::Insert(owned(columns)));
        uuid
    }

    /// Sets columns of a row. Nothing happens if a client has deleted the row.
    pub fn update<'a>(
        &mut self,
        table: &str,
        uuid: RowUuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) {
        self.push(table, uuid, OwnerEffect::Update(owned(columns)));
    }

    /// Adds members to sets and maps of a row. A key that exists keeps its value.
    pub fn insert_members<'a>(
        &mut self,
        table: &str,
        uuid: RowUuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) {
        self.push(table, uuid, OwnerEffect::InsertMembers(owned(columns)));
    }

    /// Removes members of sets and maps of a row.
    pub fn delete_members<'a>(
        &mut self,
        table: &str,
        uuid: RowUuid,
        columns: impl IntoIterator<Item = (&'a str, Datum)>,
    ) {
        self.push(table, uuid, OwnerEffect::DeleteMembers(owned(columns)));
    }

    /// Deletes a row. Nothing happens if a client has deleted the row.
    pub fn delete(&mut self, table: &str, uuid: RowUuid) {
        self.push(table, uuid, OwnerEffect::Delete);
    }

    /// Returns whether the transaction has no operation.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the comment for the log.
    pub(super) fn comment(&self) -> &str {
        &self.comment
    }

    fn push(&mut self, table: &str, uuid: RowUuid, effect: OwnerEffect) {
        self.operations.push(OwnerOperation { table: table.to_owned(), uuid, effect });
    }

    /// Computes the change of the transaction.
    pub(super) fn execute(&self, database: &mut Database) -> Result<ChangeSet, TransactionError> {
        let (mut set, uuids) = database.begin();
        for operation in &self.operations {
            let OwnerOperation { table: name, uuid, effect } = operation;
            let (index, table) = set.schema().find_table(name).ok_or_else(|| {
                TransactionError::new(ErrorTag::Syntax, format!("No table named {name}."))
            })?;
            let current = set.row(index, *uuid).map(|row| Row::clone(row));
            let (columns, mut row) = match (effect, current) {
                (OwnerEffect::Insert(columns), _) => (columns, Row::new(*uuid, table)),
                (OwnerEffect::Delete, _) => {
                    set.delete(index, *uuid);
                    continue;
                }
                (_, None) => continue,
                (
                    OwnerEffect::Update(columns)
                    | OwnerEffect::InsertMembers(columns)
                    | OwnerEffect::DeleteMembers(columns),
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
                    OwnerEffect::InsertMembers(_) => value.unite(datum),
                    OwnerEffect::DeleteMembers(_) => value.subtract(datum),
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

fn owned<'a>(columns: impl IntoIterator<Item = (&'a str, Datum)>) -> OwnedColumns {
    columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
