//! The start of a server, and the handle of its owner.

use std::{
    fs::File,
    io::{self, Read as _},
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{fs::PermissionsExt as _, net::UnixListener as StdUnixListener},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use shunt_thread_watch::WatchedThread;
use tokio::{
    net::UnixListener,
    sync::{mpsc, oneshot, watch},
};

use super::{
    ChangeSubscription, ServerConfig,
    connection::{Connections, accept_clients},
    probe::RemoteTimes,
    remote::{RemoteTransport, ServerRemote},
    run::{ServerEvent, run_server},
    server_core::ServerCore,
    subscription::PendingChanges,
};
use crate::{
    database::{Database, DatabaseSnapshot},
    error::OvsdbServerError,
    log::Journal,
    schema::DatabaseSchema,
    transaction::RowTransaction,
    value::UuidGenerator,
};

/// A server that is not started yet.
#[derive(Debug)]
pub struct Server {
    core: ServerCore,
    config: ServerConfig,
    /// The listening sockets, with their paths.
    listeners: Vec<(PathBuf, UnixListener)>,
    /// The socket files that are removed at the end.
    files: Vec<PathBuf>,
    /// The seed of the UUIDs that the owner generates.
    owner_seed: [u8; 20],
}

impl Server {
    /// Opens a database.
    /// Without a log it is empty, and its rows are lost when the server stops.
    ///
    /// # Errors
    ///
    /// If the log cannot be used.
    pub fn open(
        schema: DatabaseSchema,
        log: Option<&Path>,
        config: ServerConfig,
    ) -> Result<Self, OvsdbServerError> {
        let mut seeds = [0; 60];
        match config.seed {
            None => {
                let mut random = File::open("/dev/urandom").map_err(OvsdbServerError::Random)?;
                random.read_exact(&mut seeds).map_err(OvsdbServerError::Random)?;
            }
            // The seed of each generator gets its own first byte.
            Some(seed) => {
                for (number, part) in (0_u8..).zip(seeds.chunks_mut(20)) {
                    part.copy_from_slice(&seed);
                    if let Some(byte) = part.first_mut() {
                        *byte = byte.wrapping_add(number);
                    }
                }
            }
        }
        let mut parts = seeds.chunks(20).map(|part| <[u8; 20]>::try_from(part).unwrap_or_default());
        let mut seed = || parts.next().unwrap_or_default();
        let (journal, database) = match log {
            Some(path) => {
                let (journal, database) = Journal::open(path, schema, seed())?;
                (Some(journal), database)
            }
            None => (None, Database::new(schema, seed())),
        };
        let core = ServerCore::new(database, journal, config.limits, config.clock, seed());
        let (listeners, files) = (Vec::new(), Vec::new());
        Ok(Self { core, config, listeners, files, owner_seed: seed() })
    }

    /// Adds a Unix socket for clients.
    /// A socket file without a listening process is replaced.
    ///
    /// Only the user of this process may connect.
    ///
    /// # Errors
    ///
    /// If the socket cannot be created, or another process listens on it.
    pub fn listen(mut self, path: &Path) -> Result<Self, OvsdbServerError> {
        let failed = |source| OvsdbServerError::Socket { path: path.to_owned(), source };
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(OvsdbServerError::SocketInUse { path: path.to_owned() });
        }
        let is_socket = std::fs::symlink_metadata(path)
            .is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()));
        if is_socket {
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o750)).map_err(failed)?;
        self.listeners.push((path.to_owned(), listener));
        self.files.push(path.to_owned());
        Ok(self)
    }

    /// Adds a Unix socket of an earlier process, and leaves its file at the end.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn inherit(
        mut self,
        path: &Path,
        socket: StdUnixListener,
    ) -> Result<Self, OvsdbServerError> {
        let failed = |source| OvsdbServerError::Socket { path: path.to_owned(), source };
        socket.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(socket).map_err(failed)?;
        self.listeners.push((path.to_owned(), listener));
        Ok(self)
    }

    /// Returns the Unix socket at a path.
    #[must_use]
    pub fn socket(&self, path: &Path) -> Option<BorrowedFd<'_>> {
        let (_, listener) = self.listeners.iter().find(|(own, _)| own == path)?;
        Some(listener.as_fd())
    }

    /// Leaves the files of the sockets at the end, for a later process.
    pub fn leave_files(&mut self) {
        self.files.clear();
    }

    /// Starts the thread of the server.
    ///
    /// Clients are served by tasks of the current runtime.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub fn start(self) -> Result<OvsdbHandle, OvsdbServerError> {
        let Self { core, config, listeners, files, owner_seed } = self;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let (stopper, stopped) = watch::channel(());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(OvsdbServerError::Thread)?;
        std::thread::Builder::new()
            .name("shunt-ovsdb".to_owned())
            .spawn(move || {
                // The values are dropped in reverse order at the end of the thread, also after a
                // panic.
                let _stopper = stopper;
                let _files = SocketFiles(files);
                let watch = WatchedThread::new("ovsdb thread");
                runtime.block_on(run_server(core, config.clock, receiver, &watch));
            })
            .map_err(OvsdbServerError::Thread)?;
        let uuids = Arc::new(Mutex::new(UuidGenerator::new(owner_seed)));
        let connections = accept_clients(listeners, &events, &stopped, config.limits);
        Ok(OvsdbHandle { events, stopped, uuids, connections })
    }
}

