//! One connection of a controller, without input or output of its own.
//!
//! A [`Connection`] takes bytes and events and the time, and gives bytes; whoever owns it moves
//! them. So every rule of the protocol is tested without a socket.
//!
//! ```text
//!              receive(bytes)                       poll_output / consume
//!  peer ───────────────────────► ┌────────────┐ ───────────────────────► peer
//!              notify(event)     │            │
//!  switch ─────────────────────► │ Connection │ ◄──── process(host) ───► Host
//!              tick(now)         │            │
//!  clock ──────────────────────► └────────────┘ ──► Step: what it waits for
//! ```
//!
//! # Order
//!
//! Requests are answered in the order in which they came. One that takes time (a barrier, which
//! waits until the connection's changes are in force everywhere; a question for counters, which
//! waits until they are handed in) stops the ones behind it: [`Connection::process`] says what to
//! wait for, and [`Connection::resume`] goes on. Events may overtake what waits.
//!
//! # Bounds
//!
//! A peer that does not read makes its own connection stand still: requests are not looked at
//! while more than [`Limits::replies_max`] bytes wait to be sent, events are dropped beyond
//! [`Limits::events_max`] and counted, and the connection ends when next to nothing was taken for
//! [`Limits::stall_timeout`].

mod assembly;
mod bundles;
mod config;
mod endpoint;
mod event;
mod hello;
mod output;
mod probe;
mod rate;
mod requests;
mod role;
mod space;
mod statistics;
#[cfg(test)]
mod tests;

pub use config::{ConnectionConfig, ConnectionKind, Limits};
pub use endpoint::{Connection, Status, Step, Wait};
pub use event::Event;
pub use rate::WarningRate;
pub use role::{ConnectionId, RoleBoard};
pub use space::BundleSpace;
