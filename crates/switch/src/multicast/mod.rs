//! Multicast snooping: the task that learns groups, the log of multicast routers, and the table for
//! programs.

pub(crate) mod router_log;
mod table;
pub(crate) mod task;

pub use table::{MulticastEntryStatus, MulticastMessages};
