//! The OpenFlow server of one bridge.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use shunt_tls::TlsIdentity;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinHandle,
};

use super::{
    ConnectionStatus,
    back_off::BackOff,
    control_task::ControlTask,
    fail_open::{ControllerEntry, FailOpen},
    listener_places::PeerActivity,
    listening_socket::{ByteStream, OpenFlowListener, UnixListenSocket, accept_all},
    reconnect_state::{ReconnectAttempts, ReconnectState},
    registry::{Registry, RegistryEntry},
    reliable_events::ReliableEvents,
    serve::serve,
};
use crate::{
    Host,
    connection::{
        Connection, ConnectionConfig, ControllerEvent, PacketInCounts, RoleRegistry, Status,
        WarningKind,
    },
    error::CloseReason,
    wire::Codec,
};

/// Number of packet-ins that may wait for a connection; older ones are dropped.
const EVENTS_BUFFERED_MAX: usize = 1024;
/// Time within which a connection must be established, its TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The OpenFlow server of one bridge: its listeners, controllers and events.
#[derive(Debug)]
pub struct OpenFlowServer<H> {
    /// The state that the connections share.
    pub(super) shared: Arc<ServerState<H>>,
}

/// The state that the connections of a bridge share.
#[derive(Debug)]
pub(super) struct ServerState<H> {
    /// The bridge, as its connections use it.
    pub(super) host: Arc<H>,
    /// The roles of all connections.
    pub(super) roles: Arc<RoleRegistry>,
    /// The channel of events that a slow connection may miss.
    pub(super) events: broadcast::Sender<ControllerEvent>,
    /// The queues of events that no connection may miss.
    pub(super) reliable_events: ReliableEvents,
    /// The connections, for the status.
    pub(super) registry: Registry,
    /// The versions that new connections may use, bit `n` for wire version `n`.
    pub(super) versions: AtomicU32,
    /// True if the bridge sends packets that no rule matches.
    pub(super) sends_misses: Mutex<bool>,
    /// The reachability of the controllers.
    pub(super) fail_open: FailOpen,
}

impl<H: Host> ServerState<H> {
    /// Creates a connection with the versions that the bridge accepts now.
    pub(super) fn new_connection(&self, config: ConnectionConfig) -> Connection {
        let versions = config.versions & self.versions.load(Ordering::Relaxed);
        let bridge = self.host.description().datapath;
        let config = ConnectionConfig { versions, bridge, ..config };
        Connection::new(config, Arc::clone(&self.roles), self.host.now())
    }

    /// Records the current state of a connection.
    pub(super) fn record(&self, entry: &mut RegistryEntry<'_>, status: Status) {
        if entry.update(status) {
            self.update_misses();
        }
    }

    /// Makes the bridge send table misses if a connection wants them, and only then.
    ///
    /// The lock orders the calls of the host, so the last one has the newest state.
    pub(super) fn update_misses(&self) {
        let mut sends_misses = self.sends_misses.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = self.registry.wants_misses();
        if *sends_misses != is_wanted {
            *sends_misses = is_wanted;
            self.host.set_sends_misses(is_wanted);
        }
    }

    /// Makes the bridge fail open, or ends this, as the controllers require now.
    pub(super) fn update_fail_open(&self) {
        let set = |fails_open| self.host.set_fails_open(fails_open);
        if let Some(change) = self.fail_open.update(self.host.now(), set) {
            change.log(&self.host.description().datapath);
        }
    }
}

/// The address of a controller, and the identity for TLS.
struct ControllerAddress {
    /// The IP address and port.
    address: SocketAddr,
    /// The identity of a connection with TLS.
    tls: Option<TlsIdentity>,
}

/// A listener or a controller; dropping it ends its connections.
#[derive(Debug)]
pub struct ServerEndpoint {
    /// The task that accepts or opens connections.
    task: JoinHandle<()>,
    /// The address of a TCP listener; `None` for a controller.
    local_address: Option<SocketAddr>,
    /// The attempts to reach a controller; `None` for a listener.
    attempts: Option<Arc<ReconnectAttempts>>,
}

