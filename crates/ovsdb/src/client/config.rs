//! Settings of a client.

use std::time::Duration;

use super::OvsdbRemote;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct OvsdbClientConfig {
    /// The server.
    pub remote: OvsdbRemote,
    /// The name of the database.
    pub database: String,
    /// The columns that the client follows.
    pub tables: Vec<FollowedTable>,
    /// The lock without which the client does not write.
    pub lock: Option<String>,
    /// Bytes of the longest message that a server may send.
    pub message_bytes: usize,
    /// Longest time for a connection to be made, and for a reply.
    pub reply_time_max: Duration,
    /// Time without a message after which the client sends a probe (`echo`).
    ///
    /// After the same time without an answer, the connection is lost.
    pub probe_interval: Duration,
    /// Pause after the first failed attempt to connect.
    ///
    /// Each further pause is twice as long.
    pub pause_min: Duration,
    /// Longest pause between attempts to connect.
    pub pause_max: Duration,
}

/// The columns of a table that a client follows.
///
/// A column that the server does not have is left out. The table itself must exist.
#[derive(Clone, Copy, Debug)]
pub struct FollowedTable {
    /// The name of the table.
    pub name: &'static str,
    /// Columns that the client reads: a change of them is notified.
    pub read: &'static [&'static str],
    /// Columns that the client writes: a change of them alone is not notified.
    pub written: &'static [&'static str],
}

impl OvsdbClientConfig {
    /// Creates settings for a database, with the default times and limits.
    #[must_use]
    pub fn new(remote: OvsdbRemote, database: &str, tables: Vec<FollowedTable>) -> Self {
        Self {
            remote,
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
    /// Returns whether the client follows a column.
    pub(super) fn has(&self, column: &str) -> bool {
        self.read.contains(&column) || self.written.contains(&column)
    }
}
