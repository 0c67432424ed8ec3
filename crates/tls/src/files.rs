//! Files with keys and certificates.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::WebPkiClientVerifier,
};
use thiserror::Error;

use crate::{
    failure::{VERSION_1, is_of_version_1},
    verify::ChainVerifier,
};

/// Maximum length of a file with keys or certificates, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files with a key and with certificates, in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the private key.
    pub private_key: PathBuf,
    /// File with the certificate for the key, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// File with certificates of authorities,
    /// which must have signed the certificates of peers.
    ///
    /// A client needs the file. A server without the file accepts clients without certificate.
    pub ca_certificate: Option<PathBuf>,
    /// True if the certificate of the authority is taken from the first server.
    ///
    /// This setting has an effect only while the file `ca_certificate` does not exist.
    pub bootstraps: bool,
}

/// The TLS configuration for connections to servers.
pub(crate) struct ClientSetup {
    pub(crate) config: Arc<ClientConfig>,
    /// File in which to store the authority's certificate, if the server provides it.
    pub(crate) authority_file: Option<PathBuf>,
}

/// The reason why no TLS connection can be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// No TLS files are configured.
    #[error("TLS has no private key, certificate and CA certificate: configure their files")]
    NotSet,
    /// A client has no certificate of an authority.
    #[error("TLS has no CA certificate, so no peer can be trusted: configure its file")]
    NoAuthority,
    /// A file cannot be read, or does not contain a key or certificate.
    #[error("cannot read the {what} {path}: {reason}")]
    Unreadable {
        /// Content of the file, such as `private key`.
        what: &'static str,
        /// Path of the file.
        path: String,
        /// The reason why the file cannot be read.
        reason: String,
    },
    /// A key or certificate cannot be used.
    #[error("cannot use the {what} {path}: {reason}")]
    Unusable {
        /// Content of the file, such as `private key`.
        what: &'static str,
        /// Path of the file.
        path: String,
        /// The reason why the content cannot be used.
        reason: String,
    },
    /// The certificate of the authority was stored from a server's chain.
    #[error("the CA certificate of the server is stored in {0}: connecting again")]
    Bootstrapped(String),
    /// The certificate of the authority cannot be stored from a server's chain.
    #[error("cannot take the CA certificate {path} from the server: {reason}")]
    NotBootstrapped {
        /// Path of the file.
        path: String,
        /// The reason why the certificate cannot be stored.
        reason: String,
    },
    /// The cryptographic algorithms for TLS are not available.
    #[error("TLS cannot be set up: {0}")]
    SetUp(String),
}

impl TlsFiles {
    /// Reads all files, and checks that they can be used.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or used.
    pub fn check(&self) -> Result<(), TlsError> {
        match self.authority_file() {
            // The first connection provides the missing file.
            Some(_) => self.identity().map(drop),
            None => self.server().map(drop),
        }
    }

    /// Returns the file in which to store the authority's certificate.
    ///
    /// `None` if no server must provide the certificate.
    fn authority_file(&self) -> Option<PathBuf> {
        let path = self.ca_certificate.as_ref().filter(|_| self.bootstraps)?;
        let is_absent =
            fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        is_absent.then(|| path.clone())
    }

    /// Returns the TLS configuration for connections to servers.
    pub(crate) fn client(&self) -> Result<ClientSetup, TlsError> {
        let provider = provider();
        let authority_file = self.authority_file();
        let roots = match authority_file {
            Some(_) => None,
            None => Some(self.roots()?.ok_or(TlsError::NoAuthority)?),
        };
        let verifier = ChainVerifier::new(roots, Arc::clone(&provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::SetUp(error.to_string()))?;
        let (chain, key) = self.identity()?;
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain, key)
            .map_err(|error| self.unusable(&error))?;
        // Servers are identified by their address, so there is no name to send.
        config.enable_sni = false;
        Ok(ClientSetup { config: Arc::new(config), authority_file })
    }

    /// Returns the TLS configuration for connections from clients.
    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::SetUp(error.to_string()))?;
        let builder = match self.roots()? {
            Some(roots) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| TlsError::SetUp(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let (chain, key) = self.identity()?;
        let config = builder.with_single_cert(chain, key);
        config.map(Arc::new).map_err(|error| self.unusable(&error))
    }

    /// Reads the key, and the certificate with its intermediate certificates.
    fn identity(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates("certificate", &self.certificate)?;
        check_file("private key", &self.private_key)?;
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| unreadable("private key", &self.private_key, &error))?;
        Ok((chain, key))
    }

    /// Reads the certificates of authorities, if a file is configured.
    fn roots(&self) -> Result<Option<RootCertStore>, TlsError> {
        let Some(path) = &self.ca_certificate else { return Ok(None) };
        let what = "CA certificate";
        let mut roots = RootCertStore::empty();
        for certificate in certificates(what, path)? {
            roots.add(certificate).map_err(|error| TlsError::Unusable {
                what,
                path: path.display().to_string(),
                reason: error.to_string(),
            })?;
        }
        Ok(Some(roots))
    }

    /// Returns the reason why the certificate and the key cannot be used.
    fn unusable(&self, error: &rustls::Error) -> TlsError {
        let certificate = self.certificate.display().to_string();
        match error {
            rustls::Error::InvalidCertificate(problem) => TlsError::Unusable {
                what: "certificate",
                path: certificate,
                reason: if is_of_version_1(problem) {
                    VERSION_1.to_owned()
                } else {
                    problem.to_string()
                },
            },
            error => TlsError::Unusable {
                what: "private key",
                path: self.private_key.display().to_string(),
                reason: format!("{error}; is it the key of {certificate}?"),
            },
        }
    }
}

/// Returns the cryptography that all connections use.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads all certificates in a file; an error if there are none.
fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    check_file(what, path)?;
    let failed = |error: &pem::Error| unreadable(what, path, error);
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
    if found.is_empty() {
        return Err(failed(&pem::Error::NoItemsFound));
    }
    Ok(found)
}

/// Refuses a path that is not a regular file, because reading it might never end.
fn check_file(what: &'static str, path: &Path) -> Result<(), TlsError> {
    let refused =
        |reason: String| TlsError::Unreadable { what, path: path.display().to_string(), reason };
    let found = fs::metadata(path).map_err(|error| refused(not_read(&error)))?;
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(refused(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Returns the error of a file that cannot be read.
fn unreadable(what: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let reason = match error {
        pem::Error::NoItemsFound => format!("the file has no {what} in PEM format"),
        pem::Error::Io(error) => not_read(error),
        error => error.to_string(),
    };
    TlsError::Unreadable { what, path: path.display().to_string(), reason }
}

/// Returns the reason why a file cannot be read, with a correction.
fn not_read(error: &io::Error) -> String {
    match error.kind() {
        // `ovs-pki` creates keys that only root can read.
        io::ErrorKind::PermissionDenied => {
            format!("{error}; let the user of the daemon read the file")
        }
        _ => error.to_string(),
    }
}
