//! Tables: which groups of visits each has, and how each of them is searched.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowMask, SparseMask};
use shunt_pipeline::{BridgeId, Rank, RuleId, TableId, Visit};

use crate::masks::in_bytes;

use super::{
    group::{FEW, Group, Way},
    row::Row,
};

/// A table of a bridge.
pub(super) type Place = (BridgeId, TableId);

/// All groups, by table.
pub(super) struct Places {
    groups: Vec<Group>,
    places: HashMap<Place, PlaceGroups, FixedState>,
    /// Masks of rules that came alone, by table and with their rank: what the next of their mask
    /// would gain by is done when nobody waits.
    alone: Vec<(Place, SparseMask, Rank)>,
    /// Groups with a projection that lacks visits.
    lacking: Vec<u32>,
    /// Groups of tables without visits.
    free: Vec<u32>,
    /// Groups with visits that a rule decided, alone or as a clause.
    deciders: HashMap<RuleId, Vec<u32>, FixedState>,
    /// Visits of a group that are looked at without a thought of how many a rule outranks.
    few: usize,
    hashes: FixedState,
}

struct PlaceGroups {
    by_mask: HashMap<SparseMask, u32, FixedState>,
    /// Visits in all of them.
    visits: usize,
    /// All groups.
    groups: Vec<u32>,
    /// Masks of rules that were searched for, in the order in which they came.
    masks: Vec<SparseMask>,
    /// How rules of each of these are searched for, by group, and the stamp of the group then.
    ways: HashMap<SparseMask, Vec<(Way, u32)>, FixedState>,
}

/// Groups of a table, as far as they have visits, whose masks are those of visits.
const GROUPS_USUAL: usize = 16;

/// Groups of a table: beyond the usual, their masks are in whole bytes, and there are few of these. A
/// visit with yet another mask goes into the best of all that it fits.
const GROUPS_MAX: usize = 64;

/// Masks of visits whose group is remembered, by table.
const NAMES_MAX: usize = 16_384;

/// The stamp of a group that a mask's way through it has not been asked for.
const NOT_PREPARED: u32 = u32::MAX;

/// Masks of rules that a table is prepared for.
const MASKS_MAX: usize = 1024;

