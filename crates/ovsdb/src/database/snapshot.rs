//! Rows as they were at one moment, for the owner of a server.

use std::{collections::BTreeMap, sync::Arc};

use super::{Row, store::Rows};
use crate::{
    schema::{DatabaseSchema, TableDefinition},
    value::{Atom, Datum, RowUuid},
};

/// All rows of a database at one moment.
#[derive(Clone, Debug)]
pub struct DatabaseSnapshot {
    schema: Arc<DatabaseSchema>,
    tables: Vec<Arc<Rows>>,
}

impl DatabaseSnapshot {
    pub(super) const fn new(schema: Arc<DatabaseSchema>, tables: Vec<Arc<Rows>>) -> Self {
        Self { schema, tables }
    }

    /// Returns the schema of the database.
    #[must_use]
    pub fn schema(&self) -> &DatabaseSchema {
        &self.schema
    }

    /// Returns the rows of a table in the order of their UUIDs.
    ///
    /// The result is empty if the schema has no such table.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = RowView<'_>> {
        let table = self.find(table);
        table.into_iter().flat_map(|(definition, rows)| {
            rows.values().map(|row| RowView { row, table: definition })
        })
    }

    /// Returns a row.
    #[must_use]
    pub fn row(&self, table: &str, uuid: RowUuid) -> Option<RowView<'_>> {
        let (table, rows) = self.find(table)?;
        Some(RowView { row: rows.get(&uuid)?, table })
    }

    fn find(&self, table: &str) -> Option<(&TableDefinition, &Rows)> {
        let (index, definition) = self.schema.find_table(table)?;
        Some((definition, self.tables.get(index)?))
    }
}

/// A row with its columns by name.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    row: &'a Row,
    table: &'a TableDefinition,
}

impl<'a> RowView<'a> {
    /// Returns the UUID of the row.
    #[must_use]
    pub const fn uuid(&self) -> RowUuid {
        self.row.uuid
    }

    /// Returns the value of a column.
    #[must_use]
    pub fn value(&self, column: &str) -> Option<&'a Datum> {
        let (index, _) = self.table.find_column(column)?;
        self.row.values.get(index)
    }

    /// Returns the string of a column with exactly one string.
    #[must_use]
    pub fn string(&self, column: &str) -> Option<&'a str> {
        match self.value(column)?.as_scalar()? {
            Atom::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer of a column with exactly one integer.
    #[must_use]
    pub fn integer(&self, column: &str) -> Option<i64> {
        match self.value(column)?.as_scalar()? {
            Atom::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the boolean of a column with exactly one boolean.
    #[must_use]
    pub fn boolean(&self, column: &str) -> Option<bool> {
        match self.value(column)?.as_scalar()? {
            Atom::Boolean(flag) => Some(*flag),
            _ => None,
        }
    }

    /// Returns the integers of a column.
    pub fn integers(&self, column: &str) -> impl Iterator<Item = i64> + use<'a> {
        self.atoms(column).filter_map(|atom| match atom {
            Atom::Integer(number) => Some(*number),
            _ => None,
        })
    }

    /// Returns the strings of a column.
    pub fn strings(&self, column: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.atoms(column).filter_map(|atom| match atom {
            Atom::String(text) => Some(&**text),
            _ => None,
        })
    }

    /// Returns the referenced rows of a column.
    pub fn uuids(&self, column: &str) -> impl Iterator<Item = RowUuid> + use<'a> {
        self.atoms(column).filter_map(|atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        })
    }

    /// Returns the referenced rows of a column that maps integers to rows.
    pub fn numbered_uuids(&self, column: &str) -> impl Iterator<Item = (i64, RowUuid)> + use<'a> {
        let pairs = self.value(column).into_iter().flat_map(Datum::pairs);
        pairs.filter_map(|pair| match pair {
            (Atom::Integer(number), Some(Atom::Uuid(uuid))) => Some((*number, *uuid)),
            _ => None,
        })
    }

    /// Returns the value of a key of a column that maps strings to strings.
    #[must_use]
    pub fn entry(&self, column: &str, key: &str) -> Option<&'a str> {
        match self.value(column)?.find_value(&Atom::String(key.into()))? {
            Atom::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a column that maps strings to strings.
    #[must_use]
    pub fn string_map(&self, column: &str) -> BTreeMap<&'a str, &'a str> {
        let pairs = self.value(column).into_iter().flat_map(Datum::pairs);
        let strings = |(key, value): (&'a Atom, Option<&'a Atom>)| match (key, value) {
            (Atom::String(key), Some(Atom::String(value))) => Some((&**key, &**value)),
            _ => None,
        };
        pairs.filter_map(strings).collect()
    }

    fn atoms(&self, column: &str) -> impl Iterator<Item = &'a Atom> + use<'a> {
        self.value(column).into_iter().flat_map(Datum::keys)
    }
}
