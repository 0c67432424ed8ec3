//! Values of columns: atoms, sets and maps.

mod atom;
mod datum;
mod difference;
mod symbols;
mod uuid;

pub use atom::{Atom, OrderedReal};
pub use datum::Datum;
pub use symbols::SymbolTable;
pub use uuid::{InvalidUuid, RowUuid, UuidGenerator};
