//! Rows as they were at one moment; the program that runs the server reads them.

use std::{collections::BTreeMap, sync::Arc};

use super::{Row, rows::Rows};
use crate::{
    schema::{DatabaseSchema, TableDefinition},
    value::{Atom, Datum, RowUuid},
};

/// All rows of a database at one moment.
#[derive(Clone, Debug)]
pub struct DatabaseSnapshot {
    schema: Arc<DatabaseSchema>,
    /// The rows of each table, in the order of the schema.
    tables: Vec<Arc<Rows>>,
}

impl DatabaseSnapshot {
    /// Returns a snapshot of tables in the order of the schema.
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

    /// Returns the row of a table with this UUID.
    #[must_use]
    pub fn row(&self, table: &str, uuid: RowUuid) -> Option<RowView<'_>> {
        let (table, rows) = self.find(table)?;
        Some(RowView { row: rows.get(uuid)?, table })
    }

    /// Returns the rows that differ from an earlier snapshot.
    ///
    /// Each row has the name of its table. Deleted rows are included. The result is `None` if the snapshots are of different databases.
    /// Rows are compared by identity, together with those of similar UUIDs.
    #[must_use]
    pub fn changed_rows<'a>(&'a self, earlier: &'a Self) -> Option<Vec<(&'a str, RowUuid)>> {
        if !Arc::ptr_eq(&self.schema, &earlier.schema) {
            return None;
        }
        let mut changed = Vec::new();
        let tables = self.tables.iter().zip(&earlier.tables);
        for (definition, (new, old)) in self.schema.tables().iter().zip(tables) {
            if !Arc::ptr_eq(new, old) {
                let rows = new.changed_from(old).into_iter();
                changed.extend(rows.map(|uuid| (definition.name(), uuid)));
            }
        }
        Some(changed)
    }

    /// Returns a table with its rows.
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

    /// Returns the elements of a set, or the keys of a map.
    fn atoms(&self, column: &str) -> impl Iterator<Item = &'a Atom> + use<'a> {
        self.value(column).into_iter().flat_map(Datum::keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{database::Database, schema};

    /// Inserts or renames the interfaces `put`, and deletes the interfaces `deleted`.
    fn change(database: &mut Database, name: &str, put: &[RowUuid], deleted: &[RowUuid]) {
        let (table, _) = database.schema().find_table("Interface").unwrap();
        let (mut set, _) = database.begin();
        let definition = set.definition(table).unwrap();
        let (column, _) = definition.find_column("name").unwrap();
        for uuid in put {
            let mut row = Row::new(*uuid, definition);
            row.set(column, Datum::string(name));
            set.put(table, row);
        }
        deleted.iter().for_each(|uuid| set.delete(table, *uuid));
        let change = set.finish_replay();
        database.apply(&change);
    }

    #[test]
    fn changed_rows_are_new_replaced_or_deleted() {
        let mut database = Database::new(schema::open_vswitch(), [7; 20]);
        let uuids: Vec<RowUuid> = (0..6)
            .map(|number| format!("00000000-0000-4000-8000-00000000000{number}").parse().unwrap())
            .collect();
        change(&mut database, "old", &uuids[1..5], &[]);
        let before = database.snapshot();
        assert_eq!(database.snapshot().changed_rows(&before), Some(Vec::new()));
        change(&mut database, "new", &[uuids[0], uuids[2], uuids[5]], &[uuids[1], uuids[4]]);
        let after = database.snapshot();
        let changed = [0, 1, 2, 4, 5].map(|number| ("Interface", uuids[number]));
        assert_eq!(after.changed_rows(&before), Some(changed.to_vec()));
        assert_eq!(before.changed_rows(&after), Some(changed.to_vec()));
        let other = Database::new(schema::open_vswitch(), [7; 20]).snapshot();
        assert_eq!(after.changed_rows(&other), None);
    }
}
