//! The managers of the embedded OVSDB server: addresses on which it listens, or to which it
//! connects.
//!
//! A foreign server handles its managers itself.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use shunt_ovsdb::{
    DatabaseSnapshot, OvsdbHandle, RemoteTimes, RemoteTransport, RowView, ServerRemote,
};
use shunt_switch::{ControllerEndpoint, ControllerTransport, ListeningSockets};
use shunt_tls::{TlsError, TlsIdentity};
use tracing::{info, warn};

use super::database::SwitchDatabase;

/// The managers of the embedded server.
pub(super) struct Managers {
    /// The embedded server; `None` if the database is on a foreign server.
    server: Option<OvsdbHandle>,
    /// The key and the certificates for TLS connections with managers.
    tls: TlsIdentity,
    /// The listening sockets that outlive the process.
    listening: Arc<ListeningSockets>,
    /// The remotes by the targets of their rows, or the reasons why there is none.
    remotes: BTreeMap<String, Result<ServerRemote, String>>,
}

/// The state of a manager, to be written into its row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ManagerStatus {
    /// The value of the column `is_connected`.
    pub(super) is_connected: bool,
    /// The entries of the column `status`.
    pub(super) entries: BTreeMap<&'static str, String>,
}

/// The TCP port of OVSDB, assigned by IANA.
const OVSDB_PORT: u16 = 6640;

/// The shortest interval that a row may set, as in `ovsdb-server`.
const TIME_MIN: Duration = Duration::from_secs(1);

/// The prefix of keys in `status` with a time as value.
const TIME_KEYS: &str = "sec_since_";

impl Managers {
    pub(super) fn new(
        database: &SwitchDatabase,
        tls: TlsIdentity,
        listening: Arc<ListeningSockets>,
    ) -> Self {
        let server = match database {
            SwitchDatabase::Embedded { handle, .. } => Some(handle.clone()),
            SwitchDatabase::Foreign { .. } => None,
        };
        Self { server, tls, listening, remotes: BTreeMap::new() }
    }

    /// Starts and stops remotes, until exactly the remotes of the rows run.
    ///
    /// If a port cannot be used, the next call retries it.
    pub(super) async fn update(&mut self, rows: &DatabaseSnapshot) {
        let Some(server) = &self.server else { return };
        let wanted: BTreeMap<&str, RemoteTimes> = manager_rows(rows)
            .filter_map(|row| Some((row.string("target")?, remote_times(row))))
            .collect();
        // A removed listener must be closed before another can use its port.
        let gone = self.remotes.extract_if(.., |target, _| !wanted.contains_key(target.as_str()));
        for (target, remote) in gone.collect::<Vec<_>>() {
            if let Ok(remote) = remote {
                remote.close().await;
                if let Ok(ControllerEndpoint::Listen(_, address)) = endpoint(&target) {
                    self.listening.pause_tcp(address);
                    self.listening.release_tcp(address);
                }
            }
            info!("manager {target}: removed");
        }
        for (target, times) in wanted {
            let mut entry = match self.remotes.entry(target.to_owned()) {
                Entry::Vacant(entry) => {
                    let started = start(server, &self.tls, &self.listening, target, times);
                    log_start(target, &started);
                    entry.insert(started);
                    continue;
                }
                Entry::Occupied(entry) => entry,
            };
            match entry.get() {
                Ok(remote) => remote.set_times(times),
                Err(last) => {
                    let started = start(server, &self.tls, &self.listening, target, times);
                    if started.as_ref().err() != Some(last) {
                        log_start(target, &started);
                    }
                    *entry.get_mut() = started;
                }
            }
        }
    }

