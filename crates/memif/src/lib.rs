//! Memory interfaces between processes (*memif*): frames in shared memory, without the kernel.
//!
//! VPP, DPDK (`net_memif`) and programs with libmemif support this protocol. A *client* creates the
//! memory with rings and buffers, and passes it over a Unix socket to a *server*. Afterwards the
//! two processes move frames without system calls. The kernel only delivers events that wake a
//! sleeping side.
//!
//! - [`MemifInterface::start`] starts an interface in either role. The interface reconnects when
//!   the connection has ended. Several interfaces share a socket, each with its own number.
//! - Each thread that moves frames has a [`MemifWorker`]: a [`MemifReceiver`] and a
//!   [`MemifSender`], which never wait and allocate nothing when warm.
//! - A peer that breaks a rule loses its connection: each index and each descriptor is copied once,
//!   and the copy is checked. A file that its owner could shorten is refused.
//!
//! ```
//! use shunt_memif::{
//!     MemifInterface, MemifLink, MemifOptions, MemifRole, MemifSink, SendEnd,
//! };
//!
//! /// Keeps the last frame.
//! #[derive(Default)]
//! struct LastFrame(Vec<u8>);
//!
//! impl MemifSink for LastFrame {
//!     fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
//!         self.0.resize(length, 0);
//!         Some(&mut self.0)
//!     }
//!
//!     fn take(&mut self) {
//!         println!("{} bytes", self.0.len());
//!     }
//! }
//!
//! # let folder = std::env::temp_dir();
//! let socket = folder.join(format!("example-memif-{}.sock", std::process::id()));
//! let options = MemifOptions { role: MemifRole::Client, ..MemifOptions::new(&socket) };
//! let (interface, mut workers) = MemifInterface::start(options, 1)?;
//! let worker = &mut workers[0];
//! // A packet thread repeats these calls in a loop.
//! let polled = worker.receiver.receive(32, &mut LastFrame::default());
//! let sent = worker.sender.send([&[0; 60][..]]);
//! // No server listens at the socket yet.
//! assert_eq!((polled.frames, sent.end), (0, SendEnd::Full));
//! assert!(matches!(interface.link(), MemifLink::Waiting { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: memif protocol, version 2.0, as implemented by libmemif of FD.io and by the DPDK driver
//! `net_memif`.

mod control;
mod doorbell;
mod error;
mod layout;
mod link;
mod message;
mod options;
mod queues;
mod ring;
mod session;
mod socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod worker;

pub use control::MemifInterface;
pub use error::{MemifError, MemifRingError};
pub use link::MemifLink;
pub use options::{MemifOptions, MemifRole, MemifSecret};
pub use queues::QUEUES_MAX;
pub use shunt_shared_memory::{PolledFrames, SendEnd, SentFrames};
pub use worker::{MemifReceiver, MemifSender, MemifSink, MemifWorker};
