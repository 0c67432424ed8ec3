//! The visits of one table with lookups that consulted the same bits.
//!
//! An added rule finds visits by the bits that both consult: two regions with masks *W* and *m*
//! overlap exactly if they agree under *W* & *m*. A [`GroupProjection`] indexes the group by its
//! bits under one such common mask. Projections are filled in slices. Rows that a projection does
//! not have yet are scanned in the [`Columns`]. A removed rule finds its visits by its id, in the
//! [`Ranks`].
//!
//! A rule that shares few bits with the group overlaps many visits that outrank it. The ranks list
//! the visits that do not, the lowest first. The search uses the shorter of the two lists.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use shunt_flow::{SparseKey, SparseMask};
use shunt_pipeline::{Rank, Rule, RuleId};

use crate::{
    bound::TableKey,
    masks::{best_half, common},
    positions::{last_position, position},
};

use super::{
    chains::Chains,
    columns::{ColumnTests, Columns},
    ranks::Ranks,
    row::{GroupRow, VisitRef},
    rule_query::RuleQuery,
};

/// The visits of one table with one mask.
pub(super) struct VisitGroup {
    table: TableKey,
    /// Bits that every lookup of the group consulted; some consulted more.
    mask: SparseMask,
    /// Bits of `mask` that the columns hold; projections use no others.
    column_mask: SparseMask,
    rows: Vec<Option<GroupRow>>,
    free: Vec<u32>,
    columns: Columns,
    ranks: Ranks,
    projections: Vec<GroupProjection>,
    /// Visits that are examined one by one before a projection is searched.
    scan_threshold: usize,
    /// Counts the changes of the projections.
    plan_epoch: u32,
}

/// An index of a group by its bits under a mask.
struct GroupProjection {
    mask: SparseMask,
    chains: Chains,
    /// Rows before this one are in the chains.
    rows_filled: u32,
}

/// A plan to search a group for the visits that a rule of some mask overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchPlan {
    /// Searches the projection with this index.
    /// Scans the rows that the projection does not have yet.
    Projection(u8),
    /// Scans all rows.
    Scan,
}

/// The outcome of a search for visits that a rule may overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchOutcome {
    /// True if all visits found overlap the rule.
    pub(super) is_exact: bool,
    /// Number of visits examined, about.
    pub(super) examined: usize,
}

/// Number of projections of a group that take masks as they are.
const PROJECTIONS_EXACT: usize = 6;

/// Largest number of projections of a group.
///
/// Beyond [`PROJECTIONS_EXACT`], a projection has the mask of one half of a word in whole bytes,
/// and few such masks are different. A rule of yet another mask uses the best projection, and the
/// visits found are compared bit by bit.
const PROJECTIONS_MAX: usize = 16;

/// Bits that distinguish visits well enough: a projection with more is not added.
const BITS_ENOUGH: u32 = 24;

/// Default number of visits of a group that are examined one by one.
/// With more, a projection is searched.
pub(super) const SCAN_THRESHOLD: usize = 16;

/// Rows that a column scan passes in the time of examining one visit, about.
const ROWS_SCANNED_PER_VISIT: usize = 256;

impl VisitGroup {
    /// Creates a group without visits.
    pub(super) fn new(table: TableKey, mask: SparseMask, scan_threshold: usize) -> Self {
        let (rows, free, projections) = (Vec::new(), Vec::new(), Vec::new());
        let (columns, ranks) = (Columns::new(&mask), Ranks::default());
        let column_mask = columns.mask();
        Self {
            table,
            mask,
            column_mask,
            rows,
            free,
            columns,
            ranks,
            projections,
            scan_threshold,
            plan_epoch: 0,
        }
    }

    /// Becomes `other`, another group without visits.
    ///
    /// The plan epoch continues, so that no plan of the former group is used for the new one.
    pub(super) fn replace_with(&mut self, other: Self) {
        debug_assert!(self.is_empty(), "a group with visits keeps its mask");
        let plan_epoch = self.plan_epoch + 1;
        *self = Self { plan_epoch, ..other };
    }

    /// Returns the table.
    pub(super) const fn table(&self) -> TableKey {
        self.table
    }

