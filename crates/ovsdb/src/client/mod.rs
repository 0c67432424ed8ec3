//! A client that follows a database of a foreign server, such as `ovsdb-server`.
//!
//! The client keeps a [`Replica`] of some columns of some tables, and writes transactions. The
//! client reconnects when the connection is lost, with growing pauses, and keeps the rows
//! meanwhile. A client with a lock of the server writes only while it owns the lock.
//!
//! | part | task | has no |
//! | --- | --- | --- |
//! | [`Replica`] | rows in memory, changed by `update`, `update2` and `update3` | requests |
//! | [`ReplicaSession`] | one connection as a state machine: schema, monitor, lock, transactions | sockets, clocks |
//! | [`OvsdbClient`] | the task with the socket, and the handle for the program | rules of the protocol |
//!
//! The session first requests `monitor_cond_since`, with the id of the last transaction that it has
//! received. If the server lacks this method, the session requests `monitor_cond`, and then
//! `monitor` of RFC 7047. Every message from a server is checked. The first invalid message ends
//! the connection, and the next connection reads all rows again.

mod config;
mod connection;
mod error;
mod handle;
mod message;
mod operations;
mod remote;
mod replica;
mod session;

pub use config::{FollowedTable, OvsdbClientConfig};
pub use error::OvsdbClientError;
pub use handle::{ClientTransactionError, OvsdbClient};
pub use message::ServerMessage;
pub use remote::{InvalidRemote, OvsdbRemote};
pub use replica::{Replica, UpdateFormat};
pub use session::{ReplicaSession, ReplicaState, ServerLock, TransactionReply};
