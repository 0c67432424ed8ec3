//! Visits of one table whose lookups consulted the same bits, and that were decided at about the
//! same priority.
//!
//! What a rule that is added meets of a group is found by the bits that both look at: two regions
//! with masks *W* and *m* overlap exactly if they agree under *W* & *m*. A [`Projection`] holds the
//! group by its bits under one such common mask. It is filled in slices; where it has no visits yet,
//! the [`Columns`] are looked through. A removed rule finds its visits by its name.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use shunt_flow::{Match, SparseKey, SparseMask};
use shunt_pipeline::{Rule, RuleId};

use crate::masks::{best_half, common};

use super::{
    chains::Chains,
    columns::{Columns, Tests},
    places::Place,
    row::Row,
};

/// The visits of one table with one mask and one band of priorities.
pub(super) struct Group {
    place: Place,
    /// Bits that every lookup of the group consulted; some consulted more.
    mask: SparseMask,
    rows: Vec<Option<Row>>,
    free: Vec<u32>,
    columns: Columns,
    by_rule: Chains,
    projections: Vec<Projection>,
    /// How often the projections have changed.
    stamp: u32,
}

/// A group by its bits under a mask.
struct Projection {
    mask: SparseMask,
    chains: Chains,
    /// Rows before this one are in the chains.
    filled: u32,
}

/// How a group is searched for what a rule of some mask overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By a projection, as far as it is filled.
    By(u8),
    /// From the first row to the last.
    Through,
}

/// Common masks that a group is held by as they come.
const PROJECTIONS_USUAL: usize = 6;

/// Common masks that a group is held by at most: beyond the usual, those of one half of a word in
/// whole bytes, of which there are few. A rule of yet another mask goes by the best of all, and what
/// it finds there is compared bit by bit.
const PROJECTIONS_MAX: usize = 16;

/// Bits that tell visits apart so well that more are not asked for.
const BITS_ENOUGH: u32 = 24;

impl Group {
    pub(super) fn new(place: Place, mask: SparseMask) -> Self {
        let (rows, free, projections) = (Vec::new(), Vec::new(), Vec::new());
        let columns = Columns::new(&mask);
        Self { place, mask, rows, free, columns, by_rule: Chains::new(), projections, stamp: 0 }
    }

    /// A group that has no visits becomes one of another table and mask.
    pub(super) fn become_one_of(&mut self, place: Place, mask: SparseMask) {
        debug_assert!(self.is_empty(), "what has visits is of their mask");
        let stamp = self.stamp + 1;
        *self = Self { stamp, ..Self::new(place, mask) };
    }

