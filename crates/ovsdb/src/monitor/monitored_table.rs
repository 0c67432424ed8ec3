//! The tables, columns and conditions of one monitor.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use super::{
    initial_texts::{InitialTexts, MonitoredPart},
    request, update,
};
use crate::{
    database::{ChangeSet, ColumnId, Database, Row, RowChange},
    error::TransactionError,
    schema::DatabaseSchema,
    transaction::Condition,
};

/// The generation of a monitor, which decides the form of its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorVersion {
    /// Requests `monitor`, with notifications `update`.
    One,
    /// Requests `monitor_cond`, with notifications `update2`.
    Two,
    /// Requests `monitor_cond_since`, with notifications `update3`.
    Three,
}

/// The rows and columns that a client follows.
#[derive(Clone, Debug)]
pub struct RowMonitor {
    version: MonitorVersion,
    /// The monitored tables, by their positions in the schema.
    tables: BTreeMap<usize, MonitoredTable>,
}

/// The monitored columns of one table, and the condition on its rows.
#[derive(Clone, Debug)]
pub(super) struct MonitoredTable {
    pub(super) columns: Vec<MonitoredColumn>,
    pub(super) condition: Condition,
}

/// A monitored column, and the kinds of changes that the client selected.
#[derive(Clone, Copy, Debug)]
pub(super) struct MonitoredColumn {
    pub(super) column: ColumnId,
    pub(super) kinds: ChangeKinds,
}

/// The kinds of changes that a client selected (`<monitor-select>`).
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangeKinds {
    /// True if the rows that exist at first are reported.
    pub(super) initial: bool,
    /// True if inserted rows are reported.
    pub(super) insert: bool,
    /// True if deleted rows are reported.
    pub(super) delete: bool,
    /// True if modified rows are reported.
    pub(super) modify: bool,
}

/// The kind of the change of one row, as a monitor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Initial,
    Insert,
    Delete,
    Modify,
}

impl ChangeKinds {
    /// Returns whether the monitor reports this kind of change.
    pub(super) const fn has(self, kind: ChangeKind) -> bool {
        match kind {
            ChangeKind::Initial => self.initial,
            ChangeKind::Insert => self.insert,
            ChangeKind::Delete => self.delete,
            ChangeKind::Modify => self.modify,
        }
    }
}

impl RowMonitor {
    /// Parses the `<monitor-requests>` of a client.
    ///
    /// # Errors
    ///
    /// If a request names an unknown table or column, names a column twice, or has an invalid
    /// condition.
    pub fn from_json(
        requests: &Value,
        schema: &DatabaseSchema,
        version: MonitorVersion,
    ) -> Result<Self, TransactionError> {
        Ok(Self { version, tables: request::tables(requests, schema, version)? })
    }

    /// Returns the generation of the monitor.
    #[must_use]
    pub const fn version(&self) -> MonitorVersion {
        self.version
    }

    /// Returns the initial rows of the monitor, all of which are encoded.
    ///
    /// The result equals the result of [`Self::write_initial`].
    #[cfg(test)]
    pub(super) fn initial(&self, database: &Database) -> Value {
        let mut updates = Map::new();
        for (index, monitored) in &self.tables {
            let Some(table) = database.schema().tables().get(*index) else { continue };
            let mut rows = Map::new();
            for row in database.rows(*index).filter(|row| monitored.condition.matches_any(row)) {
                let change = RowChange { old: None, new: Some(Arc::clone(row)) };
                let update = update::row_update(
                    self.version,
                    monitored,
                    table,
                    &change,
                    ChangeKind::Initial,
                );
                if let Some(update) = update {
                    rows.insert(row.uuid.to_string(), update);
                }
            }
            if !rows.is_empty() {
                updates.insert(table.name().to_owned(), rows.into());
            }
        }
        updates.into()
    }