    /// Returns the bits that every lookup of the group consulted.
    pub(super) const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// Returns whether the group has no visits.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.len() == self.free.len()
    }

    /// Adds a visit that consulted the bits of the mask of the group.
    ///
    /// Returns its position, and whether its rule has decided no other visit of the group.
    pub(super) fn insert(
        &mut self,
        row: GroupRow,
        key: &SparseKey,
        hashes: &FixedState,
    ) -> (u32, bool) {
        let position = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            last_position(&self.rows)
        });
        self.columns.put(position, key);
        let is_first = self.ranks.insert(position, &row);
        for projection in &mut self.projections {
            if position <= projection.rows_filled {
                let words = projection.mask.iter().map(|(word, bits)| key.word(word) & bits);
                projection.chains.insert(position, fingerprint(hashes, words));
                projection.rows_filled = projection.rows_filled.max(position + 1);
            }
        }
        self.rows[position as usize] = Some(row);
        (position, is_first)
    }

    /// Removes a visit, and frees the memory with the last one.
    ///
    /// Returns the rule that decided it, if the rule has decided no other visit of the group.
    pub(super) fn remove(&mut self, position: u32) -> Option<RuleId> {
        let row = self.rows[position as usize].take()?;
        let is_last = self.ranks.remove(position, &row);
        for projection in self.projections.iter_mut().filter(|own| position < own.rows_filled) {
            projection.chains.remove(position);
        }
        self.free.push(position);
        if self.is_empty() {
            (self.rows, self.free) = (Vec::new(), Vec::new());
            (self.columns, self.ranks) = (Columns::new(&self.mask), Ranks::default());
            let all = self.projections.iter_mut();
            all.for_each(|own| (own.chains, own.rows_filled) = (Chains::new(), 0));
        }
        row.rule().filter(|_| is_last)
    }

    /// Returns the slots of the entries of all visits.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().flatten().map(|row| row.entry)
    }

    /// Returns the visits that a rule decided.
    pub(super) fn decided_by(&self, rule: &Rule) -> impl Iterator<Item = GroupRow> {
        self.ranks.of(rule.rank(), rule.id).filter_map(|own| self.rows[own.position as usize])
    }

    /// Returns the slots of the entries with a visit that a rule decided.
    pub(super) fn entries_decided_by(&self, rule: &Rule) -> impl Iterator<Item = u32> {
        self.ranks.of(rule.rank(), rule.id).map(|own| own.visit_ref.entry)
    }

    /// Adds the visits that a rule outranks and may overlap to `found`.
    ///
    /// It finds every visit that the rule overlaps, and some that it does not.
    pub(super) fn candidates(
        &self,
        plan: SearchPlan,
        query: &RuleQuery<'_>,
        hashes: &FixedState,
        found: &mut Vec<VisitRef>,
    ) -> SearchOutcome {
        let tests = self.columns.tests(query);
        let outranked = |position: u32| {
            let row = self.rows.get(position as usize).copied().flatten();
            row.filter(|row| row.rank() < query.rank).map(|row| row.visit_ref())
        };
        let overlapping_positions = if self.is_rank_scan_cheaper(plan, query.rank) {
            None
        } else {
            self.overlapping_if_fewer(plan, query, hashes, &tests)
        };
        let examined = if let Some(overlapping_positions) = overlapping_positions {
            found.extend(overlapping_positions.iter().copied().filter_map(outranked));
            self.rows_scanned(plan) / ROWS_SCANNED_PER_VISIT + overlapping_positions.len()
        } else {
            found.extend(self.outranked_by(query.rank, &tests));
            self.ranks.count_below(query.rank, usize::MAX)
        };
        SearchOutcome { is_exact: tests.is_exact, examined }
    }

    /// Returns the positions of the visits that a rule overlaps.
    /// `None` if it is cheaper to examine the visits that the rule outranks.
    fn overlapping_if_fewer(
        &self,
        plan: SearchPlan,
        query: &RuleQuery<'_>,
        hashes: &FixedState,
        tests: &ColumnTests,
    ) -> Option<Vec<u32>> {
        let mut overlapping_positions = Vec::new();
        let mut below = self.ranks.below(query.rank);
        for position in self.overlapping_positions(plan, query, hashes, tests) {
            overlapping_positions.push(position);
            if overlapping_positions.len() > self.scan_threshold && below.next().is_none() {
                return None;
            }
        }
        Some(overlapping_positions)
    }

    /// Returns about how many visits [`Self::candidates`] examines, or more than `max`.
    pub(super) fn cost(
        &self,
        plan: SearchPlan,
        query: &RuleQuery<'_>,
        hashes: &FixedState,
        max: usize,
    ) -> usize {
        if self.is_rank_scan_cheaper(plan, query.rank) {
            return self.ranks.count_below(query.rank, max);
        }
        let rows_scanned = self.rows_scanned(plan) / ROWS_SCANNED_PER_VISIT;
        if rows_scanned > max {
            return rows_scanned;
        }
        let tests = self.columns.tests(query);
        let overlapping_positions =
            self.overlapping_positions(plan, query, hashes, &tests).take(max + 1).count();
        if overlapping_positions <= self.scan_threshold {
            return rows_scanned + overlapping_positions;
        }
        rows_scanned
            + self.ranks.count_below(query.rank, overlapping_positions).min(overlapping_positions)
    }

    /// Returns the visits that a rule of this rank outranks and that pass the tests.
    fn outranked_by(&self, rank: Rank, tests: &ColumnTests) -> impl Iterator<Item = VisitRef> {
        let below = self.ranks.below(rank);
        below.filter(|own| self.columns.pass(tests, own.position)).map(|own| own.visit_ref)
    }

    /// Returns whether it is cheaper to examine all visits that a rule outranks.
    /// The rule has this rank.
    ///
    /// The alternative is to scan the rows that the plan does not cover. A rule that was removed
    /// and added again is the youngest of its priority, so it outranks few visits: those made while
    /// it was away.
    pub(super) fn is_rank_scan_cheaper(&self, plan: SearchPlan, rank: Rank) -> bool {
        let scan_threshold = self.scan_threshold + self.rows_scanned(plan) / ROWS_SCANNED_PER_VISIT;
        self.ranks.count_below(rank, scan_threshold) <= scan_threshold
    }

    /// Returns the number of rows that a plan scans.
    fn rows_scanned(&self, plan: SearchPlan) -> usize {
        (self.count() - self.rows_filled(plan)) as usize
    }

    /// Returns the positions of the visits that a rule overlaps, whatever their rank.
    fn overlapping_positions<'g>(
        &'g self,
        plan: SearchPlan,
        query: &RuleQuery<'_>,
        hashes: &FixedState,
        tests: &'g ColumnTests,
    ) -> impl Iterator<Item = u32> + use<'g> {
        let found = match plan {
            SearchPlan::Projection(index) => {
                let GroupProjection { mask, chains, .. } = &self.projections[usize::from(index)];
                let words = mask.iter().map(|(word, bits)| query.key.words()[word] & bits);
                Some(chains.of(fingerprint(hashes, words)))
            }
            SearchPlan::Scan => None,
        };
        let found = found.into_iter().flatten().filter(|at| self.columns.pass(tests, *at));
        found.chain(self.columns.passing(tests, self.rows_filled(plan)..self.count()))
    }

    /// Returns the first row that a plan scans.
    fn rows_filled(&self, plan: SearchPlan) -> u32 {
        match plan {
            SearchPlan::Projection(index) => self.projections[usize::from(index)].rows_filled,
            SearchPlan::Scan => 0,
        }
    }

    /// Returns the number of rows, including free ones.
    fn count(&self) -> u32 {
        position(self.rows.len())
    }

    /// Returns the best plan for rules of a mask.
    /// It is valid until [`Self::plan_epoch`] changes.
    pub(super) fn plan(&self, mask: &SparseMask) -> SearchPlan {
        let all = self.projections.iter().zip(0..);
        let usable = all.filter(|(own, _)| mask.has_all_of(&own.mask));
        let best = usable.max_by_key(|(own, _)| own.mask.bits_count());
        best.map_or(SearchPlan::Scan, |(_, index)| SearchPlan::Projection(index))
    }

    /// Returns a number that changes whenever the result of [`Self::plan`] may.
    pub(super) const fn plan_epoch(&self) -> u32 {
        self.plan_epoch
    }

    /// Adds a projection under the bits that the columns share with `mask`.
    ///
    /// It does nothing if a projection has enough of these bits, or if the group has too many
    /// projections. [`Self::fill_projections`] fills the new one.
    pub(super) fn project(&mut self, mask: &SparseMask) {
        let common = common(&self.column_mask, mask);
        let wanted = common.bits_count().min(BITS_ENOUGH);
        let usable = self.projections.iter().filter(|own| mask.has_all_of(&own.mask));
        let best = usable.map(|own| own.mask.bits_count()).max().unwrap_or_default();
        let mask = match self.projections.len() {
            0..PROJECTIONS_EXACT => common,
            PROJECTIONS_EXACT..PROJECTIONS_MAX => best_half(&common),
            _ => return,
        };
        if best < wanted && best < mask.bits_count() {
            let chains = Chains::with_capacity(self.rows.len());
            self.projections.push(GroupProjection { mask, chains, rows_filled: 0 });
            self.plan_epoch += 1;
        }
    }

    /// Returns whether every projection has all rows.
    pub(super) fn is_filled(&self) -> bool {
        self.projections.iter().all(|projection| projection.rows_filled as usize == self.rows.len())
    }

    /// Fills up to `budget` rows of projections, and returns the rest of `budget`.
    pub(super) fn fill_projections(&mut self, mut budget: usize, hashes: &FixedState) -> usize {
        for GroupProjection { mask, chains, rows_filled } in &mut self.projections {
            let unfilled =
                self.rows[*rows_filled as usize..].iter().zip(*rows_filled..).take(budget);
            for (row, position) in unfilled {
                if row.is_some() {
                    let value = |(word, bits)| self.columns.word(position, word) & bits;
                    chains.insert(position, fingerprint(hashes, mask.iter().map(value)));
                }
                *rows_filled = position + 1;
                budget -= 1;
            }
        }
        budget
    }

    /// Returns the number of projections.
    pub(super) const fn projections(&self) -> usize {
        self.projections.len()
    }

    /// Returns the number of positions in chains.
    pub(super) fn chained(&self) -> usize {
        self.rows.len() - self.free.len()
            + self.projections.iter().map(|own| own.chains.len()).sum::<usize>()
    }

    /// Returns the bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Option<GroupRow>>();
        let free = self.free.capacity() * size_of::<u32>();
        let projections = self.projections.iter().map(|own| own.chains.bytes()).sum::<usize>();
        rows + free + self.columns.bytes() + self.ranks.bytes() + projections
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
fn fingerprint(hashes: &FixedState, words: impl Iterator<Item = u64>) -> u32 {
    use std::hash::Hasher;
    let mut hasher = hashes.build_hasher();
    words.for_each(|word| hasher.write_u64(word));
    hasher.finish() as u32
}
