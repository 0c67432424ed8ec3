//! A group: the visits of one table with lookups that consulted the same bits.
//!
//! For an added rule, visits are searched by the bits that are both in the mask *W* of the group
//! and in the mask *m* of the rule. The regions overlap exactly if they agree under *W* & *m*. A
//! [`GroupProjection`] indexes the visits of the group by their bits under one common mask *W* &
//! *m*. Projections are filled in slices. Rows that a projection does not have yet are scanned in
//! the [`Columns`]. For a removed rule, visits are found by the id of the rule, in the [`Ranks`].
//!
//! If the masks of rule and group have few common bits, the rule overlaps many visits that outrank
//! it. The [`Ranks`] list the visits that the rule outranks, lowest rank first. The search uses the
//! shorter list: the overlapped visits, or the outranked ones.

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

/// The visits of one table that have one mask.
pub(super) struct VisitGroup {
    table: TableKey,
    /// The bits that every lookup of the group consulted; some lookups consulted more.
    mask: SparseMask,
    /// The bits of `mask` that the columns hold.
    /// Projections use only bits that the columns hold.
    column_mask: SparseMask,
    /// The rows by their positions; `None` for a free position.
    rows: Vec<Option<GroupRow>>,
    /// The positions that hold nothing.
    free: Vec<u32>,
    /// The half words of the rows in which rules are compared.
    columns: Columns,
    /// The positions of the rows in the order of ranks.
    ranks: Ranks,
    projections: Vec<GroupProjection>,
    /// Maximum number of visits that are examined one by one, without a projection.
    scan_threshold: usize,
    /// Number of changes of the set of projections, by which old plans are detected.
    plan_epoch: u32,
}

/// An index of the visits of a group by their bits under a mask.
struct GroupProjection {
    /// The bits by which the rows are found.
    mask: SparseMask,
    /// The positions of the rows, by a fingerprint of the bits.
    chains: Chains,
    /// Number of rows that are in `chains`, from the first row on.
    rows_filled: u32,
}

/// A plan to search a group for the visits that a rule of some mask overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchPlan {
    /// Searches the projection with this index.
    /// Rows that the projection does not have yet are scanned.
    Projection(u8),
    /// Scans all rows of the group.
    Scan,
}

/// The outcome of a search for visits that a rule may overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchOutcome {
    /// True if all found visits overlap the rule.
    pub(super) is_exact: bool,
    /// The approximate number of examined visits.
    pub(super) examined: usize,
}

/// Number of projections of a group that have the exact common mask.
const PROJECTIONS_EXACT: usize = 6;

/// Maximum number of projections of a group.
///
/// Beyond [`PROJECTIONS_EXACT`], the mask of a projection has whole bytes of one half word, so
/// there are few such masks. The search for a rule with another mask uses the best projection, and
/// compares the found visits bit by bit.
const PROJECTIONS_MAX: usize = 16;

/// Number of bits with which a projection distinguishes visits well enough.
/// If a projection has this number of the common bits, no better one is added.
const BITS_ENOUGH: u32 = 24;

/// Default for the number of visits of a group that are examined one by one.
/// If a group has more visits, a projection of the group is searched.
pub(super) const SCAN_THRESHOLD: usize = 16;

