//! The fallback to megaflows: set duelling between sub-traversals and megaflows.
//!
//! If flows share few sub-traversals, caching sub-traversals takes more entries than caching
//! megaflows. The number of new sub-traversals does not show whether flows share, because it is
//! also high in an empty cache. So two directories of hashes simulate both granularities on the
//! same traffic. One directory is filled with sub-traversals and one with megaflows, and each is as
//! large as the cache. The traversal of every missed packet, also of a partial hit, is added to
//! both directories. The traversal of a sampled packet is first looked up in both directories, and
//! each counts its hits.
//!
//! # The decision
//!
//! The granularity is decided for each bridge that packets arrive on. All traversals that begin at
//! one bridge have one granularity, since the packets of a megaflow could otherwise match a
//! sub-traversal of the same bridge. After every [`ROUND`] samples of a bridge, the hit counts of
//! both directories are compared. The two directories serve all bridges, as the cache does.
//!
//! One round of samples cannot prove a difference of one or two percent. If only one granularity
//! hits in a tenth of the samples, chance alone moves the counts of a round by 1.5 percent. So the
//! lead of the unused granularity is summed over the rounds. Each round subtracts [`SLACK`], and
//! the sum never falls below zero (Page, "Continuous Inspection Schemes", 1954).
//!
//! The granularity of a bridge changes when this summed lead exceeds a threshold that chance rarely
//! reaches. The threshold is the usual number of samples per round in which only one granularity
//! hits, at least [`LEAD_MIN`] and at most [`LEAD_MAX`]. A bridge that steadily loses one percent
//! of its hits changes after about sixty rounds. A bridge that loses three packets in ten changes
//! after one round. A bridge that loses half a percent or less rarely changes its granularity. The
//! gain would be small, and every change replaces the cached entries.
//!
//! # The duties of the caller
//!
//! - While the cache has room, the caller does not observe traversals, and calls
//!   [`Adaptive::relax`] for each sample. If all entries fit, sub-traversals always miss less.
//! - The caller samples packets at random and finds their traversals. A sampled packet that hits is
//!   translated only for this purpose.
//! - When [`Adaptive::granularity`] changes, the caller caches the traversals of that bridge with
//!   the new granularity. The old entries expire, or full stages evict them first. Any set of
//!   entries may be evicted at any time, so a change of granularity affects only the hit rate.
//!
//! # Periods
//!
//! A directory never evicts single entries. A directory sees only sampled hits, so it does not know
//! which entries the cache would evict. Instead both directories are cleared every
//! [`CLEARED_AFTER_ROUNDS`] rounds. Granularities, leads and unfinished rounds are kept: with many
//! bridges, none finishes a round in one period. The hits of a period count only if one of the
//! directories became full in this period.

use hashbrown::HashTable;

use crate::{
    outline::{StateId, SubTraversalOutline, TraversalOutline, fold},
    partition::{
        MegaflowPolicy, PartitionPolicy, Placement, STAGES_MAX, StageId, StageSet, StageView,
    },
};

/// A policy that falls back to megaflows: see the [module](self).
#[derive(Clone, Debug)]
pub struct Adaptive<P> {
    policy: P,
    megaflow: MegaflowPolicy,
    /// The simulated cache of sub-traversals, with its own copy of `policy`.
    /// The copy keeps a policy that learns from mixing the directory and the cache.
    sub_traversals: SimulatedCache<P>,
    megaflows: SimulatedCache<MegaflowPolicy>,
    /// The set duelling of each start, by its hash.
    duels: HashTable<Duel>,
    /// Number of samples since the simulated caches were last emptied.
    samples_count: u32,
    /// Consecutive packets that were sampled while the cache had room.
    relaxed_count: u32,
}

/// The granularity in which traversals are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// One entry for each sub-traversal that the policy chooses.
    #[default]
    SubTraversals,
    /// One entry for each traversal.
    Megaflows,
}

/// The reason why a traversal is passed to [`Adaptive::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The packet of the traversal was sampled, whether it hit or missed.
    Sampled,
    /// The packet of the traversal missed, and was not sampled.
    Missed,
    /// An evicted entry is re-translated, without a packet.
    Retranslated,
}

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Number of stages, at most [`STAGES_MAX`].
    pub stages_count: u8,
    /// Maximum number of entries of each stage.
    pub stage_entries_max: usize,
}

impl<P: PartitionPolicy + Clone> Adaptive<P> {
    /// Starts set duelling between this policy and megaflows, for a cache of this size.
    #[must_use]
    pub fn new(policy: P, capacity: Capacity) -> Self {
        let stages_count = capacity.stages_count.min(STAGES_MAX);
        let entries_max = capacity.stage_entries_max.saturating_mul(stages_count.into());
        let one = Capacity { stages_count: 1, stage_entries_max: entries_max };
        Self {
            sub_traversals: SimulatedCache::new(
                policy.clone(),
                Capacity { stages_count, ..capacity },
            ),
            megaflows: SimulatedCache::new(MegaflowPolicy::default(), one),
            policy,
            megaflow: MegaflowPolicy::default(),
            duels: HashTable::new(),
            samples_count: 0,
            relaxed_count: 0,
        }
    }

