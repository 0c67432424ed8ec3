//! What happens to the ports behind a NIC: they are opened by another, and closed while nobody knows
//! what it forwards by.

use std::sync::Arc;

use shunt_flow::PortNo;
use shunt_pipeline::BridgeId;
use tracing::{error, warn};

use super::{Layout, NicFront, NicStatus};
use crate::{
    config::Config,
    control::Control,
    error::{SwitchError, with_causes},
    ports::port::BridgePort,
};

impl Control {
    /// The NIC in front of a bridge, or the place where there was one.
    pub(crate) fn nic(&self) -> Option<Arc<NicFront>> {
        self.nic.lock().clone()
    }

    /// How the NIC is, if there is one.
    pub(crate) fn nic_status(&self) -> Option<NicStatus> {
        self.nic().and_then(|nic| nic.status())
    }

    /// Has the NIC that the configuration says. Its ports are opened anew if they were, or are to be,
    /// behind one.
    pub(crate) async fn apply_nic(&self) -> Result<(), SwitchError> {
        let config = self.config.lock().clone();
        let target = &config.caches.gigaflow.target;
        let nic = match self.nic() {
            Some(nic) if target.is_none() || nic.has_nic() => nic,
            None if target.is_none() => return Ok(()),
            // An owner is laid out for its NIC: with another that comes after none begins another.
            before => self.start_nic(&config, before).await?,
        };
        nic.check(target)?;
        let applied = nic.apply(target).await;
        nic.handle().tune(config.caches.idle(), target.drain());
        if !nic.has_nic() {
            self.plane.offer_to_nobody().await;
        }
        if !applied? {
            return Ok(());
        }
        for (name, id, number) in self.ports_of_nic() {
            if let Err(error) = self.detach(&name).await {
                // Somebody has removed it meanwhile; the NIC is in force all the same.
                warn!(port = name, trouble = with_causes(&error), "the port is not opened anew");
                continue;
            }
            if let Err(error) = self.open_port(&name).await {
                let trouble = with_causes(&error);
                warn!(port = name, trouble, "the port does not open behind another NIC");
                self.with_port(id, number, |port| port.trouble = Some(trouble));
            }
            self.changed_ports.add(id, number);
        }
        Ok(())
    }

    /// Starts the owner of a NIC, in front of a bridge that may come later, in the place of the front
    /// before, which has none.
    async fn start_nic(
        &self,
        config: &Config,
        before: Option<Arc<NicFront>>,
    ) -> Result<Arc<NicFront>, SwitchError> {
        if let Some(before) = before {
            before.is_drained().await?;
        }
        let settings = &config.caches.gigaflow.target;
        let (layout, name) = (Layout::of(settings), settings.bridge.clone());
        let version = self.plane.pipeline.version();
        let id = self.bridges.lock().reserve(&name, version)?;
        let target = self.plane.start_offload((config.clone(), id, self.seed)).await?;
        let clock = (self.plane.clock, self.seed);
        let nic = Arc::new(NicFront::new((target, layout), (name, id), clock));
        *self.nic.lock() = Some(Arc::clone(&nic));
        Ok(nic)
    }

    /// The ports of the NIC's bridge that are open and that the switch opens by itself.
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

    /// Closes the ports of a NIC that may forward by rules that are gone, if they are to be closed;
    /// [`Self::watch_ports`] opens them again.
    pub(crate) async fn watch_nic(&self) {
        let Some(nic) = self.nic() else { return };
        let Some(why) = nic.closes_ports() else { return };
        let _structure = self.structure.lock().await;
        for (name, id, number) in self.ports_of_nic() {
            let comes_back = self.with_port(id, number, |port| port.comes_back());
            if comes_back == Some(true) && nic.takes(id, number) {
                warn!(port = name, why, "the NIC is stale: the port goes down");
                self.put_down(&name, &format!("the NIC is stale: {why}")).await;
            }
        }
    }

    /// Empties a NIC elsewhere as far as it answers: the switch stops.
    pub(crate) async fn take_leave(&self) {
        if let Some(nic) = self.nic() {
            nic.take_leave().await;
        }
    }

    /// The owner of the target has ended: by a panic, or as the eviction thread has. The latter is for
    /// good, as nobody could join the desk.
    pub(crate) fn lose_nic_owner(&self, is_for_good: bool) {
        error!(
            "the target thread has ended: an embedded NIC is given up, one elsewhere keeps its rules"
        );
        if !is_for_good {
            error!(
                "set caches.gigaflow.target.kind to none, and then to what it was, to have another"
            );
        }
        if let Some(nic) = self.nic() {
            nic.abandon();
        }
    }
}
