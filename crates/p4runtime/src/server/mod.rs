//! A P4Runtime server around a device.
//!
//! [`Device`] is the little that a device must do: hold entries that have been checked, count their
//! hits, send packets. All that the protocol says besides is here: who may write ([`Arbiter`]), which
//! entries there are ([`Store`]), pipelines, reads with wildcards, timeouts, errors.
//!
//! ```text
//! gRPC ──► Service ──► State (one lock) ──► Arbiter   who is primary
//!             │                        ├──► Store     entries, by table and key
//!             │                        └──► Device    what holds them
//!             └── streams ◄── packets in, idle notices, arbitration
//! ```
//!
//! Requests take the lock one after another, so writes are serialisable, and who was primary when a
//! write began is so until it has ended. A long read takes the lock again and again, for a part of its
//! answer each. Packets of the device come by a queue: whoever hands one over never waits for the lock.
//! The clock is passed in: [`Service::tick`] is called now and then.

mod arbiter;
mod connection;
mod device;
mod part;
mod pipeline;
mod queue;
mod read;
mod service;
mod state;
mod store;
mod stream;
mod write;

pub use arbiter::{Advice, Arbiter, ElectionId, StreamId, election_id, election_message};
pub use device::{Device, DeviceError, EntryNo, Hits, Now, PacketError, ProgramError};
pub use queue::Queued;
pub use service::{Server, ServerError, Service};
pub use state::Settings;
pub use store::Store;
pub use write::write;
