//! Databases, tables and columns (RFC 7047, section 3.2).

use std::collections::HashMap;

use foldhash::fast::FixedState;
use serde_json::{Map, Value};

use super::{AtomType, BaseType, ColumnType, Members, ReferenceStrength, members::is_id};
use crate::error::DatabaseSchemaError;

/// The positions of tables or columns by their names.
///
/// Each read of a column looks its name up.
type NamePositions = HashMap<String, usize, FixedState>;

/// The tables of a database, from a `<database-schema>` of RFC 7047.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseSchema {
    name: String,
    /// The version of the schema; empty if it has none.
    version: String,
    /// The checksum of the schema text (`cksum`); empty if it has none.
    checksum: String,
    /// The tables, in the order of their names.
    tables: Vec<TableDefinition>,
    /// The position of each table.
    names: NamePositions,
}

/// The columns and indexes of a table, from a `<table-schema>` of RFC 7047.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDefinition {
    name: String,
    /// The columns, in the order of their names.
    columns: Vec<ColumnDefinition>,
    /// The position of each column.
    names: NamePositions,
    /// True if rows stay without a strong reference to them.
    is_root: bool,
    /// Maximum number of rows; `None` for no limit.
    max_rows: Option<usize>,
    /// The columns of each index, by their positions.
    indexes: Vec<Vec<usize>>,
    /// True if the schema declares the table a root (`isRoot`).
    /// If it declares no table a root, all tables are roots.
    says_root: bool,
}

/// The type of a column, from a `<column-schema>` of RFC 7047.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    name: String,
    kind: ColumnType,
    /// True if operations may change the column after the insertion.
    mutable: bool,
    /// True if the log does not keep the column.
    ephemeral: bool,
}

impl DatabaseSchema {
    /// Parses the text of a schema file.
    ///
    /// # Errors
    ///
    /// If the text is no JSON, or no `<database-schema>`.
    pub fn from_text(text: &str) -> Result<Self, DatabaseSchemaError> {
        let json = serde_json::from_str(text).map_err(|error| {
            DatabaseSchemaError::new(format!("the schema is not JSON: {error}"))
        })?;
        Self::from_json(&json)
    }

    /// Parses a `<database-schema>`.
    ///
    /// # Errors
    ///
    /// If a member of the schema is missing or invalid, or a reference names no table.
    pub fn from_json(json: &Value) -> Result<Self, DatabaseSchemaError> {
        let failed =
            |reason| DatabaseSchemaError::new(format!("Parsing database schema failed: {reason}"));
        let members = Members::of(json).ok_or_else(|| failed("Object expected.".to_owned()))?;
        let name = members.string("name").map_err(failed)?;
        if !is_id(name) {
            return Err(failed(format!("\"{name}\" is not an <id>.")));
        }
        let version = members.find_string("version").map_err(failed)?.unwrap_or_default();
        let checksum = members.find_string("cksum").map_err(failed)?.unwrap_or_default();
        let table_objects = members.object("tables").map_err(failed)?;
        members.finish().map_err(failed)?;
        let mut tables = Vec::with_capacity(table_objects.len());
        for (name, json) in table_objects {
            tables.push(TableDefinition::from_json(name, json)?);
        }
        tables.sort_by(|one, other| one.name.cmp(&other.name));
        let none_is_root = !tables.iter().any(|table| table.says_root);
        for table in &mut tables {
            table.is_root = table.says_root || none_is_root;
        }
        let names = tables.iter().enumerate().map(|(index, table)| (table.name.clone(), index));
        let names = names.collect();
        let schema = Self {
            name: name.to_owned(),
            version: version.to_owned(),
            checksum: checksum.to_owned(),
            tables,
            names,
        };
        schema.check_references()?;
        Ok(schema)
    }

