//! Rows as JSON objects (`<row>` of RFC 7047, section 5.1).

use serde_json::{Map, Value};

use super::condition::unknown_column;
use crate::{
    database::{ColumnId, Row},
    error::TransactionError,
    schema::TableDefinition,
    value::{Datum, SymbolTable},
};

/// Parses the columns of a `<row>`.
pub(super) fn columns_of(
    object: &Map<String, Value>,
    table: &TableDefinition,
    symbols: &mut SymbolTable<'_>,
) -> Result<Vec<(ColumnId, Datum)>, TransactionError> {
    let mut columns = Vec::with_capacity(object.len());
    for (name, value) in object {
        let column = ColumnId::find(table, name)
            .ok_or_else(|| unknown_column(name, table, &Value::Object(object.clone())))?;
        let value = Datum::from_json(value, &column.kind(table), Some(symbols))?;
        columns.push((column, value));
    }
    Ok(columns)
}

/// Returns the given columns of a row as a `<row>` (RFC 7047, 5.1).
pub(super) fn row_to_json(
    row: &Row,
    table: &TableDefinition,
    columns: impl IntoIterator<Item = ColumnId>,
) -> Map<String, Value> {
    let member = |column: ColumnId| {
        let value = row.value(column).to_json(&column.kind(table));
        (column.name(table).to_owned(), value)
    };
    columns.into_iter().map(member).collect()
}
