//! The thread that keeps the rules of a NIC true to the tables, and the joints by which it takes part.

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
    codec::{Skills, capabilities},
};
use shunt_pipeline::{BridgeId, OwnerId, Pipeline, Time};

use super::{Exchange, Target, front::program};
use crate::config::Config;

/// What keeps the rules of a NIC true to the tables.
pub(crate) type NicOwner = OffloadAgent<Exchange<P4RuntimeDevice>>;

/// What an owner is started with, besides its joints.
pub(crate) struct OwnerSettings {
    /// How many packet threads there are, which are the owners before it.
    pub(crate) threads: u16,
    /// What it drives the NIC by, and the bridge behind that, which may come later.
    pub(crate) config: Config,
    pub(crate) bridge: BridgeId,
    pub(crate) seed: u64,
    pub(crate) epoch: Instant,
}

/// An owner that runs, and the ends of the packet threads.
pub(crate) struct StartedOwner {
    pub(crate) target: Target,
    pub(crate) thread: Running<NicOwner>,
    pub(crate) offers: Vec<OffloadCandidates>,
}

impl OwnerSettings {
    /// Has an owner join the desk and runs it; `None` if the desk is closed. Waits for a turn of the
    /// desk that is under way.
    pub(crate) fn start(
        self,
        handle: &CoordinatorHandle,
        pipeline: &Arc<Pipeline>,
    ) -> Option<io::Result<StartedOwner>> {
        let (owner, threads) = (OwnerId(self.threads), self.threads.into());
        let joined = handle.join(|version| {
            let ends = offload_endpoint(owner, version, threads, Arc::clone(handle.waker()));
            ends.map(|(handle, ends, coordinator, offers)| ((handle, ends, offers), coordinator))
        });
        Some(joined?.and_then(|joints| self.run(joints, pipeline)))
    }

    /// Once it has joined, versions wait for it: whatever happens, it is made, and retires.
    fn run(
        self,
        (handle, ends, offers): (OffloadHandle, OffloadEndpoint, Vec<OffloadCandidates>),
        pipeline: &Arc<Pipeline>,
    ) -> io::Result<StartedOwner> {
        let Self { config, bridge, seed, epoch, .. } = self;
        let chain = &config.caches.gigaflow;
        let settings = OffloadConfig {
            policy: chain.policy.name(),
            eviction: chain.eviction.contract(),
            seed,
            max_idle: config.caches.idle(),
            drain: chain.target.drain(),
            ..OffloadConfig::new(bridge)
        };
        // What it is laid out for, for good.
        let nothing = capabilities(&program(&chain.target), &Skills::default());
        let (exchange, next) = Exchange::new(nothing, move || Time::ZERO.after(epoch.elapsed()));
        let owner = OffloadAgent::new(settings, Arc::clone(pipeline), exchange, ends);
        let thread = spawn_offload_thread(owner, epoch)?;
        let target = Target { handle, next, policy: chain.policy.name() };
        Ok(StartedOwner { target, thread, offers })
    }
}
