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
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
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
struct Connections {
    events: mpsc::Sender<ServerEvent>,
    stopped: watch::Receiver<()>,
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

/// Starts the tasks that accept clients. The tasks end with the server.
pub(super) fn accept_clients(
    listeners: Vec<(PathBuf, UnixListener)>,
    events: &mpsc::Sender<ServerEvent>,
    stopped: &watch::Receiver<()>,
    limits: ServerLimits,
) {
    let connections = Arc::new(Connections {
        events: events.clone(),
        stopped: stopped.clone(),
        limits,
        next: AtomicU64::new(1),
        clients: Arc::new(Semaphore::new(limits.clients)),
        partial_bytes: AtomicUsize::new(0),
        messages: Arc::new(Semaphore::new(MESSAGES_MAX)),
    });
    for (path, listener) in listeners {
        tokio::spawn(accept(Arc::clone(&connections), path, listener));
    }
}

impl Connections {
    /// Returns a permit for a new client: a free permit, or that of an idle client.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
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

async fn accept(connections: Arc<Connections>, path: PathBuf, listener: UnixListener) {
    let mut stopped = connections.stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        match accepted {
            Ok((stream, _)) => match connections.place().await {
                Some(permit) => {
                    tokio::spawn(serve(Arc::clone(&connections), stream, permit));
                }
                None => {
                    let limit = connections.limits.clients;
                    tracing::warn!(
                        target: "shunt_ovsdb",
                        limit,
                        "socket {}: refused a client, because {limit} are connected and none is idle",
                        path.display()
                    );
                }
            },
            Err(error) => {
                tracing::warn!(target: "shunt_ovsdb", %error, "socket {}: {error}", path.display());
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(connections: Arc<Connections>, stream: UnixStream, permit: OwnedSemaphorePermit) {
    let client = ClientId(connections.next.fetch_add(1, Ordering::Relaxed));
    let (outbox, queue) = Outbox::new(connections.limits.queued_bytes);
    let (end, ended) = oneshot::channel();
    if connections.events.send(ServerEvent::Connected(client, outbox, end)).await.is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
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
    }
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
    mut reader: OwnedReadHalf,
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

async fn write(mut writer: OwnedWriteHalf, mut queue: ClientQueue) -> io::Result<()> {
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
