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

use shunt_tls::TlsIdentity;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinSet,
};

use super::{
    bridge::ServerState,
    read_interest_stream::ReadInterestStream,
    serve::{ConnectionEnd, serve},
};
use crate::{
    Host,
    connection::{BundleQuota, ConnectionConfig, ConnectionKind, WarningKind, WarningRate},
    error::CloseReason,
};

/// Number of connections that one listener serves; further ones are closed at once.
const CONNECTIONS_MAX: usize = 256;
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
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket file, if this socket removes it.
    file: Option<(u64, u64)>,
}

/// A byte stream of any transport.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

impl OpenFlowListener {
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
    /// If another process listens there, or the system refuses.
    pub async fn bind(path: &Path) -> io::Result<Self> {
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
    let mut connections = JoinSet::new();
    let (warnings, bundle_quota) = (Arc::<WarningRate>::default(), Arc::<BundleQuota>::default());
    let warn = |log: &dyn Fn(u32)| {
        if let Some(suppressed) = warnings.admit(WarningKind::Connection, shared.host.now()) {
            log(suppressed);
        }
    };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((_, peer)) if connections.len() >= CONNECTIONS_MAX => warn(&|suppressed| {
                    tracing::warn!(
                        peer,
                        suppressed,
                        max = CONNECTIONS_MAX,
                        "connection refused: too many are open"
                    );
                }),
                Ok((stream, peer)) => {
                    let mut config = ConnectionConfig::new(&*peer, ConnectionKind::Management);
                    config.inactivity_probe = listener.inactivity_probe();
                    config.warnings = Arc::clone(&warnings);
                    config.bundle_quota = Arc::clone(&bundle_quota);
                    let shared = Arc::clone(&shared);
                    connections.spawn(async move {
                        let ended = match stream.open().await {
                            Ok(stream) => serve(stream, config, &shared, || ()).await,
                            Err(error) => ConnectionEnd {
                                reason: CloseReason::Handshake(error.to_string()),
                                open_for: None,
                            },
                        };
                        (peer, ended)
                    });
                }
                Err(error) => {
                    warn(&|suppressed| {
                        tracing::warn!(
                            %error,
                            suppressed,
                            "a connection cannot be accepted, retrying"
                        );
                    });
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => match ended {
                Ok((peer, ended)) if is_expected(&ended.reason) => {
                    tracing::debug!(peer, reason = %ended.reason, "connection closed");
                }
                Ok((peer, ended)) => warn(&|suppressed| {
                    tracing::warn!(peer, suppressed, reason = %ended.reason, "connection closed because of an error");
                }),
                // A panic in one connection does not affect the others.
                Err(error) => tracing::error!(
                    %error,
                    "the task of a connection panicked, which ends this connection alone"
                ),
            },
        }
    }
}

/// Returns whether `reason` is a normal reason for the end of a connection.
const fn is_expected(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::PeerClosed | CloseReason::Transport(_))
}
