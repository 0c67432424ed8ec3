//! Settings of a client.

use std::time::Duration;

use shunt_tls::TlsIdentity;

use super::OvsdbRemote;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct OvsdbClientConfig {
    /// The address of the server.
    pub remote: OvsdbRemote,
    /// The key and the certificates for a server with TLS.
    pub tls: TlsIdentity,
    /// The name of the database.
    pub database: String,
    /// The tables and columns that the client follows.
    pub tables: Vec<FollowedTable>,
    /// The lock that the client must own to write; `None` for no lock.
    pub lock: Option<String>,
    /// Maximum length of a message from the server, in bytes.
    pub message_bytes: usize,
    /// Maximum time to establish a connection, and to wait for a reply.
    pub reply_time_max: Duration,
    /// Time without a message after which the client sends a probe (`echo`).
    ///
    /// The client ends the connection after the same time without an answer to the probe.
    pub probe_interval: Duration,
    /// Pause after the first failed attempt to connect.
    ///
    /// Each further pause is twice as long as the pause before it.
    pub pause_min: Duration,
    /// Longest pause between attempts to connect.
    pub pause_max: Duration,
}

/// The columns of a table that a client follows.
///
/// A column that the server does not have is left out, and so is a table that the client only
/// writes. Each table with a column in `read` must exist.
#[derive(Clone, Copy, Debug)]
pub struct FollowedTable {
    /// The name of the table.
    pub name: &'static str,
    /// Columns that the client reads; the client is notified of their changes.
    pub read: &'static [&'static str],
    /// Columns that the client writes, without notification of their changes.
    pub written: &'static [&'static str],
}

impl OvsdbClientConfig {
    /// Creates settings for a database, with the default times and limits.
    #[must_use]
    pub fn new(remote: OvsdbRemote, database: &str, tables: Vec<FollowedTable>) -> Self {
        Self {
            remote,
            tls: TlsIdentity::default(),
            database: database.to_owned(),
            tables,
            lock: None,
            message_bytes: 256 << 20,
            reply_time_max: Duration::from_secs(30),
            probe_interval: Duration::from_secs(5),
            pause_min: Duration::from_millis(250),
            pause_max: Duration::from_secs(8),
        }
    }
}

impl FollowedTable {
    /// Returns whether the client needs no column of the table.
    pub(super) const fn is_optional(&self) -> bool {
        self.read.is_empty()
    }

    /// Returns whether the client follows a column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.read.contains(&column) || self.written.contains(&column)
    }
}
