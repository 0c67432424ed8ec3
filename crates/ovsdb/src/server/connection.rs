//! Sockets and connections of clients.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use shunt_tls::TlsIdentity;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::{TcpListener, TcpStream, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::timeout,
};

use super::{
    ServerLimits,
    outbox::{ClientQueue, Outbox},
    probe::{PROBE, RemoteTimes, probe},
    remote::{RemoteHistory, RemoteTransport},
    run::ServerEvent,
    server_core::{ClientId, ClientOrigin},
};
use crate::framing::JsonFramer;

/// The state that all connections of a server share.
#[derive(Debug)]
pub(super) struct Connections {
    events: mpsc::Sender<ServerEvent>,
    limits: ServerLimits,
    next: AtomicU64,
    /// One permit for each client.
    clients: Arc<Semaphore>,
    /// One permit for each client of a TCP port.
    remote_clients: Arc<Semaphore>,
    /// Bytes of incomplete messages beyond [`PARTIAL_BYTES_FREE`] of each client.
    partial_bytes: AtomicUsize,
    /// Permits for messages that are parsed but not handled yet.
    messages: Arc<Semaphore>,
}

/// Bytes of an incomplete message that every client may have without a limit.
const PARTIAL_BYTES_FREE: usize = 64 * 1024;

/// Maximum number of messages that are parsed but not handled, of all clients.
const MESSAGES_MAX: usize = 16;

/// Number of bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Pause after a failed attempt to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum time that a new client waits for the permit of an idle client.
const PLACE_WAIT: Duration = Duration::from_secs(1);

/// A socket on which clients connect.
pub(super) enum ClientListener {
    Unix(PathBuf, UnixListener),
    Tcp(TcpListener),
    Tls(TcpListener, TlsIdentity),
}

/// An accepted connection, perhaps before its TLS handshake.
enum AcceptedClient {
    Open(ClientStream),
    Tls(TcpStream, TlsIdentity),
}

/// The place of a client among those that may connect, until this is dropped.
pub(super) struct ClientPlace {
    origin: ClientOrigin,
    _client: OwnedSemaphorePermit,
    _remote: Option<OwnedSemaphorePermit>,
}

/// The two directions of a connection.
pub(super) struct ClientStream {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// The end, the history and the times of the connections of a remote.
#[derive(Clone)]
pub(super) struct RemoteScope {
    /// The connections end when the sender is dropped.
    pub(super) closed: watch::Receiver<()>,
    pub(super) history: Arc<RemoteHistory>,
    pub(super) times: watch::Receiver<RemoteTimes>,
}

/// Starts the tasks that accept clients of Unix sockets.
///
/// The tasks end with the server.
pub(super) fn accept_clients(
    listeners: Vec<(PathBuf, UnixListener)>,
    events: &mpsc::Sender<ServerEvent>,
    stopped: &watch::Receiver<()>,
    limits: ServerLimits,
) -> Arc<Connections> {
    let connections = Arc::new(Connections {
        events: events.clone(),
        limits,
        next: AtomicU64::new(1),
        clients: Arc::new(Semaphore::new(limits.clients)),
        remote_clients: Arc::new(Semaphore::new(limits.remote_clients())),
        partial_bytes: AtomicUsize::new(0),
        messages: Arc::new(Semaphore::new(MESSAGES_MAX)),
    });
    for (path, listener) in listeners {
        let (_, times) = watch::channel(RemoteTimes::WITHOUT_PROBES);
        let scope = RemoteScope { closed: stopped.clone(), history: Arc::default(), times };
        let listener = ClientListener::Unix(path, listener);
        tokio::spawn(accept(Arc::clone(&connections), listener, scope));
    }
    connections
}

impl ClientListener {
    async fn accept(&self) -> io::Result<AcceptedClient> {
        match self {
            Self::Unix(_, listener) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                let (reader, writer) = (Box::new(reader), Box::new(writer));
                Ok(AcceptedClient::Open(ClientStream { reader, writer }))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                ClientStream::of_tcp(stream).map(AcceptedClient::Open)
            }
            Self::Tls(listener, identity) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(AcceptedClient::Tls(stream, identity.clone()))
            }
        }
    }

    const fn origin(&self) -> ClientOrigin {
        match self {
            Self::Unix(..) => ClientOrigin::Local,
            Self::Tcp(_) | Self::Tls(..) => ClientOrigin::Remote,
        }
    }

    /// Returns its name in the log.
    fn name(&self) -> String {
        let (scheme, listener) = match self {
            Self::Unix(path, _) => return format!("socket {}", path.display()),
            Self::Tcp(listener) => ("ptcp", listener),
            Self::Tls(listener, _) => ("pssl", listener),
        };
        match listener.local_addr() {
            Ok(address) => format!("{scheme}:{}:{}", address.port(), address.ip()),
            Err(_) => scheme.to_owned(),
        }
    }
}

