//! A P4Runtime server around a device.
//!
//! A [`Device`] implements little: it holds entries, counts their hits and sends packets. This
//! module implements the rest of the protocol: primary election ([`Arbiter`]), the stored entries
//! ([`EntryStore`]), pipelines, wildcard reads, timeouts and errors.
//!
//! ```text
//! gRPC ──► Service ──► ServiceState (one lock) ──► Arbiter      primary election
//! │                               ├──► EntryStore   entries by table and key
//! │                               └──► Device       forwards by the entries
//! └── streams ◄── packet-ins, idle notifications, arbitration
//! ```
//!
//! Requests take the lock one after another, so writes are serialisable and the primary cannot
//! change during a write. A long read takes the lock once for each part of its response. Packets
//! from the device go through a queue, so the device never waits for the lock. The clock is passed
//! in; the server calls [`Service::tick`] regularly.

mod arbiter;
mod device;
mod limited_connection;
mod pipeline;
mod read;
mod response_part;
mod service;
mod state;
mod store;
mod stream;
mod stream_queue;
mod write;

pub use arbiter::{Arbiter, ElectionId, RoleNotice, StreamId, election_id, election_message};
pub use device::{
    ClockReading, Device, DeviceError, EntryHits, EntryNo, PacketError, ProgramError,
};
pub use service::{GrpcServer, ServerError, Service};
pub use state::ServerSettings;
pub use store::EntryStore;
pub use stream_queue::StreamReceiver;
pub use write::write;
