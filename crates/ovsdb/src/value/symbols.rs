//! Names of rows within a transaction (`uuid-name`, `named-uuid`).

use std::collections::BTreeMap;

use super::{RowUuid, UuidGenerator};

/// The UUIDs of the rows that a transaction names, also before it inserts them.
#[derive(Debug)]
pub struct SymbolTable<'a> {
    uuids: &'a mut UuidGenerator,
    /// The rows by the names that the operations use.
    names: BTreeMap<String, NamedRow>,
}

/// The UUID of a name, and if a row was inserted under this name.
#[derive(Clone, Copy, Debug)]
struct NamedRow {
    uuid: RowUuid,
    /// True once a row was inserted under the name.
    inserted: bool,
}

impl<'a> SymbolTable<'a> {
    /// Creates a table without names.
    pub const fn new(uuids: &'a mut UuidGenerator) -> Self {
        Self { uuids, names: BTreeMap::new() }
    }

    /// Returns the UUID of a name; the row with the name may be inserted later.
    pub fn refer(&mut self, name: &str) -> RowUuid {
        if let Some(row) = self.names.get(name) {
            return row.uuid;
        }
        let uuid = self.uuids.generate();
        self.names.insert(name.to_owned(), NamedRow { uuid, inserted: false });
        uuid
    }

    /// Returns the UUID of a row that is inserted under a name.
    ///
    /// `None` means that the name is taken.
    pub fn insert(&mut self, name: &str, uuid: Option<RowUuid>) -> Option<RowUuid> {
        let known = self.names.get(name).copied();
        if known.is_some_and(|row| row.inserted) {
            return None;
        }
        let fresh = known.map(|row| row.uuid).or(uuid).unwrap_or_else(|| self.uuids.generate());
        self.names.insert(name.to_owned(), NamedRow { uuid: fresh, inserted: true });
        Some(fresh)
    }

    /// Returns a UUID without a name.
    pub fn generate(&mut self) -> RowUuid {
        self.uuids.generate()
    }
}
