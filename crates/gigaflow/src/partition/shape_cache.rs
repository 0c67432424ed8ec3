//! A cache of partitions for traversals of the same shape.
//!
//! Flows that pass the same tables have traversals with the same *shape*: their segments consult
//! the same fields. The sub-traversals of traversals of one shape have different identities, but
//! the same scores. So for one shape, the result of the [dynamic program](super::dp_table) depends
//! only on the [`Conditions`] of the stages and on the sub-traversals that the stages hold. The
//! cache keeps the latest results of each shape, with the inputs that they depend on.
//!
//! The number of shapes is bounded: at the bound, a new shape clears the cache. Traversals with
//! more than [`SEGMENTS_MAX`] segments are not cached.

use hashbrown::HashTable;

use super::{
    contract::{Placement, StageSet, StageView},
    dp_table::CandidateRow,
};
use crate::outline::{OutlineShape, SubTraversalOutline, TraversalOutline, fold};

/// The shapes of recent traversals, with cached partitions of each shape.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeCache {
    entries: HashTable<ShapeEntry>,
}

/// A shape, with the gains of its candidates and its latest partitions.
#[derive(Clone, Debug)]
pub(super) struct ShapeEntry {
    /// The hash of the shape.
    hash: u64,
    outline_shape: OutlineShape,
    gains: Gains,
    /// The hashes of the inputs of the partitions in `cached`, in the same order.
    hashes: Vec<u64>,
    /// The latest partitions of the shape.
    cached: Vec<CachedPartition>,
    /// The index of the cached partition to replace next.
    oldest: usize,
}

/// The gain of each candidate, and whether it is coupled, segment by segment.
#[derive(Clone, Debug)]
pub(super) struct Gains {
    /// The gain of each candidate.
    gains: Vec<i64>,
    /// For each candidate, whether its fields are coupled.
    coupled: Vec<bool>,
    /// Number of segments of the traversal.
    segments_count: usize,
}

/// The usable stages, the stages with room, and the contended stages.
pub(super) type Conditions = [StageSet; 3];

/// A candidate that stages hold already.
/// The candidate is number `at` of those that begin with segment `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldCandidate {
    /// The segment with which the candidate begins.
    pub(super) first: u8,
    /// The number of the candidate among those of its first segment.
    pub(super) at: u8,
    /// The stages that hold the candidate.
    pub(super) stages: StageSet,
}

/// A result of the dynamic program, with the inputs that it depends on.
#[derive(Clone, Debug, Default)]
struct CachedPartition {
    /// The usable stages, those with room, and the contended ones.
    conditions: Conditions,
    /// The candidates that some stage held.
    held: Vec<HeldCandidate>,
    /// The partition that the program chose.
    placements: Vec<Placement>,
}

/// Maximum number of shapes.
const SHAPES_MAX: usize = 256;
/// Maximum number of cached partitions per shape.
const CACHED_MAX: usize = 32;
/// Maximum number of held candidates of a cached partition.
/// With this bound, the partitions of a shape have at most 64 kB.
const HELD_MAX: usize = 64;
/// Maximum numbers of segments and of stages for which partitions are cached.
const SEGMENTS_MAX: usize = 40;
const STAGES_MAX: usize = 15;

/// Returns whether partitions of an outline in this number of stages are cached.
pub(super) fn is_kept(outline: &TraversalOutline, stages_count: usize) -> bool {
    outline.segments_count() <= SEGMENTS_MAX && stages_count <= STAGES_MAX
}

impl ShapeCache {
    /// Returns the shape of an outline; `gain` computes the gains of a new shape.
    ///
    /// All calls on one cache must have the same `gain`.
    pub(super) fn of(
        &mut self,
        outline: &TraversalOutline,
        gain: impl Fn(&SubTraversalOutline) -> i64,
    ) -> &mut ShapeEntry {
        let hash = outline.shape_hash();
        if self.entries.len() >= SHAPES_MAX
            && self.entries.find(hash, |shape| shape.is_of(hash, outline)).is_none()
        {
            self.entries.clear();
        }
        let entry =
            self.entries.entry(hash, |shape| shape.is_of(hash, outline), |shape| shape.hash);
        entry.or_insert_with(|| ShapeEntry::new(outline, gain)).into_mut()
    }
}

