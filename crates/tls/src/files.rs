//! The files of keys and certificates.

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

use crate::verify::ChainVerifier;

/// Maximum length of a file of keys or certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a key and of certificates, in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The private key.
    pub private_key: PathBuf,
    /// The certificate of the key, and intermediate certificates after it.
    pub certificate: PathBuf,
    /// The certificates of the authorities that peers must have theirs from.
    ///
    /// A client needs it. A server without it takes clients without certificate.
    pub ca_certificate: Option<PathBuf>,
    /// Set if the certificate of the authority is taken from the first server.
    ///
    /// It has an effect only while there is no file `ca_certificate`.
    pub bootstraps: bool,
}

/// The configuration of connections to servers.
pub(crate) struct ClientSetup {
    pub(crate) config: Arc<ClientConfig>,
    /// File for the certificate of the authority, if it is taken from the server.
    pub(crate) authority_file: Option<PathBuf>,
}

/// A reason why no TLS connection can be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// No files are set.
    #[error("no private key, certificate and CA certificate are configured for TLS")]
    NotSet,
    /// A client has no CA certificate.
    #[error("no CA certificate is configured for TLS, so no peer can be trusted")]
    NoAuthority,
    /// A file cannot be read, or has no object of its kind.
    #[error("cannot read the {what} {path}: {why}")]
    Unreadable {
        /// Kind of the file.
        what: &'static str,
        /// Path of the file.
        path: String,
        /// Why it cannot be read.
        why: String,
    },
    /// A key or certificate cannot be used.
    #[error("cannot use the {what} {path}: {why}")]
    Unusable {
        /// Kind of the file.
        what: &'static str,
        /// Path of the file.
        path: String,
        /// Why it cannot be used.
        why: String,
    },
    /// The certificate of the authority was taken from a server.
    #[error("the CA certificate of the server is stored in {0}: connecting again")]
    Bootstrapped(String),
    /// The certificate of the authority cannot be taken from a server.
    #[error("cannot take the CA certificate {path} from the server: {why}")]
    NotBootstrapped {
        /// Path of the file.
        path: String,
        /// Why it cannot be taken.
        why: String,
    },
    /// The algorithms of TLS are not available.
    #[error("TLS cannot be set up: {0}")]
    SetUp(String),
}

impl TlsFiles {
    /// Reads all files, and checks that they can be used.
    ///
    /// # Errors
    ///
    /// If one of them cannot be read or used.
    pub fn check(&self) -> Result<(), TlsError> {
        match self.authority_file() {
            // It comes with the first connection.
            Some(_) => self.identity().map(drop),
            None => self.server().map(drop),
        }
    }

    /// Returns the file for the certificate that a server is to provide.
    fn authority_file(&self) -> Option<PathBuf> {
        let path = self.ca_certificate.as_ref().filter(|_| self.bootstraps)?;
        let is_absent =
            fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        is_absent.then(|| path.clone())
    }

    /// Returns the configuration of connections to servers.
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
            .map_err(|error| self.unusable_key(&error))?;
        // Servers are known by their address, so there is no name to send.
        config.enable_sni = false;
        Ok(ClientSetup { config: Arc::new(config), authority_file })
    }

    /// Returns the configuration of connections from clients.
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
        config.map(Arc::new).map_err(|error| self.unusable_key(&error))
    }

    /// Reads the certificate with its intermediate ones, and the key.
    fn identity(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates("certificate", &self.certificate)?;
        check_file("private key", &self.private_key)?;
        let key = PrivateKeyDer::from_pem_file(&self.private_key)
            .map_err(|error| unreadable("private key", &self.private_key, &error))?;
        Ok((chain, key))
    }

    /// Reads the certificates of authorities.
    fn roots(&self) -> Result<Option<RootCertStore>, TlsError> {
        let Some(path) = &self.ca_certificate else { return Ok(None) };
        let what = "CA certificate";
        let mut roots = RootCertStore::empty();
        for certificate in certificates(what, path)? {
            roots.add(certificate).map_err(|error| TlsError::Unusable {
                what,
                path: path.display().to_string(),
                why: error.to_string(),
            })?;
        }
        Ok(Some(roots))
    }

    fn unusable_key(&self, error: &rustls::Error) -> TlsError {
        TlsError::Unusable {
            what: "private key",
            path: self.private_key.display().to_string(),
            why: format!("{error}; is it the key of {}?", self.certificate.display()),
        }
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads all certificates of a file; it must have one.
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

/// Refuses what is no file of a key or certificate: its reading might have no end.
fn check_file(what: &'static str, path: &Path) -> Result<(), TlsError> {
    let refused =
        |why: String| TlsError::Unreadable { what, path: path.display().to_string(), why };
    let found = fs::metadata(path).map_err(|error| refused(not_read(&error)))?;
    if !found.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(refused(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn unreadable(what: &'static str, path: &Path, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::NoItemsFound => "it has none in PEM format".to_owned(),
        pem::Error::Io(error) => not_read(error),
        error => error.to_string(),
    };
    TlsError::Unreadable { what, path: path.display().to_string(), why }
}

/// Returns why a file cannot be read, with what to do.
fn not_read(error: &io::Error) -> String {
    match error.kind() {
        // `ovs-pki` gives keys to root alone.
        io::ErrorKind::PermissionDenied => {
            format!("{error}; the user of the daemon must be able to read it")
        }
        _ => error.to_string(),
    }
}
