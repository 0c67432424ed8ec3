//! The thread that keeps the rules of a NIC true to the tables, and the joints by which it takes part.

use std::{io, sync::Arc, time::Instant};

use shunt_datapath::{
    DeskSeat,
    target::{
        Offers, TargetConfig, TargetEnds, TargetHandle, TargetOwner, spawn_target_thread,
        target_ends,
    },
    thread::Running,
};
use shunt_p4runtime::{
    client::P4Target,
    codec::{Skills, capabilities},
};
use shunt_pipeline::{BridgeId, OwnerId, Pipeline, Time};

use super::{Exchange, Target, front::program};
use crate::Config;

/// What keeps the rules of a NIC true to the tables.
pub(crate) type NicOwner = TargetOwner<Exchange<P4Target>>;

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
    pub(crate) offers: Vec<Offers>,
}

impl OwnerSettings {
    /// Has an owner join the desk and runs it; `None` if the desk is closed. Waits for a turn of the
    /// desk that is under way.
    pub(crate) fn start(
        self,
        seat: &DeskSeat,
        pipeline: &Arc<Pipeline>,
    ) -> Option<io::Result<StartedOwner>> {
        let (owner, threads) = (OwnerId(self.threads), self.threads.into());
        let joined = seat.join(|version| {
            let ends = target_ends(owner, version, threads, Arc::clone(seat.waker()));
            ends.map(|(handle, ends, desk, offers)| ((handle, ends, offers), desk))
        });
        Some(joined?.and_then(|joints| self.run(joints, pipeline)))
    }

    /// Once it has joined, versions wait for it: whatever happens, it is made, and retires.
    fn run(
        self,
        (handle, ends, offers): (TargetHandle, TargetEnds, Vec<Offers>),
        pipeline: &Arc<Pipeline>,
    ) -> io::Result<StartedOwner> {
        let Self { config, bridge, seed, epoch, .. } = self;
        let chain = &config.caches.gigaflow;
        let settings = TargetConfig {
            policy: chain.policy.name(),
            eviction: chain.eviction.contract(),
            seed,
            max_idle: config.caches.idle(),
            drain: chain.target.drain(),
            ..TargetConfig::new(bridge)
        };
        // What it is laid out for, for good.
        let nothing = capabilities(&program(&chain.target), &Skills::default());
        let (exchange, next) = Exchange::new(nothing, move || Time::ZERO.after(epoch.elapsed()));
        let owner = TargetOwner::new(settings, Arc::clone(pipeline), exchange, ends);
        let thread = spawn_target_thread(owner, epoch)?;
        let target = Target { handle, next, policy: chain.policy.name() };
        Ok(StartedOwner { target, thread, offers })
    }
}
