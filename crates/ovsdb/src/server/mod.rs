//! The server: sessions of clients on a Unix socket, over TCP or TLS, and the handle of the owner.
//!
//! One thread owns the databases, and changes are thus made one after another. The thread never
//! waits for a client: replies and updates go to a queue of each client, and a client with a full
//! queue is disconnected ([`ServerLimits::queued_bytes`]). [`ServerCore`] implements the protocol
//! without sockets.

mod client_log;
mod client_message;
mod config;
mod connection;
mod handle;
mod handshakes;
mod json_bytes;
mod json_text;
mod lock_table;
mod outbox;
mod probe;
mod remote;
mod requests;
mod run;
mod server_core;
mod subscription;

#[cfg(any(test, feature = "testing"))]
pub(crate) use client_message::ClientMessage;
pub use config::{ServerClock, ServerConfig, ServerLimits};
pub use handle::{OvsdbHandle, Server};
pub use outbox::{ClientQueue, Outbox};
pub use probe::RemoteTimes;
pub use remote::{RemoteStatus, RemoteTransport, ServerRemote};
pub use server_core::{ClientId, ClientOrigin, Disconnect, ServerCore};
pub use subscription::{ChangeSubscription, ChangedRow, ClientChanges};
