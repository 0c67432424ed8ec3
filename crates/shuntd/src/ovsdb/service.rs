//! The task that keeps the switch and the database equal.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use shunt_ovsdb::{
    DatabaseSnapshot, OvsdbHandle, OvsdbServerError, Server, ServerConfig, schema, value::Datum,
};
use shunt_switch::{Switch, with_causes};
use thiserror::Error;
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval_at},
};
use tracing::{error, info, warn};

use super::{OvsdbOptions, desired::DesiredBridges, reconciler::Reconciler, report::RowReport};

/// The embedded OVSDB server of the daemon.
pub(crate) struct OvsdbService {
    handle: OvsdbHandle,
    task: JoinHandle<()>,
}

/// The reason why the server did not start.
#[derive(Debug, Error)]
#[error("the OVSDB server does not start: {0}")]
pub(crate) struct OvsdbStartError(#[from] OvsdbServerError);

/// Time between reports of counters, and between attempts to open missing devices.
const REFRESH_PERIOD: Duration = Duration::from_secs(2);

impl OvsdbService {
    /// Starts the server if the options name a socket, and applies the rows of its log.
    ///
    /// Bridges and ports of the log exist when this returns. Rows that cannot be applied, and a
    /// fault of the task, prevent no start: the log has the reason.
    ///
    /// # Errors
    ///
    /// If the log or the socket cannot be used.
    pub(crate) async fn start(
        options: &OvsdbOptions,
        switch: &Arc<Switch>,
    ) -> Result<Option<Self>, OvsdbStartError> {
        if !options.is_enabled() {
            return Ok(None);
        }
        let log = Some(options.log.as_path()).filter(|log| *log != Path::new(""));
        let server = Server::open(schema::open_vswitch(), log, ServerConfig::default())?;
        let handle = server.listen(&options.socket)?.start()?;
        initialize(&handle).await?;
        info!(socket = %options.socket.display(), "ovsdb: ready");
        let reconciler = Reconciler::new(Arc::clone(switch));
        let (followed, of_task) = (handle.clone(), Arc::clone(switch));
        let (applied, first_pass) = oneshot::channel();
        let follow = async move { follow(&followed, reconciler, &of_task, applied).await };
        let task = tokio::spawn(supervise(handle.clone(), Arc::clone(switch), follow));
        // The sender is dropped if the task ends, which is logged.
        let _ = first_pass.await;
        Ok(Some(Self { handle, task }))
    }

    /// Stops the server if there is one. Bridges and ports stay until the switch stops.
    pub(crate) async fn stop(service: Option<Self>) {
        let Some(Self { handle, task }) = service else { return };
        task.abort();
        // An aborted task has no result.
        let _ = task.await;
        handle.stop().await;
    }
}

/// Adds the row of `Open_vSwitch`, or fills the columns of the daemon in it.
async fn initialize(handle: &OvsdbHandle) -> Result<(), OvsdbServerError> {
    let snapshot = handle.snapshot().await?;
    let mut transaction = handle.transaction("shuntd: started");
    let root = snapshot.rows("Open_vSwitch").next().map(|row| row.uuid());
    let root = root.unwrap_or_else(|| transaction.insert("Open_vSwitch", []));
    let types = ["system", "internal", "tap", "afxdp", "patch", "null"];
    transaction.update(
        "Open_vSwitch",
        root,
        [
            ("iface_types", Datum::strings(types)),
            ("datapath_types", Datum::strings(["netdev", "system"])),
            ("db_version", Datum::string(snapshot.schema().version())),
            ("ovs_version", Datum::string(env!("CARGO_PKG_VERSION"))),
            ("dpdk_initialized", Datum::boolean(false)),
        ],
    );
    handle.transact(transaction).await
}

/// Runs the task that follows the database. When the task ends, the server stops.
///
/// Without the task no command of `ovs-vsctl` would end, so clients must not connect any more. Nor
/// could a client end `flow-restore-wait`, so held packets are released.
async fn supervise(
    handle: OvsdbHandle,
    switch: Arc<Switch>,
    follow: impl Future<Output = Result<Infallible, OvsdbServerError>> + Send + 'static,
) {
    // A set aborts its tasks when it is dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    let reason = match tasks.join_next().await {
        Some(Ok(Err(error))) => with_causes(&error),
        Some(Err(panic)) => panic.to_string(),
        Some(Ok(Ok(never))) => match never {},
        None => return,
    };
    error!(error = reason, "ovsdb: stopped, bridges no longer follow the database: restart shuntd");
    handle.stop().await;
    switch.hold_packets(false).await;
}

