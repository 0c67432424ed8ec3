//! An in-memory bridge, a connection harness, message generators and fuzz targets.

mod action;
mod flow_monitor;
mod fuzz;
mod group;
mod harness;
mod host;
mod message;

pub use action::{any_action_set, any_actions, any_instructions, any_table};
#[cfg(test)]
pub(crate) use fuzz::ALL_SETTINGS;
pub use fuzz::fuzz_openflow;
pub use group::{any_group_mod, any_meter_mod, any_nicira_group_mod};
pub use harness::ConnectionHarness;
pub use host::MemoryHost;
pub use message::{any_bundle_add, any_flow_mod, any_message};