    /// Adds the initial rows as a JSON object to `text`, for the reply to the request.
    ///
    /// Only rows that have changed since the last monitor of the same columns are encoded, unless
    /// the monitor has a condition.
    pub(crate) fn write_initial(
        &self,
        database: &Database,
        texts: &mut InitialTexts,
        text: &mut String,
    ) {
        text.push('{');
        let mut quote = "\"";
        for (index, monitored) in &self.tables {
            let Some(table) = database.schema().tables().get(*index) else { continue };
            let wanted = monitored.columns.iter().filter(|own| own.kinds.has(ChangeKind::Initial));
            let columns: Vec<_> = wanted.map(|own| own.column).collect();
            if columns.is_empty() && !monitored.columns.is_empty() {
                continue;
            }
            let part = monitored.condition.is_absent().then(|| MonitoredPart {
                version: self.version,
                table: *index,
                columns: columns.clone(),
            });
            let encode = |row: &Row, text: &mut String| {
                if monitored.condition.matches_any(row) {
                    update::write_initial_row(text, self.version, row, table, &columns);
                }
            };
            let before = text.len();
            // Names of tables are identifiers, which JSON does not escape.
            [quote, table.name(), "\":{"].into_iter().for_each(|start| text.push_str(start));
            if texts.write(text, part, database.parts(*index), encode) {
                text.push('}');
                quote = ",\"";
            } else {
                text.truncate(before);
            }
        }
        text.push('}');
    }

    /// Returns the update for a change; `None` if no monitored row or column changed.
    #[must_use]
    pub fn update(&self, schema: &DatabaseSchema, change: &ChangeSet) -> Option<Value> {
        let mut updates = Map::new();
        for (index, changes) in &change.tables {
            let monitored = self.tables.get(index).zip(schema.tables().get(*index));
            let Some((monitored, table)) = monitored else { continue };
            let mut rows = Map::new();
            for (uuid, change) in changes {
                let change = monitored.visible(change, &monitored.condition);
                let update = change_kind(&change).and_then(|kind| {
                    update::row_update(self.version, monitored, table, &change, kind)
                });
                if let Some(update) = update {
                    rows.insert(uuid.to_string(), update);
                }
            }
            if !rows.is_empty() {
                updates.insert(table.name().to_owned(), rows.into());
            }
        }
        (!updates.is_empty()).then(|| updates.into())
    }

    /// Replaces the conditions of monitored tables (`monitor_cond_change`).
    ///
    /// Returns an update with the rows that begin or cease to match.
    ///
    /// # Errors
    ///
    /// If the request names a table that is not monitored, or has an invalid condition. If the
    /// request is wrong, no condition changes.
    pub fn change_conditions(
        &mut self,
        requests: &Value,
        database: &Database,
    ) -> Result<Option<Value>, TransactionError> {
        let conditions = request::conditions(requests, database.schema(), |table| {
            self.tables.contains_key(&table)
        })?;
        let mut updates = Map::new();
        for (index, condition) in conditions {
            let monitored = self.tables.get_mut(&index).zip(database.schema().tables().get(index));
            let Some((monitored, table)) = monitored else { continue };
            let old = std::mem::replace(&mut monitored.condition, condition);
            let mut rows = Map::new();
            for row in database.rows(index) {
                let seen = |matches: bool| matches.then(|| Arc::clone(row));
                let change = RowChange {
                    old: seen(old.matches_any(row)),
                    new: seen(monitored.condition.matches_any(row)),
                };
                let kind = change_kind(&change).filter(|kind| *kind != ChangeKind::Modify);
                let update = kind.and_then(|kind| {
                    update::row_update(self.version, monitored, table, &change, kind)
                });
                if let Some(update) = update {
                    rows.insert(row.uuid.to_string(), update);
                }
            }
            if !rows.is_empty() {
                updates.insert(table.name().to_owned(), rows.into());
            }
        }
        Ok((!updates.is_empty()).then(|| updates.into()))
    }
}

impl MonitoredTable {
    /// Returns a change with only the row versions that match the condition.
    fn visible(&self, change: &RowChange, condition: &Condition) -> RowChange {
        let seen = |row: &Option<Arc<Row>>| row.clone().filter(|row| condition.matches_any(row));
        RowChange { old: seen(&change.old), new: seen(&change.new) }
    }
}

/// Returns the kind of a change; `None` if no row exists before or after it.
const fn change_kind(change: &RowChange) -> Option<ChangeKind> {
    match (&change.old, &change.new) {
        (None, None) => None,
        (None, Some(_)) => Some(ChangeKind::Insert),
        (Some(_), None) => Some(ChangeKind::Delete),
        (Some(_), Some(_)) => Some(ChangeKind::Modify),
    }
}
