//! Outputs of workloads: files, folders, traces in memory, and a network device.

mod file;
mod folder;
mod live;
mod trace;
mod unfinished_files;

pub use file::OutputFile;
pub use folder::OutputFolder;
pub use live::{LivePort, SendCounts};
pub use trace::{PacketTrace, TracePacket};
pub use unfinished_files::remove_parts;
