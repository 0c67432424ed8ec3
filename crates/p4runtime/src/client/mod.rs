//! A P4Runtime client: a NIC as an [`OffloadDevice`](shunt_gigaflow::offload::OffloadDevice).
//!
//! ```text
//! owner's thread                             runtime
//! P4RuntimeDevice ── tasks, bounded ──► SessionWorker ── batches ──► Session ──► NIC
//!     ▲                                      │  confirmed rules
//!     └─────────── notifications ◄───────────┘
//! ```
//!
//! [`P4RuntimeDevice`] translates operations into tasks and never waits. The worker keeps the rules
//! that the NIC has confirmed. When a connection is lost, the worker answers all pending operations
//! with `Lost`. The worker reconnects with a higher election id, so that the NIC refuses late
//! writes of the old session. After a connection, the worker reads all entries of the NIC, and
//! repairs the entries until they equal the confirmed rules. Entries are identified by their
//! `controller_metadata`, which every server returns.
//!
//! Several writes of one kind are in progress at a time, but never two that change the same entry.
//! Insertions are sent last table first. The device may still apply concurrent writes in another
//! order, so an entry can exist briefly before the entry for its next tag. A packet in this gap
//! misses and is punted to the switch; it is never forwarded wrongly.
//!
//! The server needs few features: inserts and deletes of table entries, and writes that continue
//! after an error. Arbitration, pipeline configuration and idle notifications are used if
//! available. If the server does not report which updates of a batch failed, the updates are
//! written one by one.

mod batch;
mod device;
mod encoded;
mod notifications;
mod repair;
mod session;
mod session_error;
mod settings;
mod worker;

pub use device::P4RuntimeDevice;
pub use session::{DevicePacket, PacketToSend};
pub use session_error::SessionError;
pub use settings::{ClientSettings, DeviceConfig, LastError, LivePorts};

#[cfg(test)]
pub(crate) use session::update;
