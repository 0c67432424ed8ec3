//! Where the pieces of a missed way may go, as a policy sees it.
//!
//! A stage that is full is not closed: the entry that was used longest ago makes room. But how long ago
//! that is differs from stage to stage, as pieces crowd where ways are cut alike. So where the entry that
//! would go was used much later than the oldest of all, the stage is *pressed*, and a policy that
//! weighs rather puts a piece elsewhere, though it may have to put another one there again. While some
//! stage has room, all that are full are pressed. So a chain fills all of its stages before it evicts,
//! and afterwards entries are of about the same age in all of them.

use shunt_pipeline::Time;

use crate::{
    ltm::{Ltm, Store},
    outline::{Candidate, StateId},
    partition::{STAGES_MAX, StageId, StageSet, Stages},
};

/// Some of the stages, as a policy sees them.
pub(crate) struct Places<'a> {
    ltm: &'a Ltm,
    open: StageSet,
    room: StageSet,
    pressed: StageSet,
    /// When what makes room was used last; of stages with room, long ago.
    ages: [Time; STAGES_MAX as usize],
}

impl<'a> Places<'a> {
    /// These stages, at `now`.
    pub(crate) fn new(ltm: &'a mut Ltm, store: &impl Store, open: StageSet, now: Time) -> Self {
        let mut ages = [Time::ZERO; STAGES_MAX as usize];
        let (mut room, mut full) = (StageSet::EMPTY, StageSet::EMPTY);
        for stage in StageSet::first_of(ltm.capacity().stages_count).iter() {
            if ltm.has_room(stage) {
                room = room.with(stage);
            } else if let Some(used) = ltm.oldest_use(store, stage) {
                ages[stage.index()] = used;
                full = full.with(stage);
            }
        }
        let oldest = full.iter().map(|stage| ages[stage.index()]).min();
        let is_pressed = |stage: &StageId| {
            let age = |used| now.since(used);
            room != StageSet::EMPTY
                || oldest.is_some_and(|oldest| age(ages[stage.index()]) < age(oldest) / 2)
        };
        let pressed = full.iter().filter(is_pressed).fold(StageSet::EMPTY, StageSet::with);
        Self { ltm, open, room: room.union(full).intersection(open), pressed, ages }
    }
}

impl Stages for Places<'_> {
    fn count(&self) -> u8 {
        self.ltm.count()
    }

    fn holders(&self, piece: &Candidate) -> StageSet {
        self.ltm.holders(piece).intersection(self.open)
    }

    fn may_begin(&self, cut: StateId) -> bool {
        self.ltm.may_begin(cut)
    }

    fn room(&self) -> StageSet {
        self.room
    }

    fn best(&self, open: StageSet) -> Option<StageId> {
        self.room.intersection(open).iter().min_by_key(|stage| self.ages[stage.index()])
    }

    fn pressed(&self) -> StageSet {
        self.pressed
    }
}
