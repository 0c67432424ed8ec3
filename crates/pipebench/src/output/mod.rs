//! Outputs of workloads: files, folders, traces in memory, and a network device.

mod file;
mod folder;
mod live;
mod parts;
mod trace;

pub use file::OutputFile;
pub use folder::OutputFolder;
pub use live::{LivePort, SendCounts};
pub use parts::remove_parts;
pub use trace::{PacketTrace, TracePacket};
