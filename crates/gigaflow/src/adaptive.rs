//! Whether cutting pays: a duel between pieces and whole ways.
//!
//! Where flows share little, pieces take more room than they save. No count of unseen pieces tells
//! when: it begins high wherever a cache is empty. So both ways of caching are tried on the same
//! traffic, without caching anything: two directories of hashes, one filled with pieces and one
//! with whole ways, each as large as the cache. Every missed way enters both, those that missed midway
//! too. A sampled way, whether its packet hit or not, is first looked for in each, and each keeps its
//! score.
//!
//! # Where it is decided, and how firmly
//!
//! For each bridge that packets come in by: a short piece would take packets past a whole way that
//! begins alike, so one kind is better for all that begin there. After every [`ROUND`] samples of a start
//! its scores are compared; in between stands what was. The directories are one for all starts, as the
//! cache is.
//!
//! One round tells little of a point or two: in a tenth of all samples one kind hits alone, say, and then
//! chance alone moves the scores of a round by a point and a half. So the lead of the other kind adds up
//! from round to round, less [`SLACK`] in each, and never below zero (Page, "Continuous Inspection
//! Schemes", 1954). The kind is changed when the lead is more than what chance may add up: as many hits as
//! there are samples in a round in which one kind hits alone, but no fewer than [`LEAD_MIN`] and no more
//! than [`LEAD_MAX`]. So a start that steadily loses a point changes after about sixty rounds, and one
//! that loses three packets in ten after one; one that loses half a point or less stays, but for chance,
//! as little is won by a change, and each change makes a cache anew.
//!
//! # What the caller does
//!
//! - While there is room it shows nothing, and says so ([`Adaptive::relax`]): where everything fits,
//!   whoever shares misses less.
//! - It samples packets at random and finds their ways; hits among them are translated for this alone.
//! - When [`Adaptive::grain`] has changed, what begins at the same start is cached as the other kind from
//!   then on. Entries of the kind before go as they are used no more; where nothing goes by use, they are
//!   the first to be evicted. Any subset of entries may be evicted at any time, so that is a matter of
//!   hits alone.
//!
//! # Seasons
//!
//! A directory never evicts: what is old in a directory is not what is old in the cache, since the
//! directory sees few of the hits. Instead both begin anew every [`SEASON`] rounds, and what was
//! decided stands, leads and rounds that are not over too: where starts are many, no round of any of them
//! ends in one season. As long as neither of them was full in a season, no score counts.

use hashbrown::HashTable;

use crate::{
    outline::{Candidate, StateId, TraversalOutline, fold},
    partition::{Piece, Policy, STAGES_MAX, StageId, StageSet, Stages, Whole},
};

/// A policy that falls back to whole ways where pieces lose: see the [module](self).
#[derive(Clone, Debug)]
pub struct Adaptive<P> {
    policy: P,
    whole: Whole,
    /// The policy once more: what it learns from the directory is not what the cache teaches.
    pieces: Side<P>,
    wholes: Side<Whole>,
    duels: HashTable<Duel>,
    samples_count: u32,
    /// Packets that were drawn while there was room.
    relaxed_count: u32,
}

/// What ways are cached as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grain {
    /// As the pieces of the policy.
    #[default]
    Pieces,
    /// Each as one entry.
    Whole,
}

/// Why a way is shown to [`Adaptive::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// Its packet was drawn, whatever became of it.
    Sampled,
    /// Its packet missed, and was not drawn.
    Missed,
    /// No packet came: an entry that was there is made anew.
    Anew,
}

/// How large the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How many stages it has, at most [`STAGES_MAX`].
    pub stages_count: u8,
    /// How many entries each of them holds.
    pub stage_entries_max: usize,
}

impl<P: Policy + Clone> Adaptive<P> {
    /// The duel of this policy with whole ways, for a cache of this size.
    #[must_use]
    pub fn new(policy: P, capacity: Capacity) -> Self {
        let stages_count = capacity.stages_count.min(STAGES_MAX);
        let entries_max = capacity.stage_entries_max.saturating_mul(stages_count.into());
        let one = Capacity { stages_count: 1, stage_entries_max: entries_max };
        Self {
            pieces: Side::new(policy.clone(), Capacity { stages_count, ..capacity }),
            wholes: Side::new(Whole::default(), one),
            policy,
            whole: Whole::default(),
            duels: HashTable::new(),
            samples_count: 0,
            relaxed_count: 0,
        }
    }

