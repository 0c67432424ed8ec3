//! The NetFlow exporters of all bridges, and the task that runs them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::{
    Command,
    netflow::{NETFLOW_FLOWS_MAX, NetflowCache, netflow_cache},
};
use shunt_pipeline::{BridgeId, Time};
use tokio::sync::Notify;
use tracing::info;

use super::exporter::{BridgeNetflow, PortNumbersByDatapath};
use crate::{
    config::NetflowOptions, exports::task::run_exports, ports::bridges::Bridges,
    status::netflow::NetflowStatus, threads::data_plane::DataPlane,
};

/// The NetFlow exporters of all bridges.
pub(crate) struct NetflowExporters {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    seed: u64,
    running: Mutex<BTreeMap<BridgeId, BridgeNetflow>>,
    /// Notified when an exporter starts.
    started: Notify,
}

impl NetflowExporters {
    pub(crate) fn new(plane: Arc<DataPlane>, bridges: Arc<Bridges>, seed: u64) -> Self {
        Self { plane, bridges, seed, running: Mutex::default(), started: Notify::new() }
    }

    /// Starts, changes or stops the exporter of a bridge.
    ///
    /// An exporter that changes keeps its flows and sequence numbers. One that stops reports its flows.
    /// Returns when every packet thread counts flows, or none does.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, options: &NetflowOptions) {
        let is_running = self.running.lock().contains_key(&bridge);
        // The options of a bridge are checked before they are applied.
        let targets = options.addresses().ok().filter(|_| options.is_on());
        let Some(targets) = targets else {
            if is_running {
                self.count_flows(bridge, || None).await;
                self.run_exporter(bridge);
                self.running.lock().remove(&bridge);
                info!("bridge {name}: NetFlow stopped");
            }
            return;
        };
        let now = self.plane.now();
        if !is_running {
            let mut receivers = Vec::new();
            self.count_flows(bridge, || {
                let seed = self.seed.wrapping_add(receivers.len() as u64);
                let (cache, receiver) = netflow_cache(bridge, NETFLOW_FLOWS_MAX, seed);
                receivers.push(receiver);
                Some(Box::new(cache))
            })
            .await;
            let own = BridgeNetflow::new(bridge, name, receivers, now);
            self.running.lock().insert(bridge, own);
        }
        if let Some(own) = self.running.lock().get_mut(&bridge) {
            own.set(options, targets, now);
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

    /// Gives every packet thread a cache for the flows of a bridge, or none.
    ///
    /// Returns when all of them use it.
    async fn count_flows(
        &self,
        bridge: BridgeId,
        mut cache: impl FnMut() -> Option<Box<NetflowCache>>,
    ) {
        for thread in self.plane.living() {
            self.plane.send(thread, Command::CountFlows(bridge, cache())).await;
        }
        // Threads process commands in order.
        self.plane.pull_threads().await;
    }

    /// Returns the state of the exporter of a bridge; `None` without one.
    pub(crate) fn status(&self, bridge: BridgeId) -> Option<NetflowStatus> {
        self.running.lock().get(&bridge).map(BridgeNetflow::status)
    }

    /// Sends flows, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let is_idle = || self.running.lock().is_empty();
        let send = || {
            let ids: Vec<BridgeId> = self.running.lock().keys().copied().collect();
            ids.into_iter().for_each(|id| self.run_exporter(id));
        };
        run_exports(&self.started, is_idle, send).await;
    }

    /// Sends the flows of a bridge that have ended.
    fn run_exporter(&self, bridge: BridgeId) {
        let now = self.plane.now();
        let unix_time = self.plane.clock().unix_time_at_zero() + now.since(Time::ZERO);
        let is_due = self.running.lock().get(&bridge).is_some_and(|own| own.needs_ports(now));
        // The registry is read without the lock of the exporters.
        let ports = is_due.then(|| self.port_numbers());
        if let Some(own) = self.running.lock().get_mut(&bridge) {
            own.run(ports, now, unix_time);
        }
    }

    fn port_numbers(&self) -> PortNumbersByDatapath {
        let registry = self.bridges.lock();
        let ports = registry.iter().flat_map(|bridge| bridge.ports.values());
        ports.filter_map(|port| Some((port.datapath?, port.number))).collect()
    }
}
