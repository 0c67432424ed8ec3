//! A port of capture files: replays one, writes another.
//!
//! It needs no privileges and gives the same packets every time, so it carries the comparisons with
//! other switches. The file is read when the port is opened; each frame is copied into a fresh buffer
//! when it is received, as a port that has a device would.
//!
//! The first thread receives. Each thread writes: it collects whole records and appends them by one
//! system call, which the kernel does not let another thread's append into. No lock is needed, and
//! the order between threads is that of their appends.

mod capture;
mod port;

pub use capture::Capture;
pub use port::{FILE_MAX, Pcap};
