//! The IPFIX exporters of all bridges, and the task that runs them.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shunt_datapath::sample::{SampleUse, SamplerConfig};
use shunt_pipeline::{BridgeId, Time};
use tokio::sync::Notify;
use tracing::info;

use super::exporter::BridgeIpfix;
use crate::{
    config::IpfixOptions, exports::samplers::set_samplers, exports::task::run_exports,
    ports::bridges::Bridges, status::ipfix::IpfixStatus, threads::data_plane::DataPlane,
};

/// Bytes of a sampled packet: its headers up to the transport header.
const HEADER_BYTES: usize = 128;

/// The IPFIX exporters of all bridges.
pub(crate) struct IpfixExporters {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    seed: u64,
    running: Mutex<BTreeMap<BridgeId, BridgeIpfix>>,
    /// Notified when an exporter starts.
    started: Notify,
}

impl IpfixExporters {
    pub(crate) fn new(plane: Arc<DataPlane>, bridges: Arc<Bridges>, seed: u64) -> Self {
        Self { plane, bridges, seed, running: Mutex::default(), started: Notify::new() }
    }

    /// Starts, changes or stops the exporter of a bridge.
    ///
    /// An exporter that changes or stops reports its flows. One that changes begins with new sequence
    /// numbers. Returns when every packet thread samples by the new options.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, options: &IpfixOptions) {
        let is_running = self.running.lock().contains_key(&bridge);
        if is_running {
            set_samplers(&self.plane, bridge, SampleUse::Ipfix, None).await;
            self.run_exporter(bridge);
            let before = self.running.lock().remove(&bridge);
            if let Some(mut before) = before {
                before.end(self.unix_time(self.plane.now()));
            }
        }
        // The options of a bridge are checked before they are applied.
        let rate = NonZeroU32::new(options.sampling).filter(|_| options.is_on());
        let (Some(rate), Ok(targets)) = (rate, options.addresses()) else {
            if is_running {
                info!("bridge {name}: IPFIX stopped");
            }
            return;
        };
        let config = SamplerConfig { bridge, rate, header_length: HEADER_BYTES, seed: self.seed };
        let receivers = set_samplers(&self.plane, bridge, SampleUse::Ipfix, Some(config)).await;
        let own = BridgeIpfix::new(bridge, name, options, targets, receivers, self.plane.now());
        self.running.lock().insert(bridge, own);
        self.started.notify_one();
        info!(
            targets = options.targets.join(","),
            sampling = options.sampling,
            obs_domain_id = options.obs_domain_id,
            obs_point_id = options.obs_point_id,
            cache_active_timeout = options.cache_active_timeout,
            cache_max_flows = options.cache_max_flows,
            "bridge {name}: IPFIX {}",
            if is_running { "changed" } else { "started" }
        );
    }

    /// Returns the state of the exporter of a bridge; `None` without one.
    pub(crate) fn status(&self, bridge: BridgeId) -> Option<IpfixStatus> {
        self.running.lock().get(&bridge).map(BridgeIpfix::status)
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

    /// Collects the samples of a bridge, and sends its flows that have ended.
    fn run_exporter(&self, bridge: BridgeId) {
        let now = self.plane.now();
        if let Some(own) = self.running.lock().get_mut(&bridge) {
            own.run(&self.bridges, now, self.unix_time(now));
        }
    }

    fn unix_time(&self, now: Time) -> Duration {
        self.plane.clock().unix_time_at_zero() + now.since(Time::ZERO)
    }
}
