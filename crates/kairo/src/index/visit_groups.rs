//! The groups of visits of each table, and the search plan of each group.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowMask, SparseMask};
use shunt_pipeline::{Rank, RuleId, Visit};

use crate::{bound::TableKey, masks::in_bytes, positions::last_position};

use super::{
    group::{SCAN_THRESHOLD, SearchPlan, VisitGroup},
    row::GroupRow,
};

/// All groups of visits, by table.
pub(super) struct VisitGroups {
    /// The groups by their numbers.
    groups: Vec<VisitGroup>,
    tables: HashMap<TableKey, TableGroups, FixedState>,
    /// Masks of rules that were alone in their change, with table and rank of the rule.
    ///
    /// [`Self::prepare_deferred`] adds the projections of deferred masks, so that the search for
    /// the next rule of the mask is fast.
    deferred_masks: Vec<(TableKey, SparseMask, Rank)>,
    /// The numbers of groups with a projection that does not have all rows.
    unfilled: Vec<u32>,
    /// The numbers of groups that no table has; they have no visits.
    free: Vec<u32>,
    /// The groups with visits that a rule decided, alone or as a clause, by rule.
    deciders: HashMap<RuleId, Vec<u32>, FixedState>,
    /// Maximum number of visits of a group that are examined without a projection.
    scan_threshold: usize,
    /// The hasher of masks and tables, with a fixed seed.
    hashes: FixedState,
}

/// The groups of visits of one table.
struct TableGroups {
    /// The number of the group of each mask.
    by_mask: HashMap<SparseMask, u32, FixedState>,
    /// Number of visits in all groups of the table.
    visits: usize,
    /// The numbers of the groups of the table.
    groups: Vec<u32>,
    /// The masks of added rules, in the order of their first search.
    masks: Vec<SparseMask>,
    /// Search plans by the mask of a rule.
    /// A mask has one plan per group, with the plan epoch of the group.
    plans: HashMap<SparseMask, Vec<(SearchPlan, u32)>, FixedState>,
}

/// Number of groups of a table that have exactly the mask of their visits.
const GROUPS_EXACT: usize = 16;

/// Maximum number of groups of a table.
///
/// Beyond [`GROUPS_EXACT`], masks of groups are cut to whole bytes, so that there are few different
/// masks. At [`GROUPS_MAX`], a visit with another mask is added to the group with the largest mask
/// that its own mask contains.
const GROUPS_MAX: usize = 64;

/// Maximum number of masks of visits per table for which the group is remembered.
const REMEMBERED_MASKS_MAX: usize = 16_384;

/// Marks a search plan that does not exist.
const NOT_PREPARED: u32 = u32::MAX;

/// Maximum number of masks of rules per table that have search plans.
const PREPARED_MASKS_MAX: usize = 1024;