    /// Learns from a way, before it is partitioned.
    pub fn observe(&mut self, way: &TraversalOutline, probe: ProbeResult) {
        self.relaxed_count = 0;
        let met = Met { pieces: self.pieces.meets(way), wholes: self.wholes.meets(way) };
        if probe == ProbeResult::Missed {
            return;
        }
        let counts = self.pieces.directory.was_full || self.wholes.directory.was_full;
        if let Some(duel) = self.duel(way.start()).filter(|_| counts) {
            duel.score(met);
        }
        self.samples_count += 1;
        if self.samples_count == ROUND * SEASON {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.samples_count = 0;
        self.pieces.directory.clear();
        self.wholes.directory.clear();
    }

    /// A packet was drawn while there was room: after a [`ROUND`] of them in a row, ways are cut again
    /// whatever was decided, as whoever shares misses less where nothing has to go.
    pub fn relax(&mut self) {
        self.relaxed_count += 1;
        if self.relaxed_count == ROUND {
            self.relaxed_count = 0;
            self.duels.clear();
            self.restart();
        }
    }

    /// What ways that begin here are cached as.
    #[must_use]
    pub fn grain(&self, start: StateId) -> Grain {
        let duel = self.duels.find(hash(start), |duel| duel.start == start);
        duel.map_or(Grain::Pieces, |duel| duel.grain)
    }

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

impl<P: Policy + Clone> Policy for Adaptive<P> {
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece] {
        match self.grain(way.start()) {
            Grain::Pieces => self.policy.partition(way, stages),
            Grain::Whole => self.whole.partition(way, stages),
        }
    }
}

/// Which of two caches, one of pieces and one of whole entries, a way met.
#[derive(Clone, Copy, Debug)]
struct Met {
    pieces: bool,
    wholes: bool,
}

/// The score of one start in this round, and the lead of the kind that it does not use.
#[derive(Clone, Copy, Debug)]
struct Duel {
    start: StateId,
    grain: Grain,
    samples: u32,
    pieces: u32,
    wholes: u32,
    /// Samples of this round in which one kind hit alone.
    split: u32,
    /// As many of a round, as the rounds before had them, the later ones more than the earlier.
    split_usual: Option<u32>,
    /// Hits by which the other kind has led in the rounds before.
    lead: u32,
}

impl Default for Duel {
    fn default() -> Self {
        Self {
            start: StateId::END,
            grain: Grain::Pieces,
            samples: 0,
            pieces: 0,
            wholes: 0,
            split: 0,
            split_usual: None,
            lead: 0,
        }
    }
}

impl Duel {
    fn score(&mut self, met: Met) {
        self.samples += 1;
        self.pieces += u32::from(met.pieces);
        self.wholes += u32::from(met.wholes);
        self.split += u32::from(met.pieces != met.wholes);
        if self.samples == ROUND {
            self.judge();
            (self.samples, self.pieces, self.wholes, self.split) = (0, 0, 0, 0);
        }
    }

    fn judge(&mut self) {
        let (used, other) = match self.grain {
            Grain::Pieces => (self.pieces, self.wholes),
            Grain::Whole => (self.wholes, self.pieces),
        };
        let usual = self.split_usual.map_or(self.split, |usual| (3 * usual + self.split) / 4);
        self.split_usual = Some(usual);
        self.lead = (self.lead + other).saturating_sub(used + SLACK);
        if self.lead > usual.clamp(LEAD_MIN, LEAD_MAX) {
            self.grain = self.grain.other();
            self.lead = 0;
        }
    }
}

impl Grain {
    const fn other(self) -> Self {
        match self {
            Self::Pieces => Self::Whole,
            Self::Whole => Self::Pieces,
        }
    }
}

/// A cache of hashes alone, and the policy that fills it.
#[derive(Clone, Debug)]
struct Side<P> {
    policy: P,
    directory: Directory,
}

impl<P: Policy> Side<P> {
    fn new(policy: P, capacity: Capacity) -> Self {
        Self { policy, directory: Directory::new(capacity) }
    }

    /// Whether a packet on this way would hit; if not, it will from now on.
    fn meets(&mut self, way: &TraversalOutline) -> bool {
        let found = self.directory.walk(way);
        if !found {
            let pieces = self.policy.partition(way, &self.directory);
            self.directory.was_full |= pieces.is_empty();
            for piece in pieces {
                if let Some(identity) = way.identity(&piece.steps) {
                    self.directory.put(identity, piece.stage);
                }
            }
        }
        found
    }
}

/// Which pieces are in which stages, by identity.
#[derive(Clone, Debug)]
struct Directory {
    entries: HashTable<Entry>,
    capacity: Capacity,
    counts: [usize; STAGES_MAX as usize],
    was_full: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    identity: u64,
    stages: StageSet,
}

impl Directory {
    fn new(capacity: Capacity) -> Self {
        let counts = [0; STAGES_MAX as usize];
        Self { entries: HashTable::new(), capacity, counts, was_full: false }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.counts = [0; STAGES_MAX as usize];
        self.was_full = false;
    }

    /// Whether a packet finds its way from the first stage to the end, the longest piece first in
    /// each.
    fn walk(&self, way: &TraversalOutline) -> bool {
        let (mut first, legs_count) = (0, way.legs_count());
        for stage in (0..self.capacity.stages_count).filter_map(StageId::new) {
            let held = way.candidates(first).map(|piece| self.holders(&piece).contains(stage));
            let longest = held.zip(first + 1..).filter(|(held, _)| *held).last();
            first = longest.map_or(first, |(_, end)| end);
            if first == legs_count {
                return true;
            }
        }
        false
    }

