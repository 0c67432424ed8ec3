//! The NIC of a switch, which may be replaced while packets flow.

use std::sync::Arc;

use parking_lot::Mutex;
use shunt_datapath::command::DumpedEntry;
use tokio::sync::oneshot;
use tracing::error;

use super::{NicFront, NicStatus, OffloadLayout};
use crate::{
    config::Config, error::SwitchError, ports::bridges::Bridges, threads::data_plane::DataPlane,
};

/// The NIC in front of a bridge, or no NIC.
pub(crate) struct NicSlot {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    /// The front; it stays after the NIC is switched off, for the next NIC.
    front: Mutex<Option<Arc<NicFront>>>,
    seed: u64,
}

impl NicSlot {
    /// Returns a slot without a NIC.
    pub(crate) fn new(plane: Arc<DataPlane>, bridges: Arc<Bridges>, seed: u64) -> Self {
        Self { plane, bridges, front: Mutex::default(), seed }
    }

    /// Returns the front of the NIC, if the switch has had a NIC.
    ///
    /// The front also stays after the NIC is switched off.
    pub(crate) fn front(&self) -> Option<Arc<NicFront>> {
        self.front.lock().clone()
    }

    /// Returns the status of the NIC, if there is one.
    pub(crate) fn status(&self) -> Option<NicStatus> {
        self.front().and_then(|nic| nic.status())
    }

    /// Returns the entries that the agent intends for the NIC.
    pub(crate) async fn entries(&self) -> Vec<DumpedEntry> {
        let Some(nic) = self.front() else { return Vec::new() };
        let (sender, receiver) = oneshot::channel();
        nic.handle().dump(Box::new(move |entries| drop(sender.send(entries))));
        // If the agent ends before its reply, there are no entries.
        receiver.await.unwrap_or_default()
    }

    /// Applies the configured NIC.
    ///
    /// Returns the NIC if the ports of its bridge must be reopened.
    pub(crate) async fn apply(
        &self,
        config: &Config,
    ) -> Result<Option<Arc<NicFront>>, SwitchError> {
        let offload = &config.caches.gigaflow.offload;
        let nic = match self.front() {
            Some(nic) if offload.is_none() || nic.has_nic() => nic,
            None if offload.is_none() => return Ok(None),
            // The stages of an agent never change: a NIC that follows no NIC needs a new agent.
            before => self.start(config, before).await?,
        };
        nic.check(offload)?;
        let applied = nic.apply(offload).await;
        nic.handle().tune(config.caches.idle(), offload.drain());
        if !nic.has_nic() {
            self.plane.stop_candidates().await;
        }
        Ok(applied?.then_some(nic))
    }

    /// Starts an agent for a NIC; its front replaces a front without a NIC.
    ///
    /// The bridge of the NIC may be added later.
    async fn start(
        &self,
        config: &Config,
        before: Option<Arc<NicFront>>,
    ) -> Result<Arc<NicFront>, SwitchError> {
        if let Some(before) = before {
            before.wait_until_drained().await?;
        }
        let settings = &config.caches.gigaflow.offload;
        let (layout, name) = (OffloadLayout::of(settings), settings.bridge.clone());
        let version = self.plane.pipeline().version();
        let id = self.bridges.lock().reserve(&name, version)?;
        let connection = self.plane.start_offload(config.clone(), id, self.seed).await?;
        let clock = self.plane.clock();
        let nic = Arc::new(NicFront::new(connection, layout, name, id, clock, self.seed));
        *self.front.lock() = Some(Arc::clone(&nic));
        Ok(nic)
    }

    /// Removes the entries of an external NIC, because the switch stops.
    pub(crate) async fn empty_before_stop(&self) {
        if let Some(nic) = self.front() {
            nic.empty_before_stop().await;
        }
    }

    /// Handles the end of the offload thread:
    /// its own panic, or that of the eviction thread.
    ///
    /// Without the eviction thread no new agent can start.
    pub(crate) fn lose_agent(&self, is_for_good: bool) {
        error!(
            "offload thread: the thread has ended, so an embedded NIC stops, and an external \
             NIC keeps its entries"
        );
        if !is_for_good {
            error!(
                "offload thread: to restart it, set caches.gigaflow.offload.kind to none and back"
            );
        }
        if let Some(nic) = self.front() {
            nic.abandon();
        }
    }
}
