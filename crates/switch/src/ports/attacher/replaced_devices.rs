//! Ports that are opened with another device than before.
//!
//! Other hosts are behind another device, for example after two devices have swapped their names.
//! The addresses that were learned on the port would send the packets of these hosts elsewhere.

use std::convert::Infallible;

use shunt_flow::PortNo;
use shunt_pipeline::{BridgeId, Pipeline};
use tracing::info;

use super::PortAttacher;

impl PortAttacher {
    /// Removes the addresses and multicast groups that were learned on some ports.
    ///
    /// The ports have another device than before, and do not receive yet.
    pub(super) async fn flush_ports(&self, ports: Vec<(BridgeId, PortNo)>) {
        if ports.is_empty() {
            return;
        }
        // The learner may still have packets of the previous devices.
        self.plane.wait_until_learned().await;
        for (id, number) in ports {
            let flush = |pipeline: &Pipeline| Ok::<_, Infallible>(pipeline.flush_port(id, number));
            let Ok(_) = self.plane.publisher().change(flush);
            let name = self.bridges.with_port(id, number, |port| port.settings.name.clone());
            let name = name.unwrap_or_default();
            info!("port {name}: has another device, so the addresses learned on it are removed");
        }
    }
}
