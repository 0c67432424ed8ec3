//! Accepting connections.

use std::{
    fs::Permissions,
    io,
    net::SocketAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener, UnixStream},
    task::JoinSet,
};

use super::{bridge::ServerState, read_interest_stream::ReadInterestStream, serve::serve};
use crate::{
    Host,
    connection::{BundleQuota, ConnectionConfig, ConnectionKind, WarningRate},
    error::CloseReason,
};

/// Connections that one listener serves at a time; others are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Wait after accepting failed, as it does when the process has no descriptor left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A socket that connections arrive at.
pub(super) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListenSocket),
}

/// A listening unix socket; its file goes when it does.
pub(super) struct UnixListenSocket {
    listener: UnixListener,
    path: PathBuf,
    /// What it has made there.
    file: (u64, u64),
}

/// Whatever bytes travel through.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

impl ListeningSocket {
    async fn accept(&self) -> io::Result<(Box<dyn ByteStream>, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Box::new(stream), format!("tcp:{peer}")))
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.listener.accept().await?;
                let stream = ReadInterestStream::new(stream)?;
                Ok((Box::new(stream), format!("unix:{}", socket.path.display())))
            }
        }
    }

    /// The address, if it is one of TCP.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }
}

impl UnixListenSocket {
    /// Binds to a path; a socket that a dead process left there is replaced.
    pub(super) async fn bind(path: &Path) -> io::Result<Self> {
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
        // Who can open the socket can change every rule of the bridge.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let file = inode(&path)?;
        Ok(Self { listener, path, file })
    }
}

impl Drop for UnixListenSocket {
    fn drop(&mut self) {
        // Somebody else may have removed it, or the directory; or may listen there already. The
        // number is not used again as long as this listens.
        if inode(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and number of a file.
fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Serves whoever connects, until the task is aborted; then its connections end too.
pub(super) async fn accept_all<H: Host>(listener: ListeningSocket, shared: Arc<ServerState<H>>) {
    let mut connections = JoinSet::new();
    let (warnings, bundle_quota) = (Arc::<WarningRate>::default(), Arc::<BundleQuota>::default());
    let warn = |log: &dyn Fn(u32)| {
        if let Some(held_back) = warnings.admit(shared.host.now()) {
            log(held_back);
        }
    };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((_, peer)) if connections.len() >= CONNECTIONS_MAX => warn(&|held_back| {
                    tracing::warn!(peer, held_back, max = CONNECTIONS_MAX, "too many connections");
                }),
                Ok((stream, peer)) => {
                    let mut config = ConnectionConfig::new(&*peer, ConnectionKind::Management);
                    config.warnings = Arc::clone(&warnings);
                    config.bundle_quota = Arc::clone(&bundle_quota);
                    let shared = Arc::clone(&shared);
                    let served = async move { (peer, serve(stream, config, &shared, || ()).await) };
                    connections.spawn(served);
                }
                Err(error) => {
                    warn(&|held_back| {
                        tracing::warn!(%error, held_back, "a connection could not be accepted");
                    });
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(ended) = connections.join_next() => match ended {
                Ok((peer, ended)) if is_expected(&ended.reason) => {
                    tracing::debug!(peer, reason = %ended.reason, "a connection ended");
                }
                Ok((peer, ended)) => warn(&|held_back| {
                    tracing::warn!(peer, held_back, reason = %ended.reason, "closed a connection");
                }),
                // One connection that panics takes no other with it.
                Err(error) => tracing::error!(%error, "the task of a connection failed"),
            },
        }
    }
}

/// Whether a connection ends so in everyday use.
const fn is_expected(reason: &CloseReason) -> bool {
    matches!(reason, CloseReason::PeerClosed | CloseReason::Transport(_))
}
