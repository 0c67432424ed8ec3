//! The embedded OVSDB server, or the client of a foreign server, and the task that follows the
//! database.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use shunt_ovsdb::{
    OvsdbHandle, OvsdbServerError, Server, ServerConfig, client::OvsdbRemote, schema, value::Datum,
};
use shunt_switch::{ControlTask, ListeningSockets, Switch, with_causes};
use thiserror::Error;
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tracing::{error, info, warn};

use super::{
    DatabaseProblem, OvsdbOptions, database::SwitchDatabase, follower::Follower,
    host_system::SystemRelease,
};

/// The embedded OVSDB server of the daemon, or its client of a foreign server.
pub(crate) struct OvsdbService {
    /// The embedded server; `None` if the daemon has no server.
    server: Option<OvsdbHandle>,
    /// The reason why the switch does not follow its database.
    problem: DatabaseProblem,
    /// The task that follows the database.
    task: JoinHandle<()>,
    /// Notified when the first rows were applied, if they arrived after the start.
    first_rows: Option<oneshot::Receiver<()>>,
}

/// The reason why the server did not start.
#[derive(Debug, Error)]
#[error("the OVSDB server does not start: {0}")]
pub(crate) struct OvsdbStartError(#[from] OvsdbServerError);

/// Longest time that the start of the daemon waits for rows of a foreign server.
const FIRST_ROWS_MAX: Duration = Duration::from_secs(10);

impl OvsdbService {
    /// Starts the embedded server, or the client of a foreign server, if configured.
    ///
    /// Bridges and ports of the database exist when the call returns. If a foreign server sends no
    /// rows within [`FIRST_ROWS_MAX`], the switch follows its database later. Rows that cannot be
    /// applied, and a failure of the task, do not prevent the start: the log has the reason.
    ///
    /// # Errors
    ///
    /// If the log file or the socket cannot be used.
    pub(crate) async fn start(
        options: &OvsdbOptions,
        switch: &Arc<Switch>,
    ) -> Result<Option<Self>, OvsdbStartError> {
        if let Some(remote) = &options.remote {
            return Ok(Some(Self::follow_foreign(remote, switch, FIRST_ROWS_MAX).await));
        }
        if !options.is_enabled() {
            return Ok(None);
        }
        let log = Some(options.log.as_path()).filter(|log| *log != Path::new(""));
        let server = Server::open(schema::open_vswitch(), log, ServerConfig::default())?;
        let handle = listen(server, &options.socket, switch.listening_sockets())?.start()?;
        write_root(&handle).await?;
        info!(socket = %options.socket.display(), "ovsdb: ready");
        let problem = DatabaseProblem::default();
        let database = SwitchDatabase::embedded(handle.clone()).await?;
        let (applied, first_pass) = oneshot::channel();
        let follow = Follower::new(database, Arc::clone(switch), problem.clone()).run(applied);
        let server = Some(handle);
        let supervised = supervise(server.clone(), Arc::clone(switch), problem.clone(), follow);
        let (switch, socket) = (Arc::clone(switch), options.socket.clone());
        let task = tokio::spawn(async move {
            supervised.await;
            // A client that connects to the socket of a stopped server would wait forever.
            switch.listening_sockets().release_unix(&socket.to_string_lossy());
        });
        // The sender is dropped if the task ends, which is logged.
        let _ = first_pass.await;
        Ok(Some(Self { server, problem, task, first_rows: None }))
    }

    /// Starts the client of a foreign server; waits at most `wait` for the first rows.
    async fn follow_foreign(remote: &OvsdbRemote, switch: &Arc<Switch>, wait: Duration) -> Self {
        let problem = DatabaseProblem::default();
        let tls = switch.tls().without_replacement();
        let database = SwitchDatabase::foreign(remote.clone(), tls);
        let (applied, mut first_pass) = oneshot::channel();
        let follow = Follower::new(database, Arc::clone(switch), problem.clone()).run(applied);
        let task = tokio::spawn(supervise(None, Arc::clone(switch), problem.clone(), follow));
        let is_late = timeout(wait, &mut first_pass).await.is_err();
        if is_late {
            warn!(
                "database {remote}: no rows have arrived yet, so the daemon starts without the \
                 bridges of the database"
            );
        }
        Self { server: None, problem, task, first_rows: is_late.then_some(first_pass) }
    }

    /// Takes the receiver of the notification that the first rows were applied.
    ///
    /// `None` if they are applied already. The notification fails if the task ends before.
    pub(crate) const fn take_first_rows(&mut self) -> Option<oneshot::Receiver<()>> {
        self.first_rows.take()
    }

    /// Returns a handle to the reason why the switch does not follow the database.
    pub(crate) fn problem(service: Option<&Self>) -> DatabaseProblem {
        service.map(|service| service.problem.clone()).unwrap_or_default()
    }

    /// Stops the server or the client, if one of them runs.
    ///
    /// Bridges and ports stay until the switch stops.
    pub(crate) async fn stop(service: Option<Self>) {
        let Some(Self { server, task, .. }) = service else { return };
        task.abort();
        // An aborted task has no result.
        let _ = task.await;
        if let Some(handle) = server {
            handle.stop().await;
        }
    }
}

/// Adds a Unix socket to the server:
/// the socket of an earlier process, or a new socket.
fn listen(
    server: Server,
    path: &Path,
    listening: &ListeningSockets,
) -> Result<Server, OvsdbServerError> {
    let key = path.to_string_lossy();
    if let Some(socket) = listening.inherited_unix(&key, path) {
        return server.inherit(path, socket);
    }
    let mut server = server.listen(path)?;
    if server.socket(path).is_some_and(|socket| listening.keep_unix(&key, path, socket)) {
        server.leave_files();
    }
    Ok(server)
}

/// Writes the system of the host into the row of `Open_vSwitch`.
///
/// If the database is new, the call adds the row.
///
/// For `ovsdb-server`, the script `ovs-ctl` does this at each start.
async fn write_root(handle: &OvsdbHandle) -> Result<(), OvsdbServerError> {
    let SystemRelease { kind, version } = SystemRelease::read();
    let columns =
        || [("system_type", Datum::string(&kind)), ("system_version", Datum::string(&version))];
    let snapshot = handle.snapshot().await?;
    let mut transaction = handle.transaction("shuntd: system of the host");
    match snapshot.rows("Open_vSwitch").next() {
        Some(root) => {
            let is_new =
                |(column, value): &(&'static str, Datum)| root.value(column) != Some(value);
            let columns: Vec<_> = columns().into_iter().filter(is_new).collect();
            if columns.is_empty() {
                return Ok(());
            }
            transaction.update("Open_vSwitch", root.uuid(), columns);
        }
        None => {
            transaction.insert("Open_vSwitch", columns());
        }
    }
    handle.transact(transaction).await
}

/// Runs the task that follows the database.
///
/// When the task ends, the embedded server is stopped.
///
/// Without the task, every command of `ovs-vsctl` would wait forever, so clients must not connect
/// any more. Clients could also not end `flow-restore-wait`, so held packets are released.
async fn supervise(
    server: Option<OvsdbHandle>,
    switch: Arc<Switch>,
    problem: DatabaseProblem,
    follow: impl Future<Output = Result<Infallible, OvsdbServerError>> + Send + 'static,
) {
    // Dropping the set aborts its tasks.
    let mut tasks = JoinSet::new();
    tasks.spawn(ControlTask::new("rows of OVSDB", follow));
    let reason = match tasks.join_next().await {
        Some(Ok(Err(error))) => with_causes(&error),
        Some(Err(panic)) => panic.to_string(),
        Some(Ok(Ok(never))) => match never {},
        None => return,
    };
    problem.set(Some(format!("bridges no longer follow the database: {reason}: restart shuntd")));
    error!(error = reason, "ovsdb: stopped, bridges no longer follow the database: restart shuntd");
    if let Some(handle) = server {
        handle.stop().await;
    }
    switch.hold_packets(false).await;
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use shunt_ovsdb::value::Atom;
    use shunt_switch::{
        Config,
        config::{
            BridgeOptions, CollectorSetOptions, IpfixOptions, MirrorOptions, NetflowOptions,
            PortOptions, PortType, SflowOptions,
        },
    };

    use super::*;

    /// Starts a switch for a test.
    async fn switch(run_dir: Option<&Path>) -> Arc<Switch> {
        let run_dir = run_dir.map(Path::to_owned);
        Arc::new(Switch::start(&Config::default(), run_dir, 1).await.unwrap())
    }

    /// Without the task, clients fail immediately instead of waiting for `cur_cfg`.
    #[tokio::test]
    async fn clients_cannot_connect_after_the_ovsdb_task_ended() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.sock");
        let switch = switch(None).await;
        let start = || {
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            server.unwrap().listen(&socket).unwrap().start().unwrap()
        };
        let problem = DatabaseProblem::default();
        let error = async { Err(OvsdbServerError::Stopped) };
        supervise(Some(start()), Arc::clone(&switch), problem.clone(), error).await;
        assert!(UnixStream::connect(&socket).is_err() && !socket.exists());
        let reason = problem.reason().unwrap();
        assert!(reason.starts_with("bridges no longer follow the database"), "{reason}");
        let panic = async { unreachable!("a fault of the task") };
        let problem = DatabaseProblem::default();
        supervise(Some(start()), switch, problem.clone(), panic).await;
        assert!(problem.reason().is_some(), "/readyz reports the problem");
        assert!(UnixStream::connect(&socket).is_err() && !socket.exists());
    }

    /// Starts an OVSDB server with a new log file, as the daemon does.
    fn database(folder: &tempfile::TempDir) -> (OvsdbOptions, OvsdbHandle) {
        let [socket, log] = ["db.sock", "conf.db"].map(|name| folder.path().join(name));
        let options = OvsdbOptions { socket, log, remote: None };
        let config = ServerConfig::default();
        let server = Server::open(schema::open_vswitch(), Some(&options.log), config).unwrap();
        let handle = server.listen(&options.socket).unwrap().start().unwrap();
        (options, handle)
    }

    /// When the daemon is ready, clients find the bridges of the log,
    /// for example to restore rules.
    #[tokio::test]
    async fn bridges_of_the_log_exist_after_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let (options, handle) = database(&folder);
        let mut rows = handle.transaction("a bridge");
        let bridge = rows.insert("Bridge", [("name", Datum::string("br0"))]);
        rows.insert("Open_vSwitch", [("bridges", Datum::uuid(bridge))]);
        handle.transact(rows).await.unwrap();
        handle.stop().await;

        let switch = switch(Some(folder.path())).await;
        let service = OvsdbService::start(&options, &switch).await.unwrap();
        assert!(folder.path().join("br0.mgmt").exists());
        OvsdbService::stop(service).await;
    }

    /// The row of an existing database gets the operating system too.
    #[tokio::test]
    async fn the_row_has_the_system_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let (options, handle) = database(&folder);
        let mut rows = handle.transaction("of another host");
        rows.insert("Open_vSwitch", [("system_type", Datum::string("other"))]);
        handle.transact(rows).await.unwrap();
        handle.stop().await;

        let service = OvsdbService::start(&options, &switch(None).await).await.unwrap().unwrap();
        let rows = service.server.as_ref().unwrap().snapshot().await.unwrap();
        let root = rows.rows("Open_vSwitch").next().unwrap();
        let SystemRelease { kind, version } = SystemRelease::read();
        assert_eq!(root.string("system_type"), Some(kind.as_str()));
        assert_eq!(root.string("system_version"), Some(version.as_str()));
        OvsdbService::stop(Some(service)).await;
    }

    /// A row that is not a mirror, or exceeds the limit, does not affect other mirrors.
    #[tokio::test]
    async fn a_bad_mirror_stops_no_other() {
        let limit = MirrorOptions::COUNT_MAX;
        let folder = tempfile::tempdir().unwrap();
        let (options, handle) = database(&folder);
        let mut rows = handle.transaction("a bridge with mirrors");
        let mut mirrors = Vec::new();
        for number in 0..=limit {
            let name = Datum::string(&format!("m{number}"));
            let vlan = Datum::integer(9);
            mirrors.push(rows.insert("Mirror", [("name", name), ("output_vlan", vlan)]));
        }
        mirrors.push(rows.insert("Mirror", [("name", Datum::string("idle"))]));
        let mirrors = Datum::set(mirrors.into_iter().map(Atom::Uuid));
        let name = Datum::string("br0");
        let bridge = rows.insert("Bridge", [("name", name), ("mirrors", mirrors)]);
        rows.insert("Open_vSwitch", [("bridges", Datum::uuid(bridge))]);
        handle.transact(rows).await.unwrap();
        handle.stop().await;

        let switch = switch(None).await;
        let service = OvsdbService::start(&options, &switch).await.unwrap();
        let config = switch.running_config();
        let names: Vec<_> = config.bridges[0].mirrors.iter().map(|own| &own.name).collect();
        assert!(names.len() == limit && names.iter().all(|name| *name != "idle"), "{names:?}");
        OvsdbService::stop(service).await;
    }

    /// Returns the bridges after a start with rows of one table for exports.
    ///
    /// Each row belongs to its own bridge, `br0` and so on, which references it in `column`.
    async fn bridges_with<const N: usize>(
        (table, column): (&str, &'static str),
        exports: [Vec<(&'static str, Datum)>; N],
    ) -> [BridgeOptions; N] {
        let folder = tempfile::tempdir().unwrap();
        let (options, handle) = database(&folder);
        let mut rows = handle.transaction("bridges that export");
        let mut bridges = Vec::new();
        for (number, export) in exports.into_iter().enumerate() {
            let export = rows.insert(table, export);
            let name = ("name", Datum::string(&format!("br{number}")));
            bridges.push(rows.insert("Bridge", [name, (column, Datum::uuid(export))]));
        }
        let bridges = Datum::set(bridges.into_iter().map(Atom::Uuid));
        rows.insert("Open_vSwitch", [("bridges", bridges)]);
        handle.transact(rows).await.unwrap();
        handle.stop().await;

        let switch = switch(None).await;
        let service = OvsdbService::start(&options, &switch).await.unwrap();
        let config = switch.running_config();
        OvsdbService::stop(service).await;
        std::array::from_fn(|number| {
            let name = format!("br{number}");
            config.bridges.iter().find(|bridge| bridge.name == name).unwrap().clone()
        })
    }

    /// Returns the column with a target.
    fn target(target: &str) -> (&'static str, Datum) {
        ("targets", Datum::string(target))
    }

    #[tokio::test]
    async fn an_invalid_sflow_row_starts_no_sampling() {
        let sampling = || ("sampling", Datum::integer(64));
        let rows = ["127.0.0.1:9", "collector"].map(|own| vec![target(own), sampling()]);
        let bridges = bridges_with(("sFlow", "sflow"), rows).await;
        let off = SflowOptions::default;
        let good = SflowOptions { targets: vec!["127.0.0.1:9".into()], sampling: 64, ..off() };
        assert_eq!(bridges.map(|own| own.sflow), [good, off()]);
    }

    #[tokio::test]
    async fn an_invalid_ipfix_row_starts_no_reports() {
        let number = |column, value| (column, Datum::integer(value));
        let rows = [
            vec![target("127.0.0.1:9"), number("sampling", 1), number("cache_max_flows", 8)],
            vec![target("127.0.0.1"), number("cache_active_timeout", 60)],
            vec![target("collector")],
        ];
        let bridges = bridges_with(("IPFIX", "ipfix"), rows).await;
        let off = IpfixOptions::default;
        let targets = |target: &str| vec![target.to_owned()];
        let expected = [
            IpfixOptions {
                targets: targets("127.0.0.1:9"),
                sampling: 1,
                cache_max_flows: 8,
                ..off()
            },
            IpfixOptions { targets: targets("127.0.0.1"), cache_active_timeout: 60, ..off() },
            off(),
        ];
        assert_eq!(bridges.map(|own| own.ipfix), expected);
    }

    #[tokio::test]
    async fn an_invalid_netflow_row_starts_no_reports() {
        let rows = [
            vec![target("127.0.0.1:9"), ("active_timeout", Datum::integer(-1))],
            vec![target("127.0.0.1"), ("engine_id", Datum::integer(7))],
            vec![target("127.0.0.1"), ("active_timeout", Datum::integer(1 << 40))],
            vec![target("collector")],
        ];
        let bridges = bridges_with(("NetFlow", "netflow"), rows).await;
        let off = NetflowOptions::default;
        let expected = [
            NetflowOptions { targets: vec!["127.0.0.1:9".into()], active_timeout: -1, ..off() },
            NetflowOptions {
                targets: vec!["127.0.0.1".into()],
                // The column has 0 if no timeout is set.
                active_timeout: 0,
                engine_id: 7,
                ..off()
            },
            off(),
            off(),
        ];
        assert_eq!(bridges.map(|own| own.netflow), expected);
    }

    async fn wait_until(is_true: impl Fn() -> bool) {
        for _ in 0..2000 {
            if is_true() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("the rows are applied");
    }

    #[tokio::test]
    async fn a_bad_row_keeps_the_exports_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let (options, handle) = database(&folder);
        handle.stop().await;
        let switch = switch(None).await;
        let service = OvsdbService::start(&options, &switch).await.unwrap().unwrap();
        let handle = service.server.clone().unwrap();
        let root = handle.snapshot().await.unwrap().rows("Open_vSwitch").next().unwrap().uuid();
        let tables = ["sFlow", "NetFlow", "IPFIX"];
        let columns = ["sflow", "netflow", "ipfix"];
        let mut rows = handle.transaction("a bridge that exports");
        let exports = tables.map(|table| rows.insert(table, [target("127.0.0.1:9")]));
        let of_bridge = columns.into_iter().zip(exports.map(Datum::uuid));
        let name = ("name", Datum::string("br0"));
        let bridge = rows.insert("Bridge", of_bridge.chain([name]));
        rows.update("Open_vSwitch", root, [("bridges", Datum::uuid(bridge))]);
        handle.transact(rows).await.unwrap();
        let running = || switch.running_config().bridges.first().cloned().unwrap_or_default();
        let targets = || {
            let BridgeOptions { sflow, netflow, ipfix, .. } = running();
            [sflow.targets, netflow.targets, ipfix.targets].map(|own| own.join(","))
        };
        wait_until(|| targets() == ["127.0.0.1:9"; 3]).await;
        // The second change is applied only after the first change was applied completely.
        for vlan in [7, 8] {
            let mut rows = handle.transaction("wrong values");
            for (table, row) in tables.into_iter().zip(exports) {
                rows.update(table, row, [target("collector")]);
            }
            rows.update("Bridge", bridge, [("flood_vlans", Datum::integer(vlan))]);
            handle.transact(rows).await.unwrap();
            wait_until(|| running().flood_vlans.iter().map(|own| i64::from(*own)).eq([vlan])).await;
        }
        assert_eq!(targets(), ["127.0.0.1:9"; 3]);
        let mut rows = handle.transaction("no exports");
        rows.update("Bridge", bridge, columns.map(|column| (column, Datum::set([]))));
        handle.transact(rows).await.unwrap();
        wait_until(|| targets() == [""; 3]).await;
        OvsdbService::stop(Some(service)).await;
    }

    #[tokio::test]
    async fn sets_of_collectors_follow_their_rows() {
        let folder = tempfile::tempdir().unwrap();
        let (options, handle) = database(&folder);
        handle.stop().await;
        let switch = switch(None).await;
        let service = OvsdbService::start(&options, &switch).await.unwrap().unwrap();
        let handle = service.server.clone().unwrap();
        let root = handle.snapshot().await.unwrap().rows("Open_vSwitch").next().unwrap().uuid();
        let mut rows = handle.transaction("a bridge with collectors");
        let flows_max = ("cache_max_flows", Datum::integer(8));
        let ipfix = rows.insert("IPFIX", [target("127.0.0.1:9"), flows_max]);
        let bridge = rows.insert("Bridge", [("name", Datum::string("br0"))]);
        let columns = [
            ("id", Datum::integer(7)),
            ("bridge", Datum::uuid(bridge)),
            ("ipfix", Datum::uuid(ipfix)),
        ];
        let set = rows.insert("Flow_Sample_Collector_Set", columns);
        rows.update("Open_vSwitch", root, [("bridges", Datum::uuid(bridge))]);
        handle.transact(rows).await.unwrap();
        let running = || switch.running_config().bridges.first().cloned().unwrap_or_default();
        let expected = CollectorSetOptions {
            id: 7,
            targets: vec!["127.0.0.1:9".into()],
            cache_max_flows: 8,
            ..CollectorSetOptions::default()
        };
        wait_until(|| running().collector_sets == [expected.clone()]).await;
        // The second change is applied only after the first change was applied completely.
        for vlan in [7, 8] {
            let mut rows = handle.transaction("a wrong value");
            rows.update("IPFIX", ipfix, [target("collector")]);
            rows.update("Bridge", bridge, [("flood_vlans", Datum::integer(vlan))]);
            handle.transact(rows).await.unwrap();
            wait_until(|| running().flood_vlans.iter().map(|own| i64::from(*own)).eq([vlan])).await;
        }
        assert_eq!(running().collector_sets, [expected]);
        let mut rows = handle.transaction("no collectors");
        rows.delete("Flow_Sample_Collector_Set", set);
        handle.transact(rows).await.unwrap();
        wait_until(|| running().collector_sets.is_empty()).await;
        OvsdbService::stop(Some(service)).await;
    }

    /// Until its ports are known, the daemon keeps stored descriptors of ports.
    #[tokio::test]
    async fn late_first_rows_are_notified() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.sock");
        let (remote, switch) = (OvsdbRemote::Unix(socket.clone()), switch(None).await);
        let mut service = OvsdbService::follow_foreign(&remote, &switch, Duration::ZERO).await;
        let mut first_rows = service.take_first_rows().unwrap();
        assert_eq!(first_rows.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
        let server = server.unwrap().listen(&socket).unwrap().start().unwrap();
        first_rows.await.unwrap();
        OvsdbService::stop(Some(service)).await;

        let mut service = OvsdbService::follow_foreign(&remote, &switch, FIRST_ROWS_MAX).await;
        assert!(service.take_first_rows().is_none());
        OvsdbService::stop(Some(service)).await;
        server.stop().await;
    }

    /// `/readyz` reports a foreign server only while it is not connected.
    #[tokio::test]
    async fn foreign_server_that_is_away_is_problem() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.sock");
        let start = || {
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            server.unwrap().listen(&socket).unwrap().start().unwrap()
        };
        let server = start();
        let remote = Some(OvsdbRemote::Unix(socket.clone()));
        let options = OvsdbOptions { remote, ..OvsdbOptions::default() };
        let service = OvsdbService::start(&options, &switch(None).await).await.unwrap();
        let problem = OvsdbService::problem(service.as_ref());
        assert_eq!(problem.reason(), None);
        let wait_for_reason = async |is_there: fn(Option<String>) -> bool| {
            for _ in 0..2000 {
                if is_there(problem.reason()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            unreachable!("{:?}", problem.reason());
        };
        server.stop().await;
        wait_for_reason(|reason| {
            reason.is_some_and(|reason| reason.ends_with("db.sock: not connected"))
        })
        .await;
        let server = start();
        wait_for_reason(|reason| reason.is_none()).await;
        OvsdbService::stop(service).await;
        server.stop().await;
    }

    #[tokio::test]
    async fn packets_are_released_after_the_ovsdb_task_ended() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::open(schema::open_vswitch(), None, ServerConfig::default()).unwrap();
        let handle = server.listen(&folder.path().join("db.sock")).unwrap().start().unwrap();
        let switch = switch(None).await;
        switch.hold_packets(true).await;
        let bridge = BridgeOptions { name: "br0".to_owned(), ..BridgeOptions::default() };
        switch.add_bridge(&bridge).await.unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/open-vswitch/p1.pcap");
        let (name, kind, rx) = ("p1".to_owned(), PortType::Pcap, data);
        let port = PortOptions { name, kind, rx, ..PortOptions::default() };
        switch.add_port("br0", port).await.unwrap();
        let received = || {
            let bridges = switch.bridges();
            let ports = bridges.iter().flat_map(|bridge| &bridge.ports);
            ports.map(|port| port.rx_packets).sum::<u64>()
        };
        assert_eq!(received(), 0);
        let error = async { Err(OvsdbServerError::Stopped) };
        supervise(Some(handle), Arc::clone(&switch), DatabaseProblem::default(), error).await;
        for _ in 0..2000 {
            if received() > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("the port receives nothing");
    }
}