impl VisitGroups {
    /// Creates a set without groups; its hash tables use `hashes`.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            groups: Vec::new(),
            tables: HashMap::with_hasher(hashes.clone()),
            deferred_masks: Vec::new(),
            unfilled: Vec::new(),
            free: Vec::new(),
            deciders: HashMap::with_hasher(hashes.clone()),
            scan_threshold: SCAN_THRESHOLD,
            hashes: hashes.clone(),
        }
    }

    /// Sets the scan threshold of all groups. No group may exist yet.
    pub(super) fn with_scan_threshold(self, scan_threshold: usize) -> Self {
        debug_assert!(self.groups.is_empty(), "the threshold is set before the first group exists");
        Self { scan_threshold, ..self }
    }

    /// Adds a visit, and returns the number of its group and its position in the group.
    pub(super) fn insert(&mut self, row: GroupRow, visit: &Visit) -> (u32, u32) {
        let table = (visit.bridge, visit.table);
        let number = self.group_for(table, &visit.mask);
        if let Some(own) = self.tables.get_mut(&table) {
            own.visits += 1;
        }
        let (position, is_first) =
            self.groups[number as usize].insert(row, &visit.key, &self.hashes);
        if let Some(rule) = row.rule().filter(|_| is_first) {
            self.deciders.entry(rule).or_default().push(number);
        }
        (number, position)
    }

    /// Removes a visit. With the last visit of a table, its groups are removed too.
    pub(super) fn remove(&mut self, number: u32, position: u32) {
        let group = &mut self.groups[number as usize];
        let last = group.remove(position);
        let table = group.table();
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
        let Some(own) = self.tables.get_mut(&table) else { return };
        own.visits -= 1;
        if own.visits == 0
            && let Some(own) = self.tables.remove(&table)
        {
            self.free.extend(own.groups);
        }
    }

    /// Returns the group for a visit that consulted `mask`.
    ///
    /// A new group gets projections for all known masks of rules.
    fn group_for(&mut self, table: TableKey, mask: &SparseMask) -> u32 {
        let own = self.tables.entry(table).or_insert_with(|| TableGroups::new(&self.hashes));
        if let Some(number) = own.by_mask.get(mask) {
            return *number;
        }
        if own.by_mask.len() >= REMEMBERED_MASKS_MAX {
            own.by_mask.retain(|mask, number| self.groups[*number as usize].mask() == mask);
        }
        let number = own.fitting(&self.groups, mask).unwrap_or_else(|| {
            let mask = match own.occupied(&self.groups) {
                0..GROUPS_EXACT => mask.clone(),
                GROUPS_EXACT..GROUPS_MAX => in_bytes(mask),
                _ => SparseMask::from(&FlowMask::EMPTY),
            };
            let group = VisitGroup::new(table, mask, self.scan_threshold);
            own.add(group, &mut self.groups, &mut self.free)
        });
        own.by_mask.insert(mask.clone(), number);
        number
    }

    /// Returns the group with a number.
    pub(super) fn group(&self, number: u32) -> &VisitGroup {
        &self.groups[number as usize]
    }

    /// Returns the groups of a table.
    pub(super) fn of(&self, table: TableKey) -> impl Iterator<Item = &VisitGroup> {
        let all = self.tables.get(&table).map(|own| &own.groups[..]).unwrap_or_default();
        all.iter().map(|number| self.group(*number))
    }

    /// Returns the groups with visits that a rule decided. A group may occur twice.
    pub(super) fn decided_by(&self, rule: RuleId) -> impl Iterator<Item = &VisitGroup> {
        let all = self.deciders.get(&rule).into_iter().flatten();
        all.map(|number| self.group(*number))
    }

    /// Defers the projections for the mask of a rule to [`Self::prepare_deferred`].
    ///
    /// Returns whether the projections are deferred: only for the first rule of a mask in the
    /// table.
    pub(super) fn defer_preparation(
        &mut self,
        table: TableKey,
        mask: &SparseMask,
        rank: Rank,
    ) -> bool {
        let has_plan = |own: &TableGroups| own.plans.contains_key(mask);
        let is_first = self.tables.get(&table).is_some_and(|own| !has_plan(own))
            && self.deferred_masks.len() < PREPARED_MASKS_MAX
            && !self.deferred_masks.iter().any(|(at, own, _)| *at == table && own == mask);
        if is_first {
            self.deferred_masks.push((table, mask.clone(), rank));
        }
        is_first
    }

    /// Adds the projections of deferred masks, for at most `budget` groups.
    /// Returns the unused budget.
    pub(super) fn prepare_deferred(&mut self, mut budget: usize) -> usize {
        while budget > 0
            && let Some((table, mask, rank)) = self.deferred_masks.pop()
        {
            self.prepare(table, &mask, rank);
            budget = budget.saturating_sub(self.of(table).count());
        }
        budget
    }

    /// Creates the search plans for rules of a mask, and adds missing projections.
    ///
    /// Only groups in which a rule of this rank outranks many visits get a projection. Returns
    /// whether a projection does not have all rows.
    pub(super) fn prepare(&mut self, table: TableKey, mask: &SparseMask, rank: Rank) -> bool {
        let Some(own) = self.tables.get_mut(&table) else { return false };
        if !own.plans.contains_key(mask) {
            if own.masks.len() >= PREPARED_MASKS_MAX {
                own.masks.clear();
                own.plans.clear();
            }
            own.masks.push(mask.clone());
            own.plans.insert(mask.clone(), Vec::new());
        }
        let Some(plans) = own.plans.get_mut(mask) else { return false };
        plans.resize(own.groups.len(), (SearchPlan::Scan, NOT_PREPARED));
        let mut has_unfilled_projections = false;
        for (number, (plan, plan_epoch)) in own.groups.iter().zip(plans) {
            let group = &mut self.groups[*number as usize];
            if *plan_epoch == NOT_PREPARED {
                if group.is_rank_scan_cheaper(group.plan(mask), rank) {
                    continue;
                }
                group.project(mask);
                if !group.is_filled() && !self.unfilled.contains(number) {
                    self.unfilled.push(*number);
                }
            }
            has_unfilled_projections |= !group.is_filled();
            if *plan_epoch != group.plan_epoch() {
                (*plan, *plan_epoch) = (group.plan(mask), group.plan_epoch());
            }
        }
        has_unfilled_projections
    }

    /// Returns the groups of a table with visits, each with the plan for `mask`.
    ///
    /// A plan of [`Self::prepare`] is used while the plan epoch of the group is the same.
    pub(super) fn search(
        &self,
        table: TableKey,
        mask: &SparseMask,
    ) -> impl Iterator<Item = (&VisitGroup, SearchPlan)> {
        let own = self.tables.get(&table);
        let plans = own.and_then(|own| own.plans.get(mask)).map(Vec::as_slice).unwrap_or_default();
        let known = plans.iter().map(|plan| Some(*plan)).chain(std::iter::repeat(None));
        let all = self.of(table).zip(known).filter(|(group, _)| !group.is_empty());
        all.map(|(group, known)| match known {
            Some((plan, plan_epoch)) if plan_epoch == group.plan_epoch() => (group, plan),
            _ => (group, group.plan(mask)),
        })
    }

    /// Returns the hash function of the fingerprints in all groups.
    pub(super) const fn hashes(&self) -> &FixedState {
        &self.hashes
    }

    /// Adds at most `budget` rows to projections, and returns the unused budget.
    pub(super) fn fill_projections(&mut self, mut budget: usize) -> usize {
        while budget > 0
            && let Some(number) = self.unfilled.last().copied()
        {
            let group = &mut self.groups[number as usize];
            budget = group.fill_projections(budget, &self.hashes);
            if group.is_filled() {
                self.unfilled.pop();
            }
        }
        budget
    }

    /// Returns whether a projection is deferred, or does not have all rows.
    pub(super) const fn has_unfilled_projections(&self) -> bool {
        !self.unfilled.is_empty() || !self.deferred_masks.is_empty()
    }

    /// Returns the number of groups with visits, summed over all tables.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().filter(|group| !group.is_empty()).count()
    }

    /// Returns the number of projections of all groups.
    pub(super) fn projections(&self) -> usize {
        self.groups.iter().map(VisitGroup::projections).sum()
    }

    /// Returns the number of rows by rule, plus the number of positions in projections.
    pub(super) fn chained(&self) -> usize {
        self.groups.iter().map(VisitGroup::chained).sum()
    }

    /// Returns the approximate number of bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let of_rule = size_of::<(RuleId, Vec<u32>)>() + size_of::<[u32; 4]>();
        let deciders = self.deciders.len() * of_rule;
        self.groups.iter().map(VisitGroup::bytes).sum::<usize>() + deciders
    }
}

