//! Memory and descriptors that another process shares over a Unix socket.
//!
//! The protocols vhost-user and memif pass files and eventfds, and have their rings and buffers in
//! these files. The crate contains the parts that vhost-user and memif need, and all unsafe code
//! for them:
//!
//! - [`SharedMapping`] is a mapped part of a file, which the other process may write at any moment.
//! - [`send_with_descriptors`] and [`receive_with_descriptors`] pass bytes with descriptors.
//! - [`accept_event`] accepts an eventfd of the other process.
//! - [`LinkState`] is the state of the link to the other process, and [`PeerLog`] limits the log
//!   lines about that process.
//! - [`listen_at`] and [`connect_at_once`] open Unix sockets, and [`OwnSocketFile`] removes the
//!   file of a socket.
//! - [`PolledFrames`] and [`SentFrames`] are results of moving frames.
//! - [`WakeSet`] wakes a thread that waits for events of several queues.
//!
//! ```
//! use std::fs::File;
//!
//! use nix::sys::memfd::{MFdFlags, memfd_create};
//! use shunt_shared_memory::SharedMapping;
//!
//! let file = File::from(memfd_create(c"example", MFdFlags::MFD_CLOEXEC)?);
//! file.set_len(4096)?;
//! let mapping = SharedMapping::new(&file, 0, 4096)?;
//! assert!(mapping.write(100, b"four"));
//! assert!(!mapping.write(4093, b"four"), "the mapping ends");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod descriptors;
mod event;
mod link_state;
mod listen;
mod mapping;
mod moved_frames;
mod peer_log;
mod read_at_once;
mod signal_at_once;
mod socket_file;
mod wake_set;

pub use descriptors::{
    DESCRIPTORS_MAX, ReceivedBytes, receive_with_descriptors, send_with_descriptors,
};
pub use event::{EventError, accept_event, notify, reset};
pub use link_state::LinkState;
pub use listen::{ListenError, ListeningSocket, connect_at_once, listen_at};
pub use mapping::{MapError, SharedMapping};
pub use moved_frames::{PolledFrames, SendEnd, SentFrames};
pub use peer_log::{PeerLog, PeerLogNote};
pub use socket_file::OwnSocketFile;
pub use wake_set::WakeSet;
