//! A P4Runtime client: a NIC that speaks P4Runtime, as an
//! [`OffloadDevice`](shunt_gigaflow::offload::OffloadDevice).
//!
//! ```text
//! owner's thread                         runtime
//! P4RuntimeDevice ── operations, bounded ──► Worker ── batches ──► Session ──► NIC
//!     ▲                                 │  what was confirmed
//!     └────────── events ◄──────────────┘
//! ```
//!
//! [`P4RuntimeDevice`] translates rules and never waits. A worker holds what the NIC has confirmed; when a
//! connection is lost it answers what was under way with `Lost`, connects again under a higher election
//! id, so that what is still on its way is refused, reads back what the NIC holds and makes it what was
//! confirmed, until both are the same. Entries are known by their `controller_metadata`, which every
//! server returns.
//!
//! Several writes of one kind are under way at a time, never two with the same entry. Insertions are
//! handed over last table first, and that is the order in which they are sent; which of the writes under
//! way the device takes first, it chooses. So an entry may be there for a moment before the one that it
//! leads to: a packet that comes then finds a hole, misses and is the switch's. It is never forwarded
//! wrongly.
//!
//! Of a server it needs little: inserts and deletes of table entries, and that it continues behind an
//! error. Arbitration, programs that can be set and idle notices are used where they are; if it does not
//! say which updates of a batch failed, they are written one by one.

mod batch;
mod device;
mod encoded;
mod repair;
mod session;
mod settings;
mod told;
mod worker;

pub use device::P4RuntimeDevice;
pub use session::{Packet, PacketToSend, SessionError};
pub use settings::{LivePorts, Settings, Trouble};

#[cfg(test)]
pub(crate) use session::update;
