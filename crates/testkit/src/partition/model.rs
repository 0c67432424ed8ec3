//! A model of a chain of stages, without time and eviction.
//!
//! The entries of the model are exact sequences of step numbers. A packet walks the model like the
//! real stages: it takes the longest match in each stage.

use std::{
    collections::{HashMap, VecDeque, hash_map::DefaultHasher},
    hash::BuildHasherDefault,
    ops::Range,
};

use shunt_gigaflow::{
    adaptive::{Adaptive, Capacity, Granularity, ProbeResult},
    outline::{StateId, SubTraversalOutline, TraversalOutline},
    partition::{PartitionPolicy, Placement, StageId, StageSet, StageView},
};

use super::workload::RecordedWorkload;

type ModelHasher = BuildHasherDefault<DefaultHasher>;

/// The counters of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// True for each packet that hit.
    pub hits: Vec<bool>,
    /// Number of entries at the end, by stage.
    pub entries: Vec<usize>,
    /// Number of entries that were written.
    pub written: usize,
    /// Number of sub-traversals that shared an existing entry.
    pub shared: usize,
}

impl ReplayCounts {
    /// Number of packets that missed.
    #[must_use]
    pub fn misses(&self) -> usize {
        self.hits.iter().filter(|hit| !**hit).count()
    }

    /// Counts an added entry as written or shared; a full stage counts nothing.
    fn count(&mut self, put: ModelPut) {
        match put {
            ModelPut::Fresh => self.written += 1,
            ModelPut::Shared => self.shared += 1,
            ModelPut::Full => {}
        }
    }
}

/// Stages of exact entries.
#[derive(Clone, Debug)]
pub struct ModelChain {
    capacity: Capacity,
    entries: HashMap<Box<[u32]>, StageSet, ModelHasher>,
    /// The entries written to each stage, oldest first, with removed ones.
    written: Vec<VecDeque<Box<[u32]>>>,
    counts: Vec<usize>,
}

/// The result of adding an entry: a new entry, a shared one, or no room.
#[derive(Clone, Copy)]
enum ModelPut {
    Fresh,
    Shared,
    Full,
}

impl ModelChain {
    /// Creates a model with empty stages.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        let stages_count = usize::from(capacity.stages_count);
        Self {
            capacity,
            entries: HashMap::default(),
            written: vec![VecDeque::new(); stages_count],
            counts: vec![0; stages_count],
        }
    }

    /// Returns whether a packet with these steps hits.
    #[must_use]
    pub fn hits(&self, path: &[u32]) -> bool {
        let mut rest = path;
        for stage in self.stages() {
            let holds = |length: &usize| self.holders(&rest[..*length]).contains(stage);
            let longest = (1..=rest.len()).rev().find(holds).unwrap_or(0);
            rest = &rest[longest..];
        }
        rest.is_empty()
    }

    /// Returns the stages of the chain in order.
    fn stages(&self) -> impl Iterator<Item = StageId> + use<> {
        (0..self.capacity.stages_count).filter_map(StageId::new)
    }

    /// Returns the stages that hold a sub-traversal.
    fn holders(&self, steps: &[u32]) -> StageSet {
        self.entries.get(steps).copied().unwrap_or_default()
    }

    /// Returns whether the stage has no room for another entry.
    fn is_full(&self, stage: StageId) -> bool {
        self.counts[stage.index()] >= self.capacity.stage_entries_max
    }

    /// Puts a sub-traversal into a stage.
    fn put(&mut self, steps: &[u32], stage: StageId) -> ModelPut {
        if self.holders(steps).contains(stage) {
            return ModelPut::Shared;
        }
        if self.is_full(stage) {
            return ModelPut::Full;
        }
        let stages = self.entries.entry(steps.into()).or_default();
        *stages = stages.with(stage);
        self.counts[stage.index()] += 1;
        self.written[stage.index()].push_back(steps.into());
        ModelPut::Fresh
    }

    /// Removes a sub-traversal from some stages; other stages keep it.
    fn remove(&mut self, steps: &[u32], stages: StageSet) {
        let Some(held) = self.entries.get_mut(steps) else { return };
        let gone = held.intersection(stages);
        *held = held.without(gone);
        gone.iter().for_each(|stage| self.counts[stage.index()] -= 1);
    }

    /// Evicts the oldest of `old` from a stage until it has room or none is left.
    fn make_room(&mut self, stage: StageId, old: &mut [VecDeque<Box<[u32]>>]) {
        while self.is_full(stage) {
            let Some(steps) = old[stage.index()].pop_front() else { return };
            self.remove(&steps, StageSet::EMPTY.with(stage));
        }
    }
}

