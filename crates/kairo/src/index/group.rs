//! Visits of one table whose lookups consulted the same bits.
//!
//! What a rule that is added meets of a group is found by the bits that both look at: two regions
//! with masks *W* and *m* overlap exactly if they agree under *W* & *m*. A [`GroupProjection`] holds the
//! group by its bits under one such common mask. It is filled in slices; where it has no visits yet,
//! the [`Columns`] are looked through. A removed rule finds its visits by its name, in the [`Ranks`].
//!
//! Where a rule has little in common with the group, it meets many visits that outrank it. The same
//! ranks name those that do not, the lowest first; whichever of the two lists is shorter is looked at.

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
    /// Of these, the bits that the columns hold: by no others is it projected.
    column_mask: SparseMask,
    rows: Vec<Option<GroupRow>>,
    free: Vec<u32>,
    columns: Columns,
    ranks: Ranks,
    projections: Vec<GroupProjection>,
    /// Visits that are looked at without a thought of how many a rule outranks.
    scan_threshold: usize,
    /// How often the projections have changed.
    plan_epoch: u32,
}

/// A group by its bits under a mask.
struct GroupProjection {
    mask: SparseMask,
    chains: Chains,
    /// Rows before this one are in the chains.
    rows_filled: u32,
}

/// How a group is searched for what a rule of some mask overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchPlan {
    /// By a projection, as far as it is filled.
    Projection(u8),
    /// From the first row to the last.
    Scan,
}

/// How the visits were found that a rule may overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchOutcome {
    /// It is known of all of them that it does.
    pub(super) is_exact: bool,
    /// How many were looked at, about.
    pub(super) examined: usize,
}

/// Common masks that a group is held by as they come.
const PROJECTIONS_EXACT: usize = 6;

/// Common masks that a group is held by at most: beyond the usual, those of one half of a word in
/// whole bytes, of which there are few. A rule of yet another mask goes by the best of all, and what
/// it finds there is compared bit by bit.
const PROJECTIONS_MAX: usize = 16;

/// Bits that tell visits apart so well that more are not asked for.
const BITS_ENOUGH: u32 = 24;

/// Visits that are looked at without a thought of how many a rule outranks, unless an index is told
/// otherwise.
pub(super) const SCAN_THRESHOLD: usize = 16;

/// Rows that are looked through in columns in the time of a look at a visit, about.
const ROWS_SCANNED_PER_VISIT: usize = 256;

impl VisitGroup {
    /// A group without visits, of which `scan_threshold` are looked at without a thought of how many a rule
    /// outranks.
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
    /// The plan epoch goes on, so that no plan of the former group is taken for one of the new.
    pub(super) fn replace_with(&mut self, other: Self) {
        debug_assert!(self.is_empty(), "a group with visits keeps its mask");
        let plan_epoch = self.plan_epoch + 1;
        *self = Self { plan_epoch, ..other };
    }

    /// The table.
    pub(super) const fn table(&self) -> TableKey {
        self.table
    }

    /// The bits that every lookup of the group consulted.
    pub(super) const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// Whether it holds no visit.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.len() == self.free.len()
    }

    /// Adds a visit that consulted the bits of the group's mask. Answers with its position, and
    /// whether its rule has decided no other of the group.
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

    /// Takes a visit out. With the last of them goes the memory. Answers with the rule that decided
    /// it, if it has decided no other of the group.
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

    /// The slots of the entries whose visits these are.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().flatten().map(|row| row.entry)
    }

    /// The visits that a rule decided.
    pub(super) fn decided_by(&self, rule: &Rule) -> impl Iterator<Item = GroupRow> {
        self.ranks.of(rule.rank(), rule.id).filter_map(|own| self.rows[own.position as usize])
    }

    /// The slots of the entries whose visits these are.
    pub(super) fn entries_decided_by(&self, rule: &Rule) -> impl Iterator<Item = u32> {
        self.ranks.of(rule.rank(), rule.id).map(|own| own.visit_ref.entry)
    }

    /// Adds the visits that a rule may overlap and outranks to `found`: all that do, and some that do
    /// not.
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
            found.extend(self.below(query.rank, &tests));
            self.ranks.count_below(query.rank, usize::MAX)
        };
        SearchOutcome { is_exact: tests.is_exact, examined }
    }

    /// The positions of visits that a rule meets, unless it outranks fewer.
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

    /// About how many visits [`Self::candidates`] looks at. Beyond `max` they are not counted.
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

    /// The visits that a rule of this rank outranks, and that pass.
    fn below(&self, rank: Rank, tests: &ColumnTests) -> impl Iterator<Item = VisitRef> {
        let below = self.ranks.below(rank);
        below.filter(|own| self.columns.pass(tests, own.position)).map(|own| own.visit_ref)
    }

    /// Whether a rule of this rank outranks so few visits that to look at each is less than to look
    /// through what the way lacks. A rule that has gone and comes again is the youngest of its
    /// priority: it outranks little else than what was made while it was away.
    pub(super) fn is_rank_scan_cheaper(&self, plan: SearchPlan, rank: Rank) -> bool {
        let scan_threshold = self.scan_threshold + self.rows_scanned(plan) / ROWS_SCANNED_PER_VISIT;
        self.ranks.count_below(rank, scan_threshold) <= scan_threshold
    }

    /// How many rows are looked through on a way.
    fn rows_scanned(&self, plan: SearchPlan) -> usize {
        (self.count() - self.rows_filled(plan)) as usize
    }

    /// The positions of visits that a rule meets on a way: all that it overlaps, whatever their rank.
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

    /// Rows before this one need not be looked through.
    fn rows_filled(&self, plan: SearchPlan) -> u32 {
        match plan {
            SearchPlan::Projection(index) => self.projections[usize::from(index)].rows_filled,
            SearchPlan::Scan => 0,
        }
    }

    /// Number of rows, free ones included.
    fn count(&self) -> u32 {
        position(self.rows.len())
    }

    /// The best way to search for rules of a mask; it is the best until [`Self::plan_epoch`] changes.
    pub(super) fn plan(&self, mask: &SparseMask) -> SearchPlan {
        let all = self.projections.iter().zip(0..);
        let usable = all.filter(|(own, _)| mask.has_all_of(&own.mask));
        let best = usable.max_by_key(|(own, _)| own.mask.bits_count());
        best.map_or(SearchPlan::Scan, |(_, index)| SearchPlan::Projection(index))
    }

    /// Changes whenever [`Self::plan`] may.
    pub(super) const fn plan_epoch(&self) -> u32 {
        self.plan_epoch
    }

    /// Will hold its visits by what they have in common with rules of a mask, unless it holds them
    /// by enough of that, or by too much already. [`Self::fill_projections`] fills it.
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

    /// Whether every projection has all visits.
    pub(super) fn is_filled(&self) -> bool {
        self.projections.iter().all(|projection| projection.rows_filled as usize == self.rows.len())
    }

    /// Takes so many visits into projections that lack them. Answers with what is left of `budget`.
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

    /// Common masks that it is held by.
    pub(super) const fn projections(&self) -> usize {
        self.projections.len()
    }

    /// Places of its visits in chains.
    pub(super) fn chained(&self) -> usize {
        self.rows.len() - self.free.len()
            + self.projections.iter().map(|own| own.chains.len()).sum::<usize>()
    }

    /// Bytes on the heap.
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