impl<H: Host> OpenFlowServer<H> {
    /// Creates a server without endpoints. Open endpoints inside a tokio runtime.
    #[must_use]
    pub fn new(host: Arc<H>) -> Self {
        let (events, _) = broadcast::channel(EVENTS_BUFFERED_MAX);
        let (roles, reliable_events, registry) =
            (Arc::default(), ReliableEvents::default(), Registry::default());
        let (sends_misses, fail_open) = (Mutex::default(), FailOpen::default());
        let versions = AtomicU32::new(Codec::versions());
        let state = ServerState {
            host,
            roles,
            events,
            reliable_events,
            registry,
            versions,
            sends_misses,
            fail_open,
        };
        Self { shared: Arc::new(state) }
    }

    /// Returns the host that connections use.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.shared.host
    }

    /// Sets the versions that new connections may use, bit `n` for wire version `n`.
    ///
    /// Open connections keep their version.
    pub fn set_versions(&self, versions: u32) {
        self.shared.versions.store(versions, Ordering::Relaxed);
    }

    /// Sets whether the bridge fails open when it cannot reach its controllers.
    ///
    /// A bridge that fails open forwards each packet by NORMAL, and returns to its rules when a
    /// controller connects. Without permission, a bridge keeps to its rules.
    pub fn allow_fail_open(&self, is_allowed: bool) {
        self.shared.fail_open.allow(is_allowed);
        self.shared.update_fail_open();
    }

    /// Makes the bridge fail open if no controller was reachable for long enough.
    ///
    /// The owner of the server calls this about once a second.
    pub fn update_fail_open(&self) {
        self.shared.update_fail_open();
    }

    /// Returns whether the bridge fails open now.
    #[must_use]
    pub fn fails_open(&self) -> bool {
        self.shared.fail_open.is_open()
    }

    /// Sends an event to all subscribed connections; slow readers may lose it.
    pub fn publish(&self, event: ControllerEvent) {
        // The send fails if no connection exists, which is not an error.
        let _ = self.shared.events.send(event);
    }

    /// Sends a packet-in to all connections; returns whether one of them receives
    /// packet-ins.
    ///
    /// A client of a listener or of the management socket receives none until it asks for them.
    #[must_use]
    pub fn publish_packet_in(&self, packet: ControllerEvent) -> bool {
        let is_wanted = self.shared.registry.wants_packet_ins();
        self.shared.events.send(packet).is_ok() && is_wanted
    }

    /// Sends events that must not be lost to all connections.
    ///
    /// A connection that lags too far behind is closed. The controller reads the current state
    /// after it has reconnected.
    pub fn publish_reliable(&self, events: &[ControllerEvent]) {
        self.shared.reliable_events.publish_reliable(events);
    }

    /// Returns the status of the current connections.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.registry.list()
    }

    /// Returns the packet-in counts of all connections, also of ended ones.
    #[must_use]
    pub fn packet_ins(&self) -> PacketInCounts {
        self.shared.registry.packet_ins()
    }

    /// Serves management clients on a unix socket.
    #[must_use]
    pub fn listen_unix(&self, socket: UnixListenSocket) -> ServerEndpoint {
        self.listen(OpenFlowListener::Unix(socket))
    }

    /// Serves management clients at a TCP port (`ptcp:`).
    #[must_use]
    pub fn listen_tcp(&self, listener: TcpListener) -> ServerEndpoint {
        self.listen(OpenFlowListener::Tcp(listener))
    }

    /// Serves management clients with a certificate at a TCP port (`pssl:`).
    #[must_use]
    pub fn listen_tls(&self, listener: TcpListener, identity: TlsIdentity) -> ServerEndpoint {
        self.listen(OpenFlowListener::Tls(listener, identity))
    }

    /// Connects to a controller (`tcp:`), and reconnects whenever the connection ends.
    #[must_use]
    pub fn connect_tcp(&self, address: SocketAddr, config: ConnectionConfig) -> ServerEndpoint {
        self.connect(ControllerAddress { address, tls: None }, config)
    }

    /// Connects to a controller with TLS (`ssl:`), and reconnects when it ends.
    ///
    /// The switch and its peer need a certificate of the authority of `identity`.
    #[must_use]
    pub fn connect_tls(
        &self,
        address: SocketAddr,
        config: ConnectionConfig,
        identity: TlsIdentity,
    ) -> ServerEndpoint {
        self.connect(ControllerAddress { address, tls: Some(identity) }, config)
    }

    /// Starts a task that connects to a controller.
    ///
    /// The controller exists from the return of this function on. A bridge that fails open would
    /// else have no controllers until the task runs, and would return to its rules.
    fn connect(&self, to: ControllerAddress, config: ConnectionConfig) -> ServerEndpoint {
        let shared = Arc::clone(&self.shared);
        let attempts = Arc::<ReconnectAttempts>::default();
        let task_attempts = Arc::clone(&attempts);
        let controller = shared.fail_open.add_controller(config.inactivity_probe);
        let name = format!("controller {}", config.peer);
        let task = tokio::spawn(ControlTask::new(name, async move {
            keep_connected(&to, &config, &shared, &task_attempts, &controller).await;
        }));
        ServerEndpoint { task, local_address: None, attempts: Some(attempts) }
    }

    /// Starts a task that accepts connections.
    fn listen(&self, listener: OpenFlowListener) -> ServerEndpoint {
        let local_address = listener.local_address();
        let task = tokio::spawn(accept_all(listener, Arc::clone(&self.shared)));
        ServerEndpoint { task, local_address, attempts: None }
    }
}

