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

/// A stream with TLS, of either side.
pub type TlsStream<S> = tokio_rustls::TlsStream<S>;

/// Maximum time of a handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(8);

/// The key and the certificates of this switch, which its connections share.
#[derive(Clone, Debug, Default)]
pub struct TlsIdentity {
    files: Arc<RwLock<Option<TlsFiles>>>,
}

impl TlsIdentity {
    /// Sets the files; connections that exist are not affected.
    pub fn set(&self, files: Option<TlsFiles>) {
        *self.files.write() = files;
    }

    /// Returns the files.
    #[must_use]
    pub fn files(&self) -> Option<TlsFiles> {
        self.files.read().clone()
    }

    /// Reads all files, and checks that they can be used.
    ///
    /// # Errors
    ///
    /// If no files are set, or one of them cannot be read or used.
    pub fn check(&self) -> Result<(), TlsError> {
        self.files().ok_or(TlsError::NotSet)?.check()
    }

    /// Makes a TLS connection of a stream to a server.
    ///
    /// If the server is to provide the certificate of the authority, it is stored, and the result is
    /// the error [`TlsError::Bootstrapped`]: the next connection is checked.
    ///
    /// # Errors
    ///
    /// If no files are set or one cannot be used, if the handshake fails, or after 8 s.
    pub async fn connect<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let ClientSetup { config, authority_file } = self.load(TlsFiles::client).await?;
        // The name is not checked, but the handshake needs one.
        let name = ServerName::try_from("switch").map_err(io::Error::other)?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        let done = timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(|_| late())?;
        let stream = done.map_err(with_remedy)?;
        let Some(path) = authority_file else { return Ok(stream.into()) };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain = chain.to_vec();
        let stored =
            spawn_blocking(move || store_authority(&chain, &path, &provider()).map(|()| path));
        let path = stored.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Err(io::Error::other(TlsError::Bootstrapped(path.display().to_string())))
    }

    /// Makes a TLS connection of a stream from a client.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.load(TlsFiles::server).await?;
        let handshake = TlsAcceptor::from(config).accept(stream);
        let done = timeout(HANDSHAKE_TIME_MAX, handshake).await.map_err(|_| late())?;
        Ok(done.map_err(with_remedy)?.into())
    }

    /// Reads the files outside of asynchronous tasks.
    async fn load<C: Send + 'static>(
        &self,
        read: fn(&TlsFiles) -> Result<C, TlsError>,
    ) -> io::Result<C> {
        let files = self.files().ok_or_else(|| io::Error::other(TlsError::NotSet))?;
        let read = spawn_blocking(move || read(&files)).await.map_err(io::Error::other)?;
        read.map_err(io::Error::other)
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake timed out")
}