    /// Returns the state of the manager with a target;
    /// `None` if the database is on a foreign server.
    pub(super) fn status(&self, target: &str) -> Option<ManagerStatus> {
        let remote = match self.remotes.get(target)? {
            Ok(remote) => remote,
            Err(reason) => {
                let entries = [("state", "VOID".to_owned()), ("last_error", reason.clone())];
                return Some(ManagerStatus { is_connected: false, entries: entries.into() });
            }
        };
        let status = remote.status();
        let is_connected = status.connections > 0;
        let mut entries = BTreeMap::new();
        if let Ok(ControllerEndpoint::Listen(transport, _)) = endpoint(target) {
            entries.insert("bound_port", remote.address().port().to_string());
            if transport == ControllerTransport::Tls && self.tls.files().is_none() {
                entries.insert("last_error", TlsError::NotSet.to_string());
            }
        } else {
            let state = match (is_connected, status.is_connecting) {
                (true, _) => "ACTIVE",
                (false, true) => "CONNECTING",
                (false, false) => "BACKOFF",
            };
            entries.insert("state", state.to_owned());
            entries.extend(status.last_error.map(|error| ("last_error", error)));
        }
        // As in Open vSwitch, the number of connections is only reported if it exceeds one.
        if status.connections > 1 {
            entries.insert("n_connections", status.connections.to_string());
        }
        let seconds = |time: Duration| time.as_secs().to_string();
        entries.extend(status.since_connect.map(|time| ("sec_since_connect", seconds(time))));
        entries.extend(status.since_disconnect.map(|time| ("sec_since_disconnect", seconds(time))));
        Some(ManagerStatus { is_connected, entries })
    }
}

/// Returns whether two values of `status` differ, apart from the times in them.
pub(super) fn states_differ(one: &BTreeMap<&str, &str>, other: &BTreeMap<&str, &str>) -> bool {
    !entries_without_times(one).eq(entries_without_times(other))
}

/// Returns the entries of `status` without those that are times.
fn entries_without_times<'a>(
    entries: &'a BTreeMap<&str, &str>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let states = entries.iter().filter(|(key, _)| !key.starts_with(TIME_KEYS));
    states.map(|(key, value)| (*key, *value))
}

/// Returns the rows of managers that the row of `Open_vSwitch` references.
pub(super) fn manager_rows(rows: &DatabaseSnapshot) -> impl Iterator<Item = RowView<'_>> {
    let roots = rows.rows("Open_vSwitch");
    let ids = roots.flat_map(|root| root.uuids("manager_options"));
    ids.filter_map(move |id| rows.row("Manager", id))
}

/// Returns the intervals of a manager's row.
///
/// An interval that the row does not set has the default of `ovsdb-server`.
fn remote_times(row: RowView<'_>) -> RemoteTimes {
    let default = RemoteTimes::default();
    let time = |column| {
        let number = row.integer(column)?;
        Some(Duration::from_millis(u64::try_from(number).unwrap_or_default()))
    };
    RemoteTimes {
        probe_interval: match row.integer("inactivity_probe") {
            Some(0) => None,
            _ => time("inactivity_probe").or(default.probe_interval).map(|own| own.max(TIME_MIN)),
        },
        backoff_max: time("max_backoff").unwrap_or(default.backoff_max).max(TIME_MIN),
    }
}

/// Starts a remote of the database server.
fn start(
    server: &OvsdbHandle,
    tls: &TlsIdentity,
    listening: &ListeningSockets,
    target: &str,
    times: RemoteTimes,
) -> Result<ServerRemote, String> {
    let below = |transport| match transport {
        ControllerTransport::Tcp => RemoteTransport::Tcp,
        ControllerTransport::Tls => RemoteTransport::Tls(tls.clone()),
    };
    match endpoint(target)? {
        ControllerEndpoint::Connect(transport, address) => {
            Ok(server.connect_tcp(address, below(transport), times))
        }
        ControllerEndpoint::Listen(transport, address) => {
            let failed = |error| format!("cannot listen on {address}, retrying: {error}");
            let listener = listening.listen_tcp(address).map_err(failed)?;
            server
                .listen_tcp(listener, below(transport), times)
                .inspect_err(|_| listening.pause_tcp(address))
                .map_err(failed)
        }
    }
}

/// Logs the start of a remote, or its error.
fn log_start(target: &str, started: &Result<ServerRemote, String>) {
    match started {
        Ok(_) => info!("manager {target}: added"),
        Err(reason) => warn!("manager {target}: {reason}"),
    }
}

