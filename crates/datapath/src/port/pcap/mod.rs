//! A port of capture files: it replays one file, and writes another.
//!
//! The port needs no privileges and receives the same packets in every run, so comparisons with
//! other switches use it. The file is read when the port is opened. Each frame is copied into a new
//! buffer when it is received, as a port with a device does.
//!
//! The first thread receives. Each thread that sends collects whole records and appends them by one
//! system call. The kernel does not interleave the appends of two threads, so no lock is needed.
//! Packets of two threads are in the order of these appends.

mod capture;
mod port;

pub use capture::Capture;
pub use port::{FILE_MAX, Pcap};
