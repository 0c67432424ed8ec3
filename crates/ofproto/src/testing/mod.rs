//! A bridge in memory, a bench with both ends of a connection, generators of messages, and what
//! fuzz targets call.

mod action;
mod fuzz;
mod group;
mod harness;
mod host;
mod message;

pub use action::{any_action_set, any_actions, any_instructions, any_table};
pub use fuzz::fuzz_openflow;
pub use harness::ConnectionHarness;
pub use host::MemoryHost;
pub use message::{any_bundle_add, any_message};
