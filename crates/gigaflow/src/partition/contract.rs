//! What a policy is asked and what it answers.

use std::ops::Range;

use crate::outline::{Candidate, StateId, TraversalOutline};

/// Cuts ways into pieces, and gives each piece a stage.
///
/// Every policy keeps this, and `tests/policies.rs` asks it of each:
///
/// - The pieces cover the way without a gap, in order, cut at open boundaries only.
/// - Their stages increase, and each stage holds its piece already or has room for it.
/// - There are pieces as long as any stage has room for the whole way.
/// - Warm, nothing is allocated: the answer lives in the policy until it is asked again.
pub trait Policy {
    /// The pieces of this way in these stages; none if there is nowhere to put them.
    fn partition(&mut self, way: &TraversalOutline, stages: &impl Stages) -> &[Piece];
}

/// What a policy may know of the stages: not what is in them, only whether this is.
pub trait Stages {
    /// How many stages there are; at most [`STAGES_MAX`].
    fn count(&self) -> u8;

    /// Which stages hold this very piece as an entry.
    fn holders(&self, piece: &Candidate) -> StageSet;

    /// Whether some stage may hold a piece that begins at this cut: what begins at any other is not asked
    /// for.
    fn may_begin(&self, _: StateId) -> bool {
        true
    }

    /// Which stages have room for one entry more, or can make some.
    fn room(&self) -> StageSet;

    /// Of these stages, the one that a new piece had best go to.
    fn best(&self, open: StageSet) -> Option<StageId> {
        self.room().intersection(open).first()
    }

    /// Stages in which a new piece takes the place of one that was of use not long ago.
    fn pressed(&self) -> StageSet {
        StageSet::EMPTY
    }

    /// Which stages can take this piece.
    fn takers(&self, piece: &Candidate) -> StageSet {
        self.holders(piece).union(self.room())
    }
}

/// Some steps of a way as one entry of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its steps, counted from the start of the way.
    pub steps: Range<u16>,
    /// The stage it belongs in.
    pub stage: StageId,
}

/// A stage, counted from the one that packets meet first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(u8);

impl StageId {
    /// The stage with this number; none from [`STAGES_MAX`] on.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < STAGES_MAX { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its number, to index with.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StageSet(u64);

impl StageSet {
    /// No stage.
    pub const EMPTY: Self = Self(0);

    /// The first `count` stages.
    #[must_use]
    pub const fn first_of(count: u8) -> Self {
        if count >= STAGES_MAX { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// This set and one more stage.
    #[must_use]
    pub const fn with(self, stage: StageId) -> Self {
        Self(self.0 | 1 << stage.0)
    }

    /// Whether this stage is in the set.
    #[must_use]
    pub const fn contains(self, stage: StageId) -> bool {
        self.0 & 1 << stage.0 != 0
    }

    /// The stages of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The stages that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The stages of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The stages from `stage` on.
    #[must_use]
    pub const fn since(self, stage: u8) -> Self {
        Self(self.0 & !Self::first_of(stage).0)
    }

    /// A bit for each stage.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// The first stage of the set.
    #[must_use]
    pub fn first(self) -> Option<StageId> {
        u8::try_from(self.0.trailing_zeros()).ok().and_then(StageId::new)
    }

    /// How many stages it has.
    #[must_use]
    pub const fn count(self) -> u8 {
        #[expect(clippy::cast_possible_truncation, reason = "64 at most")]
        {
            self.0.count_ones() as u8
        }
    }

    /// Its stages, first to last.
    pub fn iter(self) -> impl Iterator<Item = StageId> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let first = rest.first()?;
            rest.0 &= rest.0 - 1;
            Some(first)
        })
    }
}

/// Stages that a chain can have.
pub const STAGES_MAX: u8 = 64;
