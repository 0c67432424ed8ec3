//! Changes as records of a log (`ovsdb(5)`, section "Transaction").

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use crate::{
    database::{ChangeSet, Database, Row, RowChange},
    schema::{DatabaseSchema, TableDefinition},
    value::{Datum, RowUuid},
};

/// Returns the record of a change; `None` if only ephemeral columns changed.
pub(super) fn encode_change(
    schema: &DatabaseSchema,
    change: &ChangeSet,
    date: Duration,
    comment: Option<&str>,
) -> Option<Value> {
    let mut tables = Map::new();
    for (index, rows) in &change.tables {
        let Some(table) = schema.tables().get(*index) else { continue };
        let row = |(uuid, change): (&RowUuid, &RowChange)| {
            encode_row(table, change).map(|row| (uuid.to_string(), row))
        };
        let rows: Map<String, Value> = rows.iter().filter_map(row).collect();
        if !rows.is_empty() {
            tables.insert(table.name().to_owned(), rows.into());
        }
    }
    if tables.is_empty() {
        return None;
    }
    tables.insert("_is_diff".to_owned(), true.into());
    Some(with_date(tables, date, comment))
}

/// Returns the record of all rows of a database.
pub(super) fn encode_snapshot(database: &Database, date: Duration) -> Value {
    let mut tables = Map::new();
    for (index, table) in database.schema().tables().iter().enumerate() {
        let row = |row: &Arc<Row>| {
            let change = RowChange { old: None, new: Some(Arc::clone(row)) };
            encode_row(table, &change).map(|json| (row.uuid.to_string(), json))
        };
        let rows: Map<String, Value> = database.rows(index).filter_map(row).collect();
        if !rows.is_empty() {
            tables.insert(table.name().to_owned(), rows.into());
        }
    }
    with_date(tables, date, Some("compacting database online"))
}

/// Applies a record to a database.
///
/// # Errors
///
/// A text about the first part of the record that does not fit the schema.
pub(super) fn apply_record(database: &mut Database, record: &Value) -> Result<(), String> {
    let members = record.as_object().ok_or("the record is not a JSON object")?;
    let has_differences = members.get("_is_diff").and_then(Value::as_bool).unwrap_or(false);
    let schema = Arc::clone(database.schema());
    let (mut set, _) = database.begin();
    for (name, rows) in members.iter().filter(|(name, _)| !name.starts_with('_')) {
        let (index, table) =
            schema.find_table(name).ok_or_else(|| format!("there is no table {name}"))?;
        let rows =
            rows.as_object().ok_or_else(|| format!("table {name} is not a JSON object of rows"))?;
        for (uuid, columns) in rows {
            let uuid = uuid.parse().map_err(|_| format!("\"{uuid}\" is not a UUID"))?;
            let Some(columns) = columns.as_object() else {
                set.delete(index, uuid);
                continue;
            };
            let known = set.row(index, uuid).map(|row| Row::clone(row));
            let differs = known.is_some() && has_differences;
            let mut row = known.unwrap_or_else(|| Row::new(uuid, table));
            for (name, json) in columns {
                let (column, value) = decode_column(table, &row, name, json, differs)?;
                row.set(column, value);
            }
            set.put(index, row);
        }
    }
    let change = set.finish_replay();
    database.apply(&change);
    Ok(())
}

/// Decodes the value of a column, or the difference to its former value.
fn decode_column(
    table: &TableDefinition,
    row: &Row,
    name: &str,
    json: &Value,
    differs: bool,
) -> Result<(usize, Datum), String> {
    let (index, column) = table
        .find_column(name)
        .ok_or_else(|| format!("table {} has no column {name}", table.name()))?;
    let kind = if differs { column.kind().of_differences() } else { column.kind().clone() };
    let value = Datum::from_json(json, &kind, None).map_err(|error| error.to_string())?;
    match row.values().get(index).filter(|_| differs) {
        Some(old) => Ok((index, old.with_difference(&value, column.kind()))),
        None => Ok((index, value)),
    }
}

/// Returns the changed persistent columns, or `None` if none changed.
fn encode_row(table: &TableDefinition, change: &RowChange) -> Option<Value> {
    let Some(new) = &change.new else { return Some(Value::Null) };
    let mut columns = Map::new();
    for (index, column) in table.columns().iter().enumerate() {
        let Some(value) = new.values().get(index).filter(|_| !column.is_ephemeral()) else {
            continue;
        };
        let old = change.old.as_ref().and_then(|old| old.values().get(index));
        let written = match old {
            Some(old) if old == value => continue,
            Some(old) => old.difference_to(value, column.kind()),
            None if *value == Datum::default_of(column.kind()) => continue,
            None => value.clone(),
        };
        columns.insert(column.name().to_owned(), written.to_json(column.kind()));
    }
    (change.old.is_none() || !columns.is_empty()).then(|| columns.into())
}

/// Adds the date and the comment of a transaction to its JSON.
fn with_date(mut tables: Map<String, Value>, date: Duration, comment: Option<&str>) -> Value {
    let milliseconds = u64::try_from(date.as_millis()).unwrap_or(u64::MAX);
    tables.insert("_date".to_owned(), milliseconds.into());
    if let Some(comment) = comment {
        tables.insert("_comment".to_owned(), comment.into());
    }
    tables.into()
}