/// The stages as a policy sees them while it partitions one traversal.
struct View<'a> {
    chain: &'a ModelChain,
    path: &'a [u32],
}

impl StageView for View<'_> {
    fn count(&self) -> u8 {
        self.chain.capacity.stages_count
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        self.chain.holders(slice(self.path, &sub_traversal.steps))
    }

    fn room(&self) -> StageSet {
        let with_room = self.chain.stages().filter(|stage| !self.chain.is_full(*stage));
        with_room.fold(StageSet::EMPTY, StageSet::with)
    }
}

/// Returns the tables of a range of steps.
fn slice<'a>(path: &'a [u32], steps: &Range<u16>) -> &'a [u32] {
    &path[usize::from(steps.start)..usize::from(steps.end)]
}

/// Sends all packets of a workload through stages that a policy fills.
pub fn replay(
    workload: &RecordedWorkload,
    capacity: Capacity,
    policy: &mut impl PartitionPolicy,
) -> ReplayCounts {
    let (mut chain, mut counts) = (ModelChain::new(capacity), ReplayCounts::default());
    let mut outline = TraversalOutline::new();
    for path in workload.packets() {
        let hit = chain.hits(path);
        counts.hits.push(hit);
        if !hit {
            workload.outline(path, &mut outline);
            let placements = policy.partition(&outline, &View { chain: &chain, path }).to_vec();
            install(&mut chain, path, &placements, &mut counts);
        }
    }
    counts.entries = chain.counts;
    counts
}

/// Installs the sub-traversals of a partition.
fn install(
    chain: &mut ModelChain,
    path: &[u32],
    placements: &[Placement],
    counts: &mut ReplayCounts,
) {
    for placement in placements {
        counts.count(chain.put(slice(path, &placement.steps), placement.stage));
    }
}

/// Does [`replay`] with set duelling that samples one packet in `sample_every`.
///
/// After a start has changed its granularity, its old entries make room for new ones, oldest first.
/// Shorter sub-traversals before a megaflow are removed.
pub fn replay_adaptive<P: PartitionPolicy + Clone>(
    workload: &RecordedWorkload,
    capacity: Capacity,
    policy: P,
    sample_every: usize,
) -> ReplayCounts {
    let mut adaptive = Adaptive::new(policy, capacity);
    let (mut chain, mut counts) = (ModelChain::new(capacity), ReplayCounts::default());
    let mut outline = TraversalOutline::new();
    let mut grains: HashMap<StateId, Granularity, ModelHasher> = HashMap::default();
    let mut old = vec![VecDeque::new(); capacity.stages_count.into()];
    for (at, path) in workload.packets().enumerate() {
        let (hit, sampled) = (chain.hits(path), at % sample_every == 0);
        counts.hits.push(hit);
        if hit && !sampled {
            continue;
        }
        workload.outline(path, &mut outline);
        adaptive
            .observe(&outline, if sampled { ProbeResult::Sampled } else { ProbeResult::Missed });
        let granularity = adaptive.granularity(outline.start());
        if grains.insert(outline.start(), granularity).unwrap_or_default() != granularity {
            old.clone_from(&chain.written);
        }
        if !hit {
            evict_replaced(&mut chain, path, granularity, &mut old);
            let placements = adaptive.partition(&outline, &View { chain: &chain, path }).to_vec();
            install(&mut chain, path, &placements, &mut counts);
        }
    }
    counts.entries = chain.counts;
    counts
}

/// Evicts the entries that a new entry of this granularity replaces.
fn evict_replaced(
    chain: &mut ModelChain,
    path: &[u32],
    granularity: Granularity,
    old: &mut [VecDeque<Box<[u32]>>],
) {
    let all = StageSet::first_of(chain.capacity.stages_count);
    match granularity {
        Granularity::SubTraversals => chain.stages().for_each(|stage| chain.make_room(stage, old)),
        Granularity::Megaflows => {
            (1..path.len()).for_each(|length| chain.remove(&path[..length], all));
            if chain.stages().all(|stage| chain.is_full(stage)) {
                let stage = chain.stages().find(|stage| !old[stage.index()].is_empty());
                stage.into_iter().for_each(|stage| chain.make_room(stage, old));
            }
        }
    }
}
