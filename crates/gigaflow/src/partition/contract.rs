//! The contract between a partition policy and its caller.

use std::ops::Range;

use crate::outline::{StateId, SubTraversalOutline, TraversalOutline};

/// A policy that partitions traversals, and gives each sub-traversal a stage.
///
/// Every policy keeps these rules, which `tests/policies.rs` checks:
///
/// - The sub-traversals begin and end at partition points, and cover the traversal in order without
///   a gap.
/// - The stages of successive sub-traversals increase. Each stage holds its sub-traversal already
///   or has room for it.
/// - The result is empty only if no stage has room for the whole traversal as one entry.
/// - A warm policy, which has seen similar traversals, allocates nothing. The policy owns the
///   returned partition, which is valid until the next call.
pub trait PartitionPolicy {
    /// Partitions a traversal; returns nothing if the stages have no room.
    fn partition(&mut self, outline: &TraversalOutline, stages: &impl StageView) -> &[Placement];
}

/// The stages as a policy sees them, by queries for single sub-traversals.
pub trait StageView {
    /// Number of stages, at most [`STAGES_MAX`].
    fn count(&self) -> u8;

    /// Returns the stages that hold exactly this sub-traversal as an entry.
    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet;

    /// Returns whether a stage may hold a sub-traversal that begins at this state.
    ///
    /// If the result is false, the policy does not ask for holders of sub-traversals from this
    /// state.
    fn may_begin(&self, _: StateId) -> bool {
        true
    }

    /// Returns the stages that have room for one more entry, or can evict an entry.
    fn room(&self) -> StageSet;

    /// Returns the stage of `open` that is the best one for a new entry.
    fn best(&self, open: StageSet) -> Option<StageId> {
        self.room().intersection(open).first()
    }

    /// Returns the stages in which a new entry would evict a recently used entry.
    fn contended(&self) -> StageSet {
        StageSet::EMPTY
    }

    /// Returns the stages that hold this sub-traversal or have room for it.
    fn takers(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        self.holders(sub_traversal).union(self.room())
    }
}

/// A number of empty stages, for a plan that ignores the cached entries.
#[derive(Clone, Copy, Debug)]
pub struct EmptyStages(pub u8);

impl StageView for EmptyStages {
    fn count(&self) -> u8 {
        self.0
    }

    fn holders(&self, _: &SubTraversalOutline) -> StageSet {
        StageSet::EMPTY
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(self.0)
    }
}

/// A sub-traversal and the stage of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Steps of the sub-traversal, counted from the start of the traversal.
    pub steps: Range<u16>,
    /// The stage of the entry of the sub-traversal.
    pub stage: StageId,
}

/// The number of a stage; packets pass stage 0 first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(u8);

impl StageId {
    /// Creates the id of the stage with this number; `None` from [`STAGES_MAX`] on.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < STAGES_MAX { Some(Self(number)) } else { None }
    }

    /// Returns the number of the stage.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the number of the stage as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of stages, as one bit for each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StageSet(u64);

impl StageSet {
    /// The set without stages.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of the first `count` stages.
    #[must_use]
    pub const fn first_of(count: u8) -> Self {
        if count >= STAGES_MAX { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// Returns this set with one more stage.
    #[must_use]
    pub const fn with(self, stage: StageId) -> Self {
        Self(self.0 | 1 << stage.0)
    }

    /// Returns whether this stage is in the set.
    #[must_use]
    pub const fn contains(self, stage: StageId) -> bool {
        self.0 & 1 << stage.0 != 0
    }

    /// Returns the stages of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the stages that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the stages of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the stages of this set from number `stage` on.
    #[must_use]
    pub const fn since(self, stage: u8) -> Self {
        Self(self.0 & !Self::first_of(stage).0)
    }

    /// Returns the set as bits, one per stage.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the first stage of the set.
    #[must_use]
    pub fn first(self) -> Option<StageId> {
        u8::try_from(self.0.trailing_zeros()).ok().and_then(StageId::new)
    }

    /// Returns the number of stages in the set.
    #[must_use]
    pub const fn count(self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "the value is at most 64")]
        {
            self.0.count_ones() as u8
        }
    }

    /// Returns the stages of the set, first to last.
    pub fn iter(self) -> impl Iterator<Item = StageId> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let first = rest.first()?;
            rest.0 &= rest.0 - 1;
            Some(first)
        })
    }
}

/// Maximum number of stages of a chain.
pub const STAGES_MAX: u8 = 64;
