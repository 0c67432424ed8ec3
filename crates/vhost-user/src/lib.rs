//! The back-end of vhost-user network devices: the network card of a virtual machine, in this process.
//!
//! A hypervisor (the *front-end*) passes the memory of its guest over a Unix socket, and this crate
//! (the *back-end*) moves frames directly between that memory and its caller. The kernel moves no
//! frames. The kernel only delivers events that wake a sleeping side.
//!
//! - [`Backend::start`] connects to a hypervisor or listens for it, and reconnects when the
//!   connection has ended.
//! - Each thread that moves frames has a [`Worker`]: a [`FrameReceiver`] and a [`FrameSender`], which never
//!   wait and allocate nothing when warm. Several queue pairs of a guest are spread over the workers.
//! - Between guests, checksums are not completed and packets not segmented: each frame keeps its
//!   `virtio_net_hdr` ([`NetHeader`]).
//! - Queues have the split or the packed layout, as the guest chooses.
//! - A back-end that is killed loses and repeats no frame in the queues: the next back-end
//!   continues at the position that the memory of the guest has.
//! - A guest that breaks a rule of virtqueues loses only its queue: every index, length and address
//!   is copied once, and the copy is checked.
//!
//! ```
//! use shunt_vhost_user::{Backend, FrameSink, GuestLink, NetHeader, SendEnd, SocketMode};
//!
//! /// Keeps the last frame.
//! #[derive(Default)]
//! struct LastFrame(Vec<u8>);
//!
//! impl FrameSink for LastFrame {
//!     fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
//!         self.0.resize(length, 0);
//!         Some(&mut self.0)
//!     }
//!
//!     fn take(&mut self, header: NetHeader) {
//!         println!("{} bytes, header {header:?}", self.0.len());
//!     }
//! }
//!
//! # let folder = std::env::temp_dir();
//! let path = folder.join("example-guest.sock");
//! let (backend, mut workers) = Backend::start(&path, SocketMode::Client, 1)?;
//! let worker = &mut workers[0];
//! // A packet thread does this in a loop:
//! let polled = worker.receiver.receive(32, &mut LastFrame::default());
//! let sent = worker.sender.send([(NetHeader::default(), &[0; 60][..])]);
//! // No hypervisor listens at the path yet.
//! assert_eq!((polled.frames, sent.end), (0, SendEnd::Full));
//! assert!(matches!(backend.link(), GuestLink::Waiting { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: vhost-user protocol (QEMU documentation, "Vhost-user Protocol"); Virtual I/O Device 1.2.

mod announcement;
mod backend;
mod device;
mod error;
mod features;
mod link;
mod memory;
mod message;
mod message_socket;
mod net_queue;
mod queues;
mod ring;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod worker;

pub use backend::{Backend, SocketMode};
pub use error::{BackendError, RingError};
pub use features::{QUEUE_PAIRS_MAX, VirtioFeatures};
pub use link::GuestLink;
pub use net_queue::{FrameSink, NetHeader, takes_segmentation};
pub use shunt_shared_memory::{PolledFrames, SendEnd, SentFrames};
pub use worker::{FrameReceiver, FrameSender, Worker};
