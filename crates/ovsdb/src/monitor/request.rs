//! Parsing of `<monitor-requests>` (RFC 7047, section 4.1.5, and `ovsdb-server(7)`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::monitored_table::{ChangeKinds, MonitorVersion, MonitoredColumn, MonitoredTable};
use crate::{
    database::ColumnId,
    error::{ErrorTag, TransactionError},
    schema::{DatabaseSchema, Members, TableDefinition},
    transaction::Condition,
};

/// Parses the monitored tables.
pub(super) fn tables(
    json: &Value,
    schema: &DatabaseSchema,
    version: MonitorVersion,
) -> Result<BTreeMap<usize, MonitoredTable>, TransactionError> {
    let object = json.as_object().ok_or_else(|| not_an_object(json))?;
    let mut tables = BTreeMap::new();
    for (name, requests) in object {
        let (index, table) = schema.find_table(name).ok_or_else(|| no_table(name))?;
        let mut monitored = MonitoredTable { columns: Vec::new(), condition: Condition::default() };
        let requests = list_of(requests);
        let mut conditions = Vec::new();
        for request in requests {
            let clauses = add_request(&mut monitored.columns, request, table, version)?;
            conditions.extend_from_slice(clauses);
        }
        monitored.condition = Condition::from_json(&conditions, table, None)?;
        tables.insert(index, monitored);
    }
    Ok(tables)
}

/// Parses the new conditions of a `monitor_cond_change`.
pub(super) fn conditions(
    json: &Value,
    schema: &DatabaseSchema,
    is_monitored: impl Fn(usize) -> bool,
) -> Result<Vec<(usize, Condition)>, TransactionError> {
    let object = json.as_object().ok_or_else(|| not_an_object(json))?;
    let mut conditions = Vec::new();
    for (name, requests) in object {
        let table = schema.find_table(name).filter(|(index, _)| is_monitored(*index));
        let (index, table) = table.ok_or_else(|| {
            let details = format!("no table named {name} in monitor session");
            TransactionError::new(ErrorTag::Syntax, details)
        })?;
        let requests = list_of(requests);
        let mut clauses = Vec::new();
        for request in requests {
            let name = format!("table {}", table.name());
            let failed = |reason: String| members_error(request, &name, &reason);
            let members = members_of(request, table)?;
            let list = members.find_array("where").map_err(failed)?;
            members.find("columns");
            members.finish().map_err(failed)?;
            clauses.extend_from_slice(list.unwrap_or_default());
        }
        conditions.push((index, Condition::from_json(&clauses, table, None)?));
    }
    Ok(conditions)
}

/// Returns the requests for a table, which are a list or a single request.
fn list_of(requests: &Value) -> &[Value] {
    requests.as_array().map_or_else(|| std::slice::from_ref(requests), Vec::as_slice)
}

/// Adds the columns of one request, and returns the clauses of its condition.
fn add_request<'a>(
    monitored: &mut Vec<MonitoredColumn>,
    request: &'a Value,
    table: &TableDefinition,
    version: MonitorVersion,
) -> Result<&'a [Value], TransactionError> {
    let name = format!("table {}", table.name());
    let failed = |reason: String| members_error(request, &name, &reason);
    let members = members_of(request, table)?;
    let clauses = match version {
        MonitorVersion::One => None,
        MonitorVersion::Two | MonitorVersion::Three => {
            members.find_array("where").map_err(failed)?
        }
    };
    let columns_json = members.find("columns");
    let select = members.find("select");
    members.finish().map_err(failed)?;
    let kinds = select.map_or(Ok(ALL_KINDS), |select| change_kinds(select, table))?;
    let columns = match columns_json {
        // All columns but `_uuid`, which every update contains as the key of the row.
        None => ColumnId::all(table).filter(|column| *column != ColumnId::Uuid).collect(),
        Some(json) => named_columns(json, table)?,
    };
    for column in columns {
        if monitored.iter().any(|other| other.column == column) {
            let details = format!("column {} mentioned more than once", column.name(table));
            let part = columns_json.unwrap_or(request);
            return Err(TransactionError::syntax(details, part));
        }
        monitored.push(MonitoredColumn { column, kinds });
    }
    Ok(clauses.unwrap_or_default())
}

/// Parses the columns that a request names.
fn named_columns(json: &Value, table: &TableDefinition) -> Result<Vec<ColumnId>, TransactionError> {
    let wrong = || TransactionError::syntax("array of column names expected", json);
    let mut columns = Vec::new();
    for name in json.as_array().ok_or_else(wrong)? {
        let name = name.as_str().ok_or_else(wrong)?;
        let column = ColumnId::find(table, name);
        columns.push(column.ok_or_else(|| {
            TransactionError::syntax(format!("{name} is not a valid column name"), json)
        })?);
    }
    Ok(columns)
}

const ALL_KINDS: ChangeKinds =
    ChangeKinds { initial: true, insert: true, delete: true, modify: true };

/// Parses the kinds of changes that a request selects.
fn change_kinds(json: &Value, table: &TableDefinition) -> Result<ChangeKinds, TransactionError> {
    let name = format!("table {} select", table.name());
    let failed = |reason: String| members_error(json, &name, &reason);
    let members = Members::of(json).ok_or_else(|| failed("Object expected.".to_owned()))?;
    let kind =
        |name| members.find_boolean(name).map(|wanted| wanted.unwrap_or(true)).map_err(failed);
    let kinds = ChangeKinds {
        initial: kind("initial")?,
        insert: kind("insert")?,
        delete: kind("delete")?,
        modify: kind("modify")?,
    };
    members.finish().map_err(failed)?;
    Ok(kinds)
}

/// Returns the error of a member with a wrong form.
fn members_error(part: &Value, name: &str, reason: &str) -> TransactionError {
    let details = format!("Parsing {name} failed: {reason}");
    if part.is_object() {
        TransactionError::syntax(details, part)
    } else {
        TransactionError::new(ErrorTag::Syntax, details)
    }
}

/// Returns the members of a request for a table.
fn members_of<'a>(
    request: &'a Value,
    table: &TableDefinition,
) -> Result<Members<'a>, TransactionError> {
    let name = format!("table {}", table.name());
    Members::of(request).ok_or_else(|| members_error(request, &name, "Object expected."))
}

/// Returns the error of a part that must be an object.
fn not_an_object(part: &Value) -> TransactionError {
    TransactionError::syntax("monitor-requests must be object", part)
}

/// Returns the error of an unknown table.
fn no_table(name: &str) -> TransactionError {
    TransactionError::new(ErrorTag::Syntax, format!("no table named {name}"))
}