/// Parses a target; without a port it has the port of OVSDB.
fn endpoint(target: &str) -> Result<ControllerEndpoint, String> {
    let wrong = |_| {
        format!(
            "`{target}` is not an address that the embedded server supports: use \
             ptcp:[PORT][:IP], tcp:IP[:PORT], pssl:[PORT][:IP] or ssl:IP[:PORT]"
        )
    };
    let mut endpoint: ControllerEndpoint = target.parse().map_err(wrong)?;
    let (_, rest) = target.split_once(':').unwrap_or((target, ""));
    match &mut endpoint {
        ControllerEndpoint::Listen(_, address) => {
            if rest.is_empty() || rest.starts_with(':') {
                address.set_port(OVSDB_PORT);
            }
        }
        ControllerEndpoint::Connect(_, address) => {
            if rest.parse::<SocketAddr>().is_err() {
                address.set_port(OVSDB_PORT);
            }
        }
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use shunt_ovsdb::{Server, ServerConfig, schema, value::Datum};

    use super::*;

    #[test]
    fn targets_have_the_port_of_ovsdb() {
        for (target, expected) in [
            ("ptcp:", "ptcp:6640:0.0.0.0"),
            ("ptcp:7000", "ptcp:7000:0.0.0.0"),
            ("ptcp:6640:127.0.0.1", "ptcp:6640:127.0.0.1"),
            ("ptcp::127.0.0.1", "ptcp:6640:127.0.0.1"),
            ("pssl:", "pssl:6640:0.0.0.0"),
            ("tcp:192.0.2.1", "tcp:192.0.2.1:6640"),
            ("ssl:192.0.2.1", "ssl:192.0.2.1:6640"),
            ("tcp:192.0.2.1:6653", "tcp:192.0.2.1:6653"),
            ("tcp:[2001:db8::1]", "tcp:[2001:db8::1]:6640"),
            ("tcp:[2001:db8::1]:7000", "tcp:[2001:db8::1]:7000"),
        ] {
            assert_eq!(endpoint(target).unwrap().to_string(), expected);
        }
        for target in ["punix:/run/a", "unix:/run/a", "tcp:host", ""] {
            assert!(endpoint(target).is_err(), "{target}");
        }
    }

    #[test]
    fn states_are_compared_without_their_times() {
        let before = BTreeMap::from([("state", "ACTIVE"), ("sec_since_connect", "1")]);
        let later = BTreeMap::from([("state", "ACTIVE"), ("sec_since_connect", "2")]);
        assert!(!states_differ(&before, &later));
        assert!(states_differ(&before, &BTreeMap::from([("state", "BACKOFF")])));
        assert!(states_differ(&BTreeMap::from([("n_connections", "2")]), &BTreeMap::new()));
    }

    #[tokio::test]
    async fn a_changed_address_takes_the_port_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default()).unwrap();
        let handle = server.listen(&folder.path().join("db.sock")).unwrap().start().unwrap();
        let database = SwitchDatabase::embedded(handle.clone()).await.unwrap();
        let mut managers = Managers::new(&database, TlsIdentity::default(), Arc::default());
        // The first manager lets the kernel choose a free port, which the next managers use.
        let mut rows = handle.transaction("a manager");
        let manager = rows.insert("Manager", [("target", Datum::string("ptcp:0:127.0.0.1"))]);
        rows.insert("Open_vSwitch", [("manager_options", Datum::uuid(manager))]);
        handle.transact(rows).await.unwrap();
        managers.update(&handle.snapshot().await.unwrap()).await;
        let port = managers.status("ptcp:0:127.0.0.1").unwrap().entries["bound_port"].clone();
        for address in ["0.0.0.0", "127.0.0.1", "0.0.0.0"] {
            let target = format!("ptcp:{port}:{address}");
            let mut rows = handle.transaction("another address");
            let columns =
                [("target", Datum::string(&target)), ("inactivity_probe", Datum::integer(0))];
            rows.update("Manager", manager, columns);
            handle.transact(rows).await.unwrap();
            let rows = handle.snapshot().await.unwrap();
            managers.update(&rows).await;
            let status = managers.status(&target).unwrap();
            assert_eq!(status.entries, BTreeMap::from([("bound_port", port.clone())]));
            let row = manager_rows(&rows).next().unwrap();
            assert_eq!(remote_times(row).probe_interval, None);
        }
        handle.stop().await;
    }
}
