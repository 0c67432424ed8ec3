//! Remotes: TCP ports on which a server listens, or to which it connects.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shunt_tls::TlsIdentity;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    connection::{ClientListener, ClientStream, Connections, RemoteScope, serve, serve_listener},
    probe::RemoteTimes,
    server_core::ClientOrigin,
};

/// The protocol below OVSDB.
#[derive(Clone, Debug)]
pub enum RemoteTransport {
    /// TCP alone, which others can read and change.
    Tcp,
    /// TLS over TCP, with the key and the certificates of the server.
    Tls(TlsIdentity),
}

/// A TCP port on which a server listens, or to which it connects.
///
/// The task ends when this value is dropped.
#[derive(Debug)]
pub struct ServerRemote {
    /// The address of the server or, if it connects, of the client.
    address: SocketAddr,
    history: Arc<RemoteHistory>,
    times: watch::Sender<RemoteTimes>,
    /// Ends the tasks and the sessions when it is dropped.
    closing: watch::Sender<()>,
    task: JoinHandle<()>,
}

/// The state of a remote: its clients, and the last failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteStatus {
    /// Number of connected clients.
    pub connections: usize,
    /// True while the server tries to connect.
    pub is_connecting: bool,
    /// Time since the last client has connected; `None` if none has.
    pub since_connect: Option<Duration>,
    /// Time since the last session has ended; `None` if none has.
    pub since_disconnect: Option<Duration>,
    /// The reason why the last attempt to connect failed, or the last session ended.
    ///
    /// `None` while a client is connected.
    pub last_error: Option<String>,
}

/// The connections of a remote so far.
#[derive(Debug, Default)]
pub(super) struct RemoteHistory(Mutex<RemoteRecord>);

/// The state of a remote, as the status shows it.
#[derive(Debug, Default)]
struct RemoteRecord {
    /// Number of open connections.
    connections: usize,
    /// True while a connection is being opened.
    is_connecting: bool,
    /// The time at which a client last connected; `None` if none did.
    connected: Option<Instant>,
    /// The time at which a client last disconnected; `None` if none did.
    disconnected: Option<Instant>,
    /// The reason why the last attempt or session failed; `None` while connected.
    last_error: Option<String>,
}

/// Pause after the first failed attempt to connect.
///
/// Each further pause is twice as long.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// Maximum time to establish a TCP connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(8);

impl ServerRemote {
    /// Listens for clients on a socket.
    pub(super) fn listen(
        connections: &Arc<Connections>,
        listener: std::net::TcpListener,
        transport: RemoteTransport,
        times: RemoteTimes,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let listener = match transport {
            RemoteTransport::Tcp => ClientListener::Tcp(listener),
            RemoteTransport::Tls(identity) => ClientListener::Tls(listener, identity),
        };
        let connections = Arc::clone(connections);
        Ok(Self::start(address, times, |scope| {
            tokio::spawn(serve_listener(connections, listener, scope))
        }))
    }

    /// Connects to a client, again after each loss.
    pub(super) fn connect(
        connections: &Arc<Connections>,
        address: SocketAddr,
        transport: RemoteTransport,
        times: RemoteTimes,
    ) -> Self {
        let connections = Arc::clone(connections);
        Self::start(address, times, |scope| {
            tokio::spawn(keep_connected(connections, address, transport, scope))
        })
    }

    /// Starts the task of a remote.
    fn start(
        address: SocketAddr,
        times: RemoteTimes,
        spawn: impl FnOnce(RemoteScope) -> JoinHandle<()>,
    ) -> Self {
        let (closing, closed) = watch::channel(());
        let (times, watched) = watch::channel(times);
        let history = Arc::new(RemoteHistory::default());
        let (own, log) = (Arc::clone(&history), Arc::default());
        let task = spawn(RemoteScope { closed, history: own, times: watched, log });
        Self { address, history, times, closing, task }
    }

    /// Returns the address of the server or, if it connects, of the client.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the state of the remote.
    #[must_use]
    pub fn status(&self) -> RemoteStatus {
        let record = self.history.lock();
        let since = |moment: Option<Instant>| moment.map(|moment| moment.elapsed());
        RemoteStatus {
            connections: record.connections,
            is_connecting: record.is_connecting,
            since_connect: since(record.connected),
            since_disconnect: since(record.disconnected),
            last_error: record.last_error.clone(),
        }
    }

    /// Changes the times, also of connections that exist.
    pub fn set_times(&self, times: RemoteTimes) {
        self.times.send_if_modified(|own| std::mem::replace(own, times) != times);
    }

    /// Ends the remote. Afterwards, another remote can listen on its port.
    pub async fn close(self) {
        let Self { closing, task, .. } = self;
        drop(closing);
        // A task that has panicked has dropped its socket as well.
        let _ = task.await;
    }
}

impl RemoteHistory {
    /// Records that a client has connected.
    pub(super) fn note_connected(&self) {
        let mut record = self.lock();
        record.connections = record.connections.saturating_add(1);
        record.is_connecting = false;
        record.connected = Some(Instant::now());
        record.last_error = None;
    }

    /// Records the end of the session of a client, with its reason.
    pub(super) fn note_disconnected(&self, reason: String) {
        let mut record = self.lock();
        record.connections = record.connections.saturating_sub(1);
        record.disconnected = Some(Instant::now());
        if record.connections == 0 {
            record.last_error = Some(reason);
        }
    }

    /// Records that an attempt to connect has begun.
    fn note_connecting(&self) {
        self.lock().is_connecting = true;
    }

    /// Records why the last attempt or connection failed.
    fn note_failed(&self, reason: String) {
        let mut record = self.lock();
        record.is_connecting = false;
        record.last_error = Some(reason);
    }

    /// Locks the record, also after a thread panicked with the lock.
    fn lock(&self) -> MutexGuard<'_, RemoteRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to a client again and again, until the remote ends.
async fn keep_connected(
    connections: Arc<Connections>,
    address: SocketAddr,
    transport: RemoteTransport,
    mut scope: RemoteScope,
) {
    let history = Arc::clone(&scope.history);
    let target = match &transport {
        RemoteTransport::Tcp => format!("tcp:{address}"),
        RemoteTransport::Tls(_) => format!("ssl:{address}"),
    };
    let mut pause = BACKOFF_MIN;
    let mut last_failure = String::new();
    loop {
        history.note_connecting();
        let connected = tokio::select! {
            connected = ClientStream::connect(address, &transport, CONNECT_TIME_MAX) => connected,
            _ = scope.closed.changed() => return,
        };
        let place =
            if connected.is_ok() { connections.admit(ClientOrigin::Remote).await } else { None };
        match (connected, place) {
            (Ok(stream), Some(place)) => {
                let began = Instant::now();
                last_failure.clear();
                serve(Arc::clone(&connections), stream, place, scope.clone()).await;
                // A client that closes each session at once is a failed attempt.
                if began.elapsed() > pause {
                    pause = BACKOFF_MIN;
                }
            }
            (connected, _) => {
                let reason = match connected {
                    Ok(_) => "too many clients are connected".to_owned(),
                    Err(error) => error.to_string(),
                };
                if reason != last_failure {
                    scope.log.warn(&format!("{target}: cannot connect, retrying: {reason}"));
                }
                last_failure.clone_from(&reason);
                history.note_failed(reason);
            }
        }
        let backoff_max = scope.times.borrow().backoff_max;
        tokio::select! {
            () = sleep(pause.min(backoff_max)) => {}
            _ = scope.closed.changed() => return,
        }
        pause = pause.saturating_mul(2).min(backoff_max);
    }
}
