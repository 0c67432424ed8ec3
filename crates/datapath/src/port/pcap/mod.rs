//! A port of capture files: replays one file, writes another.
//!
//! It needs no privileges and gives the same packets every time, so the comparisons with other
//! switches use it. The file is read when the port is opened. Each frame is copied into a new
//! buffer when it is received, as a port with a device does.
//!
//! The first thread receives. Each thread writes: it collects whole records and appends them by one
//! system call. The kernel does not interleave the appends of two threads, so no lock is needed.
//! The order between threads is the order of their appends.

mod capture;
mod port;

pub use capture::Capture;
pub use port::{FILE_MAX, Pcap};
