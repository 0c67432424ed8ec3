//! Visits of one table whose lookups consulted the same bits, and that were decided at about the
//! same priority.
//!
//! What a rule that is added meets of a group is found by the bits that both look at: two regions
//! with masks *W* and *m* overlap exactly if they agree under *W* & *m*. A [`Projection`] holds the
//! group by its bits under one such common mask. A removed rule finds its visits by its name.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use shunt_flow::{FlowMask, Match, SparseKey, SparseMask};
use shunt_pipeline::{Rule, RuleId};

use super::{bytes::best_half, chains::Chains, row::Row};

/// The visits of one table with one mask and one band of priorities.
pub(super) struct Group {
    /// Bits that every lookup of the group consulted; some consulted more.
    mask: SparseMask,
    rows: Vec<Option<Row>>,
    free: Vec<u32>,
    by_rule: Chains,
    projections: Vec<Projection>,
    /// How often the projections that are usable have changed.
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
    /// By a projection.
    By(u8),
    /// Row by row.
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
    pub(super) fn new(mask: SparseMask) -> Self {
        let (rows, free, projections) = (Vec::new(), Vec::new(), Vec::new());
        Self { mask, rows, free, by_rule: Chains::new(), projections, stamp: 0 }
    }

    /// The bits that every lookup of the group consulted.
    pub(super) const fn mask(&self) -> &SparseMask {
        &self.mask
    }

    /// Adds a visit that consulted the bits of the group's mask. Answers with its position.
    pub(super) fn insert(&mut self, row: Row, key: &SparseKey, hashes: &RandomState) -> u32 {
        let position = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(rule) = row.rule {
            self.by_rule.insert(position, named(hashes, rule));
        }
        for projection in &mut self.projections {
            if position <= projection.filled {
                projection.chains.insert(position, print(hashes, &projection.mask, key));
                projection.filled = projection.filled.max(position + 1);
            }
        }
        self.rows[position as usize] = Some(row);
        position
    }

    /// Takes a visit out.
    pub(super) fn remove(&mut self, position: u32) {
        let Some(row) = self.rows[position as usize].take() else { return };
        if row.rule.is_some() {
            self.by_rule.remove(position);
        }
        for projection in self.projections.iter_mut().filter(|own| position < own.filled) {
            projection.chains.remove(position);
        }
        self.free.push(position);
    }

    /// The visits that a rule decided.
    pub(super) fn decided_by(
        &self,
        rule: RuleId,
        hashes: &RandomState,
    ) -> impl Iterator<Item = Row> {
        let rows = self.by_rule.of(named(hashes, rule)).filter_map(|at| self.rows[at as usize]);
        rows.filter(move |row| row.rule == Some(rule))
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
        let mut outranked = |row: &Option<Row>| {
            if let Some(row) = row.filter(|row| row.rank < rank) {
                visit(row);
            }
        };
        match way {
            Way::By(index) => {
                let projection = &self.projections[usize::from(index)];
                let print = print_of_match(hashes, &projection.mask, matching);
                let found = projection.chains.of(print);
                found.for_each(|position| outranked(&self.rows[position as usize]));
            }
            Way::Through => self.rows.iter().for_each(outranked),
        }
    }

    /// The best way to search for rules of a mask; it is the best until [`Self::stamp`] changes.
    pub(super) fn way(&self, mask: &SparseMask) -> Way {
        let filled = self.projections.iter().zip(0..).filter(|(own, _)| self.is_filled(own));
        let usable = filled.filter(|(own, _)| mask.has_all_of(&own.mask));
        let best = usable.max_by_key(|(own, _)| own.mask.bits_count());
        best.map_or(Way::Through, |(_, index)| Way::By(index))
    }

    /// Changes whenever [`Self::way`] may.
    pub(super) const fn stamp(&self) -> u32 {
        self.stamp
    }

    /// Will hold its visits by what they have in common with rules of a mask, unless it holds them
    /// by enough of that, or by too much already. [`Self::fill`] makes it usable.
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

    /// Whether every projection is usable.
    pub(super) fn is_whole(&self) -> bool {
        self.projections.iter().all(|projection| self.is_filled(projection))
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
                    let print = print(hashes, &projection.mask, key(*row));
                    projection.chains.insert(position, print);
                }
                projection.filled = position + 1;
                budget -= 1;
            }
            if projection.filled as usize == self.rows.len() {
                self.stamp += 1;
            }
        }
        budget
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Option<Row>>();
        let free = self.free.capacity() * size_of::<u32>();
        let projections = self.projections.iter().map(|own| own.chains.bytes()).sum::<usize>();
        rows + free + self.by_rule.bytes() + projections
    }

    fn is_filled(&self, projection: &Projection) -> bool {
        projection.filled as usize == self.rows.len()
    }
}

/// The bits that both masks have.
fn common(mask: &SparseMask, other: &SparseMask) -> SparseMask {
    let mut common = FlowMask::EMPTY;
    mask.iter().for_each(|(word, bits)| common.words_mut()[word] = bits & other.word(word));
    SparseMask::from(&common)
}

fn print(hashes: &RandomState, mask: &SparseMask, key: &SparseKey) -> u32 {
    shortened(hashes, mask.iter().map(|(word, bits)| key.word(word) & bits))
}

/// The same of what a rule matches, which looks at all these bits.
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
