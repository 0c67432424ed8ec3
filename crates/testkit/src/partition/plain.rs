//! Outlines and stages as plain values, with generators for property tests.

use std::ops::Range;

use proptest::{collection::vec, prelude::*};
use shunt_gigaflow::{
    outline::{Coupling, FieldSet, OutlineStep, StateId, SubTraversalOutline, TraversalOutline},
    partition::{StageId, StageSet, StageView},
};

/// An outline as data: for each step a partition point flag, and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainOutline(pub Vec<(bool, FieldSet)>);

impl PlainOutline {
    /// Creates an outline with partition points at all boundaries.
    #[must_use]
    pub fn open(fields: &[FieldSet]) -> Self {
        Self(fields.iter().map(|fields| (true, *fields)).collect())
    }

    /// Returns the outline of a traversal with these steps.
    ///
    /// Steps with equal numbers and fields are equal in all outlines.
    #[must_use]
    pub fn outline(&self) -> TraversalOutline {
        let mut outline = TraversalOutline::new();
        outline.begin(StateId::new(0));
        for ((open, fields), number) in self.0.iter().zip(0_u32..) {
            if *open {
                outline.partition_point(StateId::new(number));
            }
            outline.step(OutlineStep { fields: *fields, identity: number.into() });
        }
        outline
    }

    /// Returns the fields of each step.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldSet> {
        self.0.iter().map(|(_, fields)| *fields).collect()
    }

    /// Returns the steps that a sub-traversal may begin with.
    ///
    /// The first step is always a start.
    #[must_use]
    pub fn starts(&self) -> Vec<u16> {
        let open = self.0.iter().zip(0_u16..).filter(|((open, _), at)| *open || *at == 0);
        open.map(|(_, at)| at).collect()
    }
}

/// The stages of a cache as plain data, for tests of partition policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainStages(pub Vec<PlainStage>);

/// A stage as data: its room, and the sub-traversals that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainStage {
    /// The room for a new entry.
    pub room: StageRoom,
    /// The ranges of steps that the stage holds.
    pub held: Vec<Range<u16>>,
}

/// The room of a stage for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRoom {
    /// The stage has free room.
    Free,
    /// A new entry evicts a recently used entry.
    Contended,
    /// The stage takes no new entry.
    Full,
}

impl PlainStages {
    /// Creates stages without sub-traversals.
    #[must_use]
    pub fn empty(count: u8) -> Self {
        Self(vec![PlainStage { room: StageRoom::Free, held: Vec::new() }; count.into()])
    }

    /// Returns the stages that `which` accepts.
    fn stages_where(&self, mut which: impl FnMut(&PlainStage) -> bool) -> StageSet {
        let numbered = self.0.iter().zip(0_u8..).filter(|(stage, _)| which(stage));
        numbered
            .filter_map(|(_, number)| StageId::new(number))
            .fold(StageSet::EMPTY, StageSet::with)
    }
}

impl StageView for PlainStages {
    fn count(&self) -> u8 {
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        self.stages_where(|stage| stage.held.contains(&sub_traversal.steps))
    }

    fn room(&self) -> StageSet {
        self.stages_where(|stage| stage.room != StageRoom::Full)
    }

    /// Prefers stages that are not contended, as a cache does.
    fn best(&self, open: StageSet) -> Option<StageId> {
        let (room, contended) = (self.room().intersection(open), self.contended());
        room.without(contended).first().or_else(|| room.first())
    }

    fn contended(&self) -> StageSet {
        self.stages_where(|stage| stage.room == StageRoom::Contended)
    }
}

/// Generates sets of up to two coupling fields; many are empty for ties.
pub fn fields() -> impl Strategy<Value = FieldSet> {
    vec(0..4_usize, 0..3).prop_map(|numbers| {
        numbers.iter().fold(FieldSet::EMPTY, |set, number| set.with(Coupling::ALL[*number]))
    })
}

/// Generates outlines of up to `steps_max` steps.
///
/// One boundary in eight is not a partition point.
pub fn outline(steps_max: usize) -> impl Strategy<Value = PlainOutline> {
    vec((prop::bool::weighted(0.875), fields()), 1..=steps_max).prop_map(PlainOutline)
}

/// Generates up to `count_max` stages that hold ranges of `steps_max` steps.
///
/// Half of the stages have free room, and a quarter are contended.
pub fn stages(count_max: usize, steps_max: u16) -> impl Strategy<Value = PlainStages> {
    let held = (0..steps_max).prop_flat_map(move |start| (Just(start), start + 1..=steps_max));
    let held = vec(held.prop_map(|(start, end)| start..end), 0..8);
    let room = prop_oneof![2 => Just(StageRoom::Free), 1 => Just(StageRoom::Contended), 1 => Just(StageRoom::Full)];
    let stage = (room, held).prop_map(|(room, held)| PlainStage { room, held });
    vec(stage, 1..=count_max).prop_map(PlainStages)
}
