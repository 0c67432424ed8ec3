//! Monitors: the rows and columns that a client follows.
//!
//! The three generations of monitors differ in the form of their updates. `monitor` (RFC 7047)
//! sends old and new values, `monitor_cond` sends differences of the rows that match a condition,
//! and `monitor_cond_since` adds the id of a transaction. The server keeps no history, so the
//! transaction id is always zero, as in a standalone `ovsdb-server`.

mod initial_texts;
mod monitored_table;
mod request;
mod update;

pub(crate) use initial_texts::InitialTexts;
pub use monitored_table::{MonitorVersion, RowMonitor};
