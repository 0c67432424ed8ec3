//! Sockets and connections of clients.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
};

use super::{
    ServerLimits,
    outbox::{ClientQueue, Outbox},
    run::ServerEvent,
    server_core::ClientId,
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
}

/// The two directions of a connection.
pub(super) struct ClientStream {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// The end and the number of the connections of a remote.
///
/// They end when the sender is dropped.
#[derive(Clone)]
pub(super) struct RemoteScope {
    pub(super) closed: watch::Receiver<()>,
    pub(super) connections: Arc<AtomicUsize>,
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
        partial_bytes: AtomicUsize::new(0),
        messages: Arc::new(Semaphore::new(MESSAGES_MAX)),
    });
    for (path, listener) in listeners {
        let scope = RemoteScope { closed: stopped.clone(), connections: Arc::default() };
        let listener = ClientListener::Unix(path, listener);
        tokio::spawn(accept(Arc::clone(&connections), listener, scope));
    }
    connections
}

impl ClientListener {
    async fn accept(&self) -> io::Result<ClientStream> {
        match self {
            Self::Unix(_, listener) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                Ok(ClientStream { reader: Box::new(reader), writer: Box::new(writer) })
            }
            Self::Tcp(listener) => ClientStream::of_tcp(listener.accept().await?.0),
        }
    }

    /// Returns its name in the log.
    fn name(&self) -> String {
        match self {
            Self::Unix(path, _) => format!("socket {}", path.display()),
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("ptcp:{}:{}", address.port(), address.ip()),
                Err(_) => "ptcp".to_owned(),
            },
        }
    }
}

impl ClientStream {
    /// Takes a connection, on which no message waits for others.
    pub(super) fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: Box::new(reader), writer: Box::new(writer) })
    }
}

impl Connections {
    /// Returns a permit for a new client: a free permit, or that of an idle client.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.clients).try_acquire_owned() {
            return Some(permit);
        }
        let (reply, has_room) = oneshot::channel();
        self.events.send(ServerEvent::MakeRoom(reply)).await.ok()?;
        if !has_room.await.ok()? {
            return None;
        }
        // A client of another socket may get the permit first.
        let permit = Arc::clone(&self.clients).acquire_owned();
        tokio::time::timeout(PLACE_WAIT, permit).await.ok()?.ok()
    }
}

/// Serves the clients of a socket until its connections end.
pub(super) async fn accept(
    connections: Arc<Connections>,
    listener: ClientListener,
    mut scope: RemoteScope,
) {
    let name = listener.name();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = scope.closed.changed() => return,
        };
        match accepted {
            Ok(stream) => match connections.place().await {
                Some(permit) => {
                    tokio::spawn(serve(Arc::clone(&connections), stream, permit, scope.clone()));
                }
                None => {
                    let limit = connections.limits.clients;
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

/// Serves a client until it or the server ends the connection.
pub(super) async fn serve(
    connections: Arc<Connections>,
    stream: ClientStream,
    permit: OwnedSemaphorePermit,
    mut scope: RemoteScope,
) {
    let client = ClientId(connections.next.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = Outbox::new(connections.limits.queued_bytes);
    let (end, ended) = oneshot::channel();
    if connections.events.send(ServerEvent::Connected(client, outbox, end)).await.is_err() {
        return;
    }
    let ClientStream { reader, writer } = stream;
    // Relaxed: the count guards no other memory.
    scope.connections.fetch_add(1, Ordering::Relaxed);
    let mut partial = PartialBytes { connections: &connections, taken: 0 };
    tokio::select! {
        reason = read(&mut partial, client, reader) => {
            if let Some(reason) = reason {
                tracing::warn!(target: "shunt_ovsdb", client = client.0, "client {}: disconnected: {reason}", client.0);
            }
        }
        _ = write(writer, queue) => {}
        // The server drops the sender, and never sends a value.
        _ = ended => {}
        _ = scope.closed.changed() => {}
    }
    scope.connections.fetch_sub(1, Ordering::Relaxed);
    drop(partial);
    // If the server has ended, the session has ended, too.
    let _ = connections.events.send(ServerEvent::Disconnected(client)).await;
    drop(permit);
}

/// Reads messages until the client ends the connection.
/// Returns any other reason for the end.
async fn read(
    partial: &mut PartialBytes<'_>,
    client: ClientId,
    mut reader: Box<dyn AsyncRead + Send + Unpin>,
) -> Option<String> {
    let connections = partial.connections;
    let mut framer = JsonFramer::new(connections.limits.message_bytes);
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let count = match reader.read(&mut bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => count,
        };
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

async fn write(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut queue: ClientQueue,
) -> io::Result<()> {
    while let Some(message) = queue.next().await {
        writer.write_all(&message).await?;
        queue.written(message.len());
    }
    Ok(())
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
