//! Replays the packets of a workload through a cache of LTM entries.

use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, VecStore, Walk},
    partition::PolicyName,
};
use shunt_pipeline::Time;

use crate::experiments::loaded::{Loaded, published_name, workload};

/// Entries of each of four stages, as in the publication.
pub(crate) const STAGE_ENTRIES: usize = 8000;

/// A loaded pipeline and its packets.
pub(in crate::experiments) struct Testbed {
    pub(in crate::experiments) loaded: Loaded,
    /// The flow of each packet.
    pub(in crate::experiments) packets: Vec<u32>,
}

impl Testbed {
    /// Loads a pipeline of published size divided by `scale`.
    ///
    /// The size is the numbers of flows, packets and rules.
    pub(in crate::experiments) fn published(pipeline: &str, locality: &str, scale: usize) -> Self {
        let (name, rules) = (published_name(pipeline, locality, scale), 10_000 / scale);
        Self::new(&format!("{name}:rules={rules}"))
    }

    /// Loads the same pipeline in high locality, with edited rules.
    pub(in crate::experiments) fn published_with(
        pipeline: &str,
        scale: usize,
        edit: impl FnOnce(&mut Vec<String>),
    ) -> Self {
        let (name, rules) = (published_name(pipeline, "high", scale), 10_000 / scale);
        Self::with(&format!("{name}:rules={rules}"), edit)
    }

    /// Loads a workload by name.
    pub(in crate::experiments) fn new(name: &str) -> Self {
        Self::with(name, |_| {})
    }

    fn with(name: &str, edit: impl FnOnce(&mut Vec<String>)) -> Self {
        let workload = workload(name);
        Self {
            loaded: Loaded::with(&workload, edit),
            packets: workload.packets().map(|packet| packet.flow).collect(),
        }
    }
}

/// The continuation of a packet after a partial hit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::experiments) enum Resume {
    StartOver,
    GoOn,
}

/// A cache and the progress of the packets.
pub(in crate::experiments) struct Replay<'a> {
    testbed: &'a Testbed,
    pub(in crate::experiments) cache: Gigaflow,
    resume: Resume,
    store: VecStore,
    walk: Walk,
}

/// Returns a configuration without eviction,
/// in which only the policy partitions traversals.
pub(crate) const fn config(
    stages_count: u8,
    stage_entries_max: usize,
    policy: PolicyName,
) -> Config {
    Config {
        capacity: Capacity { stages_count, stage_entries_max },
        policy,
        fallback: Fallback::Off,
        eviction: Eviction::Never,
        tag_bits: 16,
        seed: 1,
    }
}

impl<'a> Replay<'a> {
    /// Creates an empty cache.
    pub(in crate::experiments) fn new(
        testbed: &'a Testbed,
        config: Config,
        resume: Resume,
    ) -> Self {
        let (store, walk) = (VecStore::default(), Walk::default());
        Self { testbed, cache: Gigaflow::new(config), resume, store, walk }
    }

    /// Sends the packets, one per nanosecond; returns the number of hits.
    pub(in crate::experiments) fn send(&mut self, packets: impl Iterator<Item = usize>) -> u64 {
        packets.filter(|number| self.send_one(*number)).count() as u64
    }

    /// Sends one packet; returns whether the packet hit.
    pub(in crate::experiments) fn send_one(&mut self, number: usize) -> bool {
        self.packet_of(self.testbed.packets[number] as usize, number as u64)
    }

    /// Sends a packet of a flow after some nanoseconds; returns whether the packet hit.
    pub(in crate::experiments) fn packet_of(&mut self, flow: usize, nanoseconds: u64) -> bool {
        let Loaded { pipeline, keys, .. } = &self.testbed.loaded;
        let key = &keys[flow];
        let (version, now) = (pipeline.version(), Time::from_nanoseconds(nanoseconds));
        let is_sampled = self.cache.is_next_sampled();
        let is_hit = self.cache.find(&self.store, key, &mut self.walk);
        let miss = Miss { pipeline, key, start: None, version, now };
        if is_hit {
            self.store.hit(&self.walk, 64, now);
            if is_sampled {
                self.cache.observe(miss);
            }
        } else {
            let probe = if is_sampled { ProbeResult::Sampled } else { ProbeResult::Missed };
            let (cache, store, walk) = (&mut self.cache, &mut self.store, &self.walk);
            if self.resume == Resume::StartOver {
                cache.handle_miss(store, miss, probe);
            } else if cache.resume(store, miss, walk, probe).is_none() {
                cache.start_over(store, miss, walk, probe);
            }
        }
        self.store.clear_notes();
        is_hit
    }

    /// Returns the cache and the store of its entries.
    pub(in crate::experiments) fn into_parts(self) -> (Gigaflow, VecStore) {
        (self.cache, self.store)
    }
}
