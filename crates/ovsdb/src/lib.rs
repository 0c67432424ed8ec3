//! An OVSDB server and client: RFC 7047 with the extensions that Open vSwitch uses.
//!
//! `ovs-vsctl`, `ovsdb-client`, OVN and the libraries of other projects configure a switch through
//! its OVSDB. The crate is an OVSDB server as a library. The crate knows databases, but no switch:
//! the owner of the server reads rows, writes status columns, and is notified of the changes of
//! clients. A program can do the same with the database of a foreign server, by a [`client`].
//!
//! | module | contents | has no |
//! | --- | --- | --- |
//! | [`schema`], [`value`] | schemas with their constraints, and values of columns | rows |
//! | [`database`] | rows in memory, references, garbage collection, indexes | JSON-RPC |
//! | [`transaction`] | the operations of a `transact` request | sessions |
//! | [`monitor`] | the rows and columns that a client follows | sockets |
//! | [`log`] | the file, in the format of `ovsdb-tool` | clients |
//! | [`server`] | sessions, locks, the socket, and the handle of the owner | — |
//! | [`client`] | the rows of a foreign server, and transactions there | log |
//!
//! ```
//! use shunt_ovsdb::{Server, ServerConfig, schema, value::Datum};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (log, socket) = (folder.path().join("conf.db"), folder.path().join("db.sock"));
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! runtime.block_on(async {
//!     // A database in a log file. `ovs-vsctl --db=unix:SOCKET` works from here on.
//!     let server = Server::open(schema::open_vswitch(), Some(&log), ServerConfig::default())?;
//!     let handle = server.listen(&socket)?.start()?;
//!
//!     // The owner adds the one row of `Open_vSwitch`.
//!     let mut transaction = handle.transaction("initialize");
//!     let root = transaction.insert("Open_vSwitch", [("next_cfg", Datum::integer(1))]);
//!     handle.transact(transaction).await?;
//!
//!     // It reads the configuration, and reports that it has applied it.
//!     let snapshot = handle.snapshot().await?;
//!     let row = snapshot.row("Open_vSwitch", root).ok_or("no row")?;
//!     let wanted = row.integer("next_cfg").unwrap_or_default();
//!     let mut transaction = handle.transaction("applied");
//!     transaction.update("Open_vSwitch", root, [("cur_cfg", Datum::integer(wanted))]);
//!     handle.transact(transaction).await?;
//!
//!     handle.stop().await;
//!     Ok(())
//! })
//! # }
//! ```

pub mod client;
pub mod database;
mod error;
mod framing;
mod json_object;
pub mod log;
pub mod monitor;
pub mod schema;
pub mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transaction;
pub mod value;

pub use database::{DatabaseSnapshot, RowView};
pub use error::{DatabaseSchemaError, ErrorTag, LogError, OvsdbServerError, TransactionError};
pub use framing::{FramingError, JsonFramer};
pub use server::{
    ChangeSubscription, OvsdbHandle, RemoteTimes, RemoteTransport, Server, ServerConfig,
    ServerRemote,
};
pub use transaction::RowTransaction;
