//! Listening sockets, and the task that accepts their connections.

use std::{
    fs::Permissions,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixListener as StdUnixListener,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use shunt_pipeline::Time;
use shunt_tls::TlsIdentity;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::{JoinError, JoinSet},
};

use super::{
    bridge::ServerState,
    control_task::ControlTask,
    listener_places::{IdlePolicy, ListenerPlaces, PeerActivity},
    read_interest_stream::ReadInterestStream,
    serve::{ConnectionEnd, serve},
};
use crate::{
    Host,
    connection::{BundleQuota, ConnectionConfig, ConnectionKind, WarningKind, WarningRate},
    error::CloseReason,
};

/// Number of connections that one listener serves.
///
/// In a full listener, a new connection takes the place of the one that [`ListenerPlaces`] selects.
/// If all keep their places, the new connection is closed at once.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Longest path of a Unix socket in bytes, without its zero byte (unix(7)).
const PATH_MAX: usize = 107;
/// Delay after a failed accept, for example without a free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
pub(super) enum OpenFlowListener {
    Tcp(TcpListener),
    Tls(TcpListener, TlsIdentity),
    Unix(UnixListenSocket),
}

/// An accepted stream, perhaps before its TLS handshake.
enum AcceptedStream {
    Open(Box<dyn ByteStream>),
    Tls(TcpStream, TlsIdentity),
}

/// A listening unix socket, which removes its socket file when it is dropped.
#[derive(Debug)]
pub struct UnixListenSocket {
    /// The listening Unix socket.
    listener: UnixListener,
    /// The path of the socket file.
    path: PathBuf,
    /// Device and inode of the socket file, if this socket removes it.
    file: Option<(u64, u64)>,
}

/// A byte stream of any transport.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

impl OpenFlowListener {
    /// Accepts a connection, and returns the name of its peer.
    async fn accept(&self) -> io::Result<(AcceptedStream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((AcceptedStream::Open(Box::new(stream)), format!("tcp:{peer}")))
            }
            Self::Tls(listener, identity) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((AcceptedStream::Tls(stream, identity.clone()), format!("ssl:{peer}")))
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.listener.accept().await?;
                let stream = ReadInterestStream::new(stream)?;
                let peer = format!("unix:{}", socket.path.display());
                Ok((AcceptedStream::Open(Box::new(stream)), peer))
            }
        }
    }

    /// Returns the inactivity probe of accepted connections; zero for none.
    const fn inactivity_probe(&self) -> Duration {
        match self {
            Self::Tcp(_) | Self::Tls(..) => ConnectionConfig::INACTIVITY_PROBE,
            Self::Unix(_) => Duration::ZERO,
        }
    }

    /// Returns the rule for idle connections of a full listener.
    const fn idle_policy(&self) -> IdlePolicy {
        match self {
            Self::Tcp(_) | Self::Tls(..) => IdlePolicy::Keep,
            Self::Unix(_) => IdlePolicy::MakeRoom,
        }
    }

    /// Returns the address of a TCP socket.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, _) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

impl AcceptedStream {
    /// Returns the stream after its TLS handshake, if it has one.
    async fn open(self) -> io::Result<Box<dyn ByteStream>> {
        match self {
            Self::Open(stream) => Ok(stream),
            Self::Tls(stream, identity) => Ok(Box::new(identity.accept(stream).await?)),
        }
    }
}

impl UnixListenSocket {
    /// Takes a socket that an earlier process has bound to a path, and leaves its file.
    ///
    /// The socket must not block.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn inherited(listener: StdUnixListener, path: &Path) -> io::Result<Self> {
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { listener, path: path.to_owned(), file: None })
    }

    /// Leaves the file when this is dropped: a later process has a copy of the socket.
    pub fn leave_file(&mut self) {
        self.file = None;
    }

    /// Binds to a path; replaces the socket file of a dead process.
    ///
    /// # Errors
    ///
    /// If another process listens there, the path is too long, or the system refuses.
    pub async fn bind(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() > PATH_MAX {
            let problem =
                "the path of a socket has at most 107 bytes: choose a shorter directory or name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let path = path.to_owned();
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(&path).await.is_ok() {
                    return Err(error);
                }
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            bound => bound?,
        };
        // A client of the socket can change every rule of the bridge.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let file = Some(inode(&path)?);
        Ok(Self { listener, path, file })
    }
}

