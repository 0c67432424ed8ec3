//! The OVSDB database with the bridges: of the embedded server, or of a foreign server.

use std::fs;

use shunt_ovsdb::{
    ChangeSubscription, DatabaseSnapshot, OvsdbHandle, OvsdbServerError, RowTransaction,
    client::{ClientTransactionError, OvsdbClient, OvsdbClientConfig, OvsdbRemote, ServerLock},
};
use shunt_tls::TlsIdentity;
use tracing::{info, warn};

use super::columns::{DATABASE, LOCK, TABLES};

/// The OVSDB database that describes the bridges of the switch.
///
/// The daemon uses both kinds in the same way: it reads rows, and writes changed columns.
pub(super) enum SwitchDatabase {
    /// The database of the embedded server.
    Embedded { handle: OvsdbHandle, changes: ChangeSubscription },
    /// The database of a foreign server.
    Foreign {
        client: OvsdbClient,
        remote: OvsdbRemote,
        /// The state of the lock that was last logged.
        logged: ServerLock,
    },
}

/// The rows of a database, or the reason why the switch does not follow them.
pub(super) enum DatabaseRows {
    /// The rows describe the switch.
    Current(DatabaseSnapshot),
    /// The foreign server is not connected: the switch keeps its present state.
    Away,
    /// Another switch owns the lock of the database:
    /// this switch keeps its present state.
    OfOtherSwitch,
}

impl SwitchDatabase {
    /// Subscribes to the database of the embedded server.
    pub(super) async fn embedded(handle: OvsdbHandle) -> Result<Self, OvsdbServerError> {
        let changes = handle.subscribe().await?;
        Ok(Self::Embedded { handle, changes })
    }

    /// Connects to a foreign server; retries until the server is available.
    ///
    /// TLS connections use the files of the configuration. With the files in the database, a wrong
    /// row of `SSL` would end the connection by which the row can be corrected.
    pub(super) fn foreign(remote: OvsdbRemote, tls: TlsIdentity) -> Self {
        let mut config = OvsdbClientConfig::new(remote.clone(), DATABASE, TABLES.to_vec());
        config.lock = Some(LOCK.to_owned());
        config.tls = tls;
        Self::Foreign { client: OvsdbClient::start(config), remote, logged: ServerLock::Requested }
    }

    /// Waits until a client has changed columns that the daemon reads.
    ///
    /// Dropping the future loses no change.
    ///
    /// # Errors
    ///
    /// If the database cannot be used any more.
    pub(super) async fn changed(&mut self) -> Result<(), OvsdbServerError> {
        match self {
            Self::Embedded { changes, .. } => changes.next().await.map(drop),
            Self::Foreign { client, .. } => {
                client.changed().await.map_err(|_| OvsdbServerError::Stopped)
            }
        }
    }

    /// Returns the rows if the switch must follow them now.
    ///
    /// # Errors
    ///
    /// If the database cannot be used any more.
    pub(super) async fn rows(&mut self) -> Result<DatabaseRows, OvsdbServerError> {
        match self {
            Self::Embedded { handle, .. } => handle.snapshot().await.map(DatabaseRows::Current),
            Self::Foreign { client, remote, logged } => {
                let state = client.state();
                if state.is_current && state.lock != *logged {
                    *logged = state.lock;
                    log_lock(state.lock, remote);
                }
                let is_writable = state.is_writable();
                Ok(match (state.rows, state.lock) {
                    (Some(rows), _) if is_writable => DatabaseRows::Current(rows),
                    (_, ServerLock::Waiting | ServerLock::Stolen) => DatabaseRows::OfOtherSwitch,
                    _ => DatabaseRows::Away,
                })
            }
        }
    }

    /// Returns the reason why the switch does not follow the rows, for `/readyz`.
    pub(super) fn problem(&self, rows: &DatabaseRows) -> Option<String> {
        let Self::Foreign { remote, .. } = self else { return None };
        match rows {
            DatabaseRows::Current(_) => None,
            DatabaseRows::Away => Some(format!("database {remote}: not connected")),
            DatabaseRows::OfOtherSwitch => {
                Some(format!("database {remote}: another switch owns the lock {LOCK}"))
            }
        }
    }

    /// Begins a transaction; the comment is written to the log of the database.
    pub(super) fn transaction(&self, comment: &str) -> RowTransaction {
        match self {
            Self::Embedded { handle, .. } => handle.transaction(comment),
            Self::Foreign { client, .. } => client.transaction(comment),
        }
    }

    /// Executes a transaction; returns the reason if it was refused.
    ///
    /// If a foreign server is not connected, the columns are written when it is connected again. So
    /// a missing connection is not a refusal.
    ///
    /// # Errors
    ///
    /// If the database cannot be used any more.
    pub(super) async fn transact(
        &self,
        transaction: RowTransaction,
    ) -> Result<Option<String>, OvsdbServerError> {
        match self {
            Self::Embedded { handle, .. } => match handle.transact(transaction).await {
                Ok(()) => Ok(None),
                Err(OvsdbServerError::Transaction(error)) => Ok(Some(error.to_string())),
                Err(error) => Err(error),
            },
            Self::Foreign { client, .. } => match client.transact(transaction).await {
                Ok(()) | Err(ClientTransactionError::NotWritable) => Ok(None),
                Err(ClientTransactionError::Refused(reason)) => Ok(Some(reason)),
                Err(_) => Err(OvsdbServerError::Stopped),
            },
        }
    }
}

/// Logs a change of the lock of a foreign server.
fn log_lock(lock: ServerLock, remote: &OvsdbRemote) {
    match lock {
        ServerLock::Owned => info!("database {remote}: lock {LOCK} acquired"),
        ServerLock::Waiting => warn!(
            "database {remote}: another switch owns the lock {LOCK}: {}: bridges do not change until it \
             stops",
            owner(remote)
        ),
        ServerLock::Stolen => warn!(
            "database {remote}: another client has taken the lock {LOCK}: bridges stay as they are until \
             it releases the lock"
        ),
        ServerLock::NotWanted | ServerLock::Requested => {}
    }
}

/// Describes the probable owner of the lock; the protocol does not name the owner.
fn owner(remote: &OvsdbRemote) -> String {
    let pid_file = match remote {
        OvsdbRemote::Unix(socket) => Some(socket.with_file_name("ovs-vswitchd.pid")),
        OvsdbRemote::Tcp(_) | OvsdbRemote::Tls(_) => None,
    };
    let found = pid_file.and_then(|file| {
        let id: u32 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        let is_other = id != std::process::id() && fs::exists(format!("/proc/{id}")).ok()?;
        is_other.then(|| format!("process {id} of {}", file.display()))
    });
    found.unwrap_or_else(|| "ovs-vswitchd, or another shuntd".to_owned())
}
