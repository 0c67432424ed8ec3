//! A copy of rows of a foreign database, which updates of its server keep equal.
//!
//! Values are parsed with all constraints of the server's schema, so that a program that reads rows needs
//! no further checks. An update is applied as a whole or not at all.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::FollowedTable;
use crate::{
    database::{Database, DatabaseSnapshot, Row, RowChange},
    schema::{ColumnType, DatabaseSchema, TableDefinition},
    value::{Datum, RowUuid},
};

/// The followed rows and columns of a foreign database.
#[derive(Debug)]
pub struct Replica {
    database: Database,
    /// For each table of the schema, whether a change of each column is notified.
    is_read: Vec<Vec<bool>>,
}

/// The format of an update from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateFormat {
    /// Old and new values (`update`, RFC 7047, section 4.1.6).
    Values,
    /// Differences (`update2` and `update3`, `ovsdb-server(7)`).
    Differences,
}

impl Replica {
    /// Creates a replica without rows, from the schema of the server.
    ///
    /// The schema of the replica has only the followed columns.
    #[must_use]
    pub fn new(mut schema: DatabaseSchema, tables: &[FollowedTable]) -> Self {
        let find = |name: &str| tables.iter().find(|table| table.name == name);
        schema.retain_columns(|table, column| find(table).is_some_and(|table| table.has(column)));
        let is_read = |table: &TableDefinition| {
            let read = find(table.name()).map(|table| table.read).unwrap_or_default();
            table.columns().iter().map(|column| read.contains(&column.name())).collect()
        };
        let is_read = schema.tables().iter().map(is_read).collect();
        // The server chooses the UUIDs of rows, so the seed of the generator is not used.
        Self { database: Database::new(schema, [0; 20]), is_read }
    }

    /// Returns the schema with the followed columns.
    #[must_use]
    pub const fn schema(&self) -> &Arc<DatabaseSchema> {
        self.database.schema()
    }

    /// Returns all current rows; the cost depends only on the number of tables.
    #[must_use]
    pub fn snapshot(&self) -> DatabaseSnapshot {
        self.database.snapshot()
    }

    /// Applies a `<table-updates>` or a `<table-updates2>`.
    ///
    /// Returns whether the program must be notified: a row was inserted or deleted, or a column
    /// changed that the program reads. The cost depends on the changed rows, and on the parts of
    /// tables that a snapshot shares.
    ///
    /// # Errors
    ///
    /// A text about the first error in the update. If an update is wrong, no row has changed.
    pub fn apply(&mut self, updates: &Value, format: UpdateFormat) -> Result<bool, String> {
        let tables = updates.as_object().ok_or("the update is not a JSON object")?;
        let schema = Arc::clone(self.database.schema());
        let (mut set, _) = self.database.begin();
        for (name, rows) in tables {
            let table = schema.find_table(name);
            let (index, table) = table.ok_or_else(|| format!("table {name} was not requested"))?;
            let rows = rows
                .as_object()
                .ok_or_else(|| format!("table {name} is not a JSON object of rows"))?;
            for (uuid, json) in rows {
                let uuid: RowUuid =
                    uuid.parse().map_err(|_| format!("table {name}: \"{uuid}\" is not a UUID"))?;
                let known = set.row(index, uuid).map(Arc::as_ref);
                let row = match format {
                    UpdateFormat::Values => with_values(known, uuid, table, json),
                    UpdateFormat::Differences => with_differences(known, uuid, table, json),
                };
                match row.map_err(|reason| format!("table {name} row {uuid}: {reason}"))? {
                    Some(row) => set.put(index, row),
                    None => set.delete(index, uuid),
                }
            }
        }
        let change = set.finish_replay();
        let is_notified = change.rows().any(|(table, _, row)| self.is_notified(table, row));
        self.database.apply(&change);
        Ok(is_notified)
    }

    /// Returns whether the program must be notified of the change of a row.
    fn is_notified(&self, table: usize, change: &RowChange) -> bool {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
        let is_read = self.is_read.get(table).map(Vec::as_slice).unwrap_or_default();
        let columns = old.values().iter().zip(new.values()).zip(is_read);
        columns.into_iter().any(|((old, new), is_read)| *is_read && old != new)
    }
}

/// Returns the row after a `<row-update>`, or `None` if it is deleted.
fn with_values(
    known: Option<&Row>,
    uuid: RowUuid,
    table: &TableDefinition,
    json: &Value,
) -> Result<Option<Row>, String> {
    let members = json.as_object().ok_or("the update of the row is not a JSON object")?;
    match members.get("new") {
        None if members.contains_key("old") => Ok(None),
        None => Err("the update of the row has neither old nor new".to_owned()),
        Some(new) => {
            let row = known.cloned().unwrap_or_else(|| Row::new(uuid, table));
            with_columns(row, table, new).map(Some)
        }
    }
}

/// Returns the row after a `<row-update2>`, or `None` if it is deleted.
fn with_differences(
    known: Option<&Row>,
    uuid: RowUuid,
    table: &TableDefinition,
    json: &Value,
) -> Result<Option<Row>, String> {
    let members = json.as_object().filter(|members| members.len() == 1);
    let member = members.and_then(|members| members.iter().next());
    let (kind, columns) = member.ok_or("the update of the row must have one member")?;
    match kind.as_str() {
        "initial" | "insert" => with_columns(Row::new(uuid, table), table, columns).map(Some),
        "delete" => Ok(None),
        "modify" => {
            let mut row = known.ok_or("the server changes the row, but has never sent it")?.clone();
            for (name, json) in columns_of(columns)? {
                let (index, column) = find_column(table, name)?;
                let difference = value_of(name, json, &column.of_differences())?;
                let old = row.values().get(index).cloned().unwrap_or_default();
                let new = old.with_difference(&difference, column);
                new.check(column).map_err(|error| format!("column {name}: {error}"))?;
                row.set(index, new);
            }
            Ok(Some(row))
        }
        other => Err(format!("the update of the row has the unknown kind {other}")),
    }
}

/// Sets the columns of a `<row>`.
fn with_columns(mut row: Row, table: &TableDefinition, columns: &Value) -> Result<Row, String> {
    for (name, json) in columns_of(columns)? {
        let (index, kind) = find_column(table, name)?;
        row.set(index, value_of(name, json, kind)?);
    }
    Ok(row)
}

/// Returns the columns of a row in an update, by name.
fn columns_of(json: &Value) -> Result<&Map<String, Value>, String> {
    json.as_object().ok_or_else(|| "the columns of the row are not a JSON object".to_owned())
}

/// Returns the position and the type of a column.
fn find_column<'a>(
    table: &'a TableDefinition,
    name: &str,
) -> Result<(usize, &'a ColumnType), String> {
    let column = table.find_column(name).map(|(index, column)| (index, column.kind()));
    column.ok_or_else(|| format!("column {name} was not requested"))
}

/// Decodes the value of a column of the type `kind`.
fn value_of(name: &str, json: &Value, kind: &ColumnType) -> Result<Datum, String> {
    Datum::from_json(json, kind, None).map_err(|error| format!("column {name}: {error}"))
}