    /// Returns the schema as a `<database-schema>`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let tables = self.tables.iter().map(|table| (table.name.clone(), table.to_json()));
        let mut members = Map::new();
        members.insert("name".to_owned(), self.name.as_str().into());
        for (name, text) in [("version", &self.version), ("cksum", &self.checksum)] {
            if !text.is_empty() {
                members.insert(name.to_owned(), text.as_str().into());
            }
        }
        members.insert("tables".to_owned(), Value::Object(tables.collect()));
        Value::Object(members)
    }

    /// Returns the name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version, which may be empty.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the tables in the order of their names.
    #[must_use]
    pub fn tables(&self) -> &[TableDefinition] {
        &self.tables
    }

    /// Returns the position and definition of a table.
    #[must_use]
    pub fn find_table(&self, name: &str) -> Option<(usize, &TableDefinition)> {
        let index = *self.names.get(name)?;
        Some((index, self.tables.get(index)?))
    }

    /// Returns whether two schemas have equal tables, regardless of their checksums.
    #[must_use]
    pub fn has_same_tables(&self, other: &Self) -> bool {
        self.name == other.name && self.tables == other.tables
    }

    /// Keeps only the columns that a function accepts, and removes all indexes.
    ///
    /// Tables without columns are removed. References may then name tables that are not in the
    /// schema.
    pub(crate) fn retain_columns(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        for table in &mut self.tables {
            let name = table.name.clone();
            table.columns.retain(|column| keep(&name, &column.name));
            let names = table.columns.iter().enumerate();
            table.names = names.map(|(index, column)| (column.name.clone(), index)).collect();
            table.indexes.clear();
        }
        self.tables.retain(|table| !table.columns.is_empty());
        let names = self.tables.iter().enumerate();
        self.names = names.map(|(index, table)| (table.name.clone(), index)).collect();
    }

    /// Checks the tables and the strengths of references.
    fn check_references(&self) -> Result<(), DatabaseSchemaError> {
        for table in &self.tables {
            for column in &table.columns {
                let bases = std::iter::once(&column.kind.key).chain(&column.kind.value);
                for (target, strength) in bases.filter_map(BaseType::reference) {
                    let place = format!("Table {} column {}", table.name, column.name);
                    if !self.names.contains_key(target) {
                        let problem = format!("{place} references undefined table {target}");
                        return Err(DatabaseSchemaError::new(problem));
                    }
                    if column.ephemeral && strength == ReferenceStrength::Strong {
                        let (_, target) = self.find_table(target).ok_or_else(|| {
                            DatabaseSchemaError::new(format!("{place} references no table"))
                        })?;
                        if !target.is_root {
                            return Err(DatabaseSchemaError::new(format!(
                                "{place} is ephemeral, and cannot keep rows of {} by strong references",
                                target.name
                            )));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl TableDefinition {
    /// Parses the schema of a table. Fails for reserved names and wrong members.
    fn from_json(name: &str, json: &Value) -> Result<Self, DatabaseSchemaError> {
        let failed = |reason| {
            DatabaseSchemaError::new(format!(
                "Parsing table schema for table {name} failed: {reason}"
            ))
        };
        if !is_id(name) || name.starts_with('_') {
            return Err(failed("names beginning with \"_\" are reserved".to_owned()));
        }
        let members = Members::of(json).ok_or_else(|| failed("Object expected.".to_owned()))?;
        let column_objects = members.object("columns").map_err(failed)?;
        let max_rows = members.find_integer("maxRows").map_err(failed)?;
        let max_rows = max_rows.map(usize::try_from).transpose();
        let max_rows = max_rows.map_err(|_| failed("maxRows must be at least 1".to_owned()))?;
        let says_root = members.find_boolean("isRoot").map_err(failed)?.unwrap_or(false);
        let indexes = members.find_array("indexes").map_err(failed)?.unwrap_or_default();
        members.finish().map_err(failed)?;
        if max_rows == Some(0) {
            return Err(failed("maxRows must be at least 1".to_owned()));
        }
        let mut columns = Vec::with_capacity(column_objects.len());
        for (name, json) in column_objects {
            columns.push(ColumnDefinition::from_json(name, json)?);
        }
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        let names = columns.iter().enumerate().map(|(index, column)| (column.name.clone(), index));
        let mut table = Self {
            name: name.to_owned(),
            names: names.collect(),
            columns,
            is_root: false,
            max_rows,
            indexes: Vec::new(),
            says_root,
        };
        for index in indexes {
            let index = table.index(index).map_err(failed)?;
            table.indexes.push(index);
        }
        Ok(table)
    }

    /// Parses an index: the columns that are unique together.
    fn index(&self, json: &Value) -> Result<Vec<usize>, String> {
        let names = json.as_array().filter(|names| !names.is_empty());
        let names = names.ok_or("array of distinct column names expected")?;
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let column = name.as_str().and_then(|name| self.names.get(name));
            let column = *column.ok_or_else(|| format!("{name} is not a valid column name"))?;
            if self.columns.get(column).is_some_and(|column| column.ephemeral) {
                return Err(format!("ephemeral column {name} not allowed in index"));
            }
            if columns.contains(&column) {
                return Err(format!("column {name} is twice in an index"));
            }
            columns.push(column);
        }
        Ok(columns)
    }

    /// Returns the schema of the table in JSON, without its name.
    fn to_json(&self) -> Value {
        let columns = self.columns.iter().map(|column| (column.name.clone(), column.to_json()));
        let mut members = Map::new();
        members.insert("columns".to_owned(), Value::Object(columns.collect()));
        if let Some(max_rows) = self.max_rows {
            members.insert("maxRows".to_owned(), max_rows.into());
        }
        if self.says_root {
            members.insert("isRoot".to_owned(), true.into());
        }
        if !self.indexes.is_empty() {
            let name = |column: &usize| self.columns.get(*column).map(|column| &*column.name);
            let names = |index: &Vec<usize>| index.iter().filter_map(name).collect::<Vec<_>>();
            let indexes: Vec<Value> =
                self.indexes.iter().map(|index| Value::from(names(index))).collect();
            members.insert("indexes".to_owned(), indexes.into());
        }
        Value::Object(members)
    }

    /// Returns the name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the columns in the order of their names, without `_uuid` and `_version`.
    #[must_use]
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// Returns the position and definition of a column.
    #[must_use]
    pub fn find_column(&self, name: &str) -> Option<(usize, &ColumnDefinition)> {
        let index = *self.names.get(name)?;
        Some((index, self.columns.get(index)?))
    }

    /// Returns whether rows of the table are kept without a reference to them.
    #[must_use]
    pub const fn is_root(&self) -> bool {
        self.is_root
    }

    /// Returns the largest allowed number of rows.
    #[must_use]
    pub const fn max_rows(&self) -> Option<usize> {
        self.max_rows
    }

    /// Returns the columns of each index: no two rows have equal values in all of them.
    #[must_use]
    pub fn indexes(&self) -> &[Vec<usize>] {
        &self.indexes
    }
}

impl ColumnDefinition {
    /// Parses the schema of a column. Fails for reserved names and wrong members.
    fn from_json(name: &str, json: &Value) -> Result<Self, DatabaseSchemaError> {
        let failed = |reason| {
            DatabaseSchemaError::new(format!("Parsing schema for column {name} failed: {reason}"))
        };
        if !is_id(name) || name.starts_with('_') {
            return Err(failed("names beginning with \"_\" are reserved".to_owned()));
        }
        let members = Members::of(json).ok_or_else(|| failed("Object expected.".to_owned()))?;
        let kind = ColumnType::from_json(members.required("type").map_err(failed)?)?;
        let mutable = members.find_boolean("mutable").map_err(failed)?.unwrap_or(true);
        let ephemeral = members.find_boolean("ephemeral").map_err(failed)?.unwrap_or(false);
        members.finish().map_err(failed)?;
        Ok(Self { name: name.to_owned(), kind, mutable, ephemeral })
    }

    /// Returns the schema of the column in JSON, without its name.
    fn to_json(&self) -> Value {
        let mut members = Map::from_iter([("type".to_owned(), self.kind.to_json())]);
        if !self.mutable {
            members.insert("mutable".to_owned(), false.into());
        }
        if self.ephemeral {
            members.insert("ephemeral".to_owned(), true.into());
        }
        Value::Object(members)
    }

    /// Returns the name of the column.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the values of the column.
    #[must_use]
    pub const fn kind(&self) -> &ColumnType {
        &self.kind
    }

    /// Returns whether a value may change after its insertion.
    #[must_use]
    pub const fn is_mutable(&self) -> bool {
        self.mutable
    }

    /// Returns whether a value is lost when the server stops.
    #[must_use]
    pub const fn is_ephemeral(&self) -> bool {
        self.ephemeral
    }

    /// Returns whether values refer to rows.
    #[must_use]
    pub fn has_references(&self, strength: ReferenceStrength) -> bool {
        let bases = std::iter::once(&self.kind.key).chain(&self.kind.value);
        bases.filter_map(BaseType::reference).any(|(_, other)| other == strength)
    }
}

/// Returns the type of the columns `_uuid` and `_version`.
pub(crate) const fn uuid_column_type() -> ColumnType {
    ColumnType::scalar(BaseType::plain(AtomType::Uuid))
}
