//! The identity of a switch: its handshakes with servers and clients.

use std::{io, sync::Arc, time::Duration};

use parking_lot::RwLock;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::spawn_blocking,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::{
    bootstrap::store_authority,
    failure::with_remedy,
    files::{ClientSetup, TlsError, TlsFiles, provider},
};

/// A TLS stream of either side.
pub type TlsStream<S> = tokio_rustls::TlsStream<S>;

/// Maximum duration of a handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(8);

/// The key and the certificates of this switch, shared by its connections.
#[derive(Clone, Debug, Default)]
pub struct TlsIdentity {
    configured: Arc<RwLock<Option<TlsFiles>>>,
    /// Files of another source, which are used instead of the configured files.
    replacement: Arc<RwLock<Option<TlsFiles>>>,
}

impl TlsIdentity {
    /// Sets the configured TLS files; existing connections are not affected.
    pub fn set(&self, files: Option<TlsFiles>) {
        *self.configured.write() = files;
    }

    /// Sets files that are used instead of the configured files.
    ///
    /// With `None`, the configured files are used. Existing connections are not affected.
    pub fn replace(&self, files: Option<TlsFiles>) {
        *self.replacement.write() = files;
    }

    /// Returns whether files of another source replace the configured files.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.replacement.read().is_some()
    }

    /// Returns an identity with the configured files alone.
    ///
    /// A later [`Self::set`] also changes the result, and a later [`Self::replace`] does not.
    #[must_use]
    pub fn without_replacement(&self) -> Self {
        Self { configured: Arc::clone(&self.configured), replacement: Arc::default() }
    }

    /// Returns the TLS files that are used, if there are any.
    #[must_use]
    pub fn files(&self) -> Option<TlsFiles> {
        let replacement = self.replacement.read().clone();
        replacement.or_else(|| self.configured.read().clone())
    }

    /// Reads all files, and checks that they can be used.
    ///
    /// # Errors
    ///
    /// If no files are configured, or a file cannot be read or used.
    pub fn check(&self) -> Result<(), TlsError> {
        self.files().ok_or(TlsError::NotSet)?.check()
    }

    /// Performs the handshake with a server over a stream.
    ///
    /// If the server must provide the certificate of the authority, the certificate is stored. The
    /// result is then the error [`TlsError::Bootstrapped`], and later connections are checked.
    ///
    /// # Errors
    ///
    /// If no files are configured or a file cannot be used, if the handshake fails, or after 8 s.
    pub async fn connect<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let ClientSetup { config, authority_file } = self.load(TlsFiles::client).await?;
        // The name is not compared, but the library requires a name.
        let name = ServerName::try_from("switch").map_err(io::Error::other)?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        let done = timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(|_| handshake_timeout())?;
        let stream = done.map_err(with_remedy)?;
        let Some(path) = authority_file else { return Ok(stream.into()) };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = chain.to_vec();
        let stored =
            spawn_blocking(move || store_authority(&chain, &path, &provider()).map(|()| path));
        let path = stored.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Err(io::Error::other(TlsError::Bootstrapped(path.display().to_string())))
    }

    /// Performs the handshake with a client over a stream.
    ///
    /// # Errors
    ///
    /// Like [`Self::connect`].
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.load(TlsFiles::server).await?;
        let handshake = TlsAcceptor::from(config).accept(stream);
        let done = timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(|_| handshake_timeout())?;
        Ok(done.map_err(with_remedy)?.into())
    }

    /// Reads the files on a blocking thread.
    async fn load<C: Send + 'static>(
        &self,
        read: fn(&TlsFiles) -> Result<C, TlsError>,
    ) -> io::Result<C> {
        let files = self.files().ok_or_else(|| io::Error::other(TlsError::NotSet))?;
        let read = spawn_blocking(move || read(&files)).await.map_err(io::Error::other)?;
        read.map_err(io::Error::other)
    }
}

/// Returns the error of a handshake that takes too long.
fn handshake_timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake timed out")
}