impl Places {
    /// None, and the hashes that they are to have.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            groups: Vec::new(),
            places: HashMap::with_hasher(hashes.clone()),
            alone: Vec::new(),
            lacking: Vec::new(),
            free: Vec::new(),
            deciders: HashMap::with_hasher(hashes.clone()),
            few: FEW,
            hashes: hashes.clone(),
        }
    }

    /// The same, whose groups, none of which is there yet, have so `few` visits looked at one by one.
    pub(super) fn with_few(self, few: usize) -> Self {
        debug_assert!(self.groups.is_empty(), "groups keep what they are made with");
        Self { few, ..self }
    }

    /// Adds a visit. Answers with its group and its position there.
    pub(super) fn insert(&mut self, row: Row, visit: &Visit) -> (u32, u32) {
        let place = (visit.bridge, visit.table);
        let number = self.group_for(place, &visit.mask);
        if let Some(own) = self.places.get_mut(&place) {
            own.visits += 1;
        }
        let (position, is_first) =
            self.groups[number as usize].insert(row, &visit.key, &self.hashes);
        if let Some(rule) = row.rule().filter(|_| is_first) {
            self.deciders.entry(rule).or_default().push(number);
        }
        (number, position)
    }

    /// Takes a visit out. With the last of a table go its groups.
    pub(super) fn remove(&mut self, number: u32, position: u32) {
        let group = &mut self.groups[number as usize];
        let last = group.remove(position);
        let place = group.place();
        if let Some(rule) = last
            && let Some(groups) = self.deciders.get_mut(&rule)
        {
            if let Some(own) = groups.iter().position(|own| *own == number) {
                groups.swap_remove(own);
            }
            if groups.is_empty() {
                self.deciders.remove(&rule);
            }
        }
        let Some(own) = self.places.get_mut(&place) else { return };
        own.visits -= 1;
        if own.visits == 0
            && let Some(own) = self.places.remove(&place)
        {
            self.free.extend(own.groups);
        }
    }

    /// The group for a visit that consulted `mask`. A new one is made ready for the masks of rules
    /// that are known.
    fn group_for(&mut self, place: Place, mask: &SparseMask) -> u32 {
        let own = self.places.entry(place).or_insert_with(|| PlaceGroups::new(&self.hashes));
        if let Some(number) = own.by_mask.get(mask) {
            return *number;
        }
        if own.by_mask.len() >= NAMES_MAX {
            own.by_mask.retain(|mask, number| self.groups[*number as usize].mask() == mask);
        }
        let number = own.fitting(&self.groups, mask).unwrap_or_else(|| {
            let mask = match own.occupied(&self.groups) {
                0..GROUPS_USUAL => mask.clone(),
                GROUPS_USUAL..GROUPS_MAX => in_bytes(mask),
                _ => SparseMask::from(&FlowMask::EMPTY),
            };
            own.add((&mut self.groups, self.few), &mut self.free, place, mask)
        });
        own.by_mask.insert(mask.clone(), number);
        number
    }

    pub(super) fn group(&self, number: u32) -> &Group {
        &self.groups[number as usize]
    }

    /// The groups of a table.
    pub(super) fn of(&self, place: Place) -> impl Iterator<Item = &Group> {
        let all = self.places.get(&place).map(|own| &own.groups[..]).unwrap_or_default();
        all.iter().map(|number| self.group(*number))
    }

    /// The groups with visits that a rule decided; some come twice.
    pub(super) fn decided_by(&self, rule: RuleId) -> impl Iterator<Item = &Group> {
        let all = self.deciders.get(&rule).into_iter().flatten();
        all.map(|number| self.group(*number))
    }

    /// Remembers the mask of a rule that came alone, if it is the first of its mask in the table:
    /// [`Self::prepare_for_alone`] prepares for it later. Answers whether it was.
    pub(super) fn remember(&mut self, place: Place, mask: &SparseMask, rank: Rank) -> bool {
        let is_known = |own: &PlaceGroups| own.ways.contains_key(mask);
        let is_first = self.places.get(&place).is_some_and(|own| !is_known(own))
            && self.alone.len() < MASKS_MAX
            && !self.alone.iter().any(|(at, own, _)| *at == place && own == mask);
        if is_first {
            self.alone.push((place, mask.clone(), rank));
        }
        is_first
    }

    /// Prepares the tables of rules that came alone for their masks, in so many groups and some.
    /// Answers with what is left of `budget`.
    pub(super) fn prepare_for_alone(&mut self, mut budget: usize) -> usize {
        while budget > 0
            && let Some((place, mask, rank)) = self.alone.pop()
        {
            self.prepare(place, &mask, rank);
            budget = budget.saturating_sub(self.of(place).count());
        }
        budget
    }

    /// Finds how rules of a mask are searched for in the groups of a table where one of this rank
    /// outranks many visits. Answers whether one of these lacks visits.
    pub(super) fn prepare(&mut self, place: Place, mask: &SparseMask, rank: Rank) -> bool {
        let Some(own) = self.places.get_mut(&place) else { return false };
        if !own.ways.contains_key(mask) {
            if own.masks.len() >= MASKS_MAX {
                own.masks.clear();
                own.ways.clear();
            }
            own.masks.push(mask.clone());
            own.ways.insert(mask.clone(), Vec::new());
        }
        let Some(ways) = own.ways.get_mut(mask) else { return false };
        ways.resize(own.groups.len(), (Way::Through, NOT_PREPARED));
        let mut is_lacking = false;
        for (number, (way, stamp)) in own.groups.iter().zip(ways) {
            let group = &mut self.groups[*number as usize];
            if *stamp == NOT_PREPARED {
                if group.outranks_few(group.way(mask), rank) {
                    continue;
                }
                group.project(mask);
                if !group.is_whole() && !self.lacking.contains(number) {
                    self.lacking.push(*number);
                }
            }
            is_lacking |= !group.is_whole();
            if *stamp != group.stamp() {
                (*way, *stamp) = (group.way(mask), group.stamp());
            }
        }
        is_lacking
    }

    /// The groups of a table with visits, and the way to search each for rules of this mask: the
    /// one that [`Self::prepare`] has found, if it has.
    pub(super) fn search(
        &self,
        place: Place,
        mask: &SparseMask,
    ) -> impl Iterator<Item = (&Group, Way)> {
        let own = self.places.get(&place);
        let ways = own.and_then(|own| own.ways.get(mask)).map(Vec::as_slice).unwrap_or_default();
        let known = ways.iter().map(|way| Some(*way)).chain(std::iter::repeat(None));
        let all = self.of(place).zip(known).filter(|(group, _)| !group.is_empty());
        all.map(|(group, known)| match known {
            Some((way, stamp)) if stamp == group.stamp() => (group, way),
            _ => (group, group.way(mask)),
        })
    }

    /// The hashes that groups are searched with.
    pub(super) const fn hashes(&self) -> &FixedState {
        &self.hashes
    }

    /// Takes so many visits into projections that lack them. Answers with what is left of `budget`.
    pub(super) fn fill(&mut self, mut budget: usize) -> usize {
        while budget > 0
            && let Some(number) = self.lacking.last().copied()
        {
            let group = &mut self.groups[number as usize];
            budget = group.fill(budget, &self.hashes);
            if group.is_whole() {
                self.lacking.pop();
            }
        }
        budget
    }

    /// Whether some projection is missing, or lacks visits.
    pub(super) const fn is_lacking(&self) -> bool {
        !self.lacking.is_empty() || !self.alone.is_empty()
    }

    /// Number of groups with visits.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().filter(|group| !group.is_empty()).count()
    }

    /// Common masks of all groups.
    pub(super) fn projections(&self) -> usize {
        self.groups.iter().map(Group::projections).sum()
    }

    /// Places of visits in chains.
    pub(super) fn chained(&self) -> usize {
        self.groups.iter().map(Group::chained).sum()
    }

    /// Bytes on the heap, about.
    pub(super) fn bytes(&self) -> usize {
        let of_rule = size_of::<(RuleId, Vec<u32>)>() + size_of::<[u32; 4]>();
        let deciders = self.deciders.len() * of_rule;
        self.groups.iter().map(Group::bytes).sum::<usize>() + deciders
    }
}