impl TableGroups {
    /// Returns a table without groups.
    fn new(hashes: &FixedState) -> Self {
        Self {
            by_mask: HashMap::with_hasher(hashes.clone()),
            visits: 0,
            groups: Vec::new(),
            masks: Vec::new(),
            plans: HashMap::with_hasher(hashes.clone()),
        }
    }

    /// Adds a group, or replaces an empty group if the table has many groups.
    fn add(&mut self, group: VisitGroup, groups: &mut Vec<VisitGroup>, free: &mut Vec<u32>) -> u32 {
        let is_crowded = self.groups.len() >= GROUPS_EXACT;
        let empty = self.groups.iter().find(|own| groups[**own as usize].is_empty()).copied();
        let number = if let Some(number) = empty.filter(|_| is_crowded) {
            self.by_mask.retain(|_, own| *own != number);
            groups[number as usize].replace_with(group);
            number
        } else if let Some(number) = free.pop() {
            groups[number as usize].replace_with(group);
            self.groups.push(number);
            number
        } else {
            groups.push(group);
            let number = last_position(groups);
            self.groups.push(number);
            number
        };
        let group = &mut groups[number as usize];
        self.masks.iter().for_each(|mask| group.project(mask));
        number
    }

    /// Returns the number of groups of the table that have visits.
    fn occupied(&self, groups: &[VisitGroup]) -> usize {
        self.groups.iter().filter(|number| !groups[**number as usize].is_empty()).count()
    }

    /// Returns the group with the largest mask that `mask` contains.
    /// The result is used only if the table has many groups.
    ///
    /// The result is `None` while the table has room for a group with a better mask.
    fn fitting(&self, groups: &[VisitGroup], mask: &SparseMask) -> Option<u32> {
        let enough = match self.occupied(groups) {
            0..GROUPS_EXACT => return None,
            GROUPS_EXACT..GROUPS_MAX => in_bytes(mask).bits_count(),
            _ => 0,
        };
        let own = self.groups.iter().map(|number| (groups[*number as usize].mask(), *number));
        let fitting = own.filter(|(own, _)| mask.has_all_of(own));
        let best = fitting.max_by_key(|(own, _)| own.bits_count())?;
        (best.0.bits_count() >= enough).then_some(best.1)
    }
}
