//! The operations of a transaction, executed one after another on a working set.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    condition::Condition,
    execution::DatabaseAccess,
    json_members::column_list,
    mutation::Mutation,
    requested_operation::RowCheck,
    row_json::{columns_of, row_to_json},
};
use crate::{
    database::{ColumnId, Row, WorkingSet},
    error::{ErrorTag, TransactionError},
    schema::{Members, TableDefinition, is_id},
    value::{Datum, RowUuid, SymbolTable},
};

/// The state of a transaction between its operations.
pub(super) struct Executor<'a, 'b> {
    /// The rows that the operations have changed.
    pub(super) set: WorkingSet<'a>,
    /// The UUIDs of named rows.
    pub(super) symbols: SymbolTable<'b>,
    pub(super) access: DatabaseAccess,
    /// Returns whether the client owns a lock.
    pub(super) owns_lock: &'b dyn Fn(&str) -> bool,
    /// The time that the transaction has waited.
    pub(super) waited: Duration,
    /// True if the log must be on disk before the reply.
    pub(super) durable: bool,
    /// The comments of the transaction, for the log.
    pub(super) comments: Vec<String>,
}

/// The reason why an operation has no result.
pub(super) enum Stop {
    /// The JSON members of the operation are invalid.
    Members(String),
    /// The operation fails with an error.
    Failure(TransactionError),
    /// The operation waits for a change, until this time after the request arrived.
    Wait(Option<Duration>),
}

impl From<TransactionError> for Stop {
    fn from(error: TransactionError) -> Self {
        Self::Failure(error)
    }
}

impl From<String> for Stop {
    fn from(reason: String) -> Self {
        Self::Members(reason)
    }
}

/// The result of an operation as JSON, or the reason to stop.
type Executed = Result<Map<String, Value>, Stop>;

