//! Rows of tables.

use std::borrow::Cow;

use super::ColumnId;
use crate::{
    schema::TableDefinition,
    value::{Datum, RowUuid},
};

/// A row: a value for each column of the schema, and two UUIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The UUID of the row (`_uuid`), which never changes.
    pub uuid: RowUuid,
    /// The UUID of the current values of the row (`_version`).
    pub version: RowUuid,
    /// The values, in the order of the columns in the schema.
    pub(crate) values: Vec<Datum>,
}

impl Row {
    /// Creates a row of default values.
    #[must_use]
    pub fn new(uuid: RowUuid, table: &TableDefinition) -> Self {
        let values = table.columns().iter().map(|column| Datum::default_of(column.kind()));
        Self { uuid, version: RowUuid::NIL, values: values.collect() }
    }

    /// Returns the value of a column.
    #[must_use]
    pub fn value(&self, column: ColumnId) -> Cow<'_, Datum> {
        match column {
            ColumnId::Uuid => Cow::Owned(Datum::uuid(self.uuid)),
            ColumnId::Version => Cow::Owned(Datum::uuid(self.version)),
            ColumnId::Schema(index) => {
                self.values.get(index).map_or(Cow::Owned(Datum::empty()), Cow::Borrowed)
            }
        }
    }

    /// Returns the values of the schema's columns.
    #[must_use]
    pub fn values(&self) -> &[Datum] {
        &self.values
    }

    /// Sets the value of a column.
    pub(crate) fn set(&mut self, index: usize, value: Datum) {
        if let Some(slot) = self.values.get_mut(index) {
            *slot = value;
        }
    }
}