/// The files of sockets, which are removed when the server ends.
struct SocketFiles(Vec<PathBuf>);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // The socket file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The owner's access to a running server. Clones refer to the same server.
#[derive(Clone, Debug)]
pub struct OvsdbHandle {
    events: mpsc::Sender<ServerEvent>,
    /// Closed once the server has stopped.
    stopped: watch::Receiver<()>,
    uuids: Arc<Mutex<UuidGenerator>>,
    connections: Arc<Connections>,
}

impl OvsdbHandle {
    /// Begins a transaction with a comment for the log.
    #[must_use]
    pub fn transaction(&self, comment: &str) -> RowTransaction {
        RowTransaction::new(comment, Arc::clone(&self.uuids))
    }

    /// Executes a transaction.
    ///
    /// # Errors
    ///
    /// If the transaction breaks a rule of the schema, the log cannot be written, or the server has
    /// stopped.
    pub async fn transact(&self, transaction: RowTransaction) -> Result<(), OvsdbServerError> {
        let (reply, result) = oneshot::channel();
        self.send(ServerEvent::Transact(transaction, reply)).await?;
        Ok(result.await.map_err(|_| OvsdbServerError::Stopped)??)
    }

    /// Returns all current rows of the database.
    ///
    /// # Errors
    ///
    /// If the server has stopped.
    pub async fn snapshot(&self) -> Result<DatabaseSnapshot, OvsdbServerError> {
        let (reply, result) = oneshot::channel();
        self.send(ServerEvent::Snapshot(reply)).await?;
        result.await.map_err(|_| OvsdbServerError::Stopped)?
    }

    /// Subscribes to the changes of clients from now on.
    ///
    /// # Errors
    ///
    /// If the server has stopped.
    pub async fn subscribe(&self) -> Result<ChangeSubscription, OvsdbServerError> {
        let pending = Arc::new(PendingChanges::default());
        self.send(ServerEvent::Subscribe(Arc::clone(&pending))).await?;
        Ok(ChangeSubscription::new(pending, self.clone()))
    }

    /// Serves clients of a TCP port. Sessions end when the result is dropped.
    ///
    /// With plain TCP, any client that reaches the port may change the database.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn listen_tcp(
        &self,
        listener: TcpListener,
        transport: RemoteTransport,
        times: RemoteTimes,
    ) -> io::Result<ServerRemote> {
        ServerRemote::listen(&self.connections, listener, transport, times)
    }

    /// Connects to a client that listens at a TCP port, and reconnects to it.
    ///
    /// The session ends when the result is dropped.
    #[must_use]
    pub fn connect_tcp(
        &self,
        address: SocketAddr,
        transport: RemoteTransport,
        times: RemoteTimes,
    ) -> ServerRemote {
        ServerRemote::connect(&self.connections, address, transport, times)
    }

    /// Stops the server: sessions end, and the sockets are removed.
    pub async fn stop(&self) {
        // If the server has stopped already, the event is not needed.
        let _ = self.send(ServerEvent::Stop).await;
        self.stopped().await;
    }

    /// Waits until the server has stopped.
    pub async fn stopped(&self) {
        // The sender sends no value, and is dropped when the server stops.
        let _ = self.stopped.clone().changed().await;
    }

    /// Sends an event to the thread of the server.
    async fn send(&self, event: ServerEvent) -> Result<(), OvsdbServerError> {
        self.events.send(event).await.map_err(|_| OvsdbServerError::Stopped)
    }
}

/// Maximum number of events in the queue of the server thread.
/// Senders wait while the queue is full.
const EVENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use shunt_thread_watch::IterationWatch;

    use super::*;
    use crate::schema;

    #[tokio::test]
    async fn a_server_without_events_is_in_no_iteration() {
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default()).unwrap();
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let watch = IterationWatch::default();
        let run = run_server(server.core, server.config.clock, receiver, &watch);
        let owner = async {
            let (reply, rows) = oneshot::channel();
            events.send(ServerEvent::Snapshot(reply)).await.unwrap();
            assert!(rows.await.unwrap().is_ok());
            assert_eq!((watch.count(), watch.current()), (1, None));
            events.send(ServerEvent::Stop).await.unwrap();
        };
        tokio::join!(run, owner);
        assert_eq!((watch.count(), watch.current()), (2, None));
    }
}
