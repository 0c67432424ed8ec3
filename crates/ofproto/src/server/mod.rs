//! Sockets, tasks and timers around [`Connection`](crate::connection::Connection).
//!
//! Each bridge has one [`OpenFlowServer`], and each connection has its own task. Connections share
//! only the [`Host`](crate::Host), the role registry and the event channels. A peer that is idle,
//! sends garbage or does not read affects only its own connection. Dropping a [`ServerEndpoint`]
//! ends its tasks.
//!
//! | endpoint | clients | kind |
//! | --- | --- | --- |
//! | [`OpenFlowServer::listen_unix`] | `ovs-ofctl` on `<rundir>/<bridge>.mgmt` | management |
//! | [`OpenFlowServer::listen_tcp`] | any TCP client (`ptcp:`) | management |
//! | [`OpenFlowServer::listen_tls`] | a client with a certificate (`pssl:`) | management |
//! | [`OpenFlowServer::connect_tcp`] | a configured controller (`tcp:`) | controller |
//! | [`OpenFlowServer::connect_tls`] | a configured controller (`ssl:`) | controller |

mod back_off;
mod bridge;
mod control_task;
mod fail_open;
mod listener_places;
mod listening_socket;
mod read_interest_stream;
mod reconnect_state;
mod registry;
mod reliable_events;
mod serve;
#[cfg(test)]
mod tests;

pub use bridge::{OpenFlowServer, ServerEndpoint};
pub use control_task::ControlTask;
pub use listening_socket::UnixListenSocket;
pub use reconnect_state::ReconnectState;
pub use registry::ConnectionStatus;
