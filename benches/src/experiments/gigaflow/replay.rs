//! The packets of a workload, through a cache of pieces.

use shunt_gigaflow::{
    adaptive::{Capacity, ProbeResult},
    cache::{Config, Fallback, Gigaflow, Miss},
    ltm::{Eviction, VecStore, Walk},
    partition::PolicyName,
};
use shunt_pipeline::Time;

use crate::experiments::loaded::{Loaded, published_name, workload};

/// Entries of each of four stages, as published.
pub(crate) const STAGE_ENTRIES: usize = 8000;

/// Rules in a pipeline, and the packets that meet them.
pub(super) struct Bed {
    pub(super) loaded: Loaded,
    /// The flow of each packet.
    pub(super) packets: Vec<u32>,
}

impl Bed {
    /// A pipeline with as many flows, packets and rules as the published one, or so many times fewer.
    pub(super) fn published(pipeline: &str, locality: &str, scale: usize) -> Self {
        let (name, rules) = (published_name(pipeline, locality, scale), 10_000 / scale);
        Self::new(&format!("{name}:rules={rules}"))
    }

    /// The same in high locality, with other rules.
    pub(super) fn published_with(
        pipeline: &str,
        scale: usize,
        edit: impl FnOnce(&mut Vec<String>),
    ) -> Self {
        let (name, rules) = (published_name(pipeline, "high", scale), 10_000 / scale);
        Self::with(&format!("{name}:rules={rules}"), edit)
    }

    /// The workload of a name.
    pub(super) fn new(name: &str) -> Self {
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

/// What becomes of a packet that misses midway.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Resume {
    StartOver,
    GoOn,
}

/// A cache, and how far the packets have come.
pub(super) struct Replay<'a> {
    bed: &'a Bed,
    pub(super) cache: Gigaflow,
    resume: Resume,
    shelf: VecStore,
    walk: Walk,
}

/// A cache of so many stages that makes no room, with pieces wherever the policy wants them.
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
    /// An empty cache.
    pub(super) fn new(bed: &'a Bed, config: Config, resume: Resume) -> Self {
        let (shelf, walk) = (VecStore::default(), Walk::default());
        Self { bed, cache: Gigaflow::new(config), resume, shelf, walk }
    }

    /// Sends these packets, one a nanosecond. Answers how many of them hit.
    pub(super) fn send(&mut self, packets: impl Iterator<Item = usize>) -> u64 {
        packets.filter(|number| self.one(*number)).count() as u64
    }

    /// Sends one packet. Answers whether it hit.
    pub(super) fn one(&mut self, number: usize) -> bool {
        let Loaded { pipeline, keys, .. } = &self.bed.loaded;
        let key = &keys[self.bed.packets[number] as usize];
        let (version, now) = (pipeline.version(), Time::from_nanoseconds(number as u64));
        let is_sampled = self.cache.is_next_sampled();
        let is_hit = self.cache.find(&self.shelf, key, &mut self.walk);
        let miss = Miss { pipeline, key, start: None, version, now };
        if is_hit {
            self.shelf.hit(&self.walk, 64, now);
            if is_sampled {
                self.cache.observe(miss);
            }
        } else {
            let probe = if is_sampled { ProbeResult::Sampled } else { ProbeResult::Missed };
            let (cache, shelf, walk) = (&mut self.cache, &mut self.shelf, &self.walk);
            if self.resume == Resume::StartOver {
                cache.handle_miss(shelf, miss, probe);
            } else if cache.resume(shelf, miss, walk, probe).is_none() {
                cache.start_over(shelf, miss, walk, probe);
            }
        }
        self.shelf.clear_notes();
        is_hit
    }

    /// The cache, and the store of its entries.
    pub(super) fn into_parts(self) -> (Gigaflow, VecStore) {
        (self.cache, self.shelf)
    }
}
