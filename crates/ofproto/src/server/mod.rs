//! Sockets, tasks and time around [`Connection`](crate::connection::Connection).
//!
//! One [`OpenFlowServer`] per bridge. Every connection is a task of its own and shares nothing with the
//! others but the [`Host`](crate::Host), the board of roles and the stream of events; one that says
//! nothing, sends garbage or does not read harms only itself. A task ends when its
//! [`ServerEndpoint`] is dropped.
//!
//! | endpoint | who comes | kind |
//! | --- | --- | --- |
//! | [`OpenFlowServer::listen_unix`] | `ovs-ofctl` on `<rundir>/<bridge>.mgmt` | management |
//! | [`OpenFlowServer::listen_tcp`] | anyone (`ptcp:`) | management |
//! | [`OpenFlowServer::connect_tcp`] | a configured controller (`tcp:`) | controller |

mod back_off;
mod bridge;
mod listening_socket;
mod read_interest_stream;
mod reconnect_state;
mod registry;
mod reliable_events;
mod serve;
#[cfg(test)]
mod tests;

pub use bridge::{OpenFlowServer, ServerEndpoint};
pub use reconnect_state::ReconnectState;
pub use registry::ConnectionStatus;