    /// Observes a traversal before it is partitioned.
    pub fn observe(&mut self, outline: &TraversalOutline, probe: ProbeResult) {
        self.relaxed_count = 0;
        let sample = DuelSample {
            sub_traversals: self.sub_traversals.hits(outline),
            megaflows: self.megaflows.hits(outline),
        };
        if probe == ProbeResult::Missed {
            return;
        }
        let counts = self.sub_traversals.directory.was_full || self.megaflows.directory.was_full;
        if let Some(duel) = self.duel(outline.start()).filter(|_| counts) {
            duel.score(sample);
        }
        self.samples_count += 1;
        if self.samples_count == ROUND * CLEARED_AFTER_ROUNDS {
            self.restart();
        }
    }

    /// Begins a new round of samples with empty simulated caches.
    fn restart(&mut self) {
        self.samples_count = 0;
        self.sub_traversals.directory.clear();
        self.megaflows.directory.clear();
    }

    /// Records that a packet was sampled while the cache had room.
    ///
    /// After [`ROUND`] successive samples with room, all starts return to sub-traversals: without
    /// evictions, sub-traversals always miss less.
    pub fn relax(&mut self) {
        self.relaxed_count += 1;
        if self.relaxed_count == ROUND {
            self.relaxed_count = 0;
            self.duels.clear();
            self.restart();
        }
    }

    /// Returns the granularity of the traversals that begin at the state `start`.
    #[must_use]
    pub fn granularity(&self, start: StateId) -> Granularity {
        let duel = self.duels.find(hash(start), |duel| duel.start == start);
        duel.map_or(Granularity::SubTraversals, |duel| duel.granularity)
    }

    /// Returns the set duelling of a start state; `None` if there are too many.
    fn duel(&mut self, start: StateId) -> Option<&mut Duel> {
        let full = self.duels.len() >= DUELS_MAX;
        match self.duels.entry(hash(start), |duel| duel.start == start, |duel| hash(duel.start)) {
            hashbrown::hash_table::Entry::Occupied(duel) => Some(duel.into_mut()),
            hashbrown::hash_table::Entry::Vacant(_) if full => None,
            hashbrown::hash_table::Entry::Vacant(place) => {
                Some(place.insert(Duel { start, ..Duel::default() }).into_mut())
            }
        }
    }
}

impl<P: PartitionPolicy + Clone> PartitionPolicy for Adaptive<P> {
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement] {
        match self.granularity(outline.start()) {
            Granularity::SubTraversals => self.policy.partition(outline, stages),
            Granularity::Megaflows => self.megaflow.partition(outline, stages),
        }
    }
}

/// The result of one sampled traversal: the simulated caches in which it hit.
#[derive(Clone, Copy, Debug)]
struct DuelSample {
    /// True if the simulated cache of sub-traversals hit.
    sub_traversals: bool,
    /// True if the simulated cache of megaflows hit.
    megaflows: bool,
}

/// The set duelling of one start: the hits of this round, and the lead.
#[derive(Clone, Copy, Debug)]
struct Duel {
    /// The state at which the sub-traversals start.
    start: StateId,
    /// The granularity in use: sub-traversals or megaflows.
    granularity: Granularity,
    /// Number of samples of this round.
    samples: u32,
    /// Hits of this round with sub-traversals.
    sub_traversals: u32,
    /// Hits of this round with megaflows.
    megaflows: u32,
    /// Samples of this round in which only one granularity hit.
    split: u32,
    /// The moving average of `split` over the rounds.
    split_usual: Option<u32>,
    /// Hits by which the unused granularity leads, summed over the past rounds.
    lead: u32,
}

impl Default for Duel {
    fn default() -> Self {
        Self {
            start: StateId::END,
            granularity: Granularity::SubTraversals,
            samples: 0,
            sub_traversals: 0,
            megaflows: 0,
            split: 0,
            split_usual: None,
            lead: 0,
        }
    }
}

impl Duel {
    /// Adds a sample, and ends the round after [`ROUND`] samples.
    fn score(&mut self, sample: DuelSample) {
        self.samples += 1;
        self.sub_traversals += u32::from(sample.sub_traversals);
        self.megaflows += u32::from(sample.megaflows);
        self.split += u32::from(sample.sub_traversals != sample.megaflows);
        if self.samples == ROUND {
            self.judge();
            (self.samples, self.sub_traversals, self.megaflows, self.split) = (0, 0, 0, 0);
        }
    }

