//! The managers of the embedded server: TCP ports on which it listens, or to which it connects.
//!
//! A foreign server has managers of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use shunt_ovsdb::{DatabaseSnapshot, OvsdbHandle, RowView, ServerRemote};
use shunt_switch::{ControllerEndpoint, ControllerTransport};
use tracing::{info, warn};

use super::database::SwitchDatabase;

/// The managers of the embedded server.
pub(super) struct Managers {
    /// The embedded server; `None` with a foreign one.
    server: Option<OvsdbHandle>,
    /// The remotes by the targets of their rows, or the reasons why there is none.
    remotes: BTreeMap<String, Result<ServerRemote, String>>,
}

/// The state of a manager, for its row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ManagerStatus {
    pub(super) is_connected: bool,
    /// The entries of `status`.
    pub(super) entries: BTreeMap<&'static str, String>,
}

/// A target that the server can use.
#[derive(Debug, PartialEq, Eq)]
enum ManagerTarget {
    Listen(SocketAddr),
    Connect(SocketAddr),
}

/// The port of OVSDB, assigned by IANA.
const OVSDB_PORT: u16 = 6640;

impl Managers {
    pub(super) fn new(database: &SwitchDatabase) -> Self {
        let server = match database {
            SwitchDatabase::Embedded { handle, .. } => Some(handle.clone()),
            SwitchDatabase::Foreign { .. } => None,
        };
        Self { server, remotes: BTreeMap::new() }
    }

    /// Starts and ends remotes, so that they are those of the rows.
    ///
    /// A port that cannot be used is tried again by the next call.
    pub(super) fn update(&mut self, rows: &DatabaseSnapshot) {
        let Some(server) = &self.server else { return };
        let targets: BTreeSet<&str> =
            manager_rows(rows).filter_map(|row| row.string("target")).collect();
        self.remotes.retain(|target, _| {
            let stays = targets.contains(target.as_str());
            if !stays {
                info!("manager {target}: removed");
            }
            stays
        });
        for target in targets {
            let last = self.remotes.get(target);
            if matches!(last, Some(Ok(_))) {
                continue;
            }
            let remote = start(server, target);
            match &remote {
                Ok(_) => info!("manager {target}: added"),
                Err(reason) if last.is_some_and(|last| last.as_ref().err() == Some(reason)) => {}
                Err(reason) => warn!("manager {target}: {reason}"),
            }
            self.remotes.insert(target.to_owned(), remote);
        }
    }

    /// Returns the state of the manager with a target; `None` with a foreign server.
    pub(super) fn status(&self, target: &str) -> Option<ManagerStatus> {
        let mut entries = BTreeMap::new();
        let is_connected = match self.remotes.get(target)? {
            Ok(remote) => {
                let connections = remote.connections();
                if let Ok(ManagerTarget::Listen(_)) = target_of(target) {
                    entries.insert("bound_port", remote.address().port().to_string());
                    entries.insert("n_connections", connections.to_string());
                } else {
                    let state = if connections > 0 { "ACTIVE" } else { "BACKOFF" };
                    entries.insert("state", state.to_owned());
                    entries.extend(remote.last_error().map(|error| ("last_error", error)));
                }
                connections > 0
            }
            Err(reason) => {
                entries.insert("state", "VOID".to_owned());
                entries.insert("last_error", reason.clone());
                false
            }
        };
        Some(ManagerStatus { is_connected, entries })
    }
}

/// Returns the rows of managers that the row of `Open_vSwitch` names.
pub(super) fn manager_rows(rows: &DatabaseSnapshot) -> impl Iterator<Item = RowView<'_>> {
    let roots = rows.rows("Open_vSwitch");
    let ids = roots.flat_map(|root| root.uuids("manager_options"));
    ids.filter_map(move |id| rows.row("Manager", id))
}

fn start(server: &OvsdbHandle, target: &str) -> Result<ServerRemote, String> {
    match target_of(target)? {
        ManagerTarget::Connect(address) => Ok(server.connect_tcp(address)),
        ManagerTarget::Listen(address) => {
            let failed = |error| format!("cannot listen on {address}, retrying: {error}");
            server.listen_tcp(address).map_err(failed)
        }
    }
}

/// Reads a target. Without a port it has that of OVSDB.
fn target_of(target: &str) -> Result<ManagerTarget, String> {
    let wrong = || {
        format!(
            "`{target}` is no target of the embedded server: use ptcp:[PORT][:IP] or tcp:IP[:PORT]"
        )
    };
    match target.parse::<ControllerEndpoint>().map_err(|_| wrong())? {
        ControllerEndpoint::Listen(ControllerTransport::Tcp, mut address) => {
            if matches!(target, "ptcp" | "ptcp:") || target.starts_with("ptcp::") {
                address.set_port(OVSDB_PORT);
            }
            Ok(ManagerTarget::Listen(address))
        }
        ControllerEndpoint::Connect(ControllerTransport::Tcp, mut address) => {
            let rest = target.strip_prefix("tcp:").unwrap_or_default();
            if rest.parse::<SocketAddr>().is_err() {
                address.set_port(OVSDB_PORT);
            }
            Ok(ManagerTarget::Connect(address))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_port_of_ovsdb() {
        use ManagerTarget::{Connect, Listen};
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (target, expected) in [
            ("ptcp:", Listen(address("0.0.0.0:6640"))),
            ("ptcp:7000", Listen(address("0.0.0.0:7000"))),
            ("ptcp:6640:127.0.0.1", Listen(address("127.0.0.1:6640"))),
            ("ptcp::127.0.0.1", Listen(address("127.0.0.1:6640"))),
            ("tcp:192.0.2.1", Connect(address("192.0.2.1:6640"))),
            ("tcp:192.0.2.1:6653", Connect(address("192.0.2.1:6653"))),
            ("tcp:[2001:db8::1]", Connect(address("[2001:db8::1]:6640"))),
            ("tcp:[2001:db8::1]:7000", Connect(address("[2001:db8::1]:7000"))),
        ] {
            assert_eq!(target_of(target), Ok(expected), "{target}");
        }
        for target in ["ssl:192.0.2.1", "pssl:", "punix:/run/a", "unix:/run/a", "tcp:host", ""] {
            assert!(target_of(target).is_err(), "{target}");
        }
    }
}
