//! The exporters of all bridges and protocols.

use std::sync::Arc;

use shunt_pipeline::BridgeId;
use tokio::task::JoinHandle;

use super::{ipfix::IpfixExporters, netflow::NetflowExporters, sflow::SflowAgents};
use crate::{
    config::BridgeOptions, ports::bridges::Bridges, status::bridge::BridgeStatus,
    threads::data_plane::DataPlane,
};

/// The exporters of all bridges.
pub(crate) struct Exporters {
    sflow: Arc<SflowAgents>,
    netflow: Arc<NetflowExporters>,
    ipfix: Arc<IpfixExporters>,
}

impl Exporters {
    pub(crate) fn new(plane: &Arc<DataPlane>, bridges: &Arc<Bridges>, seed: u64) -> Self {
        let parts = || (Arc::clone(plane), Arc::clone(bridges));
        let [sflow, netflow, ipfix] = [parts(), parts(), parts()];
        Self {
            sflow: Arc::new(SflowAgents::new(sflow.0, sflow.1, seed)),
            netflow: Arc::new(NetflowExporters::new(netflow.0, netflow.1, seed)),
            ipfix: Arc::new(IpfixExporters::new(ipfix.0, ipfix.1, seed)),
        }
    }

    /// Starts, changes and stops the exporters of a bridge, where its options differ.
    ///
    /// Returns when every packet thread uses the new options.
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
    }

    /// Starts the tasks, which run forever.
    pub(crate) fn spawn(&self) -> [JoinHandle<()>; 3] {
        [
            tokio::spawn(Arc::clone(&self.sflow).run()),
            tokio::spawn(Arc::clone(&self.netflow).run()),
            tokio::spawn(Arc::clone(&self.ipfix).run()),
        ]
    }

    /// Adds the states of the exporters to the status of a bridge.
    pub(crate) fn add_status(&self, bridge: BridgeId, status: &mut BridgeStatus) {
        status.sflow = self.sflow.status(bridge);
        status.netflow = self.netflow.status(bridge);
        status.ipfix = self.ipfix.status(bridge);
    }
}
