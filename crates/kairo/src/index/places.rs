//! Tables: which groups of visits each has, and how each of them is searched.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use shunt_flow::{FlowMask, SparseKey, SparseMask};
use shunt_pipeline::{BridgeId, Rank, TableId, Visit};

use crate::masks::in_bytes;

use super::{
    group::{Group, Way},
    row::Row,
};

/// A table of a bridge.
pub(super) type Place = (BridgeId, TableId);

/// All groups, by table.
#[derive(Default)]
pub(super) struct Places {
    groups: Vec<Group>,
    places: HashMap<Place, PlaceGroups, RandomState>,
    /// Groups with a projection that lacks visits.
    lacking: Vec<u32>,
    /// Groups of tables without visits.
    free: Vec<u32>,
}

#[derive(Default)]
struct PlaceGroups {
    by_mask: HashMap<(SparseMask, Band), u32, RandomState>,
    /// Visits in all of them.
    visits: usize,
    /// All groups, with their bands.
    groups: Vec<(Band, u32)>,
    /// Masks of rules that were searched for, in the order in which they came.
    masks: Vec<SparseMask>,
    /// How rules of each of these are searched for, by group, and the stamp of the group then.
    ways: HashMap<SparseMask, Vec<(Way, u32)>, RandomState>,
}

/// Priorities of about the same number of bits: a rule does not look where all outrank it. Few, since
/// each rule that is added looks into every group of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Band(u8);

/// Groups of a table, as far as they have visits, whose masks are those of visits.
const GROUPS_USUAL: usize = 16;

/// Groups of a table: beyond the usual, their masks are in whole bytes, and there are few of these. A
/// visit with yet another mask goes into the best of all that it fits.
const GROUPS_MAX: usize = 64;

/// Masks of visits whose group is remembered, by table.
const NAMES_MAX: usize = 16_384;

/// Masks of rules that a table is prepared for.
const MASKS_MAX: usize = 1024;

impl Band {
    /// Of what has this rank.
    pub(super) const fn of(rank: Rank) -> Self {
        Self(match rank.priority.number() {
            0 => 0,
            1..0x100 => 1,
            0x100..0x8000 => 2,
            0x8000.. => 3,
        })
    }
}

impl Places {
    /// Adds a visit. Answers with its group and its position there.
    pub(super) fn insert(&mut self, row: Row, visit: &Visit, hashes: &RandomState) -> (u32, u32) {
        let place = (visit.bridge, visit.table);
        let number = self.group_for(place, &visit.mask, Band::of(row.rank()));
        if let Some(own) = self.places.get_mut(&place) {
            own.visits += 1;
        }
        (number, self.groups[number as usize].insert(row, &visit.key, hashes))
    }

    /// Takes a visit out. With the last of a table go its groups.
    pub(super) fn remove(&mut self, number: u32, position: u32) {
        let group = &mut self.groups[number as usize];
        group.remove(position);
        let place = group.place();
        let Some(own) = self.places.get_mut(&place) else { return };
        own.visits -= 1;
        if own.visits == 0
            && let Some(own) = self.places.remove(&place)
        {
            self.free.extend(own.groups.iter().map(|(_, number)| *number));
        }
    }

    /// The group for a visit that consulted `mask`. A new one is made ready for the masks of rules
    /// that are known.
    fn group_for(&mut self, place: Place, mask: &SparseMask, band: Band) -> u32 {
        let own = self.places.entry(place).or_default();
        if let Some(number) = own.by_mask.get(&(mask.clone(), band)) {
            return *number;
        }
        if own.by_mask.len() >= NAMES_MAX {
            own.by_mask.retain(|(mask, _), number| self.groups[*number as usize].mask() == mask);
        }
        let number = own.fitting(&self.groups, mask, band).unwrap_or_else(|| {
            let mask = match own.occupied(&self.groups) {
                0..GROUPS_USUAL => mask.clone(),
                GROUPS_USUAL..GROUPS_MAX => in_bytes(mask),
                _ => SparseMask::from(&FlowMask::EMPTY),
            };
            own.add(&mut self.groups, &mut self.free, place, (mask, band))
        });
        own.by_mask.insert((mask.clone(), band), number);
        number
    }

    pub(super) fn group(&self, number: u32) -> &Group {
        &self.groups[number as usize]
    }

    /// The groups of a table.
    pub(super) fn of(&self, place: Place) -> impl Iterator<Item = &Group> {
        let all = self.places.get(&place).map(|own| &own.groups[..]).unwrap_or_default();
        all.iter().map(|(_, number)| self.group(*number))
    }

    /// The groups of a table whose visits a rule of a band may have decided.
    pub(super) fn of_band(&self, place: Place, band: Band) -> impl Iterator<Item = &Group> {
        let all = self.places.get(&place).map(|own| &own.groups[..]).unwrap_or_default();
        let own = all.iter().filter(move |(own, _)| *own == band);
        own.map(|(_, number)| self.group(*number))
    }

