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
    listening_socket::{ListeningSocket, UnixListenSocket, accept_all},
    reconnect_state::{ReconnectAttempts, ReconnectState},
    registry::Registry,
    reliable_events::ReliableEvents,
    serve::serve,
};
use crate::{
    Host,
    connection::{ConnectionConfig, ControllerEvent, RoleRegistry},
};

/// Events that a connection may be behind; older ones are lost to it.
const EVENTS_BUFFERED_MAX: usize = 1024;
/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The OpenFlow side of one bridge: its listeners, its controllers, its events.
#[derive(Debug)]
pub struct OpenFlowServer<H> {
    shared: Arc<ServerState<H>>,
}

/// What the connections of a bridge share.
#[derive(Debug)]
pub(super) struct ServerState<H> {
    pub(super) host: Arc<H>,
    pub(super) roles: Arc<RoleRegistry>,
    pub(super) events: broadcast::Sender<ControllerEvent>,
    pub(super) reliable_events: ReliableEvents,
    pub(super) registry: Registry,
}

/// A listener or a controller; dropping it ends its connections.
#[derive(Debug)]
pub struct ServerEndpoint {
    task: JoinHandle<()>,
    local_address: Option<SocketAddr>,
    /// Of a controller.
    attempts: Option<Arc<ReconnectAttempts>>,
}

impl<H: Host> OpenFlowServer<H> {
    /// A server without endpoints. Endpoints are opened inside a tokio runtime.
    #[must_use]
    pub fn new(host: Arc<H>) -> Self {
        let (events, _) = broadcast::channel(EVENTS_BUFFERED_MAX);
        let (roles, reliable_events, registry) =
            (Arc::default(), ReliableEvents::default(), Registry::default());
        Self { shared: Arc::new(ServerState { host, roles, events, reliable_events, registry }) }
    }

    /// Tells every connection that wants to hear it; one that reads too slowly misses it.
    pub fn publish(&self, event: ControllerEvent) {
        // Nobody listening is no failure.
        let _ = self.shared.events.send(event);
    }

    /// Tells every connection of events that none of them may miss. One that is too far behind is
    /// closed, and learns how things are when it comes back.
    pub fn publish_reliable(&self, events: &[ControllerEvent]) {
        self.shared.reliable_events.publish_reliable(events);
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
    pub async fn listen_unix(&self, path: &Path) -> io::Result<ServerEndpoint> {
        Ok(self.listen(ListeningSocket::Unix(UnixListenSocket::bind(path).await?)))
    }

    /// Serves management clients at a TCP port (`ptcp:`).
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub async fn listen_tcp(&self, address: SocketAddr) -> io::Result<ServerEndpoint> {
        Ok(self.listen(ListeningSocket::Tcp(TcpListener::bind(address).await?)))
    }

    /// Keeps a connection to a controller (`tcp:`), and tries again whenever there is none.
    #[must_use]
    pub fn connect_tcp(&self, address: SocketAddr, config: ConnectionConfig) -> ServerEndpoint {
        let shared = Arc::clone(&self.shared);
        let attempts = Arc::<ReconnectAttempts>::default();
        let task_attempts = Arc::clone(&attempts);
        let task =
            tokio::spawn(
                async move { keep_connected(address, &config, &shared, &task_attempts).await },
            );
        ServerEndpoint { task, local_address: None, attempts: Some(attempts) }
    }

    fn listen(&self, listener: ListeningSocket) -> ServerEndpoint {
        let local_address = listener.local_address();
        let task = tokio::spawn(accept_all(listener, Arc::clone(&self.shared)));
        ServerEndpoint { task, local_address, attempts: None }
    }
}

impl ServerEndpoint {
    /// The TCP address that a listener has, with the port that the system chose for port 0.
    #[must_use]
    pub const fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }

    /// How it stands with the controller; `None` for a listener.
    #[must_use]
    pub fn reconnect_state(&self) -> Option<ReconnectState> {
        self.attempts.as_ref().map(|attempts| attempts.reconnect_state())
    }
}

impl Drop for ServerEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep_connected<H: Host>(
    address: SocketAddr,
    config: &ConnectionConfig,
    shared: &ServerState<H>,
    attempts: &ReconnectAttempts,
) {
    let peer = &config.peer;
    let mut back_off = BackOff::new();
    loop {
        attempts.connecting();
        let (reason, was_open) = connect_once(address, config, shared, attempts).await;
        if was_open {
            back_off.reset();
        }
        let pause = back_off.advance();
        attempts.waiting(reason.clone(), shared.host.now().after(pause));
        if was_open {
            tracing::info!(peer, reason, "lost the controller");
        } else if attempts.failed() {
            tracing::warn!(
                peer,
                reason,
                "the controller cannot be reached; further attempts follow"
            );
        } else {
            tracing::debug!(peer, reason, "the controller cannot be reached");
        }
        tokio::time::sleep(pause).await;
    }
}

/// One connection to a controller, from its first packet to its end; answers why it ended, and whether
/// a version had been agreed on.
async fn connect_once<H: Host>(
    address: SocketAddr,
    config: &ConnectionConfig,
    shared: &ServerState<H>,
    attempts: &ReconnectAttempts,
) -> (String, bool) {
    let connect = TcpStream::connect(address);
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, connect).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return (error.to_string(), false),
        Err(_) => return ("it does not answer".to_owned(), false),
    };
    // Small replies must not wait for one another; without the option they only do.
    let _ = stream.set_nodelay(true);
    let opened = || {
        attempts.connected();
        tracing::info!(peer = config.peer, "connected to the controller");
    };
    let ended = serve(stream, config.clone(), shared, opened).await;
    (ended.reason.to_string(), ended.was_open)
}
