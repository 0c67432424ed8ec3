//! TLS for OpenFlow, OVSDB and HTTP connections: `ssl:`, `pssl:` and `https:`.
//!
//! - [`TlsFiles`] are the paths of a private key, of its certificate, and of the certificates of
//!   the authorities (CA) that must have signed the certificates of peers.
//! - All connections share one [`TlsIdentity`]. The files are read at each handshake, so that a
//!   renewed certificate is used without a restart.
//! - As in Open vSwitch, both sides present a certificate, and the name in it is not compared with
//!   the address of the peer. Every peer with a certificate of the CA is trusted.
//! - A server without a CA file accepts clients without certificate, as web servers do.
//!
//! ```
//! use shunt_tls::{TlsFiles, TlsIdentity};
//!
//! let identity = TlsIdentity::default();
//! assert!(identity.check().unwrap_err().to_string().contains("no private key"));
//! identity.set(Some(TlsFiles {
//!     private_key: "/etc/shunt/privkey.pem".into(),
//!     certificate: "/etc/shunt/cert.pem".into(),
//!     ca_certificate: Some("/etc/shunt/cacert.pem".into()),
//!     bootstraps: false,
//! }));
//! ```

mod bootstrap;
mod failure;
mod files;
mod identity;
mod verify;

pub use self::{
    files::{TlsError, TlsFiles},
    identity::{TlsIdentity, TlsStream},
};
