//! OpenFlow: one server for each bridge, its sockets, and the notifications for controllers.

pub(crate) mod bridge_server;
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod host;
mod queues;
pub(crate) mod servers;
