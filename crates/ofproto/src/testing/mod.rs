//! A bridge in memory, a bench with both ends of a connection, generators of messages, and what
//! fuzz targets call.

mod action;
mod bench;
mod fuzz;
mod group;
mod host;
mod message;

pub use action::{any_action_set, any_actions, any_instructions, any_table};
pub use bench::Bench;
pub use fuzz::fuzz_openflow;
pub use host::MemoryHost;
pub use message::{any_bundle_add, any_message};
