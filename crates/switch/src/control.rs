//! The control plane: the parts that run a switch.
//!
//! Each part is in the folder of its subject and takes only the parts that it uses. Changes of
//! bridges, ports and settings go through [`Structure`], one at a time. Traces and status reports
//! borrow the parts that they read.
//!
//! Locks are taken in this order: [`ControlPlane::structure`], the locks of [`Bridges`], the lock of
//! the [`Publisher`](crate::threads::publisher::Publisher). The section "Locks" of `ARCHITECTURE.md`
//! has the complete order.

use std::{
    ops::Deref,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use parking_lot::Mutex;
use shunt_datapath::port::DescriptorStore;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, mpsc};

use crate::{
    config::Config,
    control::{mirror_log::MirrorLog, structure::Structure},
    error::SwitchError,
    exports::Exporters,
    multicast::{router_log::RouterLog, task::MulticastCounters},
    nic::NicSlot,
    openflow::events::{ControlReceivers, EVENTS_MAX},
    ports::{attacher::PortAttacher, bridges::Bridges, capture::Captures},
    threads::{
        data_plane::{DataPlane, EngineMaker, StartedDataPlane},
        load::balancer::LoadBalancer,
    },
    trace::{entry_explanation::EntryReader, explain::Tracer},
};

mod bfd;
pub(crate) mod bonds;
mod collector_sets;
mod limits;
mod mirror_log;
mod mirrors;
pub(crate) mod settings;
pub(crate) mod structure;

/// A change of bridges, ports and settings in progress.
///
/// When the guard is dropped, the effect of the whole change on mirrors is logged. The steps of a
/// change do not log it, because a later step may add a port that a mirror needs.
pub(crate) struct StructureGuard<'a>(MutexGuard<'a, Structure>);

impl Deref for StructureGuard<'_> {
    type Target = Structure;

    fn deref(&self) -> &Structure {
        &self.0
    }
}

impl Drop for StructureGuard<'_> {
    fn drop(&mut self) {
        self.0.log_mirrors();
    }
}

/// The control plane of a switch.
pub(crate) struct ControlPlane {
    /// Tables, packet threads and eviction thread.
    pub(crate) plane: Arc<DataPlane>,
    /// Bridges and ports, and their publication to the tables.
    pub(crate) bridges: Arc<Bridges>,
    /// NIC in front of a bridge.
    pub(crate) nic: Arc<NicSlot>,
    /// Packet captures that are in progress.
    pub(crate) captures: Arc<Captures>,
    /// Exporters of samples and flows to collectors.
    pub(crate) exports: Arc<Exporters>,
    /// Counters of the IGMP and MLD messages that multicast snooping has read.
    pub(crate) multicast: MulticastCounters,
    /// Log of multicast routers that appear and disappear.
    pub(crate) router_log: RouterLog,
    /// Loads of the receive queues, and their moves between packet threads.
    pub(crate) loads: Arc<LoadBalancer>,
    /// Settings in force, without the bridges.
    pub(crate) config: Arc<Mutex<Config>>,
    /// Settings as operators have configured them, without the bridges.
    ///
    /// A setting in force differs from them while a program overrides it.
    pub(crate) configured: Arc<Mutex<Config>>,
    /// Number of completed runs of the periodic upkeep.
    pub(crate) upkeep_runs: AtomicU64,
    /// Changes bridges, ports and settings, one change at a time.
    structure: AsyncMutex<Structure>,
}

impl ControlPlane {
    /// Starts the data plane of a configuration, without the bridges and the NIC.
    pub(crate) fn start(
        config: &Config,
        run_dir: Option<&Path>,
        seed: u64,
        engine: EngineMaker,
        descriptors: Arc<dyn DescriptorStore>,
    ) -> Result<(Arc<Self>, ControlReceivers), SwitchError> {
        config.check()?;
        let mut own = Config { bridges: Vec::new(), ..config.clone() };
        let offload = &mut own.caches.gigaflow.offload;
        if let Some(first) = config.bridges.first().filter(|_| offload.bridge.is_empty()) {
            offload.bridge.clone_from(&first.name);
        }
        let StartedDataPlane { plane, punts } = DataPlane::start(&own, seed, engine)?;
        let (events, receiver) = mpsc::channel(EVENTS_MAX);

        let plane = Arc::new(plane);
        let bridges = Arc::new(Bridges::new(Arc::clone(plane.publisher()), run_dir, seed));
        let nic = Arc::new(NicSlot::new(Arc::clone(&plane), Arc::clone(&bridges), seed));
        let captures = Arc::new(Captures::new(Arc::clone(&plane)));
        let exports = Arc::new(Exporters::new(&plane, &bridges, seed));
        let (loads, dpdk) = (Arc::<LoadBalancer>::default(), Arc::new(own.dpdk.clone()));
        let configured = Arc::new(Mutex::new(own.clone()));
        let config = Arc::new(Mutex::new(own));
        let structure = AsyncMutex::new(Structure {
            plane: Arc::clone(&plane),
            bridges: Arc::clone(&bridges),
            ports: PortAttacher::new(
                Arc::clone(&plane),
                Arc::clone(&bridges),
                Arc::clone(&nic),
                Arc::clone(&loads),
                descriptors,
                dpdk,
                seed,
            ),
            nic: Arc::clone(&nic),
            config: Arc::clone(&config),
            configured: Arc::clone(&configured),
            overridden: Mutex::default(),
            captures: Arc::clone(&captures),
            exports: Arc::clone(&exports),
            mirror_log: MirrorLog::default(),
            events,
        });
        let control = Self {
            plane,
            bridges,
            nic,
            captures,
            exports,
            multicast: MulticastCounters::default(),
            router_log: RouterLog::default(),
            loads,
            config,
            configured,
            upkeep_runs: AtomicU64::default(),
            structure,
        };
        Ok((Arc::new(control), ControlReceivers { events: receiver, punts }))
    }

    /// Waits until no other change is in progress;
    /// later changes wait until the guard is dropped.
    pub(crate) async fn structure(&self) -> StructureGuard<'_> {
        StructureGuard(self.structure.lock().await)
    }

    /// Starts a capture at a port, or of dropped packets at `drops`;
    /// returns its number.
    pub(crate) async fn start_capture(&self, place: &str) -> Result<u64, SwitchError> {
        // The port must not be removed while its capture starts.
        let _structure = self.structure().await;
        let place = Captures::place(&self.bridges.lock(), place)?;
        self.captures.start(place).await
    }

    /// Returns a tracer of packets through the tables.
    pub(crate) fn tracer(&self) -> Tracer<'_> {
        Tracer::new(self.plane.pipeline(), &self.bridges, self.plane.vlan_limit())
    }

    /// Returns a reader of cache entries.
    pub(crate) fn entries(&self) -> EntryReader<'_> {
        let kind = self.config.lock().caches.kind;
        EntryReader::new(&self.plane, &self.bridges, &self.nic, kind)
    }
}

#[cfg(test)]
mod tests;
