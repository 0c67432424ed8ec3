//! Parsing of members that operations and monitors share.

use serde_json::Value;

use crate::{database::ColumnId, error::TransactionError, schema::TableDefinition};

/// Parses a list of distinct columns.
pub(crate) fn column_list(
    json: &Value,
    table: &TableDefinition,
) -> Result<Vec<ColumnId>, TransactionError> {
    let wrong = || TransactionError::syntax("array of distinct column names expected", json);
    let names = json.as_array().ok_or_else(wrong)?;
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let name = name.as_str().ok_or_else(wrong)?;
        let column = ColumnId::find(table, name).ok_or_else(|| {
            TransactionError::syntax(format!("{name} is not a valid column name"), json)
        })?;
        if columns.contains(&column) {
            return Err(wrong());
        }
        columns.push(column);
    }
    Ok(columns)
}
