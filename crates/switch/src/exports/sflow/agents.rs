//! The sFlow agents of all bridges, and the task that runs them.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

use parking_lot::Mutex;
use shunt_datapath::sample::{SampleUse, SamplerConfig};
use shunt_pipeline::BridgeId;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::info;

use super::{agent::BridgeSflow, readings::SflowReadings};
use crate::{
    config::SflowOptions,
    exports::{samplers::set_samplers, task::READ_INTERVAL},
    ports::bridges::Bridges,
    status::sflow::SflowStatus,
    threads::data_plane::DataPlane,
};

/// The sFlow agents of all bridges.
pub(crate) struct SflowAgents {
    plane: Arc<DataPlane>,
    bridges: Arc<Bridges>,
    seed: u64,
    running: Mutex<BTreeMap<BridgeId, BridgeSflow>>,
    /// Notified when an agent starts.
    started: Notify,
}

impl SflowAgents {
    pub(crate) fn new(plane: Arc<DataPlane>, bridges: Arc<Bridges>, seed: u64) -> Self {
        Self { plane, bridges, seed, running: Mutex::default(), started: Notify::new() }
    }

    /// Starts, changes or stops the agent of a bridge.
    ///
    /// An agent that changes begins with new sequence numbers. Returns when every packet thread samples
    /// by the new options.
    pub(crate) async fn apply(&self, bridge: BridgeId, name: &str, options: &SflowOptions) {
        let before = self.running.lock().remove(&bridge).is_some();
        // The options of a bridge are checked before they are applied.
        let rate = NonZeroU32::new(options.sampling).filter(|_| options.is_on());
        let (Some(rate), Ok(targets)) = (rate, options.addresses()) else {
            if before {
                set_samplers(&self.plane, bridge, SampleUse::Sflow, None).await;
                info!("bridge {name}: sFlow stopped");
            }
            return;
        };
        let header_length = usize::try_from(options.header).unwrap_or(usize::MAX);
        let config = SamplerConfig { bridge, rate, header_length, seed: self.seed };
        let receivers = set_samplers(&self.plane, bridge, SampleUse::Sflow, Some(config)).await;
        let own = BridgeSflow::new(bridge, name, options, targets, receivers, self.plane.now());
        self.running.lock().insert(bridge, own);
        self.started.notify_one();
        info!(
            targets = options.targets.join(","),
            agent = options.agent,
            sampling = options.sampling,
            polling = options.polling,
            header = options.header,
            "bridge {name}: sFlow started"
        );
    }

    /// Returns the state of the agent of a bridge; `None` without one.
    pub(crate) fn status(&self, bridge: BridgeId) -> Option<SflowStatus> {
        self.running.lock().get(&bridge).map(BridgeSflow::status)
    }

    /// Sends samples and counters, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut interval = interval(READ_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_idle = self.running.lock().is_empty();
            if is_idle {
                self.started.notified().await;
            }
            interval.tick().await;
            let ids: Vec<BridgeId> = self.running.lock().keys().copied().collect();
            for id in ids {
                self.run_agent(id).await;
            }
        }
    }

    /// Sends the samples of a bridge, and the counters that are due.
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
