//! Updates of one row in the forms of the three generations.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::monitored_table::{ChangeKind, MonitorVersion, MonitoredColumn, MonitoredTable};
use crate::{
    database::{ColumnId, Row, RowChange},
    json_object::json_object,
    schema::TableDefinition,
};

/// Returns the update of a row, or `None` if no monitored column changed.
pub(super) fn row_update(
    version: MonitorVersion,
    monitored: &MonitoredTable,
    table: &TableDefinition,
    change: &RowChange,
    kind: ChangeKind,
) -> Option<Value> {
    let is_wanted = |column: &MonitoredColumn| column.kinds.has(kind);
    let wanted = monitored.columns.iter().filter(|column| is_wanted(column));
    let columns: Vec<ColumnId> = wanted.map(|column| column.column).collect();
    if columns.is_empty() && !monitored.columns.is_empty() {
        return None;
    }
    let old = change.old.as_deref();
    let new = change.new.as_deref();
    let changed = |columns: &[ColumnId]| -> Vec<ColumnId> {
        let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
        columns.iter().copied().filter(|column| old.value(*column) != new.value(*column)).collect()
    };
    if kind == ChangeKind::Modify && changed(&columns).is_empty() {
        return None;
    }
    Some(match version {
        MonitorVersion::One => {
            let mut members = Map::new();
            let mut put =
                |name: &str, row: Map<String, Value>| members.insert(name.to_owned(), row.into());
            match (kind, old, new) {
                (ChangeKind::Modify, Some(old), Some(new)) => {
                    put("old", row_of(old, table, &changed(&columns)));
                    put("new", row_of(new, table, &columns));
                }
                (ChangeKind::Delete, Some(old), _) => {
                    put("old", row_of(old, table, &columns));
                }
                (_, _, Some(new)) => {
                    put("new", row_of(new, table, &columns));
                }
                _ => return None,
            }
            members.into()
        }
        MonitorVersion::Two | MonitorVersion::Three => match (kind, old, new) {
            (ChangeKind::Delete, ..) => json_object([("delete", Value::Null)]),
            (ChangeKind::Initial, _, Some(new)) => {
                json_object([("initial", non_default(new, table, &columns).into())])
            }
            (ChangeKind::Insert, _, Some(new)) => {
                json_object([("insert", non_default(new, table, &columns).into())])
            }
            (ChangeKind::Modify, Some(old), Some(new)) => {
                json_object([("modify", differences(old, new, table, &changed(&columns)).into())])
            }
            _ => return None,
        },
    })
}

/// Adds a row to the text of the initial reply, such as `"UUID":{"initial":{}}`.
///
/// [`row_update`] gives the same text, but a bridge may have thousands of ports, and no JSON value
/// is built for each.
pub(super) fn write_initial_row(
    text: &mut String,
    version: MonitorVersion,
    row: &Row,
    table: &TableDefinition,
    columns: &[ColumnId],
) {
    let (word, has_defaults) = match version {
        MonitorVersion::One => ("new", true),
        MonitorVersion::Two | MonitorVersion::Three => ("initial", false),
    };
    // Writing to a string cannot fail.
    let _ = write!(text, "\"{}\":{{\"{word}\":{{", row.uuid);
    let mut quote = "\"";
    for column in columns {
        let (value, kind) = (row.value(*column), column.kind(table));
        if has_defaults || !value.is_default(&kind) {
            // Names of columns are identifiers, which JSON does not escape.
            [quote, column.name(table), "\":"].into_iter().for_each(|part| text.push_str(part));
            value.write_json(&kind, text);
            quote = ",\"";
        }
    }
    text.push_str("}}");
}

/// Returns the JSON members of these columns of a row.
fn row_of(row: &Row, table: &TableDefinition, columns: &[ColumnId]) -> Map<String, Value> {
    let member = |column: &ColumnId| {
        (column.name(table).to_owned(), row.value(*column).to_json(&column.kind(table)))
    };
    columns.iter().map(member).collect()
}

/// Returns a row without the columns that have their default values.
fn non_default(row: &Row, table: &TableDefinition, columns: &[ColumnId]) -> Map<String, Value> {
    let is_default = |column: &&ColumnId| row.value(**column).is_default(&column.kind(table));
    let columns: Vec<ColumnId> =
        columns.iter().filter(|column| !is_default(column)).copied().collect();
    row_of(row, table, &columns)
}

/// Returns the columns with their differences between two rows.
fn differences(
    old: &Row,
    new: &Row,
    table: &TableDefinition,
    columns: &[ColumnId],
) -> Map<String, Value> {
    let member = |column: &ColumnId| {
        let kind = column.kind(table);
        let difference = old.value(*column).difference_to(&new.value(*column), &kind);
        (column.name(table).to_owned(), difference.to_json(&kind))
    };
    columns.iter().map(member).collect()
}
