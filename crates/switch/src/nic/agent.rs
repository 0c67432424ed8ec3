//! Starts the offload agent: the thread that keeps the entries of a NIC consistent with the tables.

use std::{io, sync::Arc, time::Instant};

use shunt_datapath::{
    CoordinatorHandle,
    offload::{
        OffloadAgent, OffloadCandidates, OffloadConfig, OffloadEndpoint, OffloadHandle,
        offload_endpoint, spawn_offload_thread,
    },
    thread::Running,
};
use shunt_p4runtime::{
    client::P4RuntimeDevice,
    codec::{DeviceFeatures, capabilities},
};
use shunt_pipeline::{BridgeId, OwnerId, Pipeline, Time};

use super::{DeviceExchange, OffloadConnection, front::program};
use crate::config::Config;

/// The offload agent of a P4Runtime device.
pub(crate) type NicAgent = OffloadAgent<DeviceExchange<P4RuntimeDevice>>;

/// The parameters of a new offload agent.
pub(crate) struct AgentSettings {
    /// Number of packet threads.
    ///
    /// The packet threads are the cache owners 0 to `threads - 1`, and the agent is owner
    /// `threads`.
    pub(crate) threads: u16,
    /// Configuration of the NIC and name of its bridge, which may be added later.
    pub(crate) config: Config,
    pub(crate) bridge: BridgeId,
    /// The start value of random numbers.
    pub(crate) seed: u64,
    /// The start of the daemon's clock.
    pub(crate) epoch: Instant,
}

/// A running offload agent, and the candidate queues of the packet threads.
pub(crate) struct StartedAgent {
    /// The channels to the agent.
    pub(crate) connection: OffloadConnection,
    /// The thread of the agent.
    pub(crate) thread: Running<NicAgent>,
    /// The ring of each packet thread to the agent.
    pub(crate) candidates: Vec<OffloadCandidates>,
}

impl AgentSettings {
    /// Registers an agent with the eviction coordinator and runs it.
    ///
    /// Returns `None` if the coordinator is closed.
    ///
    /// Blocks until an iteration of the coordinator that is in progress has ended.
    pub(crate) fn start(
        self,
        handle: &CoordinatorHandle,
        pipeline: &Arc<Pipeline>,
    ) -> Option<io::Result<StartedAgent>> {
        let (owner, threads) = (OwnerId(self.threads), self.threads.into());
        let joined = handle.join(|version| {
            let ends = offload_endpoint(owner, version, threads, Arc::clone(handle.waker()));
            ends.map(|(handle, ends, coordinator, candidates)| {
                ((handle, ends, candidates), coordinator)
            })
        });
        Some(
            joined?.and_then(|(handle, ends, candidates)| {
                self.run(handle, ends, candidates, pipeline)
            }),
        )
    }

    /// Runs a registered agent.
    ///
    /// From the registration on, versions wait for the agent. So the agent is created even if its
    /// thread cannot start; dropping it retires the owner.
    fn run(
        self,
        handle: OffloadHandle,
        ends: OffloadEndpoint,
        candidates: Vec<OffloadCandidates>,
        pipeline: &Arc<Pipeline>,
    ) -> io::Result<StartedAgent> {
        let Self { config, bridge, seed, epoch, .. } = self;
        let chain = &config.caches.gigaflow;
        let settings = OffloadConfig {
            policy: chain.policy,
            eviction: chain.eviction,
            seed,
            max_idle: config.caches.idle(),
            drain: chain.offload.drain(),
            ..OffloadConfig::new(bridge)
        };
        // Capabilities for the time without a device; the number of stages never changes.
        let nothing = capabilities(&program(&chain.offload), &DeviceFeatures::default());
        let (exchange, next) =
            DeviceExchange::new(nothing, move || Time::ZERO.after(epoch.elapsed()));
        let owner = OffloadAgent::new(settings, Arc::clone(pipeline), exchange, ends);
        let thread = spawn_offload_thread(owner, epoch)?;
        let connection = OffloadConnection { handle, next, policy: chain.policy };
        Ok(StartedAgent { connection, thread, candidates })
    }
}
