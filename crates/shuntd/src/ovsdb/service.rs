//! The task that keeps the switch and the database equal.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use shunt_ovsdb::{
    DatabaseSnapshot, OvsdbHandle, OvsdbServerError, Server, ServerConfig, schema, value::Datum,
};
use shunt_switch::{Switch, with_causes};
use thiserror::Error;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::MissedTickBehavior,
};
use tracing::{error, info, warn};

use super::{OvsdbOptions, desired::DesiredBridges, reconciler::Reconciler, report::RowReport};
use crate::daemon::descriptor_store::ServiceDescriptors;

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
    /// Then it discards the stored descriptors that no port has taken.
    ///
    /// # Errors
    ///
    /// If the log or the socket cannot be used.
    pub(crate) async fn start(
        options: &OvsdbOptions,
        switch: &Arc<Switch>,
        descriptors: &Arc<ServiceDescriptors>,
    ) -> Result<Option<Self>, OvsdbStartError> {
        if !options.is_enabled() {
            return Ok(None);
        }
        let log = Some(options.log.as_path()).filter(|log| *log != Path::new(""));
        let server = Server::open(schema::open_vswitch(), log, ServerConfig::default())?;
        let handle = server.listen(&options.socket)?.start()?;
        initialize(&handle).await?;
        info!(socket = %options.socket.display(), "ovsdb: ready");
        let (reconciler, switch) = (Reconciler::new(Arc::clone(switch)), Arc::clone(switch));
        let (followed, descriptors) = (handle.clone(), Arc::clone(descriptors));
        let follow = async move { follow(&followed, reconciler, &switch, &descriptors).await };
        let task = tokio::spawn(supervise(handle.clone(), follow));
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
/// Without the task no command of `ovs-vsctl` would end, so clients must not connect any more.
async fn supervise(
    handle: OvsdbHandle,
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
}

async fn follow(
    handle: &OvsdbHandle,
    mut reconciler: Reconciler,
    switch: &Switch,
    descriptors: &ServiceDescriptors,
) -> Result<Infallible, OvsdbServerError> {
    let mut changes = handle.subscribe().await?;
    let mut ticks = tokio::time::interval(REFRESH_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // The first tick is at once: it applies the rows of the log.
        let snapshot = tokio::select! {
            changed = changes.next() => changed?.snapshot,
            _ = ticks.tick() => handle.snapshot().await?,
        };
        update(handle, &mut reconciler, switch, &snapshot).await?;
        // Nothing is left to discard after the first pass.
        descriptors.discard_unused();
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

    use super::*;

    /// Clients fail at once instead of waiting for `cur_cfg`.
    #[tokio::test]
    async fn clients_cannot_connect_without_the_task() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.sock");
        let start = || {
            let server = Server::open(schema::open_vswitch(), None, ServerConfig::default());
            server.unwrap().listen(&socket).unwrap().start().unwrap()
        };
        supervise(start(), async { Err(OvsdbServerError::Stopped) }).await;
        assert!(UnixStream::connect(&socket).is_err() && !socket.exists());
        let panic = async { unreachable!("a fault of the task") };
        supervise(start(), panic).await;
        assert!(UnixStream::connect(&socket).is_err() && !socket.exists());
    }
}
