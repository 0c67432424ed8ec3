//! Columns of rows, including `_uuid` and `_version`, which every table has.

use std::borrow::Cow;

use crate::schema::{ColumnType, TableDefinition, uuid_column_type};

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColumnId {
    /// The column `_uuid`, which each table has.
    Uuid,
    /// The column `_version`, which changes with each change of the row.
    Version,
    /// A column of the schema, by its position.
    Schema(usize),
}

impl ColumnId {
    /// Returns the column with the given name.
    #[must_use]
    pub fn find(table: &TableDefinition, name: &str) -> Option<Self> {
        match name {
            "_uuid" => Some(Self::Uuid),
            "_version" => Some(Self::Version),
            name => table.find_column(name).map(|(index, _)| Self::Schema(index)),
        }
    }

    /// Returns all columns of a table.
    pub fn all(table: &TableDefinition) -> impl Iterator<Item = Self> + use<> {
        let columns = 0..table.columns().len();
        [Self::Uuid, Self::Version].into_iter().chain(columns.map(Self::Schema))
    }

    /// Returns the name of the column.
    #[must_use]
    pub fn name(self, table: &TableDefinition) -> &str {
        match self {
            Self::Uuid => "_uuid",
            Self::Version => "_version",
            Self::Schema(index) => table.columns().get(index).map_or("", |column| column.name()),
        }
    }

    /// Returns the type of the column.
    #[must_use]
    pub fn kind(self, table: &TableDefinition) -> Cow<'_, ColumnType> {
        let column = match self {
            Self::Uuid | Self::Version => None,
            Self::Schema(index) => table.columns().get(index),
        };
        match column {
            Some(column) => Cow::Borrowed(column.kind()),
            None => Cow::Owned(uuid_column_type()),
        }
    }

    /// Returns whether operations may change the column.
    #[must_use]
    pub fn is_mutable(self, table: &TableDefinition) -> bool {
        match self {
            Self::Uuid | Self::Version => false,
            Self::Schema(index) => {
                table.columns().get(index).is_some_and(|column| column.is_mutable())
            }
        }
    }
}
