//! The IPFIX exporters of all bridges, and the task that serves these exporters.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::sample::{SampleUse, SamplerConfig};
use shunt_pipeline::BridgeId;
use tokio::{
    sync::Notify,
    task::{spawn_blocking, yield_now},
    time::timeout,
};
use tracing::{info, warn};

use super::exporter::{BridgeIpfix, IpfixClock, IpfixEnd};
use crate::{
    config::IpfixOptions,
    exports::{
        endings::EndingExporters,
        samplers::set_samplers,
        task::{LAST_REPORTS_MAX, run_rounds, unix_time},
    },
    ports::bridges::Bridges,
    status::ipfix::IpfixStatus,
    threads::data_plane::DataPlane,
};

/// Number of sampled bytes of a packet: its headers up to the transport header.
const HEADER_BYTES: usize = 128;

/// The IPFIX exporters of all bridges.
pub(crate) struct IpfixExporters {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    /// The start value of random numbers.
    seed: u64,
    /// The exporter of each bridge.
    running: Mutex<BTreeMap<BridgeId, BridgeIpfix>>,
    /// The exporters that still send their last datagrams.
    endings: Arc<EndingExporters>,
    /// Notified when an exporter starts.
    started: Notify,
}

impl IpfixExporters {
    /// Returns the IPFIX exporters of bridges, none of them running.
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
    /// A changed or stopped exporter reports its flows. A changed exporter starts with new sequence
    /// numbers, and keeps its counters. Returns when every packet thread samples by the new
    /// options.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, options: &IpfixOptions) {
        // The options of a bridge were checked before.
        let rate = NonZeroU32::new(options.sampling).filter(|_| options.is_on());
        let (Some(rate), Ok(targets)) = (rate, options.addresses()) else {
            return self.stop(bridge).await;
        };
        let config = SamplerConfig { bridge, rate, header_length: HEADER_BYTES, seed: self.seed };
        let receivers = set_samplers(&self.plane, bridge, SampleUse::Ipfix, Some(config)).await;
        let totals =
            self.running.lock().get(&bridge).map(|own| Arc::clone(own.collectors().totals()));
        let totals = totals.unwrap_or_default();
        let own = BridgeIpfix::new(bridge, name, options, &targets, receivers, &totals);
        let before = self.running.lock().insert(bridge, own);
        let change = if before.is_some() { "changed" } else { "started" };
        if let Some(before) = before {
            self.begin_end(before, IpfixEnd::Replaced);
        }
        self.started.notify_one();
        info!(
            targets = options.targets.join(","),
            sampling = options.sampling,
            obs_domain_id = options.obs_domain_id,
            obs_point_id = options.obs_point_id,
            virtual_obs_id = options.virtual_obs_id,
            cache_active_timeout = options.cache_active_timeout,
            cache_max_flows = options.cache_max_flows,
            "bridge {name}: IPFIX {change}"
        );
    }

    /// Stops all exporters; their flows are reported afterwards.
    pub(crate) async fn stop_all(&self) {
        let ids: Vec<BridgeId> = self.running.lock().keys().copied().collect();
        for id in ids {
            self.stop(id).await;
        }
    }

    /// Stops the exporter of a bridge, if it has one;
    /// a task reports the remaining flows.
    async fn stop(&self, bridge: BridgeId) {
        let is_running = self.running.lock().contains_key(&bridge);
        if is_running {
            set_samplers(&self.plane, bridge, SampleUse::Ipfix, None).await;
            let before = self.running.lock().remove(&bridge);
            if let Some(before) = before {
                self.begin_end(before, IpfixEnd::Stopped);
            }
        }
    }

    /// Starts a task that reports the last flows of an exporter and ends it.
    fn begin_end(&self, mut own: BridgeIpfix, kind: IpfixEnd) {
        own.begin_end(&self.bridges);
        let (plane, bridges) = (Arc::clone(&self.plane), Arc::clone(&self.bridges));
        self.endings.spawn(end_bridge(own, kind, plane, bridges));
    }

    /// Returns the state of the exporter of a bridge; `None` without an exporter.
    pub(crate) fn status(&self, bridge: BridgeId) -> Option<IpfixStatus> {
        let now = self.plane.now();
        self.running.lock().get(&bridge).map(|own| own.status(now))
    }

    /// Collects samples and reports flows, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let round = || {
            let own = Arc::clone(&self);
            async move {
                // A round with many samples takes milliseconds, for which no task of the runtime
                // should wait.
                let lines = spawn_blocking(move || own.run_exporters()).await;
                lines.unwrap_or_default().iter().for_each(|line| warn!("{line}"));
            }
        };
        run_rounds(&self.started, || self.running.lock().is_empty(), round).await;
    }

    /// Collects the samples of all bridges, and reports flows.
    ///
    /// Returns log lines about lost samples.
    fn run_exporters(&self) -> Vec<String> {
        let clock = clock(&self.plane);
        let mut running = self.running.lock();
        running.values_mut().filter_map(|own| own.run(&self.bridges, clock)).collect()
    }
}

/// Returns the present time of the daemon and of the system.
pub(super) fn clock(plane: &DataPlane) -> IpfixClock {
    let now = plane.now();
    IpfixClock { now, unix_time: unix_time(plane, now) }
}

/// Reports all flows of an exporter that was stopped or replaced.
async fn end_bridge(
    mut own: BridgeIpfix,
    kind: IpfixEnd,
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
) {
    let report = async {
        while own.report_rest(&bridges, clock(&plane)) {
            // Other tasks run between two parts of the report.
            yield_now().await;
            own.collectors().wait_for_room().await;
        }
    };
    // Flows that collectors do not accept in time are lost.
    let _ = timeout(LAST_REPORTS_MAX, report).await;
    own.end(kind).await;
}