impl<'a> Executor<'a, '_> {
    /// Executes the operation with the given name.
    ///
    /// The caller refuses members that the operation has not read.
    pub(super) fn execute(&mut self, name: &str, json: &Value, members: &Members<'_>) -> Executed {
        let result = match name {
            "insert" => self.insert(members),
            "select" => return self.select(members),
            "update" => self.update(json, members),
            "mutate" => self.mutate(members),
            "delete" => self.delete(members),
            "wait" => return self.wait(members),
            "commit" => return self.commit(members),
            "abort" => {
                return Err(TransactionError::new(ErrorTag::Aborted, "aborted by request").into());
            }
            "comment" => return self.comment(members),
            "assert" => return self.assert(members),
            name => return Err(Stop::Members(format!("No operation \"{name}\""))),
        };
        if result.is_ok() && self.access == DatabaseAccess::ReadOnly {
            let details = format!(
                "{name} operation not allowed on table in reserved database {}",
                self.set.schema().name()
            );
            return Err(TransactionError::new(ErrorTag::NotAllowed, details).into());
        }
        result
    }

    /// Executes an `insert` operation.
    fn insert(&mut self, members: &Members<'_>) -> Executed {
        let (index, table) = self.table(members)?;
        let name = members.find_string("uuid-name")?;
        let uuid_json = members.find("uuid");
        let object = members.object("row")?;
        members.finish()?;
        if name.is_some_and(|name| !is_id(name)) {
            return Err(Stop::Members("Type mismatch for member 'uuid-name'.".to_owned()));
        }
        let chosen = match uuid_json {
            None => None,
            Some(json) => {
                let uuid = json.as_str().and_then(|text| text.parse().ok());
                let uuid = uuid.ok_or_else(|| TransactionError::syntax("bad uuid", json))?;
                if self.set.is_taken(index, uuid) {
                    let details = "This UUID would duplicate a UUID already present within the table or deleted within the same transaction.";
                    let error = TransactionError::quoting(ErrorTag::DuplicateUuid, details, json);
                    return Err(error.into());
                }
                Some(uuid)
            }
        };
        let uuid = match name {
            None => chosen.unwrap_or_else(|| self.free_uuid(index)),
            Some(name) => self.symbols.insert(name, chosen).ok_or_else(|| {
                let details = "This \"uuid-name\" appeared on an earlier \"insert\" operation.";
                TransactionError::quoting(ErrorTag::DuplicateName, details, &name.into())
            })?,
        };
        let columns = columns_of(object, table, &mut self.symbols)?;
        let mut row = Row::new(uuid, table);
        let mut is_given = vec![false; table.columns().len()];
        for (column, value) in columns {
            if let ColumnId::Schema(index) = column {
                row.set(index, value);
                if let Some(given) = is_given.get_mut(index) {
                    *given = true;
                }
            }
        }
        // A default may break the constraint of its column.
        for ((column, value), is_given) in table.columns().iter().zip(row.values()).zip(is_given) {
            if !is_given {
                value.check(column.kind())?;
            }
        }
        self.set.put(index, row);
        Ok(Map::from_iter([("uuid".to_owned(), json!(["uuid", uuid.to_string()]))]))
    }

    /// Executes a `select` operation.
    fn select(&mut self, members: &Members<'_>) -> Executed {
        let (index, table) = self.table(members)?;
        let clauses = required_array(members, "where")?;
        let columns = find_array_json(members, "columns")?;
        members.finish()?;
        let condition = Condition::from_json(clauses, table, Some(&mut self.symbols))?;
        let columns = match columns {
            Some(json) => column_list(json, table)?,
            None => ColumnId::all(table).collect(),
        };
        // Rows with equal values in the selected columns count once.
        let mut known = BTreeSet::new();
        let mut rows = Vec::new();
        for row in self.matching(index, &condition) {
            if known.insert(projection(&row, &columns)) {
                rows.push(Value::Object(row_to_json(&row, table, columns.iter().copied())));
            }
        }
        Ok(Map::from_iter([("rows".to_owned(), rows.into())]))
    }

    /// Executes an `update` operation.
    fn update(&mut self, json: &Value, members: &Members<'_>) -> Executed {
        let (index, table) = self.table(members)?;
        let clauses = required_array(members, "where")?;
        let object = members.object("row")?;
        members.finish()?;
        let columns = columns_of(object, table, &mut self.symbols)?;
        for (column, _) in &columns {
            if !column.is_mutable(table) {
                let details = format!(
                    "Cannot update immutable column {} in table {}.",
                    column.name(table),
                    table.name()
                );
                let error = TransactionError::quoting(ErrorTag::Constraint, details, json);
                return Err(error.into());
            }
        }
        let condition = Condition::from_json(clauses, table, Some(&mut self.symbols))?;
        let rows = self.matching(index, &condition);
        for row in &rows {
            let mut row = Row::clone(row);
            for (column, value) in &columns {
                if let ColumnId::Schema(column) = column {
                    row.set(*column, value.clone());
                }
            }
            self.set.put(index, row);
        }
        Ok(count(rows.len()))
    }

    /// Executes a `mutate` operation.
    fn mutate(&mut self, members: &Members<'_>) -> Executed {
        let (index, table) = self.table(members)?;
        let clauses = required_array(members, "where")?;
        let mutations = required_array(members, "mutations")?;
        members.finish()?;
        let mutations = mutations
            .iter()
            .map(|json| Mutation::from_json(json, table, Some(&mut self.symbols)))
            .collect::<Result<Vec<_>, _>>()?;
        let condition = Condition::from_json(clauses, table, Some(&mut self.symbols))?;
        let rows = self.matching(index, &condition);
        for row in &rows {
            let mut row = Row::clone(row);
            for mutation in &mutations {
                mutation.apply(&mut row, table)?;
            }
            self.set.put(index, row);
        }
        Ok(count(rows.len()))
    }

    /// Executes a `delete` operation.
    fn delete(&mut self, members: &Members<'_>) -> Executed {
        let (index, table) = self.table(members)?;
        let clauses = required_array(members, "where")?;
        members.finish()?;
        let condition = Condition::from_json(clauses, table, Some(&mut self.symbols))?;
        let rows = self.matching(index, &condition);
        for row in &rows {
            self.set.delete(index, row.uuid);
        }
        Ok(count(rows.len()))
    }

    /// Executes a `wait` operation.
    fn wait(&mut self, members: &Members<'_>) -> Executed {
        let timeout = members.find_integer("timeout")?;
        let (index, table) = self.table(members)?;
        let clauses = required_array(members, "where")?;
        let columns = find_array_json(members, "columns")?;
        let until = members.string("until")?;
        let rows = required_array(members, "rows")?;
        members.finish()?;
        let timeout = match timeout.map(u64::try_from) {
            None => None,
            Some(Ok(timeout)) => Some(Duration::from_millis(timeout)),
            Some(Err(_)) => {
                let json = members.find("timeout").unwrap_or(&Value::Null);
                let details = "timeout must be nonnegative";
                return Err(TransactionError::syntax(details, json).into());
            }
        };
        let wants_equal = match until {
            "==" => true,
            "!=" => false,
            _ => {
                let details = "\"until\" must be \"==\" or \"!=\"";
                return Err(TransactionError::syntax(details, &until.into()).into());
            }
        };
        let condition = Condition::from_json(clauses, table, Some(&mut self.symbols))?;
        let columns = match columns {
            Some(json) => column_list(json, table)?,
            None => ColumnId::all(table).collect(),
        };
        let mut wanted: Vec<Vec<Cow<'_, Datum>>> = Vec::with_capacity(rows.len());
        for json in rows {
            let object = json
                .as_object()
                .ok_or_else(|| TransactionError::syntax("row must be JSON object", json))?;
            let mut given = columns_of(object, table, &mut self.symbols)?;
            let value = |column: &ColumnId| {
                let place = given.iter().position(|(other, _)| other == column);
                let default = || Datum::default_of(&column.kind(table));
                Cow::Owned(place.map_or_else(default, |place| given.swap_remove(place).1))
            };
            wanted.push(columns.iter().map(value).collect::<Vec<_>>());
        }
        // `ovs-vsctl` waits for an unchanged row of each port, so the values are not copied.
        let matching = self.matching(index, &condition);
        let actual: Vec<Vec<Cow<'_, Datum>>> = matching
            .iter()
            .map(|row| columns.iter().map(|column| row.value(*column)).collect())
            .collect();
        if (distinct(actual) == distinct(wanted)) == wants_equal {
            return Ok(Map::new());
        }
        match timeout {
            Some(timeout) if self.waited >= timeout => {
                let details = if timeout.is_zero() {
                    "\"where\" clause test failed".to_owned()
                } else {
                    format!("\"wait\" timed out after {} ms", self.waited.as_millis())
                };
                Err(TransactionError::new(ErrorTag::TimedOut, details).into())
            }
            timeout => Err(Stop::Wait(timeout)),
        }
    }

    /// Returns whether the row of a check has the expected references.
    ///
    /// False can also mean that the check is invalid. The `wait` of the check then has the result.
    pub(super) fn is_met(&self, check: &RowCheck) -> bool {
        let Some((index, table)) = self.set.schema().find_table(&check.table) else { return false };
        let Some((column, definition)) = table.find_column(&check.column) else { return false };
        let row = self.set.row(index, check.row);
        let value = row.and_then(|row| row.values().get(column));
        let value = value.filter(|_| !definition.kind().is_map());
        value.is_some_and(|value| check.references.are_those_of(value))
    }

    /// Executes a `commit` operation.
    fn commit(&mut self, members: &Members<'_>) -> Executed {
        members.required("durable")?;
        let durable = members.find_boolean("durable")?;
        members.finish()?;
        self.durable |= durable.unwrap_or(false);
        Ok(Map::new())
    }

    /// Executes a `comment` operation.
    fn comment(&mut self, members: &Members<'_>) -> Executed {
        let comment = members.string("comment")?;
        members.finish()?;
        self.comments.push(comment.to_owned());
        Ok(Map::new())
    }

    /// Executes an `assert` operation.
    fn assert(&mut self, members: &Members<'_>) -> Executed {
        let lock = members.string("lock")?;
        members.finish()?;
        if !is_id(lock) {
            return Err(Stop::Members("Type mismatch for member 'lock'.".to_owned()));
        }
        if (self.owns_lock)(lock) {
            return Ok(Map::new());
        }
        let details = format!("Asserted lock {lock} not held.");
        Err(TransactionError::new(ErrorTag::NotOwner, details).into())
    }

    /// Returns a UUID that no row has.
    fn free_uuid(&mut self, table: usize) -> RowUuid {
        loop {
            let uuid = self.symbols.generate();
            if !self.set.is_taken(table, uuid) {
                return uuid;
            }
        }
    }

    /// Returns the table that the operation names.
    fn table(&self, members: &Members<'_>) -> Result<(usize, &'a TableDefinition), Stop> {
        let name = members.string("table")?;
        let table = self.set.schema().find_table(name);
        table.ok_or_else(|| Stop::Members(format!("No table named {name}.")))
    }

    /// Returns the rows that satisfy a condition.
    fn matching(&self, table: usize, condition: &Condition) -> Vec<Arc<Row>> {
        let mut rows = match condition.named_row() {
            Some(uuid) => self.set.row(table, uuid).cloned().into_iter().collect(),
            None => self.set.rows(table),
        };
        rows.retain(|row| condition.matches_all(row));
        rows
    }
}

/// Returns a required member that is an array.
fn required_array<'a>(members: &Members<'a>, name: &str) -> Result<&'a [Value], String> {
    members.required(name)?;
    members.find_array(name).map(Option::unwrap_or_default)
}

/// Returns a member that is an array as JSON, if the object has it.
fn find_array_json<'a>(members: &Members<'a>, name: &str) -> Result<Option<&'a Value>, String> {
    members.find_array(name)?;
    Ok(members.find(name))
}

/// Returns the values of some columns.
fn projection(row: &Row, columns: &[ColumnId]) -> Vec<Datum> {
    columns.iter().map(|column| row.value(*column).into_owned()).collect()
}

/// Returns the values, sorted and without repetitions.
fn distinct<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values.dedup();
    values
}

/// Returns the result of an operation: the number of its rows.
fn count(rows: usize) -> Map<String, Value> {
    Map::from_iter([("count".to_owned(), rows.into())])
}
