//! The OpenFlow server of one bridge, with its sockets.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    os::fd::AsFd as _,
    path::{Display, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use shunt_ofproto::{
    Host as _, PausedPackets,
    connection::{ConnectionConfig, ConnectionKind},
    server::{OpenFlowServer, ReconnectState, ServerEndpoint, UnixListenSocket},
};
use shunt_pipeline::Time;
use shunt_tls::TlsError;
use tokio::net::TcpListener;
use tracing::{error, info, warn};

use crate::{
    control::structure::OpenPolicy,
    error::{SwitchError, with_causes},
    listening_sockets::{ListeningSockets, SocketInode, inode},
    openflow::{
        endpoint::{ControllerEndpoint, ControllerTransport},
        events::SocketsToClose,
        host::BridgeHost,
    },
    status::bridge::{ConnectionSummary, ControllerState},
};

/// Interval between two attempts to listen on an address.
pub(crate) const LISTEN_RETRY: Duration = Duration::from_secs(1);

/// The OpenFlow server of one bridge; dropping the value closes its sockets.
pub(crate) struct BridgeServer {
    pub(crate) server: Arc<OpenFlowServer<BridgeHost>>,
    /// The packets that controllers have paused.
    pub(crate) paused: Arc<PausedPackets>,
    /// The listening sockets and controller connections.
    pub(crate) sockets: BridgeSockets,
    /// Listener for management clients.
    ///
    /// `None` if the switch has none, or cannot open it yet.
    pub(crate) management: Option<ManagementSocket>,
    /// Path of the management socket.
    pub(crate) management_path: Option<PathBuf>,
    /// Number of packet-ins for which no controller was connected.
    pub(crate) no_connection: u64,
}

/// The management socket of a bridge; dropping it ends its connections.
pub(crate) struct ManagementSocket {
    /// The listener; dropping it ends its connections.
    endpoint: ServerEndpoint,
    /// The path of the socket file.
    path: PathBuf,
    /// The socket file; `None` if it was removed at once.
    file: Option<SocketInode>,
}

/// The sockets of a bridge: connections to controllers, and listeners.
#[derive(Default)]
pub(crate) struct BridgeSockets(BTreeMap<ControllerEndpoint, BridgeSocket>);

/// The socket of a connection to a controller, or of a listener.
enum BridgeSocket {
    Open(ServerEndpoint),
    /// The address cannot be used now; the next attempt is at the time `until`.
    Waiting {
        /// The reason why the address cannot be used.
        reason: String,
        /// The time of the next attempt.
        until: Time,
    },
}

impl BridgeSockets {
    /// Opens and closes sockets, until exactly the sockets of `wanted` are left.
    ///
    /// `name` is the name of the bridge. Sockets that stay open keep their connections.
    ///
    /// # Errors
    ///
    /// If an address cannot be used. After an error, the old sockets stay; an old socket that was
    /// closed to free its address is opened again.
    pub(crate) async fn change(
        &mut self,
        server: &OpenFlowServer<BridgeHost>,
        name: &str,
        wanted: &[ControllerEndpoint],
        closing: SocketsToClose,
        policy: OpenPolicy,
    ) -> Result<(), SwitchError> {
        let kept: HashSet<_> = match closing {
            SocketsToClose::Removed => wanted.iter().copied().collect(),
            SocketsToClose::All => HashSet::new(),
        };
        let removed: Vec<_> = self.0.keys().filter(|own| !kept.contains(own)).copied().collect();
        let added = wanted.iter().filter(|own| !self.0.contains_key(own)).copied();
        let mut later: Vec<_> =
            wanted.iter().filter(|own| removed.contains(own)).copied().collect();
        let mut opened = Vec::new();
        for endpoint in added.collect::<Vec<_>>() {
            match open_socket(server, endpoint, name).await {
                // A socket that will be closed below may have the address.
                Err(error)
                    if is_in_use(&error) && removed.iter().any(|own| blocks(*own, endpoint)) =>
                {
                    later.push(endpoint);
                }
                Err(error) if policy == OpenPolicy::Required => {
                    close_opened(server, opened).await;
                    return Err(error);
                }
                result => opened.push((endpoint, BridgeSocket::of(result, server, name))),
            }
        }
        self.close(server, &removed, name).await;
        for endpoint in removed.iter().filter(|own| !wanted.contains(own)) {
            release(server, *endpoint);
        }
        for endpoint in later {
            match open_socket(server, endpoint, name).await {
                Err(error) if policy == OpenPolicy::Required => {
                    // `self.0` now has the sockets that stay open.
                    close_opened(server, opened).await;
                    for endpoint in removed {
                        let result = open_socket(server, endpoint, name).await;
                        self.0.insert(endpoint, BridgeSocket::of(result, server, name));
                    }
                    return Err(error);
                }
                result => opened.push((endpoint, BridgeSocket::of(result, server, name))),
            }
        }
        self.0.extend(opened);
        Ok(())
    }

    /// Closes sockets that may be opened again later.
    async fn close(
        &mut self,
        server: &OpenFlowServer<BridgeHost>,
        endpoints: &[ControllerEndpoint],
        name: &str,
    ) {
        for endpoint in endpoints {
            if let Some(BridgeSocket::Open(socket)) = self.0.remove(endpoint) {
                socket.close().await;
                pause(server, *endpoint);
                info!(%endpoint, "bridge {name}: its OpenFlow connections are closed");
            }
        }
    }

    /// Closes all sockets, because the bridge is being removed.
    async fn close_all(&mut self, server: &OpenFlowServer<BridgeHost>) {
        close_opened(server, std::mem::take(&mut self.0)).await;
    }

    /// Returns whether the switch still retries to open a socket.
    pub(crate) fn has_waiting(&self) -> bool {
        self.0.values().any(|socket| matches!(socket, BridgeSocket::Waiting { .. }))
    }

    /// Returns the reasons why sockets are not open.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problem = |socket: &BridgeSocket| match socket {
            BridgeSocket::Open(_) => None,
            BridgeSocket::Waiting { reason, .. } => {
                Some(format!("{reason}; the switch tries again every second"))
            }
        };
        self.0.values().filter_map(problem).collect()
    }

    /// Retries to open the sockets that could not be opened before.
    pub(crate) async fn open_waiting(&mut self, server: &OpenFlowServer<BridgeHost>, name: &str) {
        for (endpoint, socket) in &mut self.0 {
            if let BridgeSocket::Waiting { reason, until } = socket {
                match open_socket(server, *endpoint, name).await {
                    Ok(open) => *socket = BridgeSocket::Open(open),
                    Err(error) => {
                        *reason = with_causes(&error);
                        *until = next_attempt(server);
                    }
                }
            }
        }
    }
}

