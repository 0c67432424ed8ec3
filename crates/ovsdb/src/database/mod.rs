//! Rows in memory: tables, references between rows, and indexes.
//!
//! A [`Database`] changes only by a [`ChangeSet`], which is the checked result of a transaction. A
//! change is computed, then written to the log, then applied. If the log cannot be written, the
//! database does not change.

mod change;
mod column;
mod integrity;
mod row;
mod rows;
mod snapshot;
mod store;
mod working_set;

pub use change::{ChangeSet, RowChange};
pub use column::ColumnId;
pub use row::Row;
pub(crate) use rows::RowsPart;
pub use snapshot::{DatabaseSnapshot, RowView};
pub use store::Database;
pub use working_set::WorkingSet;
