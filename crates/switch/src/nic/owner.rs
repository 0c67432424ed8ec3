//! The thread that keeps the rules of a NIC true to the tables, and the joints by which it takes part.

use std::{io, sync::Arc, time::Instant};

use shunt_classifier::Version;
use shunt_datapath::{
    Waker,
    desk::DeskEnds,
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

/// The joints of an owner that does not run yet.
pub(crate) struct Joints {
    handle: TargetHandle,
    ends: TargetEnds,
    /// The ends of the packet threads.
    pub(crate) offers: Vec<Offers>,
}

impl Joints {
    /// Those with so many packet threads, control, and the desk, whose end is the other.
    pub(crate) fn new(
        threads: u16,
        version: Version,
        desk: &Arc<Waker>,
    ) -> io::Result<(Self, DeskEnds)> {
        // Packet threads are the owners before it.
        let ends = target_ends(OwnerId(threads), version, threads.into(), Arc::clone(desk));
        let (handle, ends, desk, offers) = ends?;
        Ok((Self { handle, ends, offers }, desk))
    }

    /// Runs the owner, for a NIC in front of a bridge that comes later.
    pub(crate) fn start(
        self,
        (config, bridge, seed): (&Config, BridgeId, u64),
        pipeline: &Arc<Pipeline>,
        epoch: Instant,
    ) -> io::Result<(Target, Running<NicOwner>)> {
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
        let owner = TargetOwner::new(settings, Arc::clone(pipeline), exchange, self.ends);
        let running = spawn_target_thread(owner, epoch)?;
        Ok((Target { handle: self.handle, next, policy: chain.policy.name() }, running))
    }
}