impl BridgeSocket {
    /// Returns the opened socket, or the time of the next attempt.
    fn of(
        opened: Result<ServerEndpoint, SwitchError>,
        server: &OpenFlowServer<BridgeHost>,
        name: &str,
    ) -> Self {
        match opened {
            Ok(socket) => Self::Open(socket),
            Err(error) => {
                let reason = with_causes(&error);
                warn!(error = reason, "bridge {name}: cannot listen for controllers, retrying");
                Self::Waiting { reason, until: next_attempt(server) }
            }
        }
    }
}

/// Closes sockets permanently; clients at their addresses are refused.
async fn close_opened(
    server: &OpenFlowServer<BridgeHost>,
    opened: impl IntoIterator<Item = (ControllerEndpoint, BridgeSocket)>,
) {
    for (endpoint, socket) in opened {
        if let BridgeSocket::Open(socket) = socket {
            socket.close().await;
            pause(server, endpoint);
            release(server, endpoint);
        }
    }
}

/// Releases the address of a closed socket, so that clients are refused.
fn release(server: &OpenFlowServer<BridgeHost>, endpoint: ControllerEndpoint) {
    if let ControllerEndpoint::Listen(_, address) = endpoint {
        server.host().listening.release_tcp(address);
    }
}

/// Records that the socket of a listener was closed, and may be opened again.
fn pause(server: &OpenFlowServer<BridgeHost>, endpoint: ControllerEndpoint) {
    if let ControllerEndpoint::Listen(_, address) = endpoint {
        server.host().listening.pause_tcp(address);
    }
}

