//! Schemas: tables, columns, and the types and constraints of their values (RFC 7047, section 3).

mod atom_type;
mod base_type;
mod column_type;
mod definition;
mod members;
mod provided;

pub use atom_type::AtomType;
pub use base_type::{BaseType, Constraint, ReferenceStrength};
pub use column_type::ColumnType;
pub(crate) use definition::uuid_column_type;
pub use definition::{ColumnDefinition, DatabaseSchema, TableDefinition};
pub(crate) use members::{Members, is_id};
pub use provided::{open_vswitch, server_schema};
