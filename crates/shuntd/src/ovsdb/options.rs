//! The section `[ovsdb]` of the configuration file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use shunt_ovsdb::client::OvsdbRemote;
use shunt_switch::ConfigStep;

/// The OVSDB database by which `ovs-vsctl` configures the switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OvsdbOptions {
    /// Unix socket of the embedded server; empty: there is no embedded server.
    pub(crate) socket: PathBuf,
    /// Log file of the embedded server.
    ///
    /// Without a log file, the database is lost when the daemon stops.
    pub(crate) log: PathBuf,
    /// Address of a foreign server with the database; `None` without such a server.
    #[serde(deserialize_with = "remote")]
    pub(crate) remote: Option<OvsdbRemote>,
}

impl OvsdbOptions {
    /// Checks that there is at most one database.
    ///
    /// # Errors
    ///
    /// The reason, with the wrong key.
    pub(crate) fn check(&self) -> Result<(), (String, [ConfigStep; 2])> {
        let wrong = |text: String, key| Err((text, [ConfigStep::Field("ovsdb"), key]));
        let has_log = self.log.as_path() != Path::new("");
        let Some(remote) = &self.remote else {
            if has_log && !self.is_embedded() {
                let text = "`log` is the file of the embedded server, and there is none: add \
                            `socket`, or remove `log`";
                return wrong(text.to_owned(), ConfigStep::Field("log"));
            }
            return Ok(());
        };
        if self.is_embedded() {
            let socket = self.socket.display();
            let text = format!(
                "two databases are configured: the embedded server on {socket}, and {remote}: remove \
                 `socket` or `remote`"
            );
            return wrong(text, ConfigStep::Field("remote"));
        }
        if has_log {
            let text = format!(
                "`log` is the file of the embedded server, and the database is on {remote}: \
                 remove `log`"
            );
            return wrong(text, ConfigStep::Field("log"));
        }
        Ok(())
    }

    /// Returns the options, with the database that the command line names.
    ///
    /// # Errors
    ///
    /// If the configuration file names a database too.
    pub(crate) fn with_remote(&self, remote: Option<&OvsdbRemote>) -> Result<Self, String> {
        let Some(remote) = remote else { return Ok(self.clone()) };
        let other = match &self.remote {
            Some(other) if other != remote => Some(format!("`remote` {other}")),
            None if self.is_embedded() => Some(format!("`socket` {}", self.socket.display())),
            _ => None,
        };
        match other {
            Some(other) => Err(format!(
                "two databases are configured: --db {remote}, and in the configuration file {other} of \
                 [ovsdb]: remove one of them"
            )),
            None => Ok(Self { remote: Some(remote.clone()), ..self.clone() }),
        }
    }

    /// Returns the keys with different values in `self` and `other`.
    pub(crate) fn keys_that_differ(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let keys = [
            ("ovsdb.socket", self.socket != other.socket),
            ("ovsdb.log", self.log != other.log),
            ("ovsdb.remote", self.remote != other.remote),
        ];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key))
    }

    /// Returns whether the options name a database.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_embedded() || self.remote.is_some()
    }

    /// Returns whether the daemon has its own database server.
    fn is_embedded(&self) -> bool {
        self.socket.as_path() != Path::new("")
    }
}

/// Parses the address of a foreign server; an empty text means no server.
fn remote<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OvsdbRemote>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_databases_are_refused() {
        let options = |text: &str| toml::from_str::<OvsdbOptions>(text).unwrap();
        let remote = "unix:/run/a.sock".parse().unwrap();
        for (text, words) in [
            ("socket = '/s'\nremote = 'unix:/r'", "remove `socket` or `remote`"),
            ("log = '/l'\nremote = 'unix:/r'", "`log` is the file of the embedded server"),
            ("log = '/l'", "add `socket`, or remove `log`"),
        ] {
            let (message, _) = options(text).check().unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        for text in ["socket = '/s'", "remote = 'unix:/r'"] {
            let error = options(text).with_remote(Some(&remote)).unwrap_err();
            assert!(
                error.contains("two databases are configured: --db unix:/run/a.sock"),
                "{error}"
            );
        }
        for text in ["", "remote = 'unix:/run/a.sock'"] {
            let options = options(text).with_remote(Some(&remote)).unwrap();
            assert_eq!(options.check(), Ok(()));
            assert_eq!(options.remote.as_ref(), Some(&remote));
        }
        assert!(toml::from_str::<OvsdbOptions>("remote = 'pssl:'").is_err());
    }
}