impl AsFd for UnixListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for UnixListenSocket {
    fn drop(&mut self) {
        // Another process may have removed or replaced the file. The inode number is not reused
        // while this socket listens.
        if self.file.is_some() && inode(&self.path).ok() == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns device and inode number of a file.
fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Accepts and serves connections; aborting the task ends them.
pub(super) async fn accept_all<H: Host>(listener: OpenFlowListener, shared: Arc<ServerState<H>>) {
    let mut places = ListenerPlaces::new(listener.idle_policy());
    let mut connections = JoinSet::new();
    let (warnings, bundle_quota) = (Arc::<WarningRate>::default(), Arc::<BundleQuota>::default());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let is_full = connections.len() >= CONNECTIONS_MAX;
                    let now = shared.host.now();
                    if is_full && !make_room(&mut places, &peer, &warnings, now) {
                        continue;
                    }
                    // A connection that has lost its place ends at once.
                    while connections.len() >= CONNECTIONS_MAX
                        && let Some(ended) = connections.join_next().await
                    {
                        log_end(ended, &warnings, now);
                    }
                    let mut config = ConnectionConfig::new(&*peer, ConnectionKind::Management);
                    config.inactivity_probe = listener.inactivity_probe();
                    config.warnings = Arc::clone(&warnings);
                    config.bundle_quota = Arc::clone(&bundle_quota);
                    let activity = Arc::new(PeerActivity::new(now));
                    let (shared, own_peer) = (Arc::clone(&shared), peer.clone());
                    let own_activity = Arc::clone(&activity);
                    let name = format!("connection {peer}");
                    let task = connections.spawn(ControlTask::new(name, async move {
                        let ended = serve_accepted(stream, config, &shared, &own_activity).await;
                        (own_peer, ended)
                    }));
                    places.push(peer, activity, task);
                }
                Err(error) => {
                    let now = shared.host.now();
                    warnings.warn(WarningKind::Connection, now, |suppressed| {
                        tracing::warn!(
                            %error,
                            suppressed,
                            "the connection of a client cannot be accepted, retrying"
                        );
                    });
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => {
                log_end(ended, &warnings, shared.host.now());
            }
        }
    }
}

/// Serves a connection until it ends; records its activity.
async fn serve_accepted<H: Host>(
    stream: AcceptedStream,
    config: ConnectionConfig,
    shared: &ServerState<H>,
    activity: &PeerActivity,
) -> ConnectionEnd {
    match stream.open().await {
        Ok(stream) => serve(stream, config, shared, activity, || ()).await,
        Err(error) => {
            ConnectionEnd { reason: CloseReason::Handshake(error.to_string()), open_for: None }
        }
    }
}

/// Ends a connection for a new connection of `peer`.
///
/// Returns `false` if all connections keep their places. `warnings` limits the rate of warnings.
fn make_room(places: &mut ListenerPlaces, peer: &str, warnings: &WarningRate, now: Time) -> bool {
    let ended = places.make_room(now);
    let (peer, text) = match &ended {
        Some(ended) => (ended.peer.as_str(), ended.text),
        None => (peer, "connection refused: too many connections are open, close some of them"),
    };
    let is_logged = warnings.warn(WarningKind::Connection, now, |suppressed| {
        tracing::warn!(peer, suppressed, max = CONNECTIONS_MAX, "{text}");
    });
    if !is_logged {
        tracing::debug!(peer, max = CONNECTIONS_MAX, "{text}");
    }
    ended.is_some()
}

/// Logs the end of a connection; `warnings` limits the rate of warnings.
fn log_end(ended: Result<(String, ConnectionEnd), JoinError>, warnings: &WarningRate, now: Time) {
    match ended {
        Ok((peer, ended)) if is_expected(&ended.reason) => {
            tracing::debug!(peer, reason = %ended.reason, "connection closed");
        }
        Ok((peer, ended)) => {
            let reason = &ended.reason;
            let is_logged = warnings.warn(WarningKind::Connection, now, |suppressed| {
                tracing::warn!(
                    peer,
                    suppressed,
                    %reason,
                    "connection closed because of an error"
                );
            });
            if !is_logged {
                tracing::debug!(peer, %reason, "connection closed because of an error");
            }
        }
        // The connection has lost its place, which is logged already.
        Err(error) if error.is_cancelled() => {}
        // A panic in one connection does not affect the others.
        Err(error) => tracing::error!(
            %error,
            "a connection ended, because its task panicked: other connections continue, please \
             report this bug"
        ),
    }
}

/// Returns whether `reason` is a normal reason for the end of a connection.
const fn is_expected(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::PeerClosed | CloseReason::Transport(_))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tracing::Level;

    use super::*;
    use crate::connection::tests::log::logged_at;

    #[tokio::test]
    async fn every_lost_place_is_logged_at_debug() {
        /// The log line of a connection that makes room.
        const LOST: &str = "connection closed before its hello: a new connection needs its place";
        /// The log line of a refused connection.
        const REFUSED: &str = "connection refused: too many connections are open";
        for (text, waiting) in [(LOST, 8), (REFUSED, 0)] {
            for (level, logged) in [(Level::WARN, 5), (Level::DEBUG, 8)] {
                let mut places = ListenerPlaces::new(IdlePolicy::Keep);
                let warnings = WarningRate::default();
                for _ in 0..waiting {
                    let task = tokio::spawn(pending::<()>()).abort_handle();
                    places.push("tcp:192.0.2.1:6".to_owned(), Arc::default(), task);
                }
                let mut lines_of = |count: usize, now: Time| {
                    logged_at(level, || {
                        for _ in 0..count {
                            make_room(&mut places, "tcp:192.0.2.1:7", &warnings, now);
                        }
                    })
                };
                let lines = lines_of(8, Time::ZERO);
                assert_eq!(lines.len(), logged, "{lines:?}");
                assert!(lines.iter().all(|line| line.starts_with(text)), "{lines:?}");
                assert!(!lines.concat().contains("suppressed"), "{lines:?}");
                let later = lines_of(1, Time::ZERO.after(Duration::from_secs(60)));
                assert!(later[0].starts_with(REFUSED), "{later:?}");
                assert!(later[0].contains("suppressed=3"), "{later:?}");
            }
        }
    }
}