    /// Changes the granularity if the other one leads by enough.
    fn judge(&mut self) {
        let (used, other) = match self.granularity {
            Granularity::SubTraversals => (self.sub_traversals, self.megaflows),
            Granularity::Megaflows => (self.megaflows, self.sub_traversals),
        };
        let usual = self.split_usual.map_or(self.split, |usual| (3 * usual + self.split) / 4);
        self.split_usual = Some(usual);
        self.lead = (self.lead + other).saturating_sub(used + SLACK);
        if self.lead > usual.clamp(LEAD_MIN, LEAD_MAX) {
            self.granularity = self.granularity.other();
            self.lead = 0;
        }
    }
}

impl Granularity {
    /// Returns the other granularity.
    const fn other(self) -> Self {
        match self {
            Self::SubTraversals => Self::Megaflows,
            Self::Megaflows => Self::SubTraversals,
        }
    }
}

/// A simulated cache: a directory of hashes, and the policy that fills it.
#[derive(Clone, Debug)]
struct SimulatedCache<P> {
    policy: P,
    directory: Directory,
}

impl<P: PartitionPolicy> SimulatedCache<P> {
    /// Returns an empty cache of this capacity, filled by `policy`.
    fn new(policy: P, capacity: Capacity) -> Self {
        Self { policy, directory: Directory::new(capacity) }
    }

    /// Returns whether a packet with this traversal would hit the simulated cache.
    ///
    /// If the packet would miss, the traversal is added to the directory.
    fn hits(&mut self, outline: &TraversalOutline) -> bool {
        let found = self.directory.walk(outline);
        if !found {
            let placements = self.policy.partition(outline, &self.directory);
            self.directory.was_full |= placements.is_empty();
            for placement in placements {
                if let Some(identity) = outline.identity(&placement.steps) {
                    self.directory.put(identity, placement.stage);
                }
            }
        }
        found
    }
}

/// The stages that hold each sub-traversal, by the identity of the sub-traversal.
#[derive(Clone, Debug)]
struct Directory {
    entries: HashTable<DirectoryEntry>,
    capacity: Capacity,
    /// Number of entries in each stage.
    counts: [usize; STAGES_MAX as usize],
    /// True once a traversal has found no room.
    was_full: bool,
}

/// The identity of a sub-traversal, and the stages that hold it.
#[derive(Clone, Copy, Debug)]
struct DirectoryEntry {
    /// The identity of the sub-traversal.
    identity: u64,
    /// The stages that hold the sub-traversal.
    stages: StageSet,
}

impl Directory {
    /// Returns a directory without entries.
    fn new(capacity: Capacity) -> Self {
        let counts = [0; STAGES_MAX as usize];
        Self { entries: HashTable::new(), capacity, counts, was_full: false }
    }

    /// Removes all entries of the directory.
    fn clear(&mut self) {
        self.entries.clear();
        self.counts = [0; STAGES_MAX as usize];
        self.was_full = false;
    }

    /// Returns whether a packet hits that takes the longest match in each stage.
    fn walk(&self, outline: &TraversalOutline) -> bool {
        let (mut first, segments_count) = (0, outline.segments_count());
        for stage in (0..self.capacity.stages_count).filter_map(StageId::new) {
            let held =
                outline.candidates(first).map(|candidate| self.holders(&candidate).contains(stage));
            let longest = held.zip(first + 1..).filter(|(held, _)| *held).last();
            first = longest.map_or(first, |(_, end)| end);
            if first == segments_count {
                return true;
            }
        }
        false
    }

    /// Adds an entry to a stage of the simulated cache.
    fn put(&mut self, identity: u64, stage: StageId) {
        let same = |entry: &DirectoryEntry| entry.identity == identity;
        let fresh = DirectoryEntry { identity, stages: StageSet::EMPTY };
        let mut entry = self.entries.entry(identity, same, |entry| entry.identity).or_insert(fresh);
        let stages = &mut entry.get_mut().stages;
        if !stages.contains(stage) {
            *stages = stages.with(stage);
            self.counts[stage.index()] += 1;
        }
    }
}

impl StageView for Directory {
    fn count(&self) -> u8 {
        self.capacity.stages_count
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        let entry = self
            .entries
            .find(sub_traversal.identity, |entry| entry.identity == sub_traversal.identity);
        entry.map_or(StageSet::EMPTY, |entry| entry.stages)
    }

    fn room(&self) -> StageSet {
        let stages = (0..self.capacity.stages_count).filter_map(StageId::new);
        let with_room =
            stages.filter(|stage| self.counts[stage.index()] < self.capacity.stage_entries_max);
        with_room.fold(StageSet::EMPTY, StageSet::with)
    }
}

