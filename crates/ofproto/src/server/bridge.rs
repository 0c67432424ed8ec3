//! The OpenFlow side of one bridge.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinHandle,
};

use super::{
    ConnectionStatus,
    back_off::BackOff,
    listen::{Listener, UnixSocket, accept_all},
    notices::Notices,
    registry::Registry,
    serve::serve,
};
use crate::{
    Host,
    connection::{ConnectionConfig, Event, RoleBoard},
};

/// Events that a connection may be behind; older ones are lost to it.
const EVENTS_BEHIND_MAX: usize = 1024;
/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The OpenFlow side of one bridge: its listeners, its controllers, its events.
#[derive(Debug)]
pub struct Server<H> {
    shared: Arc<Shared<H>>,
}

/// What the connections of a bridge share.
#[derive(Debug)]
pub(super) struct Shared<H> {
    pub(super) host: Arc<H>,
    pub(super) roles: Arc<RoleBoard>,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) notices: Notices,
    pub(super) registry: Registry,
}

/// A listener or a controller; dropping it ends its connections.
#[derive(Debug)]
pub struct Endpoint {
    task: JoinHandle<()>,
    local_address: Option<SocketAddr>,
}

impl<H: Host> Server<H> {
    /// A server without endpoints. Endpoints are opened inside a tokio runtime.
    #[must_use]
    pub fn new(host: Arc<H>) -> Self {
        let (events, _) = broadcast::channel(EVENTS_BEHIND_MAX);
        let (roles, notices, registry) = (Arc::default(), Notices::default(), Registry::default());
        Self { shared: Arc::new(Shared { host, roles, events, notices, registry }) }
    }

    /// Tells every connection that wants to hear it; one that reads too slowly misses it.
    pub fn publish(&self, event: Event) {
        // Nobody listening is no failure.
        let _ = self.shared.events.send(event);
    }

    /// Tells every connection of events that none of them may miss. One that is too far behind is
    /// closed, and learns how things are when it comes back.
    pub fn insist(&self, events: &[Event]) {
        self.shared.notices.insist(events);
    }

    /// The connections there are.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.registry.list()
    }

    /// Serves management clients at a unix socket. A socket that nobody listens at is replaced.
    ///
    /// # Errors
    ///
    /// The socket cannot be bound.
    pub async fn listen_unix(&self, path: &Path) -> io::Result<Endpoint> {
        Ok(self.listen(Listener::Unix(UnixSocket::bind(path).await?)))
    }

    /// Serves management clients at a TCP port (`ptcp:`).
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn listen_tcp(&self, address: SocketAddr) -> io::Result<Endpoint> {
        Ok(self.listen(Listener::Tcp(TcpListener::bind(address).await?)))
    }

    /// Keeps a connection to a controller (`tcp:`), and tries again whenever there is none.
    #[must_use]
    pub fn connect_tcp(&self, address: SocketAddr, config: ConnectionConfig) -> Endpoint {
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(async move { stay_connected(address, &config, &shared).await });
        Endpoint { task, local_address: None }
    }

    fn listen(&self, listener: Listener) -> Endpoint {
        let local_address = listener.local_address();
        let task = tokio::spawn(accept_all(listener, Arc::clone(&self.shared)));
        Endpoint { task, local_address }
    }
}

impl Endpoint {
    /// The TCP address that a listener has, with the port that the system chose for port 0.
    #[must_use]
    pub const fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn stay_connected<H: Host>(
    address: SocketAddr,
    config: &ConnectionConfig,
    shared: &Shared<H>,
) {
    let mut back_off = BackOff::new();
    loop {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                tracing::info!(peer = config.peer, "connected to the controller");
                // Small replies must not wait for one another; without the option they only do.
                let _ = stream.set_nodelay(true);
                let ended = serve(stream, config.clone(), shared).await;
                tracing::info!(peer = config.peer, reason = %ended.reason, "lost the controller");
                if ended.was_open {
                    back_off.reset();
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(peer = config.peer, %error, "the controller cannot be reached");
            }
            Err(_) => tracing::debug!(peer = config.peer, "the controller does not answer"),
        }
        tokio::time::sleep(back_off.advance()).await;
    }
}
