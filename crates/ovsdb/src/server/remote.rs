//! Remotes: TCP ports on which a server listens, or to which it connects.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::sleep,
};

use super::connection::{ClientListener, ClientStream, Connections, RemoteScope, accept, serve};

/// A TCP port on which a server listens, or to which it connects.
///
/// It ends when this is dropped.
#[derive(Debug)]
pub struct ServerRemote {
    /// The address of the server or, if it connects, of the client.
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    last_error: Arc<Mutex<Option<String>>>,
    /// Ends the tasks and the sessions when it is dropped.
    _closing: watch::Sender<()>,
}

/// Time between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl ServerRemote {
    pub(super) fn listen(connections: &Arc<Connections>, address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (remote, scope) = Self::new(listener.local_addr()?);
        let listener = ClientListener::Tcp(TcpListener::from_std(listener)?);
        tokio::spawn(accept(Arc::clone(connections), listener, scope));
        Ok(remote)
    }

    pub(super) fn connect(connections: &Arc<Connections>, address: SocketAddr) -> Self {
        let (remote, scope) = Self::new(address);
        let last_error = Arc::clone(&remote.last_error);
        tokio::spawn(keep_connected(Arc::clone(connections), address, last_error, scope));
        remote
    }

    fn new(address: SocketAddr) -> (Self, RemoteScope) {
        let (closing, closed) = watch::channel(());
        let (connections, last_error) = (Arc::default(), Arc::default());
        let scope = RemoteScope { closed, connections: Arc::clone(&connections) };
        (Self { address, connections, last_error, _closing: closing }, scope)
    }

    /// Returns the address of the server or, if it connects, of the client.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connected clients.
    #[must_use]
    pub fn connections(&self) -> usize {
        // Relaxed: the count guards no other memory.
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns why the last attempt to connect failed, or the last session ended.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Connects to a client again and again, until the remote ends.
async fn keep_connected(
    connections: Arc<Connections>,
    address: SocketAddr,
    last_error: Arc<Mutex<Option<String>>>,
    mut scope: RemoteScope,
) {
    let note = |error: Option<String>| {
        *last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    };
    loop {
        let connected = tokio::select! {
            connected = TcpStream::connect(address) => connected.and_then(ClientStream::of_tcp),
            _ = scope.closed.changed() => return,
        };
        match connected {
            Ok(stream) => match connections.place().await {
                Some(permit) => {
                    note(None);
                    serve(Arc::clone(&connections), stream, permit, scope.clone()).await;
                    note(Some("the connection has ended".to_owned()));
                }
                None => note(Some("too many clients are connected".to_owned())),
            },
            Err(error) => note(Some(error.to_string())),
        }
        tokio::select! {
            () = sleep(RETRY_PAUSE) => {}
            _ = scope.closed.changed() => return,
        }
    }
}
