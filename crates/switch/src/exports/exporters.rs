//! The exporters of all bridges and protocols.

use std::{sync::Arc, time::Duration};

use shunt_ofproto::server::ControlTask;
use shunt_pipeline::BridgeId;
use tokio::{task::JoinHandle, time::timeout};
use tracing::warn;

use super::{
    endings::EndingExporters,
    ipfix::{CollectorSets, IpfixExporters},
    netflow::NetflowExporters,
    sflow::SflowAgents,
};
use crate::{
    config::BridgeOptions, ports::bridges::Bridges, status::bridge::BridgeStatus,
    threads::data_plane::DataPlane,
};

/// The exporters of all bridges and protocols.
pub(crate) struct Exporters {
    sflow: Arc<SflowAgents>,
    netflow: Arc<NetflowExporters>,
    ipfix: Arc<IpfixExporters>,
    collector_sets: Arc<CollectorSets>,
    /// Exporters that were stopped or replaced, and still report flows.
    endings: Arc<EndingExporters>,
}

/// Longest time for reports of the last flows when the daemon ends.
const STOP_MAX: Duration = Duration::from_secs(5);

impl Exporters {
    /// Returns the exporters of all protocols, none of them running.
    pub(crate) fn new(plane: &Arc<DataPlane>, bridges: &Arc<Bridges>, seed: u64) -> Self {
        let endings = Arc::default();
        Self {
            sflow: Arc::new(SflowAgents::new(plane, bridges, &endings, seed)),
            netflow: Arc::new(NetflowExporters::new(plane, bridges, &endings, seed)),
            ipfix: Arc::new(IpfixExporters::new(plane, bridges, &endings, seed)),
            collector_sets: Arc::new(CollectorSets::new(plane, bridges, &endings, seed)),
            endings,
        }
    }

    /// Starts, changes and stops the exporters of a bridge as its options require.
    ///
    /// Returns when every packet thread uses the new options. The last flows of stopped exporters
    /// are reported later.
    pub(crate) async fn apply(
        &self,
        bridge: BridgeId,
        before: &BridgeOptions,
        after: &BridgeOptions,
    ) {
        let name = &after.name;
        if after.sflow != before.sflow {
            self.sflow.apply(bridge, name, &after.sflow).await;
        }
        if after.netflow != before.netflow {
            self.netflow.apply(bridge, name, &after.netflow).await;
        }
        if after.ipfix != before.ipfix {
            self.ipfix.apply(bridge, name, &after.ipfix).await;
        }
        if after.collector_sets != before.collector_sets {
            self.collector_sets.apply(bridge, name, &after.collector_sets).await;
        }
    }

    /// Starts the tasks of all exporters, which run forever.
    pub(crate) fn spawn(&self) -> [JoinHandle<()>; 4] {
        [
            tokio::spawn(ControlTask::new("sFlow", Arc::clone(&self.sflow).run())),
            tokio::spawn(ControlTask::new("NetFlow", Arc::clone(&self.netflow).run())),
            tokio::spawn(ControlTask::new("IPFIX", Arc::clone(&self.ipfix).run())),
            tokio::spawn(ControlTask::new(
                "collector sets",
                Arc::clone(&self.collector_sets).run(),
            )),
        ]
    }

    /// Stops NetFlow and IPFIX, and waits until all flows are reported.
    ///
    /// The wait is at most [`STOP_MAX`].
    pub(crate) async fn stop(&self) {
        let stop = async {
            self.netflow.stop_all().await;
            self.ipfix.stop_all().await;
            self.collector_sets.stop_all().await;
            self.endings.finished().await;
        };
        if timeout(STOP_MAX, stop).await.is_err() {
            let seconds = STOP_MAX.as_secs();
            warn!(
                "exporters: flows are lost at the stop, because collectors did not get all of \
                 them within {seconds} seconds"
            );
        }
    }

    /// Adds the states of the exporters to the status of a bridge.
    pub(crate) fn add_status(&self, bridge: BridgeId, status: &mut BridgeStatus) {
        status.sflow = self.sflow.status(bridge);
        status.netflow = self.netflow.status(bridge);
        status.ipfix = self.ipfix.status(bridge);
        status.collector_sets = self.collector_sets.status(bridge);
    }
}
