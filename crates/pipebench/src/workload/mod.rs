//! Generates the workload of a name: rules, flows, packets and updates.

mod build;
mod capture;
mod filters;
mod folder;
mod report;
mod switch;
mod text;
mod workload_source;

pub use build::Workload;
pub use capture::capture_statistics;
pub use folder::{PACKETS_FILE, write_capture, write_folder};
#[cfg(any(test, feature = "testing"))]
pub(crate) use switch::draw_flows_of_dump;
pub use text::RuleLine;
