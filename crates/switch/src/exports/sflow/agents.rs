//! The sFlow agents of all bridges, and the task that serves these agents.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::sample::{SampleUse, SamplerConfig};
use shunt_pipeline::BridgeId;
use tokio::{
    sync::Notify,
    task::{spawn_blocking, yield_now},
    time::timeout,
};
use tracing::info;

use super::{agent::BridgeSflow, readings::SflowReadings};
use crate::{
    config::SflowOptions,
    exports::{
        endings::EndingExporters,
        samplers::set_samplers,
        task::{LAST_REPORTS_MAX, run_rounds},
    },
    ports::bridges::Bridges,
    status::sflow::SflowStatus,
    threads::data_plane::DataPlane,
};

/// The sFlow agents of all bridges.
pub(crate) struct SflowAgents {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    /// The start value of random numbers.
    seed: u64,
    /// The agent of each bridge.
    running: Mutex<BTreeMap<BridgeId, BridgeSflow>>,
    /// The agents that still send their last datagrams.
    endings: Arc<EndingExporters>,
    /// Notified when an agent starts.
    started: Notify,
}

impl SflowAgents {
    /// Returns the sFlow agents of bridges, none of them running.
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

    /// Starts, changes or stops the agent of a bridge.
    ///
    /// A changed agent starts with new sequence numbers, and keeps its counters. Returns when every
    /// packet thread samples by the new options.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, options: &SflowOptions) {
        // The options of a bridge were checked before.
        let rate = NonZeroU32::new(options.sampling).filter(|_| options.is_on());
        let (Some(rate), Ok(targets)) = (rate, options.addresses()) else {
            let is_running = self.running.lock().contains_key(&bridge);
            if is_running {
                set_samplers(&self.plane, bridge, SampleUse::Sflow, None).await;
                let before = self.running.lock().remove(&bridge);
                before.into_iter().for_each(|own| self.begin_end(own));
                info!("bridge {name}: sFlow stopped");
            }
            return;
        };
        let header_length = usize::try_from(options.header).unwrap_or(usize::MAX);
        let config = SamplerConfig { bridge, rate, header_length, seed: self.seed };
        let receivers = set_samplers(&self.plane, bridge, SampleUse::Sflow, Some(config)).await;
        let totals =
            self.running.lock().get(&bridge).map(|own| Arc::clone(own.collectors().totals()));
        let (totals, now) = (totals.unwrap_or_default(), self.plane.now());
        let own = BridgeSflow::new(bridge, name, options, &targets, receivers, &totals, now);
        let before = self.running.lock().insert(bridge, own);
        let change = if before.is_some() { "changed" } else { "started" };
        before.into_iter().for_each(|own| self.begin_end(own));
        self.started.notify_one();
        info!(
            targets = options.targets.join(","),
            agent = options.agent,
            sampling = options.sampling,
            polling = options.polling,
            header = options.header,
            "bridge {name}: sFlow {change}"
        );
    }

    /// Spawns a task that sends the last samples of a stopped or replaced agent.
    fn begin_end(&self, mut own: BridgeSflow) {
        own.begin_end(&self.bridges);
        let (plane, bridges) = (Arc::clone(&self.plane), Arc::clone(&self.bridges));
        self.endings.spawn(end(own, plane, bridges));
    }

    /// Returns the state of the agent of a bridge; `None` without an agent.
    pub(crate) fn status(&self, bridge: BridgeId) -> Option<SflowStatus> {
        self.running.lock().get(&bridge).map(BridgeSflow::status)
    }

    /// Sends samples and port counters of all bridges, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let round = || {
            let own = Arc::clone(&self);
            async move {
                let ids: Vec<BridgeId> = own.running.lock().keys().copied().collect();
                for id in ids {
                    own.run_agent(id).await;
                }
            }
        };
        run_rounds(&self.started, || self.running.lock().is_empty(), round).await;
    }

    /// Sends the samples of a bridge, and its port counters if they are due.
    async fn run_agent(&self, bridge: BridgeId) {
        let now = self.plane.now();
        let Some(due) = self.running.lock().get(&bridge).map(|own| own.due(now)) else { return };
        let readings = if due.is_empty() {
            SflowReadings::default()
        } else {
            let bridges = Arc::clone(&self.bridges);
            let reading = spawn_blocking(move || due.read(&bridges, bridge));
            reading.await.unwrap_or_default()
        };
        if let Some(own) = self.running.lock().get_mut(&bridge) {
            own.run(&self.bridges, readings, now);
        }
    }
}

/// Sends the last samples of an agent that was stopped or replaced.
async fn end(mut own: BridgeSflow, plane: Arc<DataPlane>, bridges: Arc<Bridges>) {
    let send = async {
        while own.send_rest(&bridges, plane.now()) {
            // Other tasks run between two parts of the samples.
            yield_now().await;
            own.collectors().wait_for_room().await;
        }
    };
    // Samples that collectors do not accept in time are lost.
    let _ = timeout(LAST_REPORTS_MAX, send).await;
    own.end().await;
}
