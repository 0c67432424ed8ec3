//! Sockets and connections of clients.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
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
    client_log::ClientLog,
    client_message::ClientMessage,
    handshakes::RunningHandshakes,
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
    /// The number of the next client.
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
    Tls(TlsClient),
}

/// A connection before its TLS handshake.
struct TlsClient {
    stream: TcpStream,
    identity: TlsIdentity,
    /// The address of the client, for the log.
    peer: String,
}

/// The slot of a client among those that may connect; dropping it frees the slot.
pub(super) struct ClientSlot {
    origin: ClientOrigin,
    /// The permit among all clients.
    _client: OwnedSemaphorePermit,
    /// The permit among the clients of TCP ports; `None` for other clients.
    _remote: Option<OwnedSemaphorePermit>,
}

/// The two directions of a connection.
pub(super) struct ClientStream {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The address of the client, for the log.
    peer: String,
}

/// The end, the history and the times of the connections of a remote.
#[derive(Clone)]
pub(super) struct RemoteScope {
    /// The connections end when the sender is dropped.
    pub(super) closed: watch::Receiver<()>,
    pub(super) history: Arc<RemoteHistory>,
    pub(super) times: watch::Receiver<RemoteTimes>,
    pub(super) log: Arc<ClientLog>,
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
        let (history, log) = (Arc::default(), Arc::default());
        let scope = RemoteScope { closed: stopped.clone(), history, times, log };
        let listener = ClientListener::Unix(path, listener);
        tokio::spawn(serve_listener(Arc::clone(&connections), listener, scope));
    }
    connections
}

impl ClientListener {
    /// Accepts the next client.
    async fn accept(&self) -> io::Result<AcceptedClient> {
        match self {
            Self::Unix(path, listener) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                let (reader, writer) = (Box::new(reader), Box::new(writer));
                let peer = format!("unix:{}", path.display());
                Ok(AcceptedClient::Open(ClientStream { reader, writer, peer }))
            }
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                ClientStream::of_tcp(stream, address).map(AcceptedClient::Open)
            }
            Self::Tls(listener, identity) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let (identity, peer) = (identity.clone(), format!("ssl:{address}"));
                Ok(AcceptedClient::Tls(TlsClient { stream, identity, peer }))
            }
        }
    }

    /// Returns whether clients are local or remote.
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

impl TlsClient {
    /// Returns the stream after the handshake.
    async fn open(self) -> io::Result<ClientStream> {
        let (reader, writer) = split(self.identity.accept(self.stream).await?);
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Ok(ClientStream { reader, writer, peer: self.peer })
    }
}

impl ClientStream {
    /// Wraps a TCP connection and turns off Nagle's algorithm.
    fn of_tcp(stream: TcpStream, address: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Ok(Self { reader, writer, peer: format!("tcp:{address}") })
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
            RemoteTransport::Tcp => Self::of_tcp(stream, address),
            RemoteTransport::Tls(identity) => {
                stream.set_nodelay(true)?;
                let (reader, writer) = split(identity.connect(stream).await?);
                let (reader, writer) = (Box::new(reader), Box::new(writer));
                Ok(Self { reader, writer, peer: format!("ssl:{address}") })
            }
        }
    }
}

impl Connections {
    /// Admits a new client to a free slot, or to the slot of an idle client.
    pub(super) async fn admit(&self, origin: ClientOrigin) -> Option<ClientSlot> {
        let remote = match origin {
            ClientOrigin::Local => None,
            ClientOrigin::Remote => Some(self.permit(&self.remote_clients, origin).await?),
        };
        let client = self.permit(&self.clients, origin).await?;
        Some(ClientSlot { origin, _client: client, _remote: remote })
    }

