//! The NetFlow exporters of all bridges, and the task that serves these exporters.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::{
    Command,
    netflow::{NETFLOW_FLOWS_MAX, NetflowCache, netflow_cache},
};
use shunt_pipeline::BridgeId;
use tokio::{
    sync::Notify,
    task::{spawn_blocking, yield_now},
    time::timeout,
};
use tracing::{info, warn};

use super::exporter::{BridgeNetflow, PortNumbersByDatapath};
use crate::{
    config::NetflowOptions,
    exports::{
        endings::EndingExporters,
        task::{LAST_REPORTS_MAX, run_rounds, unix_time},
    },
    ports::bridges::Bridges,
    status::netflow::NetflowStatus,
    threads::data_plane::DataPlane,
};

/// The NetFlow exporters of all bridges.
pub(crate) struct NetflowExporters {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    /// The start value of random numbers.
    seed: u64,
    /// The exporter of each bridge.
    running: Mutex<BTreeMap<BridgeId, BridgeNetflow>>,
    /// The exporters that still send their last datagrams.
    endings: Arc<EndingExporters>,
    /// Notified when an exporter starts.
    started: Notify,
}

impl NetflowExporters {
    /// Returns the NetFlow exporters of bridges, none of them running.
    pub(in crate::exports) fn new(
        plane: &Arc<DataPlane>,
        bridges: &Arc<Bridges>,
        endings: &Arc<EndingExporters>,
        seed: u64,
    ) -> Self {
        Self {
            plane: Arc::clone(plane),
            bridges: Arc::clone(bridges),
            seed,
            running: Mutex::default(),
            endings: Arc::clone(endings),
            started: Notify::new(),
        }
    }

    /// Starts, changes or stops the exporter of a bridge.
    ///
    /// A changed exporter keeps its flows and sequence numbers. A stopped exporter reports its
    /// flows. Returns when every packet thread has started or stopped counting the flows of the
    /// bridge.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, options: &NetflowOptions) {
        let is_running = self.running.lock().contains_key(&bridge);
        // The options of a bridge were checked before.
        let targets = options.addresses().ok().filter(|_| options.is_on());
        let Some(targets) = targets else {
            if is_running {
                self.stop(bridge).await;
            }
            return;
        };
        if !is_running {
            let mut receivers = Vec::new();
            self.set_flow_caches(bridge, || {
                let seed = self.seed.wrapping_add(receivers.len() as u64);
                let (cache, receiver) = netflow_cache(bridge, NETFLOW_FLOWS_MAX, seed);
                receivers.push(receiver);
                Some(Box::new(cache))
            })
            .await;
            let own = BridgeNetflow::new(bridge, name, receivers, self.plane.now());
            self.running.lock().insert(bridge, own);
        }
        if let Some(own) = self.running.lock().get_mut(&bridge) {
            own.set(options, &targets);
        }
        self.started.notify_one();
        info!(
            targets = options.targets.join(","),
            active_timeout = options.active_timeout,
            engine_type = options.engine_type,
            engine_id = options.engine_of(bridge.number()),
            add_id_to_interface = options.add_id_to_interface,
            "bridge {name}: NetFlow {}",
            if is_running { "changed" } else { "started" }
        );
    }

    /// Stops all exporters; their flows are reported afterwards.
    pub(crate) async fn stop_all(&self) {
        let ids: Vec<BridgeId> = self.running.lock().keys().copied().collect();
        for id in ids {
            self.stop(id).await;
        }
    }

    /// Stops the exporter of a bridge; a task reports its flows.
    async fn stop(&self, bridge: BridgeId) {
        let caches = self.set_flow_caches(bridge, || None).await;
        // The last flows may be of new ports, and these ports may be removed soon.
        let ports = self.port_numbers();
        let before = self.running.lock().remove(&bridge);
        if let Some(mut own) = before {
            own.set_ports(ports, self.plane.now());
            self.endings.spawn(end(own, caches, Arc::clone(&self.plane)));
        }
    }

    /// Sends every packet thread a flow cache for a bridge, or removes its cache.
    ///
    /// Returns the previous caches when all packet threads have processed the change.
    async fn set_flow_caches(
        &self,
        bridge: BridgeId,
        mut cache: impl FnMut() -> Option<Box<NetflowCache>>,
    ) -> Vec<NetflowCache> {
        let before = self.plane.ask(|_, reply| Command::CountFlows(bridge, cache(), reply)).await;
        before.into_iter().flatten().map(|own: Box<NetflowCache>| *own).collect()
    }

    /// Returns the state of the exporter of a bridge; `None` without an exporter.
    pub(crate) fn status(&self, bridge: BridgeId) -> Option<NetflowStatus> {
        let now = self.plane.now();
        self.running.lock().get(&bridge).map(|own| own.status(now))
    }

    /// Reports ended flows, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let round = || {
            let own = Arc::clone(&self);
            async move {
                // A round with many flows takes milliseconds, for which no task of the runtime
                // should wait.
                let lines = spawn_blocking(move || own.run_exporters()).await;
                lines.unwrap_or_default().iter().for_each(|line| warn!("{line}"));
            }
        };
        run_rounds(&self.started, || self.running.lock().is_empty(), round).await;
    }

    /// Reports the ended flows of all bridges; returns log lines about lost flows.
    fn run_exporters(&self) -> Vec<String> {
        let now = self.plane.now();
        let unix_time = unix_time(&self.plane, now);
        let is_due = self.running.lock().values().any(|own| own.needs_ports(now));
        // The registry of bridges must be read without the lock of the exporters.
        let ports = is_due.then(|| self.port_numbers());
        let mut running = self.running.lock();
        let lines = running.values_mut().filter_map(|own| {
            if let Some(ports) = &ports {
                own.set_ports(ports.clone(), now);
            }
            own.run(now, unix_time)
        });
        lines.collect()
    }

    /// Returns the OpenFlow number of each datapath port.
    fn port_numbers(&self) -> PortNumbersByDatapath {
        let registry = self.bridges.lock();
        let ports = registry.iter().flat_map(|bridge| bridge.ports.values());
        ports.filter_map(|port| Some((port.datapath?, port.number))).collect()
    }
}

/// Reports all flows of an exporter that was stopped.
async fn end(mut own: BridgeNetflow, caches: Vec<NetflowCache>, plane: Arc<DataPlane>) {
    let mut rest = caches.into_iter().flat_map(NetflowCache::into_flows);
    let report = async {
        loop {
            let now = plane.now();
            if !own.report_rest(&mut rest, now, unix_time(&plane, now)) {
                break;
            }
            // Other tasks run between two parts of the report.
            yield_now().await;
            own.collectors().wait_for_room().await;
        }
    };
    // Flows that collectors do not accept in time are lost.
    let _ = timeout(LAST_REPORTS_MAX, report).await;
    own.end(rest.count()).await;
}