/// Returns the time of the next attempt to connect.
fn next_attempt(server: &OpenFlowServer<BridgeHost>) -> Time {
    server.host().now().after(LISTEN_RETRY)
}

/// Returns whether both endpoints listen on the same TCP port.
fn blocks(open: ControllerEndpoint, wanted: ControllerEndpoint) -> bool {
    match (open, wanted) {
        (ControllerEndpoint::Listen(_, open), ControllerEndpoint::Listen(_, wanted)) => {
            open.port() == wanted.port()
        }
        (ControllerEndpoint::Connect(..), _) | (_, ControllerEndpoint::Connect(..)) => false,
    }
}

/// Returns whether another process uses the address.
fn is_in_use(error: &SwitchError) -> bool {
    matches!(error, SwitchError::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

/// Opens the socket of a controller or listener of the bridge `name`.
async fn open_socket(
    server: &OpenFlowServer<BridgeHost>,
    endpoint: ControllerEndpoint,
    name: &str,
) -> Result<ServerEndpoint, SwitchError> {
    match endpoint {
        ControllerEndpoint::Listen(transport, address) => {
            let failed =
                |source| SwitchError::System { doing: format!("listen on {endpoint}"), source };
            let listening = &server.host().listening;
            let listener = listening.listen_tcp(address).map_err(failed)?;
            let listener = TcpListener::from_std(listener)
                .inspect_err(|_| listening.pause_tcp(address))
                .map_err(failed)?;
            let socket = match transport {
                ControllerTransport::Tcp => server.listen_tcp(listener),
                ControllerTransport::Tls => server.listen_tls(listener, server.host().tls.clone()),
            };
            info!(%endpoint, "bridge {name}: listening for controllers");
            Ok(socket)
        }
        ControllerEndpoint::Connect(transport, address) => {
            info!(%endpoint, "bridge {name}: connecting to a controller");
            let peer = ConnectionConfig::new(endpoint.to_string(), ConnectionKind::Controller);
            Ok(match transport {
                ControllerTransport::Tcp => server.connect_tcp(address, peer),
                ControllerTransport::Tls => {
                    server.connect_tls(address, peer, server.host().tls.clone())
                }
            })
        }
    }
}

/// Opens the management socket of a bridge,
/// or takes over that of an earlier process.
pub(crate) async fn open_management(
    server: &OpenFlowServer<BridgeHost>,
    path: &Path,
) -> Result<ManagementSocket, SwitchError> {
    let failed = |source| SwitchError::System {
        doing: format!("listen on {}", path.display()),
        source: with_remedy(source),
    };
    let listening = &server.host().listening;
    let key = path.to_string_lossy();
    if let Some(socket) = listening.inherited_unix(&key, path) {
        let socket = UnixListenSocket::inherited(socket, path).map_err(failed)?;
        return Ok(ManagementSocket::new(server.listen_unix(socket), path));
    }
    let mut socket = UnixListenSocket::bind(path).await.map_err(failed)?;
    if listening.keep_unix(&key, path, socket.as_fd()) {
        socket.leave_file();
    }
    Ok(ManagementSocket::new(server.listen_unix(socket), path))
}

/// Adds the remedy to the reason why a management socket cannot be opened.
fn with_remedy(error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::IsADirectory => "move this directory away",
        io::ErrorKind::AddrInUse => "end the process that listens there",
        io::ErrorKind::NotFound => "create its directory for the user of the daemon",
        io::ErrorKind::PermissionDenied => "let the user of the daemon write to its directory",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// Returns the problem of a bridge without its management socket, as a phrase.
pub(crate) fn management_problem(error: &SwitchError) -> String {
    format!(
        "no management socket, so ovs-ofctl cannot connect: {}; the switch tries again every second",
        with_causes(error)
    )
}

impl ManagementSocket {
    /// Returns the socket at `path`, and remembers its file.
    fn new(endpoint: ServerEndpoint, path: &Path) -> Self {
        Self { endpoint, path: path.to_owned(), file: inode(path) }
    }

    /// Returns the path of the socket, for the log.
    pub(crate) fn path(&self) -> Display<'_> {
        self.path.display()
    }

    /// Returns whether clients that open the path reach this socket.
    pub(crate) fn is_reachable(&self) -> bool {
        self.file.is_some() && inode(&self.path) == self.file
    }

    /// Closes the socket and its connections, and waits until they are closed.
    ///
    /// Leaves a file of another process at the path.
    pub(crate) async fn close(self, listening: &ListeningSockets) {
        self.endpoint.close().await;
        listening.release_unix(&self.path.to_string_lossy());
    }
}

impl BridgeServer {
    /// Closes all sockets, because the bridge is being removed.
    pub(crate) async fn close(mut self) {
        self.sockets.close_all(&self.server).await;
        if let Some(path) = &self.management_path {
            self.server.host().listening.release_unix(&path.to_string_lossy());
        }
    }

    /// Returns the connections that have negotiated an OpenFlow version.
    pub(crate) fn connections(&self) -> Vec<ConnectionSummary> {
        let open = self.server.connections().into_iter().filter(|own| own.status.is_open);
        open.map(|own| ConnectionSummary {
            peer: own.peer,
            role: own.status.role.name(),
            packet_ins: own.status.packet_ins.into(),
        })
        .collect()
    }

    /// Returns the reason why no controller can connect to a listener with TLS.
    ///
    /// The files are read at each handshake, and here only their names are known.
    fn handshake_problem(&self, endpoint: ControllerEndpoint) -> Option<String> {
        let ControllerEndpoint::Listen(ControllerTransport::Tls, _) = endpoint else {
            return None;
        };
        let has_files = self.server.host().tls.files().is_some();
        (!has_files).then(|| TlsError::NotSet.to_string())
    }

    /// Returns the state of a socket; `target` is its address in the configuration.
    ///
    /// `None` while the socket is being opened or closed.
    pub(crate) fn state(&self, target: &str, now: Time) -> Option<ControllerState> {
        let endpoint = target.parse::<ControllerEndpoint>().ok()?;
        let chooses_port =
            matches!(endpoint, ControllerEndpoint::Listen(_, address) if address.port() == 0);
        let waiting = |reason: &str, until: Time| {
            let retry_in_s = until.since(now).as_millis().div_ceil(1000);
            // The number of seconds always fits 64 bits.
            let retry_in_s = u64::try_from(retry_in_s).unwrap_or(u64::MAX);
            ControllerState::Waiting { reason: reason.to_owned(), retry_in_s }
        };
        let socket = match self.sockets.0.get(&endpoint)? {
            BridgeSocket::Waiting { reason, until } => return Some(waiting(reason, *until)),
            BridgeSocket::Open(socket) => socket,
        };
        Some(match socket.reconnect_state() {
            None => ControllerState::Listening {
                port: socket.local_address().map(|own| own.port()).filter(|_| chooses_port),
                problem: self.handshake_problem(endpoint),
            },
            Some(ReconnectState::Connecting) => ControllerState::Connecting,
            Some(ReconnectState::Waiting { reason, until }) => waiting(&reason, until),
            Some(ReconnectState::Connected) => {
                let peer = endpoint.to_string();
                let connections = self.server.connections();
                let own = connections.iter().find(|connection| connection.peer == peer);
                // A missing connection has just been closed, so the socket is connecting again.
                own.map_or(ControllerState::Connecting, |own| ControllerState::Connected {
                    role: own.status.role.name(),
                })
            }
        })
    }
}

impl Drop for BridgeServer {
    fn drop(&mut self) {
        if self.server.host().listening.are_kept() {
            // The next process needs the socket file.
            return;
        }
        // Without a socket of this bridge, the file belongs to another process.
        if self.management.as_ref().is_some_and(ManagementSocket::is_reachable)
            && let Some(path) = &self.management_path
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            error!(
                error = with_causes(&error),
                "socket {}: the file cannot be removed",
                path.display()
            );
        }
    }
}