/// Approximate number of rows that a column scan compares in the time of one visit.
/// The time of one visit is the time to examine it outside of the columns.
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

    /// Replaces this group by `other`; both groups have no visits.
    ///
    /// The plan epoch of the former group continues, so that no plan of that group is used for the
    /// new group.
    pub(super) fn replace_with(&mut self, other: Self) {
        debug_assert!(self.is_empty(), "only a group without visits is replaced");
        let plan_epoch = self.plan_epoch + 1;
        *self = Self { plan_epoch, ..other };
    }

    /// Returns the table of the group.
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

    /// Adds a visit with a lookup that consulted the bits of the mask of the group.
    ///
    /// Returns the position of the visit, and whether its rule decided no other visit of the group.
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

    /// Removes a visit; with the last visit, frees the memory of the group.
    ///
    /// Returns the rule that decided the visit, if that rule decided no other visit of the group.
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

    /// Returns the slots of the entries of all visits of the group.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().flatten().map(|row| row.entry)
    }

    /// Returns the rows of the visits that a rule decided.
    pub(super) fn decided_by(&self, rule: &Rule) -> impl Iterator<Item = GroupRow> {
        self.ranks.of(rule.rank(), rule.id).filter_map(|own| self.rows[own.position as usize])
    }

    /// Returns the slots of the entries with a visit that a rule decided.
    pub(super) fn entries_decided_by(&self, rule: &Rule) -> impl Iterator<Item = u32> {
        self.ranks.of(rule.rank(), rule.id).map(|own| own.visit_ref.entry)
    }

    /// Adds to `found` the visits that a rule outranks and may overlap.
    ///
    /// Every outranked visit that the rule overlaps is added, and some visits that it does not
    /// overlap.
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

    /// Returns the positions of the visits that a rule may overlap.
    /// The result is `None` if it is cheaper to examine the visits that the rule outranks.
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

    /// Returns the approximate number of visits that [`Self::candidates`] examines.
    /// If the number is more than `max`, any number above `max` is returned.
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

    /// Returns the visits that a rule of this rank outranks, if they pass the tests.
    fn outranked_by(&self, rank: Rank, tests: &ColumnTests) -> impl Iterator<Item = VisitRef> {
        let below = self.ranks.below(rank);
        below.filter(|own| self.columns.pass(tests, own.position)).map(|own| own.visit_ref)
    }

    /// Returns whether it is cheaper to examine all visits of a rank below `rank`.
    ///
    /// The alternative is to scan the rows that the plan does not cover. A rule that was removed
    /// and added again is the youngest of its priority. Therefore it outranks only the visits that
    /// were made between its removal and its addition.
    pub(super) fn is_rank_scan_cheaper(&self, plan: SearchPlan, rank: Rank) -> bool {
        let scan_threshold = self.scan_threshold + self.rows_scanned(plan) / ROWS_SCANNED_PER_VISIT;
        self.ranks.count_below(rank, scan_threshold) <= scan_threshold
    }

    /// Returns the number of rows that a plan scans.
    fn rows_scanned(&self, plan: SearchPlan) -> usize {
        (self.count() - self.rows_filled(plan)) as usize
    }

    /// Returns the positions of the visits of any rank that a rule may overlap.
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

    /// Returns the number of rows, including free rows.
    fn count(&self) -> u32 {
        position(self.rows.len())
    }

    /// Returns the best plan to search for rules of a mask.
    /// The plan is valid until [`Self::plan_epoch`] changes.
    pub(super) fn plan(&self, mask: &SparseMask) -> SearchPlan {
        let all = self.projections.iter().zip(0..);
        let usable = all.filter(|(own, _)| mask.has_all_of(&own.mask));
        let best = usable.max_by_key(|(own, _)| own.mask.bits_count());
        best.map_or(SearchPlan::Scan, |(_, index)| SearchPlan::Projection(index))
    }

    /// Returns a number that changes whenever the result of [`Self::plan`] may change.
    pub(super) const fn plan_epoch(&self) -> u32 {
        self.plan_epoch
    }

    /// Adds a projection under the common bits of the columns and `mask`.
    ///
    /// No projection is added if an existing one has enough of these bits, or if the group has
    /// [`PROJECTIONS_MAX`] projections. [`Self::fill_projections`] fills the new projection.
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

    /// Returns whether every projection of the group has all rows.
    pub(super) fn is_filled(&self) -> bool {
        self.projections.iter().all(|projection| projection.rows_filled as usize == self.rows.len())
    }

    /// Adds at most `budget` rows to projections, and returns the unused budget.
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

    /// Returns the number of projections of the group.
    pub(super) const fn projections(&self) -> usize {
        self.projections.len()
    }

    /// Returns the number of rows in use, plus the number of positions in projections.
    pub(super) fn chained(&self) -> usize {
        self.rows.len() - self.free.len()
            + self.projections.iter().map(|own| own.chains.len()).sum::<usize>()
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Option<GroupRow>>();
        let free = self.free.capacity() * size_of::<u32>();
        let projections = self.projections.iter().map(|own| own.chains.bytes()).sum::<usize>();
        rows + free + self.columns.bytes() + self.ranks.bytes() + projections
    }
}

/// Returns a short hash of masked words.
#[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
fn fingerprint(hashes: &FixedState, words: impl Iterator<Item = u64>) -> u32 {
    use std::hash::Hasher;
    let mut hasher = hashes.build_hasher();
    words.for_each(|word| hasher.write_u64(word));
    hasher.finish() as u32
}