impl PlaceGroups {
    fn new(hashes: &FixedState) -> Self {
        Self {
            by_mask: HashMap::with_hasher(hashes.clone()),
            visits: 0,
            groups: Vec::new(),
            masks: Vec::new(),
            ways: HashMap::with_hasher(hashes.clone()),
        }
    }

    /// A group for visits of a mask: an empty one of the table where there are many, or a new one.
    fn add(
        &mut self,
        (groups, few): (&mut Vec<Group>, usize),
        free: &mut Vec<u32>,
        place: Place,
        mask: SparseMask,
    ) -> u32 {
        let is_crowded = self.groups.len() >= GROUPS_USUAL;
        let empty = self.groups.iter().find(|own| groups[**own as usize].is_empty()).copied();
        let number = if let Some(number) = empty.filter(|_| is_crowded) {
            self.by_mask.retain(|_, own| *own != number);
            groups[number as usize].become_one_of(place, mask);
            number
        } else if let Some(number) = free.pop() {
            groups[number as usize].become_one_of(place, mask);
            self.groups.push(number);
            number
        } else {
            groups.push(Group::new(place, mask, few));
            let number = u32::try_from(groups.len() - 1).unwrap_or(u32::MAX);
            self.groups.push(number);
            number
        };
        let group = &mut groups[number as usize];
        self.masks.iter().for_each(|mask| group.project(mask));
        number
    }

    /// Number of groups with visits.
    fn occupied(&self, groups: &[Group]) -> usize {
        self.groups.iter().filter(|number| !groups[**number as usize].is_empty()).count()
    }

    /// Where there are many groups, the one whose mask is the largest within another; unless there
    /// is room for a better one.
    fn fitting(&self, groups: &[Group], mask: &SparseMask) -> Option<u32> {
        let enough = match self.occupied(groups) {
            0..GROUPS_USUAL => return None,
            GROUPS_USUAL..GROUPS_MAX => in_bytes(mask).bits_count(),
            _ => 0,
        };
        let own = self.groups.iter().map(|number| (groups[*number as usize].mask(), *number));
        let fitting = own.filter(|(own, _)| mask.has_all_of(own));
        let best = fitting.max_by_key(|(own, _)| own.bits_count())?;
        (best.0.bits_count() >= enough).then_some(best.1)
    }
}
