//! One connection of a controller, without I/O of its own.
//!
//! A [`Connection`] takes received bytes, events and the time, and returns bytes to send. The
//! caller moves the bytes, so every protocol rule is tested without a socket.
//!
//! ```text
//! receive(bytes)                       poll_output / consume
//!  peer ───────────────────────► ┌────────────┐ ───────────────────────► peer
//! notify(event)     │            │
//!  switch ─────────────────────► │ Connection │ ◄──── process(host) ───► Host
//! tick(now)         │            │
//!  clock ──────────────────────► └────────────┘ ──► ConnectionStep: what it waits for
//! ```
//!
//! # Order
//!
//! The connection replies to requests in the order in which they arrive. Two kinds of request wait:
//! a barrier, until the changes of this connection are in force on every thread; and a request for
//! counters, until the threads have reported them. Requests that arrive later wait behind the
//! waiting request. [`Connection::process`] returns the condition to wait for, and
//! [`Connection::resume`] finishes the request. Events may overtake waiting replies. Updates of flow
//! monitors are sent before the next request is handled.
//!
//! # Bounds
//!
//! A peer that does not read stalls only its own connection:
//!
//! * Requests are not handled while more than [`ConnectionLimits::replies_max`] bytes wait to be
//!   sent.
//! * Events beyond [`ConnectionLimits::events_max`] bytes are dropped and counted.
//! * Flow monitors are paused at [`ConnectionLimits::monitored_changes_max`] waiting changes.
//! * [`ConnectionStep::Busy`] lets other tasks run between many comparisons of rules and monitors.
//! * The connection ends if the peer reads almost nothing for [`ConnectionLimits::stall_timeout`].

mod assembly;
mod bundle_quota;
mod bundles;
mod change_log;
mod config;
mod endpoint;
mod event;
mod flow_monitors;
mod hello;
mod output;
mod probe;
mod rate;
mod requests;
mod role;
mod statistics;
#[cfg(test)]
pub(crate) mod tests;
mod update_writer;

pub use bundle_quota::BundleQuota;
pub use config::{ConnectionConfig, ConnectionKind, ConnectionLimits};
pub use endpoint::{Connection, ConnectionStep, Status, Wait};
pub use event::ControllerEvent;
pub use output::PacketInCounts;
pub(crate) use rate::WarningKind;
pub use rate::WarningRate;
pub use requests::is_listable;
pub use role::{ConnectionId, RoleRegistry};
