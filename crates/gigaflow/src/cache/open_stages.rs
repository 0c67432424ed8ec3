//! The stages that new entries of a traversal may go to, as a policy sees them.
//!
//! A new entry may also go to a full stage, which then evicts its least recently used entry. The
//! age of the least recently used entry differs from stage to stage, since similar partitions use
//! the same stages. A full stage is *contended* if its next victim was used much later than the
//! oldest victim of all full stages. A policy that weighs stages avoids contended stages, even if
//! it must then build an entry that a contended stage holds. While some stage has free room, every
//! full stage is contended. So a chain fills all of its stages before it evicts an entry, and
//! afterwards the entries of all stages have about the same age.

use shunt_pipeline::Time;

use crate::{
    ltm::{Ltm, Store},
    outline::{StateId, SubTraversalOutline},
    partition::{STAGES_MAX, StageId, StageSet, StageView},
};

/// The stages that a fill may use, as a policy sees them.
pub(super) struct OpenStages<'a> {
    ltm: &'a Ltm,
    /// The stages that the fill may still use.
    open: StageSet,
    /// The stages with free room.
    room: StageSet,
    /// The full stages that a policy should avoid.
    contended: StageSet,
    /// The last use of the entry that each full stage would evict next.
    ///
    /// The time is zero for stages with free room.
    last_uses: [Time; STAGES_MAX as usize],
}

impl<'a> OpenStages<'a> {
    /// Creates the view of the `open` stages at the time `now`.
    pub(super) fn new(ltm: &'a mut Ltm, store: &impl Store, open: StageSet, now: Time) -> Self {
        let mut last_uses = [Time::ZERO; STAGES_MAX as usize];
        let (mut room, mut full) = (StageSet::EMPTY, StageSet::EMPTY);
        for stage in StageSet::first_of(ltm.capacity().stages_count).iter() {
            if ltm.has_room(stage) {
                room = room.with(stage);
            } else if let Some(used) = ltm.oldest_use(store, stage) {
                last_uses[stage.index()] = used;
                full = full.with(stage);
            }
        }
        let oldest = full.iter().map(|stage| last_uses[stage.index()]).min();
        let is_contended = |stage: &StageId| {
            let age = |used| now.since(used);
            room != StageSet::EMPTY
                || oldest.is_some_and(|oldest| age(last_uses[stage.index()]) < age(oldest) / 2)
        };
        let contended = full.iter().filter(is_contended).fold(StageSet::EMPTY, StageSet::with);
        Self { ltm, open, room: room.union(full).intersection(open), contended, last_uses }
    }
}

impl StageView for OpenStages<'_> {
    fn count(&self) -> u8 {
        self.ltm.count()
    }

    fn holders(&self, sub_traversal: &SubTraversalOutline) -> StageSet {
        self.ltm.holders(sub_traversal).intersection(self.open)
    }

    fn may_begin(&self, state: StateId) -> bool {
        self.ltm.may_begin(state)
    }

    fn room(&self) -> StageSet {
        self.room
    }

    fn best(&self, open: StageSet) -> Option<StageId> {
        self.room.intersection(open).iter().min_by_key(|stage| self.last_uses[stage.index()])
    }

    fn contended(&self) -> StageSet {
        self.contended
    }
}
