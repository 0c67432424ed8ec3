//! The ports of a NIC: they are reopened when the NIC changes, and closed while it is stale if
//! configured.

use std::sync::Arc;

use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;
use tracing::{error, warn};

use super::{NicFront, NicStatus, OffloadLayout};
use crate::{
    config::Config,
    control::ControlPlane,
    error::{SwitchError, with_causes},
    ports::port::BridgePort,
};

impl ControlPlane {
    /// Returns the NIC in front of a bridge.
    ///
    /// It also stays after the NIC is switched off.
    pub(crate) fn nic(&self) -> Option<Arc<NicFront>> {
        self.nic.lock().clone()
    }

    /// Returns the status of the NIC, if there is one.
    pub(crate) fn nic_status(&self) -> Option<NicStatus> {
        self.nic().and_then(|nic| nic.status())
    }

    /// Applies the configured NIC.
    ///
    /// Ports behind the previous or the new NIC are reopened.
    pub(crate) async fn apply_nic(&self) -> Result<(), SwitchError> {
        let config = self.config.lock().clone();
        let offload = &config.caches.gigaflow.offload;
        let nic = match self.nic() {
            Some(nic) if offload.is_none() || nic.has_nic() => nic,
            None if offload.is_none() => return Ok(()),
            // The stages of an agent never change: a NIC after none needs a new agent.
            before => self.start_nic(&config, before).await?,
        };
        nic.check(offload)?;
        let applied = nic.apply(offload).await;
        nic.handle().tune(config.caches.idle(), offload.drain());
        if !nic.has_nic() {
            self.plane.stop_candidates().await;
        }
        if !applied? {
            return Ok(());
        }
        for (name, id, number) in self.ports_of_nic() {
            if let Err(error) = self.detach(&name).await {
                // The port was removed meanwhile; the NIC is in force all the same.
                warn!(
                    error = with_causes(&error),
                    "port {name}: not reopened after the NIC changed"
                );
                continue;
            }
            if let Err(error) = self.open_port(&name).await {
                let trouble = with_causes(&error);
                warn!(error = trouble, "port {name}: cannot be reopened at the new NIC");
                self.with_port(id, number, |port| port.trouble = Some(trouble));
            }
            self.changed_ports.add(id, number);
        }
        Ok(())
    }

    /// Starts the agent of a NIC, which replaces a front without a NIC.
    ///
    /// The bridge may be added later.
    async fn start_nic(
        &self,
        config: &Config,
        before: Option<Arc<NicFront>>,
    ) -> Result<Arc<NicFront>, SwitchError> {
        if let Some(before) = before {
            before.is_drained().await?;
        }
        let settings = &config.caches.gigaflow.offload;
        let (layout, name) = (OffloadLayout::of(settings), settings.bridge.clone());
        let version = self.plane.pipeline.version();
        let id = self.bridges.lock().reserve(&name, version)?;
        let connection = self.plane.start_offload((config.clone(), id, self.seed)).await?;
        let clock = (self.plane.clock, self.seed);
        let nic = Arc::new(NicFront::new((connection, layout), (name, id), clock));
        *self.nic.lock() = Some(Arc::clone(&nic));
        Ok(nic)
    }

    /// Returns the open ports of the NIC's bridge that the switch opened itself.
    fn ports_of_nic(&self) -> Vec<(String, BridgeId, PortNo)> {
        let Some(nic) = self.nic() else { return Vec::new() };
        let bridges = self.bridges.lock();
        let Some(bridge) = bridges.by_id(nic.bridge.1) else { return Vec::new() };
        let is_open = |port: &&BridgePort| {
            port.open.is_some() && port.spec().is_some() && port.number != PortNo::LOCAL
        };
        let open = bridge.ports.values().filter(is_open);
        open.map(|port| (port.settings.name.clone(), bridge.id, port.number)).collect()
    }

    /// Closes the ports of a stale NIC, if configured.
    ///
    /// [`Self::watch_ports`] opens them again.
    pub(crate) async fn watch_nic(&self) {
        let Some(nic) = self.nic() else { return };
        let Some(why) = nic.closes_ports() else { return };
        let _structure = self.structure.lock().await;
        for (name, id, number) in self.ports_of_nic() {
            let comes_back = self.with_port(id, number, |port| port.comes_back());
            if comes_back == Some(true) && nic.takes(id, number) {
                warn!(reason = why, "port {name}: down, since the NIC is stale");
                self.take_down(&name, &format!("the NIC is stale: {why}")).await;
            }
        }
    }

    /// Empties an external NIC as far as it answers, since the switch stops.
    pub(crate) async fn empty_nic(&self) {
        if let Some(nic) = self.nic() {
            nic.empty_before_stop().await;
        }
    }

    /// Handles the end of the offload thread, by a panic or with the eviction thread.
    ///
    /// Without the eviction thread no new agent can start.
    pub(crate) fn lose_nic_agent(&self, is_for_good: bool) {
        error!("offload thread: ended; an embedded NIC stops, an external NIC keeps its entries");
        if !is_for_good {
            error!(
                "offload thread: to restart it, set caches.gigaflow.offload.kind to none and back"
            );
        }
        if let Some(nic) = self.nic() {
            nic.abandon();
        }
    }
}