    /// Finds how rules of a mask are searched for in every group of a table.
    pub(super) fn prepare(&mut self, place: Place, mask: &SparseMask) {
        let Some(own) = self.places.get_mut(&place) else { return };
        if !own.ways.contains_key(mask) {
            if own.masks.len() >= MASKS_MAX {
                own.masks.clear();
                own.ways.clear();
            }
            own.masks.push(mask.clone());
        }
        let ways = own.ways.entry(mask.clone()).or_default();
        let is_known = ways.len();
        ways.resize(own.groups.len(), (Way::Through, u32::MAX));
        for ((index, (_, number)), (way, stamp)) in own.groups.iter().enumerate().zip(ways) {
            let group = &mut self.groups[*number as usize];
            if index >= is_known {
                group.project(mask);
                if !group.is_whole() && !self.lacking.contains(number) {
                    self.lacking.push(*number);
                }
            }
            if *stamp != group.stamp() {
                (*way, *stamp) = (group.way(mask), group.stamp());
            }
        }
    }

    /// The groups of a table with visits that a rule of this mask and band may outrank, and how to
    /// search each of them, if [`Self::prepare`] has found it.
    pub(super) fn search(
        &self,
        place: Place,
        mask: &SparseMask,
        band: Band,
    ) -> impl Iterator<Item = (&Group, Way)> {
        let own = self.places.get(&place);
        let all = own.map(|own| &own.groups[..]).unwrap_or_default();
        let ways = own.and_then(|own| own.ways.get(mask)).map(Vec::as_slice).unwrap_or_default();
        let below = all.iter().zip(ways).filter(move |((own, _), _)| *own <= band);
        below.map(|((_, number), (way, _))| (self.group(*number), *way))
    }

    /// Takes so many visits into projections that lack them. Answers with what is left of `budget`.
    pub(super) fn fill<'k>(
        &mut self,
        mut budget: usize,
        hashes: &RandomState,
        key: impl Fn(Row) -> &'k SparseKey,
    ) -> usize {
        while budget > 0
            && let Some(number) = self.lacking.last().copied()
        {
            let group = &mut self.groups[number as usize];
            budget = group.fill(budget, hashes, &key);
            if group.is_whole() {
                self.lacking.pop();
            }
        }
        budget
    }

    /// Whether some projection lacks visits.
    pub(super) const fn is_lacking(&self) -> bool {
        !self.lacking.is_empty()
    }

    /// Number of groups with visits.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().filter(|group| !group.is_empty()).count()
    }

    /// Bytes on the heap, about.
    pub(super) fn bytes(&self) -> usize {
        self.groups.iter().map(Group::bytes).sum()
    }
}

impl PlaceGroups {
    /// A group for visits of a mask and a band: an empty one of the table where there are many, or a
    /// new one.
    fn add(
        &mut self,
        groups: &mut Vec<Group>,
        free: &mut Vec<u32>,
        place: Place,
        (mask, band): (SparseMask, Band),
    ) -> u32 {
        let is_crowded = self.groups.len() >= GROUPS_USUAL;
        let empty = self.groups.iter_mut().find(|(_, own)| groups[*own as usize].is_empty());
        let number = if let Some((own, number)) = empty.filter(|_| is_crowded) {
            *own = band;
            self.by_mask.retain(|_, own| own != number);
            groups[*number as usize].become_one_of(place, mask);
            *number
        } else if let Some(number) = free.pop() {
            groups[number as usize].become_one_of(place, mask);
            self.groups.push((band, number));
            number
        } else {
            groups.push(Group::new(place, mask));
            let number = u32::try_from(groups.len() - 1).unwrap_or(u32::MAX);
            self.groups.push((band, number));
            number
        };
        let group = &mut groups[number as usize];
        self.masks.iter().for_each(|mask| group.project(mask));
        number
    }

    /// Number of groups with visits.
    fn occupied(&self, groups: &[Group]) -> usize {
        self.groups.iter().filter(|(_, number)| !groups[*number as usize].is_empty()).count()
    }

    /// Where there are many groups, that of a band whose mask is the largest within another; unless
    /// there is room for a better one.
    fn fitting(&self, groups: &[Group], mask: &SparseMask, band: Band) -> Option<u32> {
        let enough = match self.occupied(groups) {
            0..GROUPS_USUAL => return None,
            GROUPS_USUAL..GROUPS_MAX => in_bytes(mask).bits_count(),
            _ => 0,
        };
        let of_band = self.groups.iter().filter(|(own, _)| *own == band);
        let own = of_band.map(|(_, number)| (groups[*number as usize].mask(), *number));
        let fitting = own.filter(|(own, _)| mask.has_all_of(own));
        let best = fitting.max_by_key(|(own, _)| own.bits_count())?;
        (best.0.bits_count() >= enough).then_some(best.1)
    }
}
