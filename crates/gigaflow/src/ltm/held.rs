//! What the stages hold, by the names that policies have for it.
//!
//! A policy asks for every piece that a way could be cut into which stages have it: hundreds of
//! questions, of which few are answered with any. So there is a filter in front of the table, with a
//! bit for each cell that some name falls into, and most answers are one load from a few kilobytes that
//! waits for no other. How many names a cell has is counted elsewhere. Names are hashes already.
//!
//! Pieces begin at few of the cuts of a way. So a policy asks first at which of them any does.

use hashbrown::HashTable;

use crate::{
    adaptive::Capacity,
    outline::{Name, StateId, fold},
    partition::{StageId, StageSet},
};

/// Where pieces of each name are.
#[derive(Debug)]
pub(super) struct Held {
    places: HashTable<Place>,
    /// How many names fall into each cell; one that is full stays so.
    counts: Box<[u8]>,
    /// A bit for each cell that has some.
    filter: Box<[u64]>,
    /// How many pieces begin at each cut.
    begins: HashTable<(StateId, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    identity: u64,
    slot: u32,
    stage: StageId,
}

/// Cells of the filter for each entry that there can be, and of the largest filter.
const CELLS_PER_ENTRY: usize = 8;
const CELLS_MAX: usize = 1 << 18;
const CELLS_PER_WORD: usize = u64::BITS as usize;

impl Held {
    pub(super) fn new(capacity: Capacity) -> Self {
        let entries_max = capacity.stage_entries_max.saturating_mul(capacity.stages_count.into());
        let cells_count = entries_max.saturating_mul(CELLS_PER_ENTRY).clamp(1, CELLS_MAX);
        let cells_count = cells_count.next_power_of_two();
        let filter = vec![0; cells_count.div_ceil(CELLS_PER_WORD)].into_boxed_slice();
        let counts = vec![0; cells_count].into_boxed_slice();
        Self { places: HashTable::new(), counts, filter, begins: HashTable::new() }
    }

    /// Whether some piece begins at this cut.
    #[inline]
    pub(super) fn has_begun(&self, cut: StateId) -> bool {
        self.begins.find(hash(cut), |(own, _)| *own == cut).is_some()
    }

    /// The stages that hold a piece of this name.
    #[inline]
    pub(super) fn stages(&self, identity: u64) -> StageSet {
        let (word, bit) = bit_of(self.cell(identity));
        if self.filter[word] & bit == 0 {
            return StageSet::EMPTY;
        }
        self.of(identity).fold(StageSet::EMPTY, |stages, place| stages.with(place.stage))
    }

    /// The slots of the pieces of this name in a stage: one, but where names collide.
    pub(super) fn slots(&self, identity: u64, stage: StageId) -> impl Iterator<Item = u32> {
        self.of(identity).filter(move |place| place.stage == stage).map(|place| place.slot)
    }

    /// A piece has come.
    pub(super) fn add(&mut self, Name { identity, begin }: Name, stage: StageId, slot: u32) {
        let is_it = |(own, _): &(StateId, u32)| *own == begin;
        let begins = self.begins.entry(hash(begin), is_it, |(own, _)| hash(*own));
        begins.or_insert((begin, 0)).get_mut().1 += 1;
        let place = Place { identity, slot, stage };
        self.places.insert_unique(identity, place, |place| place.identity);
        let cell = self.cell(identity);
        self.counts[cell] = self.counts[cell].saturating_add(1);
        let (word, bit) = bit_of(cell);
        self.filter[word] |= bit;
    }

    /// A piece has gone.
    pub(super) fn remove(&mut self, Name { identity, begin }: Name, stage: StageId, slot: u32) {
        let place = Place { identity, slot, stage };
        let Ok(found) = self.places.find_entry(identity, |other| *other == place) else { return };
        found.remove();
        if let Ok(mut begins) = self.begins.find_entry(hash(begin), |(own, _)| *own == begin) {
            begins.get_mut().1 -= 1;
            if begins.get().1 == 0 {
                begins.remove();
            }
        }
        let cell = self.cell(identity);
        if self.counts[cell] < u8::MAX {
            self.counts[cell] -= 1;
        }
        if self.counts[cell] == 0 {
            let (word, bit) = bit_of(cell);
            self.filter[word] &= !bit;
        }
    }

    #[inline]
    fn of(&self, identity: u64) -> impl Iterator<Item = &Place> {
        self.places.iter_hash(identity).filter(move |place| place.identity == identity)
    }

    /// The cell of a name, by bits that the table looks at last.
    #[inline]
    const fn cell(&self, identity: u64) -> usize {
        (identity >> 32) as usize & (self.counts.len() - 1)
    }
}

#[inline]
fn hash(cut: StateId) -> u64 {
    fold(0, cut.number().into())
}

/// The word of the filter that a cell lies in, and its bit there.
#[inline]
const fn bit_of(cell: usize) -> (usize, u64) {
    (cell / CELLS_PER_WORD, 1 << (cell % CELLS_PER_WORD))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_piece_is_found_in_its_stages_until_it_goes(
            steps in prop::collection::vec((any::<bool>(), 0..6_u64, 0..3_u8, 0..4_u32), 0..200),
        ) {
            let mut held = Held::new(Capacity { stages_count: 1, stage_entries_max: 1 });
            let mut model: Vec<(u64, StageId, u32)> = Vec::new();
            for (comes, identity, stage, slot) in steps {
                let place = (identity << 32, StageId::new(stage).unwrap(), slot);
                let begin_of = |identity: u64| StateId::new((identity >> 33) as u32);
                let name = Name { identity: place.0, begin: begin_of(place.0) };
                if comes && !model.contains(&place) {
                    held.add(name, place.1, place.2);
                    model.push(place);
                } else if !comes {
                    held.remove(name, place.1, place.2);
                    model.retain(|other| *other != place);
                }
                for begin in (0..4).map(StateId::new) {
                    let begins = model.iter().any(|other| begin_of(other.0) == begin);
                    prop_assert_eq!(held.has_begun(begin), begins);
                }
                let own = || model.iter().filter(|other| other.0 == place.0);
                let stages = own().fold(StageSet::EMPTY, |stages, other| stages.with(other.1));
                prop_assert_eq!(held.stages(place.0), stages);
                let mut slots: Vec<u32> = held.slots(place.0, place.1).collect();
                slots.sort_unstable();
                let mut expected: Vec<u32> =
                    own().filter(|other| other.1 == place.1).map(|other| other.2).collect();
                expected.sort_unstable();
                prop_assert_eq!(slots, expected);
            }
        }
    }
}
