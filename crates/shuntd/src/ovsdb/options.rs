//! The section `[ovsdb]` of the configuration file.

use std::path::PathBuf;

use serde::Deserialize;

/// The options of the embedded OVSDB server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OvsdbOptions {
    /// Unix socket of the server; without it there is no server.
    pub(crate) socket: PathBuf,
    /// Log of the database; without it the database is lost when the daemon stops.
    pub(crate) log: PathBuf,
}

impl OvsdbOptions {
    /// Returns the keys that differ.
    pub(crate) fn keys_that_differ(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let keys =
            [("ovsdb.socket", self.socket != other.socket), ("ovsdb.log", self.log != other.log)];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key))
    }

    /// Returns whether there is a server.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.socket.as_os_str().is_empty()
    }
}