impl ShapeEntry {
    /// Returns the gains of all candidates, and no partitions yet.
    fn new(outline: &TraversalOutline, gain: impl Fn(&SubTraversalOutline) -> i64) -> Self {
        let candidates: Vec<SubTraversalOutline> = outline.sub_traversals().collect();
        let gains = Gains {
            gains: candidates.iter().map(gain).collect(),
            coupled: candidates.iter().map(|candidate| candidate.coupled).collect(),
            segments_count: outline.segments_count(),
        };
        Self {
            hash: outline.shape_hash(),
            outline_shape: outline.shape(),
            gains,
            hashes: Vec::new(),
            cached: Vec::new(),
            oldest: 0,
        }
    }

    /// Returns whether this is the shape of `outline`, with the hash `hash`.
    fn is_of(&self, hash: u64, outline: &TraversalOutline) -> bool {
        self.hash == hash && outline.has_shape(&self.outline_shape)
    }

    /// Returns the gains of all sub-traversals of the shape.
    pub(super) const fn gains(&self) -> &Gains {
        &self.gains
    }

    /// Returns the cached partition for these inputs, if the cache has one.
    pub(super) fn find(
        &self,
        conditions: &Conditions,
        held: &[HeldCandidate],
    ) -> Option<&[Placement]> {
        let hash = hash_of(conditions, held);
        let mut hits = self.hashes.iter().zip(&self.cached).filter(|(own, _)| **own == hash);
        let found = hits.find(|(_, own)| own.conditions == *conditions && own.held == held)?;
        Some(&found.1.placements)
    }

    /// Caches the partition of a shape.
    pub(super) fn insert(
        &mut self,
        conditions: Conditions,
        held: &[HeldCandidate],
        placements: &[Placement],
    ) {
        if held.len() > HELD_MAX {
            return;
        }
        let at = if self.cached.len() < CACHED_MAX {
            self.hashes.push(0);
            self.cached.push(CachedPartition::default());
            self.cached.len() - 1
        } else {
            self.oldest = (self.oldest + 1) % CACHED_MAX;
            self.oldest
        };
        self.hashes[at] = hash_of(&conditions, held);
        let own = &mut self.cached[at];
        own.conditions = conditions;
        own.held.clear();
        own.held.extend_from_slice(held);
        own.placements.clear();
        own.placements.extend_from_slice(placements);
    }
}

/// Returns a hash of the inputs of a partition.
fn hash_of(conditions: &Conditions, held: &[HeldCandidate]) -> u64 {
    let begun = conditions.iter().fold(0, |hash, stages| fold(hash, stages.bits()));
    held.iter().fold(begun, |hash, HeldCandidate { first, at, stages }| {
        fold(hash, stages.bits() ^ u64::from(*first) << 56 ^ u64::from(*at) << 48)
    })
}

impl Gains {
    /// Returns the candidates that begin with segment `first`.
    pub(super) fn row<'a>(&'a self, first: usize, holders: &'a [StageSet]) -> CandidateRow<'a> {
        CandidateRow { first, gains: self.part(first, &self.gains), holders }
    }

    /// Writes the held candidates to `held`, from the last segment backwards.
    pub(super) fn held_by(
        &self,
        outline: &TraversalOutline,
        stages: &impl StageView,
        held: &mut Vec<HeldCandidate>,
    ) {
        held.clear();
        for first in (0..self.segments_count).rev() {
            if !stages.may_begin(outline.state_before(first)) {
                continue;
            }
            let candidates = outline.candidates_known(first, self.part(first, &self.coupled));
            for (at, candidate) in (0..).zip(candidates) {
                let own = stages.holders(&candidate);
                if own != StageSet::EMPTY {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "a cached shape has few segments"
                    )]
                    held.push(HeldCandidate { first: first as u8, at, stages: own });
                }
            }
        }
    }

    /// Returns the values of the candidates that begin at segment `first`.
    fn part<'a, T>(&self, first: usize, all: &'a [T]) -> &'a [T] {
        // The candidates of earlier segments come first. Each segment begins one candidate less
        // than the segment before.
        let start = first * (2 * self.segments_count + 1 - first) / 2;
        &all[start..start + self.segments_count - first]
    }
}