    fn put(&mut self, identity: u64, stage: StageId) {
        let same = |entry: &Entry| entry.identity == identity;
        let fresh = Entry { identity, stages: StageSet::EMPTY };
        let mut entry = self.entries.entry(identity, same, |entry| entry.identity).or_insert(fresh);
        let stages = &mut entry.get_mut().stages;
        if !stages.contains(stage) {
            *stages = stages.with(stage);
            self.counts[stage.index()] += 1;
        }
    }
}

impl Stages for Directory {
    fn count(&self) -> u8 {
        self.capacity.stages_count
    }

    fn holders(&self, piece: &Candidate) -> StageSet {
        let entry = self.entries.find(piece.identity, |entry| entry.identity == piece.identity);
        entry.map_or(StageSet::EMPTY, |entry| entry.stages)
    }

    fn room(&self) -> StageSet {
        let stages = (0..self.capacity.stages_count).filter_map(StageId::new);
        let with_room =
            stages.filter(|stage| self.counts[stage.index()] < self.capacity.stage_entries_max);
        with_room.fold(StageSet::EMPTY, StageSet::with)
    }
}

fn hash(start: StateId) -> u64 {
    fold(0, start.number().into())
}

/// Samples of a start after which its scores are compared.
pub const ROUND: u32 = 512;

/// How many hits of a round the other kind may lead by for ever: six in a thousand.
pub const SLACK: u32 = 3;

/// The least lead, in hits, at which the kind is changed.
pub const LEAD_MIN: u32 = ROUND / 16;

/// The greatest lead that is asked for.
pub const LEAD_MAX: u32 = ROUND / 4;

const _: () = assert!(100 * SLACK < ROUND, "a point is more than what is let pass");

/// Rounds, of all starts together, after which the directories begin anew.
pub const SEASON: u32 = 64;

/// Starts that have a duel; all others are cut.
const DUELS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use shunt_flow::hash::split_mix;

    use super::*;

    /// How packets fare that come at random: of a thousand, so many hit as one kind alone.
    #[derive(Clone, Copy)]
    struct Traffic {
        used: u64,
        other: u64,
        seed: u64,
    }

    impl Traffic {
        /// In which of so many rounds a duel that uses `grain` so far changes its kind, if packets go on to
        /// hit like this as the kind that it used at first and as the other.
        fn changes(mut self, grain: Grain, rounds: u32) -> Vec<u32> {
            let mut duel = Duel { grain, ..Duel::default() };
            let mut changes = Vec::new();
            for round in 0..rounds {
                let before = duel.grain;
                for _ in 0..ROUND {
                    let (used, other) = self.meet();
                    duel.score(match grain {
                        Grain::Pieces => Met { pieces: used, wholes: other },
                        Grain::Whole => Met { pieces: other, wholes: used },
                    });
                }
                if duel.grain != before {
                    changes.push(round);
                }
            }
            changes
        }

        fn meet(&mut self) -> (bool, bool) {
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

    const GRAINS: [Grain; 2] = [Grain::Pieces, Grain::Whole];

    #[test]
    fn a_steady_deficit_of_little_more_than_a_point_changes_the_kind() {
        for (grain, used) in
            GRAINS.into_iter().flat_map(|grain| [0, 10, 50, 150].map(|u| (grain, u)))
        {
            for seed in 1..=8 {
                let traffic = Traffic { used, other: used + 12, seed: seed << 32 };
                let changes = traffic.changes(grain, 150);
                assert!(!changes.is_empty(), "{grain:?}, {used} of 1000, {seed}");
            }
        }
    }

    #[test]
    fn a_deficit_of_a_point_without_noise_is_found_soon() {
        // Five hits of each round, less than a point.
        for grain in GRAINS {
            let mut duel = Duel { grain, ..Duel::default() };
            let round = (0..100).find(|_| {
                for sample in 0..ROUND {
                    let used = sample >= 5;
                    duel.score(match grain {
                        Grain::Pieces => Met { pieces: used, wholes: true },
                        Grain::Whole => Met { pieces: true, wholes: used },
                    });
                }
                duel.grain != grain
            });
            assert_eq!(round, Some(LEAD_MIN / (5 - SLACK)));
        }
    }

    #[test]
    fn a_great_deficit_is_found_in_its_first_round() {
        for grain in GRAINS {
            let traffic = Traffic { used: 0, other: 330, seed: 1 };
            assert_eq!(traffic.changes(grain, 50), [0]);
        }
    }

    #[test]
    fn what_hits_alike_seldom_changes_its_kind_by_chance() {
        for alone in [10, 50, 150] {
            let changes = (1..=8).map(|seed| {
                let traffic = Traffic { used: alone, other: alone, seed: seed << 32 };
                traffic.changes(Grain::Pieces, 500).len()
            });
            let changes: Vec<usize> = changes.collect();
            let all: usize = changes.iter().sum();
            assert!(all <= 12, "{changes:?} in 500 rounds each, {alone} of 1000 alone");
        }
    }
}