impl ServerEndpoint {
    /// Returns the TCP address of a listener.
    ///
    /// If the configured port is 0, the address contains the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> Option<SocketAddr> {
        self.local_address
    }

    /// Closes the socket and its connections, and waits until they are closed.
    ///
    /// Afterwards another endpoint can listen on the address.
    pub async fn close(mut self) {
        self.task.abort();
        // The task was aborted, so it has no result.
        let _ = (&mut self.task).await;
    }

    /// Returns the state of the controller connection; `None` for a listener.
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

impl ControllerAddress {
    /// Makes one attempt to connect to the controller.
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let stream = TcpStream::connect(self.address).await?;
        // `TCP_NODELAY` sends small replies at once. An error of the option only delays replies, so
        // it is ignored.
        let _ = stream.set_nodelay(true);
        let Some(identity) = &self.tls else { return Ok(Box::new(stream)) };
        let stream = identity.connect(stream).await;
        let failed = |error: io::Error| io::Error::other(CloseReason::Handshake(error.to_string()));
        Ok(Box::new(stream.map_err(failed)?))
    }
}

/// Connects to a controller again and again, until the server ends.
async fn keep_connected<H: Host>(
    to: &ControllerAddress,
    config: &ConnectionConfig,
    shared: &ServerState<H>,
    attempts: &ReconnectAttempts,
    controller: &ControllerEntry,
) {
    let peer = &config.peer;
    let mut back_off = BackOff::new();
    loop {
        attempts.note_connecting();
        let (reason, open_for) = connect_once(to, config, shared, attempts, controller).await;
        let pause = back_off.advance(open_for.unwrap_or_default());
        attempts.note_waiting(reason.clone(), shared.host.now().after(pause));
        if open_for.is_some() {
            let now = shared.host.now();
            let is_logged = config.warnings.warn(WarningKind::Connection, now, |suppressed| {
                tracing::warn!(peer, reason, suppressed, "controller disconnected");
            });
            if !is_logged {
                tracing::debug!(peer, reason, "controller disconnected");
            }
        } else if attempts.note_failed() {
            tracing::warn!(peer, reason, "controller unreachable, retrying");
        } else {
            tracing::debug!(peer, reason, "controller unreachable");
        }
        tokio::time::sleep(pause).await;
    }
}

/// Connects to a controller once and serves the connection until it ends.
///
/// Returns why the connection ended, and how long it was open after version negotiation.
async fn connect_once<H: Host>(
    to: &ControllerAddress,
    config: &ConnectionConfig,
    shared: &ServerState<H>,
    attempts: &ReconnectAttempts,
    controller: &ControllerEntry,
) -> (String, Option<Duration>) {
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, to.connect()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return (error.to_string(), None),
        Err(_) => return ("the connection attempt timed out".to_owned(), None),
    };
    let opened = || {
        attempts.note_connected();
        controller.note_connected();
        shared.update_fail_open();
        tracing::info!(peer = config.peer, "controller connected");
    };
    // A connection to a controller has no place that it could lose.
    let activity = PeerActivity::default();
    let ended = serve(stream, config.clone(), shared, &activity, opened).await;
    // A silent controller sent its last message two intervals before.
    let is_silent = matches!(ended.reason, CloseReason::Silent { .. });
    let silent_for = config.inactivity_probe.saturating_mul(if is_silent { 2 } else { 0 });
    controller.note_disconnected(shared.host.now(), silent_for);
    (ended.reason.to_string(), ended.open_for)
}