/// Applies the rows of the log, notifies `applied`, and follows all changes.
async fn follow(
    handle: &OvsdbHandle,
    mut reconciler: Reconciler,
    switch: &Switch,
    applied: oneshot::Sender<()>,
) -> Result<Infallible, OvsdbServerError> {
    let mut changes = handle.subscribe().await?;
    update(handle, &mut reconciler, switch, &handle.snapshot().await?).await?;
    // Nobody waits if the start was given up.
    let _ = applied.send(());
    let mut ticks = interval_at(Instant::now() + REFRESH_PERIOD, REFRESH_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let snapshot = tokio::select! {
            changed = changes.next() => changed?.snapshot,
            _ = ticks.tick() => handle.snapshot().await?,
        };
        update(handle, &mut reconciler, switch, &snapshot).await?;
    }
}

/// Applies the rows, and writes the results into them.
async fn update(
    handle: &OvsdbHandle,
    reconciler: &mut Reconciler,
    switch: &Switch,
    snapshot: &DatabaseSnapshot,
) -> Result<(), OvsdbServerError> {
    let desired = DesiredBridges::of(snapshot);
    let errors = reconciler.apply(&desired).await;
    let own = reconciler.bridges();
    let mut bridges = switch.bridges();
    bridges.retain(|bridge| own.contains(bridge.name.as_str()));
    let mut transaction = handle.transaction("shuntd: state of the switch");
    let mut report =
        RowReport { snapshot, bridges: &bridges, errors: &errors, transaction: &mut transaction };
    report.write();
    report.finish();
    if transaction.is_empty() {
        return Ok(());
    }
    match handle.transact(transaction).await {
        // The log says why. The next report tries again.
        Err(OvsdbServerError::Transaction(error)) => {
            warn!("ovsdb: the state of the switch was not written: {error}");
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use shunt_switch::{
        Config,
        config::{BridgeOptions, PortOptions, PortType},
    };

    use super::*;

    async fn switch(run_dir: Option<&Path>) -> Arc<Switch> {
        let run_dir = run_dir.map(Path::to_owned);
        Arc::new(Switch::start(&Config::default(), run_dir, 1).await.unwrap())
    }

    /// Clients fail at once instead of waiting for `cur_cfg`.
    #[tokio::test]
    async fn clients_cannot_connect_without_the_task() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.sock");
        let switch = switch(None).await;
        let start = || {
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            server.unwrap().listen(&socket).unwrap().start().unwrap()
        };
        supervise(start(), Arc::clone(&switch), async { Err(OvsdbServerError::Stopped) }).await;
        assert!(UnixStream::connect(&socket).is_err() && !socket.exists());
        let panic = async { unreachable!("a fault of the task") };
        supervise(start(), switch, panic).await;
        assert!(UnixStream::connect(&socket).is_err() && !socket.exists());
    }

    /// Clients of a daemon that is ready find its bridges, also to restore rules.
    #[tokio::test]
    async fn bridges_of_the_log_exist_after_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let [socket, log] = ["db.sock", "conf.db"].map(|name| folder.path().join(name));
        let options = OvsdbOptions { socket, log };
        let config = ServerConfig::default();
        let server = Server::open(schema::open_vswitch(), Some(&options.log), config).unwrap();
        let handle = server.listen(&options.socket).unwrap().start().unwrap();
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

    #[tokio::test]
    async fn held_packets_are_released_without_the_task() {
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
        supervise(handle, Arc::clone(&switch), async { Err(OvsdbServerError::Stopped) }).await;
        for _ in 0..2000 {
            if received() > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        unreachable!("the port receives nothing");
    }
}
