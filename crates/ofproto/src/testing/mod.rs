//! A bridge in memory, a bench with both ends of a connection, generators of messages, and what
//! fuzz targets call.

mod bench;
mod fuzz;
mod host;
mod message;

pub use bench::Bench;
pub use fuzz::fuzz_openflow;
pub use host::MemoryHost;
pub use message::{any_actions, any_bundle_add, any_message};