    /// The table.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// The bits that every lookup of the group consulted.
    pub(super) const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// Whether it holds no visit.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.len() == self.free.len()
    }

    /// Adds a visit that consulted the bits of the group's mask. Answers with its position.
    pub(super) fn insert(&mut self, row: Row, key: &SparseKey, hashes: &RandomState) -> u32 {
        let position = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
        });
        self.columns.put(position, key);
        if let Some(rule) = row.rule() {
            self.by_rule.insert(position, named(hashes, rule));
        }
        for projection in &mut self.projections {
            if position <= projection.filled {
                let words = projection.mask.iter().map(|(word, bits)| key.word(word) & bits);
                projection.chains.insert(position, shortened(hashes, words));
                projection.filled = projection.filled.max(position + 1);
            }
        }
        self.rows[position as usize] = Some(row);
        position
    }

    /// Takes a visit out. With the last of them goes the memory.
    pub(super) fn remove(&mut self, position: u32) {
        let Some(row) = self.rows[position as usize].take() else { return };
        if row.rule().is_some() {
            self.by_rule.remove(position);
        }
        for projection in self.projections.iter_mut().filter(|own| position < own.filled) {
            projection.chains.remove(position);
        }
        self.free.push(position);
        if self.is_empty() {
            (self.rows, self.free) = (Vec::new(), Vec::new());
            (self.columns, self.by_rule) = (Columns::new(&self.mask), Chains::new());
            let all = self.projections.iter_mut();
            all.for_each(|own| (own.chains, own.filled) = (Chains::new(), 0));
        }
    }

    /// The slots of the entries whose visits these are.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().flatten().map(|row| row.entry)
    }

    /// The visits that a rule decided.
    pub(super) fn decided_by(
        &self,
        rule: RuleId,
        hashes: &RandomState,
    ) -> impl Iterator<Item = Row> {
        let rows = self.by_rule.of(named(hashes, rule)).filter_map(|at| self.rows[at as usize]);
        rows.filter(move |row| row.rule() == Some(rule))
    }

    /// The visits that a rule may overlap and outranks: all that do, and some that do not.
    pub(super) fn candidates(
        &self,
        way: Way,
        rule: &Rule,
        hashes: &RandomState,
        mut visit: impl FnMut(Row),
    ) {
        let (rank, matching) = (rule.rank(), &rule.matching);
        let tests = self.columns.tests(&self.mask, matching);
        let mut outranked = |position: u32| {
            let row = self.rows.get(position as usize).copied().flatten();
            row.into_iter().filter(|row| row.rank() < rank).for_each(&mut visit);
        };
        let mut from = 0;
        if let Way::By(index) = way {
            let projection = &self.projections[usize::from(index)];
            let found = projection.chains.of(print_of_match(hashes, &projection.mask, matching));
            found.filter(|at| self.columns.pass(&tests, *at)).for_each(&mut outranked);
            from = projection.filled;
        }
        self.look_through(&tests, from, outranked);
    }

    /// The rows from `from` on that pass.
    fn look_through(&self, tests: &Tests, from: u32, mut visit: impl FnMut(u32)) {
        let all = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        match self.columns.passing(tests, from) {
            Some(passing) => passing.for_each(visit),
            None => (from..all).for_each(&mut visit),
        }
    }

    /// The best way to search for rules of a mask; it is the best until [`Self::stamp`] changes.
    pub(super) fn way(&self, mask: &SparseMask) -> Way {
        let all = self.projections.iter().zip(0..);
        let usable = all.filter(|(own, _)| mask.has_all_of(&own.mask));
        let best = usable.max_by_key(|(own, _)| own.mask.bits_count());
        best.map_or(Way::Through, |(_, index)| Way::By(index))
    }

    /// Changes whenever [`Self::way`] may.
    pub(super) const fn stamp(&self) -> u32 {
        self.stamp
    }

    /// Will hold its visits by what they have in common with rules of a mask, unless it holds them
    /// by enough of that, or by too much already. [`Self::fill`] fills it.
    pub(super) fn project(&mut self, mask: &SparseMask) {
        let common = common(&self.mask, mask);
        let wanted = common.bits_count().min(BITS_ENOUGH);
        let usable = self.projections.iter().filter(|own| mask.has_all_of(&own.mask));
        let best = usable.map(|own| own.mask.bits_count()).max().unwrap_or_default();
        let mask = match self.projections.len() {
            0..PROJECTIONS_USUAL => common,
            PROJECTIONS_USUAL..PROJECTIONS_MAX => best_half(&common),
            _ => return,
        };
        if best < wanted && best < mask.bits_count() {
            self.projections.push(Projection { mask, chains: Chains::new(), filled: 0 });
            self.stamp += 1;
        }
    }

    /// Whether every projection has all visits.
    pub(super) fn is_whole(&self) -> bool {
        self.projections.iter().all(|projection| projection.filled as usize == self.rows.len())
    }

    /// Takes so many visits into projections that lack them. `key` answers with the key of a visit.
    /// Answers with what is left of `budget`.
    pub(super) fn fill<'k>(
        &mut self,
        mut budget: usize,
        hashes: &RandomState,
        key: impl Fn(Row) -> &'k SparseKey,
    ) -> usize {
        for projection in &mut self.projections {
            let from = projection.filled as usize;
            let lacking = self.rows[from..].iter().zip(projection.filled..).take(budget);
            for (row, position) in lacking {
                if let Some(row) = row {
                    let held = |word| self.columns.word(position, word);
                    let value = |word| held(word).unwrap_or_else(|| key(*row).word(word));
                    let words = projection.mask.iter().map(|(word, bits)| value(word) & bits);
                    projection.chains.insert(position, shortened(hashes, words));
                }
                projection.filled = position + 1;
                budget -= 1;
            }
        }
        budget
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Option<Row>>();
        let free = self.free.capacity() * size_of::<u32>();
        let projections = self.projections.iter().map(|own| own.chains.bytes()).sum::<usize>();
        rows + free + self.columns.bytes() + self.by_rule.bytes() + projections
    }
}

/// The fingerprint of what a rule matches, which looks at all bits of a mask.
fn print_of_match(hashes: &RandomState, mask: &SparseMask, matching: &Match) -> u32 {
    let own = matching.mask().map();
    let value = |word| matching.value().get(own.count_below(word)).copied().unwrap_or_default();
    shortened(hashes, mask.iter().map(|(word, bits)| value(word) & bits))
}

fn named(hashes: &RandomState, rule: RuleId) -> u32 {
    shortened(hashes, std::iter::once(rule.number()))
}

#[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
fn shortened(hashes: &RandomState, words: impl Iterator<Item = u64>) -> u32 {
    use std::hash::Hasher;
    let mut hasher = hashes.build_hasher();
    words.for_each(|word| hasher.write_u64(word));
    hasher.finish() as u32
}