/// Returns the hash of the state at which a sub-traversal starts.
fn hash(start: StateId) -> u64 {
    fold(0, start.number().into())
}

/// Number of samples of a bridge after which its two hit counts are compared.
pub const ROUND: u32 = 512;

/// Number of hits that each round subtracts from the lead: 0.6 % of its samples.
pub const SLACK: u32 = 3;

/// The least threshold, in hits, at which the granularity changes.
pub const LEAD_MIN: u32 = ROUND / 16;

/// The greatest threshold, in hits, at which the granularity changes.
pub const LEAD_MAX: u32 = ROUND / 4;

const _: () = assert!(100 * SLACK < ROUND, "one percent exceeds the slack");

/// Number of rounds in a period: the rounds of all bridges together.
/// After each period the directories are cleared.
pub const CLEARED_AFTER_ROUNDS: u32 = 64;

/// Maximum number of bridges with set duelling.
///
/// All other bridges use sub-traversals.
const DUELS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use shunt_flow::hash::split_mix;

    use super::*;

    /// Random traffic in which some packets hit with one granularity only.
    #[derive(Clone, Copy)]
    struct SimulatedTraffic {
        used: u64,
        other: u64,
        seed: u64,
    }

    impl SimulatedTraffic {
        /// Returns the rounds in which set duelling from `granularity` on changes it.
        ///
        /// Of a thousand packets, `used` hit only with the first granularity, and `other` only with
        /// the other one.
        fn changes(mut self, granularity: Granularity, rounds: u32) -> Vec<u32> {
            let mut duel = Duel { granularity, ..Duel::default() };
            let mut changes = Vec::new();
            for round in 0..rounds {
                let before = duel.granularity;
                for _ in 0..ROUND {
                    let (used, other) = self.next_packet();
                    duel.score(match granularity {
                        Granularity::SubTraversals => {
                            DuelSample { sub_traversals: used, megaflows: other }
                        }
                        Granularity::Megaflows => {
                            DuelSample { sub_traversals: other, megaflows: used }
                        }
                    });
                }
                if duel.granularity != before {
                    changes.push(round);
                }
            }
            changes
        }

        fn next_packet(&mut self) -> (bool, bool) {
            let sampled = split_mix(&mut self.seed) % 1000;
            if sampled < self.used {
                (true, false)
            } else if sampled < self.used + self.other {
                (false, true)
            } else {
                let both = !sampled.is_multiple_of(3);
                (both, both)
            }
        }
    }

    /// Both granularities of entries that the cache can choose.
    const GRANULARITIES: [Granularity; 2] = [Granularity::SubTraversals, Granularity::Megaflows];

    #[test]
    fn a_steady_one_percent_deficit_changes_the_decision() {
        for (granularity, used) in GRANULARITIES
            .into_iter()
            .flat_map(|granularity| [0, 10, 50, 150].map(|u| (granularity, u)))
        {
            for seed in 1..=8 {
                let traffic = SimulatedTraffic { used, other: used + 12, seed: seed << 32 };
                let changes = traffic.changes(granularity, 150);
                assert!(!changes.is_empty(), "{granularity:?}, {used} of 1000, {seed}");
            }
        }
    }

    #[test]
    fn a_noiseless_hit_deficit_is_found_soon() {
        // A lead of five hits per round is less than one percent of the samples.
        for granularity in GRANULARITIES {
            let mut duel = Duel { granularity, ..Duel::default() };
            let round = (0..100).find(|_| {
                for sample in 0..ROUND {
                    let used = sample >= 5;
                    duel.score(match granularity {
                        Granularity::SubTraversals => {
                            DuelSample { sub_traversals: used, megaflows: true }
                        }
                        Granularity::Megaflows => {
                            DuelSample { sub_traversals: true, megaflows: used }
                        }
                    });
                }
                duel.granularity != granularity
            });
            assert_eq!(round, Some(LEAD_MIN / (5 - SLACK)));
        }
    }

    #[test]
    fn large_hit_deficits_are_found_in_one_round() {
        for granularity in GRANULARITIES {
            let traffic = SimulatedTraffic { used: 0, other: 330, seed: 1 };
            assert_eq!(traffic.changes(granularity, 50), [0]);
        }
    }

    #[test]
    fn equal_hit_rates_rarely_change_the_decision() {
        for alone in [10, 50, 150] {
            let changes = (1..=8).map(|seed| {
                let traffic = SimulatedTraffic { used: alone, other: alone, seed: seed << 32 };
                traffic.changes(Granularity::SubTraversals, 500).len()
            });
            let changes: Vec<usize> = changes.collect();
            let all: usize = changes.iter().sum();
            assert!(all <= 12, "{changes:?} in 500 rounds each, {alone} of 1000 alone");
        }
    }
}
