//! Sockets, tasks and time around [`Connection`](crate::connection::Connection).
//!
//! One [`Server`] per bridge. Every connection is a task of its own and shares nothing with the
//! others but the [`Host`](crate::Host), the board of roles and the stream of events; one that says
//! nothing, sends garbage or does not read harms only itself. A task ends when its
//! [`Endpoint`] is dropped.
//!
//! | endpoint | who comes | kind |
//! | --- | --- | --- |
//! | [`Server::listen_unix`] | `ovs-ofctl` on `<rundir>/<bridge>.mgmt` | management |
//! | [`Server::listen_tcp`] | anyone (`ptcp:`) | management |
//! | [`Server::connect_tcp`] | a configured controller (`tcp:`) | controller |

mod back_off;
mod bridge;
mod listen;
mod notices;
mod quiet;
mod reach;
mod registry;
mod serve;
#[cfg(test)]
mod tests;

pub use bridge::{Endpoint, Server};
pub use reach::Reach;
pub use registry::ConnectionStatus;