impl AcceptedClient {
    /// Returns the stream after its TLS handshake, if it has one.
    async fn open(self) -> io::Result<ClientStream> {
        match self {
            Self::Open(stream) => Ok(stream),
            Self::Tls(stream, identity) => {
                let (reader, writer) = split(identity.accept(stream).await?);
                Ok(ClientStream { reader: Box::new(reader), writer: Box::new(writer) })
            }
        }
    }
}

impl ClientStream {
    /// Takes a connection, on which no message waits for others.
    fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
    }

    /// Connects to a client that listens. A TLS handshake has a limit of its own.
    pub(super) async fn connect(
        address: SocketAddr,
        transport: &RemoteTransport,
        time_max: Duration,
    ) -> io::Result<Self> {
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let stream = timeout(time_max, TcpStream::connect(address)).await.map_err(late)??;
        match transport {
            RemoteTransport::Tcp => Self::of_tcp(stream),
            RemoteTransport::Tls(identity) => {
                stream.set_nodelay(true)?;
                let (reader, writer) = split(identity.connect(stream).await?);
                Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
            }
        }
    }
}

impl Connections {
    /// Returns a place for a new client: a free one, or that of an idle client.
    pub(super) async fn place(&self, origin: ClientOrigin) -> Option<ClientPlace> {
        let remote = match origin {
            ClientOrigin::Local => None,
            ClientOrigin::Remote => Some(self.permit(&self.remote_clients, origin).await?),
        };
        let client = self.permit(&self.clients, origin).await?;
        Some(ClientPlace { origin, _client: client, _remote: remote })
    }

    /// Returns a free permit, or that of an idle client.
    async fn permit(
        &self,
        permits: &Arc<Semaphore>,
        origin: ClientOrigin,
    ) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            return Some(permit);
        }
        let (reply, has_room) = oneshot::channel();
        self.events.send(ServerEvent::MakeRoom(origin, reply)).await.ok()?;
        if !has_room.await.ok()? {
            return None;
        }
        // A client of another socket may get the permit first.
        let permit = Arc::clone(permits).acquire_owned();
        timeout(PLACE_WAIT, permit).await.ok()?.ok()
    }
}

/// Serves the clients of a socket until its connections end.
pub(super) async fn accept(
    connections: Arc<Connections>,
    listener: ClientListener,
    scope: RemoteScope,
) {
    let mut closed = scope.closed.clone();
    tokio::select! {
        never = accept_all(connections, listener, scope) => match never {},
        // The sender is dropped, and never sends a value.
        _ = closed.changed() => {}
    }
}

