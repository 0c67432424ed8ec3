//! Ways and stages for property tests: plain values, and what a policy sees of them.

use std::ops::Range;

use proptest::{collection::vec, prelude::*};

use crate::{
    outline::{Coupling, FieldSet, OutlineStep, StateId, SubTraversalOutline, TraversalOutline},
    partition::{StageId, StageSet, StageView},
};

/// A way as data: for each step, whether the boundary in front of it is open, and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainOutline(pub Vec<(bool, FieldSet)>);

impl PlainOutline {
    /// A way whose boundaries are all open.
    #[must_use]
    pub fn open(fields: &[FieldSet]) -> Self {
        Self(fields.iter().map(|fields| (true, *fields)).collect())
    }

    /// What a policy sees of it; steps of one number and fields are the same in every way.
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

    /// The fields of each step.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldSet> {
        self.0.iter().map(|(_, fields)| *fields).collect()
    }

    /// The steps that a piece may begin with.
    ///
    /// The first step is one of them, whatever is said of the boundary in front of it.
    #[must_use]
    pub fn starts(&self) -> Vec<u16> {
        let open = self.0.iter().zip(0_u16..).filter(|((open, _), at)| *open || *at == 0);
        open.map(|(_, at)| at).collect()
    }
}

/// Stages as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainStages(pub Vec<PlainStage>);

/// A stage as data: its room, and the ranges of steps that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainStage {
    /// What becomes of a new piece.
    pub room: Room,
    /// What it holds.
    pub held: Vec<Range<u16>>,
}

/// What becomes of a new piece in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It has a place.
    Free,
    /// It takes the place of one that was of use not long ago.
    Pressed,
    /// There is no place for it.
    Full,
}

impl PlainStages {
    /// Stages that are empty.
    #[must_use]
    pub fn empty(count: u8) -> Self {
        Self(vec![PlainStage { room: Room::Free, held: Vec::new() }; count.into()])
    }

    fn those(&self, mut which: impl FnMut(&PlainStage) -> bool) -> StageSet {
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
        self.those(|stage| stage.held.contains(&sub_traversal.steps))
    }

    fn room(&self) -> StageSet {
        self.those(|stage| stage.room != Room::Full)
    }

    /// As in a cache: one that presses comes last.
    fn best(&self, open: StageSet) -> Option<StageId> {
        let (room, pressed) = (self.room().intersection(open), self.pressed());
        room.without(pressed).first().or_else(|| room.first())
    }

    fn pressed(&self) -> StageSet {
        self.those(|stage| stage.room == Room::Pressed)
    }
}

/// Sets of up to three of the first four coupling fields, often empty, so that there are ties.
pub fn fields() -> impl Strategy<Value = FieldSet> {
    vec(0..4_usize, 0..3).prop_map(|numbers| {
        numbers.iter().fold(FieldSet::EMPTY, |set, number| set.with(Coupling::ALL[*number]))
    })
}

/// Ways of up to `steps_max` steps; one boundary in eight is closed.
pub fn outline(steps_max: usize) -> impl Strategy<Value = PlainOutline> {
    vec((prop::bool::weighted(0.875), fields()), 1..=steps_max).prop_map(PlainOutline)
}

/// Up to `count_max` stages, half of them with free room and a quarter pressed, which hold some ranges of
/// up to `steps_max`.
pub fn stages(count_max: usize, steps_max: u16) -> impl Strategy<Value = PlainStages> {
    let held = (0..steps_max).prop_flat_map(move |start| (Just(start), start + 1..=steps_max));
    let held = vec(held.prop_map(|(start, end)| start..end), 0..8);
    let room = prop_oneof![2 => Just(Room::Free), 1 => Just(Room::Pressed), 1 => Just(Room::Full)];
    let stage = (room, held).prop_map(|(room, held)| PlainStage { room, held });
    vec(stage, 1..=count_max).prop_map(PlainStages)
}