    /// Admits a new client, or logs the reason of the refusal.
    async fn admit_or_log(
        &self,
        origin: ClientOrigin,
        name: &str,
        peer: &str,
        log: &ClientLog,
    ) -> Option<ClientSlot> {
        let place = self.admit(origin).await;
        if place.is_none() {
            let limit = match origin {
                ClientOrigin::Local => self.limits.clients,
                ClientOrigin::Remote => self.limits.remote_clients(),
            };
            log.warn(&format!(
                "{name}: refused {peer}, because {limit} clients are connected and none is idle"
            ));
        }
        place
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
pub(super) async fn serve_listener(
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

/// Accepts clients, and serves each in a task of its own.
async fn accept_all(
    connections: Arc<Connections>,
    listener: ClientListener,
    scope: RemoteScope,
) -> Infallible {
    let (name, origin) = (listener.name(), listener.origin());
    let mut handshakes = RunningHandshakes::default();
    loop {
        match listener.accept().await {
            Ok(AcceptedClient::Open(stream)) => {
                let place = connections.admit_or_log(origin, &name, &stream.peer, &scope.log);
                if let Some(place) = place.await {
                    tokio::spawn(serve(Arc::clone(&connections), stream, place, scope.clone()));
                }
            }
            Ok(AcceptedClient::Tls(client)) => {
                let (connections, name) = (Arc::clone(&connections), name.clone());
                let gives_way = handshakes.begin();
                tokio::spawn(serve_tls(connections, name, client, gives_way, scope.clone()));
            }
            Err(error) => {
                scope.log.warn(&format!("{name}: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a client of a listener after its TLS handshake.
///
/// The client has no place before: each peer can begin a handshake.
async fn serve_tls(
    connections: Arc<Connections>,
    name: String,
    client: TlsClient,
    gives_way: oneshot::Receiver<()>,
    scope: RemoteScope,
) {
    let (peer, mut closed) = (client.peer.clone(), scope.closed.clone());
    let opened = tokio::select! {
        opened = client.open() => opened,
        // The sender is dropped for a newer handshake.
        _ = gives_way => Err(io::Error::other("the handshake was ended for a newer one, because \
                                               too many were in progress")),
        _ = closed.changed() => return,
    };
    match opened {
        Ok(stream) => {
            let origin = ClientOrigin::Remote;
            let place = connections.admit_or_log(origin, &name, &peer, &scope.log).await;
            if let Some(place) = place {
                serve(connections, stream, place, scope).await;
            }
        }
        Err(error) => scope.log.warn(&format!("{name}: TLS with {peer} failed: {error}")),
    }
}

/// Serves a client until it or the server ends the connection.
pub(super) async fn serve(
    connections: Arc<Connections>,
    stream: ClientStream,
    place: ClientSlot,
    mut scope: RemoteScope,
) {
    let client = ClientId(connections.next.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = Outbox::new(connections.limits.queued_bytes);
    let (end, ended) = oneshot::channel();
    let connected = ServerEvent::Connected(client, place.origin, outbox, end);
    if connections.events.send(connected).await.is_err() {
        return;
    }
    let ClientStream { reader, writer, peer } = stream;
    scope.history.note_connected();
    let mut partial = PartialBytes { connections: &connections, taken: 0 };
    let (activity, silence) = watch::channel(());
    let (probes, requested) = mpsc::channel(1);
    let reason = tokio::select! {
        reason = read(&mut partial, client, reader, &activity) => reason,
        _ = write(writer, queue, requested, &activity) => None,
        interval = probe(silence, scope.times.clone(), probes) => {
            Some(format!("no answer to an inactivity probe within {} s", interval.as_secs_f64()))
        }
        // The server drops the sender, and never sends a value.
        _ = ended => None,
        _ = scope.closed.changed() => None,
    };
    if let Some(reason) = &reason {
        scope.log.warn(&format!("client {} ({peer}): disconnected: {reason}", client.0));
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
    activity: &watch::Sender<()>,
) -> Option<String> {
    let connections = partial.connections;
    let mut framer = JsonFramer::new(connections.limits.message_bytes);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let count = match reader.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => count,
        };
        activity.send_replace(());
        framer.push(bytes.get(..count).unwrap_or_default());
        loop {
            let message = match framer.next_with(ClientMessage::parse) {
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
///
/// A client that reads a long message is active.
async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut queue: ClientQueue,
    mut probes: mpsc::Receiver<()>,
    activity: &watch::Sender<()>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            message = queue.next() => {
                let Some(message) = message else { return Ok(()) };
                let mut rest = message.as_slice();
                while !rest.is_empty() {
                    let count = write_part(&mut *writer, rest, activity).await?;
                    rest = rest.get(count..).unwrap_or_default();
                }
                queue.written(message.len());
            }
            Some(()) = probes.recv() => writer.write_all(PROBE).await?,
        }
        // TLS keeps bytes that the socket has not taken.
        writer.flush().await?;
    }
}

/// Writes some of the bytes. Returns their number, which is not zero.
///
/// If the stream had no room at first, the client has read something: it is active. Bytes that
/// the stream takes at once prove nothing.
async fn write_part(
    writer: &mut (dyn AsyncWrite + Send + Unpin),
    bytes: &[u8],
    activity: &watch::Sender<()>,
) -> io::Result<usize> {
    let mut was_full = false;
    let count = poll_fn(|context| {
        let polled = Pin::new(&mut *writer).poll_write(context, bytes);
        was_full |= polled.is_pending();
        polled
    })
    .await?;
    if count == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    if was_full {
        activity.send_replace(());
    }
    Ok(count)
}

/// The share of a client in the number of bytes of incomplete messages.
struct PartialBytes<'a> {
    connections: &'a Connections,
    /// Number of bytes that the client has in the total.
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::duplex;

    use super::*;

    /// A probe waits behind a long message, so the client cannot answer it yet.
    #[tokio::test]
    async fn client_that_reads_long_message_is_active() {
        let (near, mut far) = duplex(1);
        let (outbox, queue) = Outbox::new(1 << 10);
        let (activity, mut silence) = watch::channel(());
        let (_probes, requested) = mpsc::channel(1);
        assert!(outbox.send(json!("x".repeat(100)).to_string()));
        let writing = write(Box::new(near), queue, requested, &activity);
        let reading = async {
            let mut byte = [0];
            for _ in 0..50 {
                far.read_exact(&mut byte).await.unwrap();
                silence.changed().await.unwrap();
            }
        };
        tokio::select! {
            result = writing => unreachable!("{result:?}"),
            read = timeout(Duration::from_secs(10), reading) => read.unwrap(),
        }
    }

    /// The system takes messages for a host that has gone.
    #[tokio::test]
    async fn buffered_message_proves_no_activity() {
        let (near, mut far) = duplex(1 << 10);
        let (outbox, queue) = Outbox::new(1 << 10);
        let (activity, silence) = watch::channel(());
        let (_probes, requested) = mpsc::channel(1);
        assert!(outbox.send(json!("x").to_string()));
        let writing = write(Box::new(near), queue, requested, &activity);
        let mut message = [0; 3];
        tokio::select! {
            result = writing => unreachable!("{result:?}"),
            read = far.read_exact(&mut message) => assert_eq!(read.unwrap(), 3),
        }
        assert!(!silence.has_changed().unwrap());
    }
}
