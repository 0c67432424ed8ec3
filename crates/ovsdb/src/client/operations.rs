//! Transactions as the parameters of `transact` (RFC 7047, sections 4.1.3 and 5.2).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    error::{ErrorTag, TransactionError},
    schema::{DatabaseSchema, TableDefinition},
    transaction::{RowEffect, RowOperation, RowTransaction},
    value::{Datum, RowUuid},
};

/// Returns the parameters of a transaction, which asserts the lock of the client.
///
/// # Errors
///
/// If the transaction names a table or column that the schema does not have.
pub(super) fn encode(
    transaction: &RowTransaction,
    schema: &DatabaseSchema,
    database: &str,
    lock: Option<&str>,
) -> Result<Value, TransactionError> {
    let is_insert = |operation: &&RowOperation| matches!(operation.effect, RowEffect::Insert(_));
    let inserted = transaction.operations().iter().filter(is_insert);
    let names: BTreeMap<String, String> =
        inserted.map(|operation| (operation.uuid.to_string(), symbol(operation.uuid))).collect();
    let mut params = vec![Value::from(database)];
    params.extend(lock.map(|lock| json!({"op": "assert", "lock": lock})));
    for operation in transaction.operations() {
        let mut encoded = encode_operation(operation, schema)?;
        name_rows(&mut encoded, &names);
        params.push(encoded);
    }
    if !transaction.comment().is_empty() {
        params.push(json!({"op": "comment", "comment": transaction.comment()}));
    }
    Ok(params.into())
}

/// Encodes an operation as JSON of a transaction.
fn encode_operation(
    operation: &RowOperation,
    schema: &DatabaseSchema,
) -> Result<Value, TransactionError> {
    let RowOperation { table: name, uuid, effect } = operation;
    let (_, table) = schema.find_table(name).ok_or_else(|| {
        TransactionError::new(ErrorTag::Syntax, format!("No table named {name}."))
    })?;
    let condition = json!([["_uuid", "==", ["uuid", uuid.to_string()]]]);
    Ok(match effect {
        RowEffect::Insert(columns) => json!({
            "op": "insert", "table": name, "uuid-name": symbol(*uuid), "row": row(table, columns)?
        }),
        RowEffect::Update(columns) => {
            json!({"op": "update", "table": name, "where": condition, "row": row(table, columns)?})
        }
        RowEffect::InsertMembers(columns) => {
            let mutations = mutations(table, columns, "insert")?;
            json!({"op": "mutate", "table": name, "where": condition, "mutations": mutations})
        }
        RowEffect::DeleteMembers(columns) => {
            let mutations = mutations(table, columns, "delete")?;
            json!({"op": "mutate", "table": name, "where": condition, "mutations": mutations})
        }
        RowEffect::Delete => json!({"op": "delete", "table": name, "where": condition}),
    })
}

/// Encodes the columns of a row.
fn row(
    table: &TableDefinition,
    columns: &[(String, Datum)],
) -> Result<Map<String, Value>, TransactionError> {
    let column =
        |(name, value): &(String, Datum)| Ok((name.clone(), encode_value(table, name, value)?));
    columns.iter().map(column).collect()
}

/// Encodes a mutation for each column.
fn mutations(
    table: &TableDefinition,
    columns: &[(String, Datum)],
    mutator: &str,
) -> Result<Vec<Value>, TransactionError> {
    let mutation = |(name, value): &(String, Datum)| {
        Ok(json!([name, mutator, encode_value(table, name, value)?]))
    };
    columns.iter().map(mutation).collect()
}

/// Encodes the value of a column.
fn encode_value(
    table: &TableDefinition,
    name: &str,
    value: &Datum,
) -> Result<Value, TransactionError> {
    let (_, column) = table.find_column(name).ok_or_else(|| {
        let details = format!("No column {name} in table {}.", table.name());
        TransactionError::new(ErrorTag::UnknownColumn, details)
    })?;
    Ok(value.to_json(column.kind()))
}

/// Returns the `uuid-name` of a row that the transaction inserts.
fn symbol(uuid: RowUuid) -> String {
    format!("row{}", uuid.to_string().replace('-', "_"))
}

/// Replaces references to rows that the transaction inserts by their names.
fn name_rows(json: &mut Value, names: &BTreeMap<String, String>) {
    if names.is_empty() {
        return;
    }
    // The search uses a list instead of recursion.
    let mut rest = vec![json];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => {
                let name = match items.as_slice() {
                    [Value::String(class), Value::String(uuid)] if class == "uuid" => {
                        names.get(uuid)
                    }
                    _ => None,
                };
                match name {
                    Some(name) => *items = vec!["named-uuid".into(), name.as_str().into()],
                    None => rest.extend(items),
                }
            }
            Value::Object(members) => rest.extend(members.values_mut()),
            _ => {}
        }
    }
}

/// Checks the results of a transaction; the first error is returned.
///
/// # Errors
///
/// The error of the server, with its details.
pub(super) fn check_results(outcome: Result<Value, Value>) -> Result<(), String> {
    let results = match outcome {
        Ok(Value::Array(results)) => results,
        Ok(other) => return Err(format!("the server replied {other}, not a list of results")),
        Err(error) => return Err(text_of_error(&error)),
    };
    let has_error = |result: &&Value| result.get("error").is_some_and(|error| !error.is_null());
    results.iter().find(has_error).map_or(Ok(()), |result| Err(text_of_error(result)))
}

/// Returns an `<error>` as text: `constraint violation: ..`.
pub(super) fn text_of_error(error: &Value) -> String {
    let part = |name| error.get(name).and_then(Value::as_str);
    match (part("error"), part("details")) {
        (Some(tag), Some(details)) => format!("{tag}: {details}"),
        (Some(tag), None) => tag.to_owned(),
        (None, _) => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    }
}