async fn accept_all(
    connections: Arc<Connections>,
    listener: ClientListener,
    scope: RemoteScope,
) -> Infallible {
    let (name, origin) = (listener.name(), listener.origin());
    let failed_handshake = Arc::new(Mutex::new(String::new()));
    loop {
        match listener.accept().await {
            Ok(client) => match connections.place(origin).await {
                Some(place) => {
                    let (connections, scope) = (Arc::clone(&connections), scope.clone());
                    let (name, last) = (name.clone(), Arc::clone(&failed_handshake));
                    tokio::spawn(async move {
                        match open(client, &scope).await {
                            Some(Ok(stream)) => serve(connections, stream, place, scope).await,
                            Some(Err(error)) => log_handshake(&name, &error, &last),
                            None => {}
                        }
                    });
                }
                None => {
                    let limits = connections.limits;
                    let limit = match origin {
                        ClientOrigin::Local => limits.clients,
                        ClientOrigin::Remote => limits.remote_clients(),
                    };
                    tracing::warn!(
                        target: "shunt_ovsdb",
                        limit,
                        "{name}: refused a client, because {limit} are connected and none is idle"
                    );
                }
            },
            Err(error) => {
                tracing::warn!(target: "shunt_ovsdb", %error, "{name}: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Returns the stream of a client after its handshake.
///
/// `None` means that the listening socket is closed.
async fn open(client: AcceptedClient, scope: &RemoteScope) -> Option<io::Result<ClientStream>> {
    let mut closed = scope.closed.clone();
    tokio::select! {
        opened = client.open() => Some(opened),
        _ = closed.changed() => None,
    }
}

/// Logs a failed handshake, unless the one before it failed for the same reason.
fn log_handshake(name: &str, error: &io::Error, last: &Mutex<String>) {
    let reason = error.to_string();
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != reason {
        tracing::warn!(target: "shunt_ovsdb", reason, "{name}: TLS with a client failed: {reason}");
        *last = reason;
    }
}

/// Serves a client until it or the server ends the connection.
pub(super) async fn serve(
    connections: Arc<Connections>,
    stream: ClientStream,
    place: ClientPlace,
    mut scope: RemoteScope,
) {
    let client = ClientId(connections.next.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = Outbox::new(connections.limits.queued_bytes);
    let (end, ended) = oneshot::channel();
    let connected = ServerEvent::Connected(client, place.origin, outbox, end);
    if connections.events.send(connected).await.is_err() {
        return;
    }
    let ClientStream { reader, writer } = stream;
    scope.history.note_connected();
    let mut partial = PartialBytes { connections: &connections, taken: 0 };
    let (received, silence) = watch::channel(());
    let (probes, requested) = mpsc::channel(1);
    let reason = tokio::select! {
        reason = read(&mut partial, client, reader, received) => reason,
        _ = write(writer, queue, requested) => None,
        interval = probe(silence, scope.times.clone(), probes) => {
            Some(format!("no answer to an inactivity probe within {} s", interval.as_secs_f64()))
        }
        // The server drops the sender, and never sends a value.
        _ = ended => None,
        _ = scope.closed.changed() => None,
    };
    if let Some(reason) = &reason {
        tracing::warn!(target: "shunt_ovsdb", client = client.0, "client {}: disconnected: {reason}", client.0);
    }
    let reason = reason.unwrap_or_else(|| "the connection has ended".to_owned());
    scope.history.note_disconnected(reason);
    drop(partial);
    // If the server has ended, the session has ended, too.
    let _ = connections.events.send(ServerEvent::Disconnected(client)).await;
    drop(place);
}

/// Reads messages until the client ends the connection.
/// Returns any other reason for the end.
async fn read(
    partial: &mut PartialBytes<'_>,
    client: ClientId,
    mut reader: Box<dyn AsyncRead + Send + Unpin>,
    received: watch::Sender<()>,
) -> Option<String> {
    let connections = partial.connections;
    let mut framer = JsonFramer::new(connections.limits.message_bytes);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let count = match reader.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => count,
        };
        received.send_replace(());
        framer.push(bytes.get(..count).unwrap_or_default());
        loop {
            let message = match framer.next_message() {
                Ok(Some((message, _))) => message,
                Ok(None) => break,
                Err(error) => return Some(error.to_string()),
            };
            let permit = Arc::clone(&connections.messages).acquire_owned().await.ok()?;
            connections.events.send(ServerEvent::Received(client, message, permit)).await.ok()?;
        }
        if !partial.resize(framer.buffered()) {
            let limit = connections.limits.partial_bytes;
            return Some(format!("incomplete messages of all clients exceed {limit} bytes"));
        }
    }
}

/// Writes the messages of a queue, and probes when they are requested.
async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut queue: ClientQueue,
    mut probes: mpsc::Receiver<()>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            message = queue.next() => {
                let Some(message) = message else { return Ok(()) };
                writer.write_all(&message).await?;
                queue.written(message.len());
            }
            Some(()) = probes.recv() => writer.write_all(PROBE).await?,
        }
        // TLS keeps bytes that the socket has not taken.
        writer.flush().await?;
    }
}

/// The share of a client in the number of bytes of incomplete messages.
struct PartialBytes<'a> {
    connections: &'a Connections,
    taken: usize,
}

impl PartialBytes<'_> {
    /// Changes the share of the client to `buffered` bytes.
    ///
    /// Returns false if all shares together would exceed their limit.
    fn resize(&mut self, buffered: usize) -> bool {
        let wanted = buffered.saturating_sub(PARTIAL_BYTES_FREE);
        let total = &self.connections.partial_bytes;
        // Relaxed: the count guards no other memory.
        total.fetch_sub(self.taken, Ordering::Relaxed);
        self.taken = wanted;
        let before = total.fetch_add(wanted, Ordering::Relaxed);
        wanted == 0 || before.saturating_add(wanted) <= self.connections.limits.partial_bytes
    }
}

impl Drop for PartialBytes<'_> {
    fn drop(&mut self) {
        self.resize(0);
    }
}
