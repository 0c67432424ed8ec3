//! Visits of one table whose lookups consulted the same bits.
//!
//! What a rule that is added meets of a group is found by the bits that both look at: two regions
//! with masks *W* and *m* overlap exactly if they agree under *W* & *m*. A [`Projection`] holds the
//! group by its bits under one such common mask. It is filled in slices; where it has no visits yet,
//! the [`Columns`] are looked through. A removed rule finds its visits by its name, in the [`Ranks`].
//!
//! Where a rule has little in common with the group, it meets many visits that outrank it. The same
//! ranks name those that do not, the lowest first; whichever of the two lists is shorter is looked at.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use shunt_flow::{SparseKey, SparseMask};
use shunt_pipeline::{Rank, Rule, RuleId};

use crate::masks::{best_half, common};

use super::{
    asked::Asked,
    chains::Chains,
    columns::{Columns, Tests},
    places::Place,
    ranks::Ranks,
    row::{Row, Visited},
};

/// The visits of one table with one mask.
pub(super) struct Group {
    place: Place,
    /// Bits that every lookup of the group consulted; some consulted more.
    mask: SparseMask,
    /// Of these, the bits that the columns hold: by no others is it projected.
    held: SparseMask,
    rows: Vec<Option<Row>>,
    free: Vec<u32>,
    columns: Columns,
    ranks: Ranks,
    projections: Vec<Projection>,
    /// Visits that are looked at without a thought of how many a rule outranks.
    few: usize,
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

/// How the visits were found that a rule may overlap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// It is known of all of them that it does.
    pub(super) is_known: bool,
    /// How many were looked at, about.
    pub(super) looks: usize,
}

/// Common masks that a group is held by as they come.
const PROJECTIONS_USUAL: usize = 6;

/// Common masks that a group is held by at most: beyond the usual, those of one half of a word in
/// whole bytes, of which there are few. A rule of yet another mask goes by the best of all, and what
/// it finds there is compared bit by bit.
const PROJECTIONS_MAX: usize = 16;

/// Bits that tell visits apart so well that more are not asked for.
const BITS_ENOUGH: u32 = 24;

/// Visits that are looked at without a thought of how many a rule outranks, unless an index is told
/// otherwise.
pub(super) const FEW: usize = 16;

/// Rows that are looked through in columns in the time of a look at a visit, about.
const SCANNED_PER_LOOK: usize = 256;

impl Group {
    /// A group without visits, of which `few` are looked at without a thought of how many a rule
    /// outranks.
    pub(super) fn new(place: Place, mask: SparseMask, few: usize) -> Self {
        let (rows, free, projections) = (Vec::new(), Vec::new(), Vec::new());
        let (columns, ranks) = (Columns::new(&mask), Ranks::default());
        let held = columns.mask();
        Self { place, mask, held, rows, free, columns, ranks, projections, few, stamp: 0 }
    }

    /// A group that has no visits becomes one of another table and mask.
    pub(super) fn become_one_of(&mut self, place: Place, mask: SparseMask) {
        debug_assert!(self.is_empty(), "what has visits is of their mask");
        let stamp = self.stamp + 1;
        *self = Self { stamp, ..Self::new(place, mask, self.few) };
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

    /// Adds a visit that consulted the bits of the group's mask. Answers with its position, and
    /// whether its rule has decided no other of the group.
    pub(super) fn insert(&mut self, row: Row, key: &SparseKey, hashes: &FixedState) -> (u32, bool) {
        let position = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
        });
        self.columns.put(position, key);
        let is_first = self.ranks.insert(position, &row);
        for projection in &mut self.projections {
            if position <= projection.filled {
                let words = projection.mask.iter().map(|(word, bits)| key.word(word) & bits);
                projection.chains.insert(position, shortened(hashes, words));
                projection.filled = projection.filled.max(position + 1);
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
        for projection in self.projections.iter_mut().filter(|own| position < own.filled) {
            projection.chains.remove(position);
        }
        self.free.push(position);
        if self.is_empty() {
            (self.rows, self.free) = (Vec::new(), Vec::new());
            (self.columns, self.ranks) = (Columns::new(&self.mask), Ranks::default());
            let all = self.projections.iter_mut();
            all.for_each(|own| (own.chains, own.filled) = (Chains::new(), 0));
        }
        row.rule().filter(|_| is_last)
    }

    /// The slots of the entries whose visits these are.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().flatten().map(|row| row.entry)
    }

    /// The visits that a rule decided.
    pub(super) fn decided_by(&self, rule: &Rule) -> impl Iterator<Item = Row> {
        self.ranks.of(rule.rank(), rule.id).filter_map(|own| self.rows[own.position as usize])
    }

    /// The slots of the entries whose visits these are.
    pub(super) fn entries_decided_by(&self, rule: &Rule) -> impl Iterator<Item = u32> {
        self.ranks.of(rule.rank(), rule.id).map(|own| own.visited.entry)
    }

    /// Adds the visits that a rule may overlap and outranks to `found`: all that do, and some that do
    /// not.
    pub(super) fn candidates(
        &self,
        way: Way,
        asked: &Asked<'_>,
        hashes: &FixedState,
        found: &mut Vec<Visited>,
    ) -> Search {
        let tests = self.columns.tests(asked);
        let outranked = |position: u32| {
            let row = self.rows.get(position as usize).copied().flatten();
            row.filter(|row| row.rank() < asked.rank).map(|row| row.visited())
        };
        let met = if self.outranks_few(way, asked.rank) {
            None
        } else {
            self.met_if_few(way, asked, hashes, &tests)
        };
        let looks = if let Some(met) = met {
            found.extend(met.iter().copied().filter_map(outranked));
            self.scanned(way) / SCANNED_PER_LOOK + met.len()
        } else {
            found.extend(self.below(asked.rank, &tests));
            self.ranks.count_below(asked.rank, usize::MAX)
        };
        Search { is_known: tests.are_all, looks }
    }

    /// The positions of visits that a rule meets, unless it outranks fewer.
    fn met_if_few(
        &self,
        way: Way,
        asked: &Asked<'_>,
        hashes: &FixedState,
        tests: &Tests,
    ) -> Option<Vec<u32>> {
        let mut met = Vec::new();
        let mut below = self.ranks.below(asked.rank);
        for position in self.met(way, asked, hashes, tests) {
            met.push(position);
            if met.len() > self.few && below.next().is_none() {
                return None;
            }
        }
        Some(met)
    }

    /// About how many visits [`Self::candidates`] looks at. Beyond `max` they are not counted.
    pub(super) fn cost(
        &self,
        way: Way,
        asked: &Asked<'_>,
        hashes: &FixedState,
        max: usize,
    ) -> usize {
        if self.outranks_few(way, asked.rank) {
            return self.ranks.count_below(asked.rank, max);
        }
        let scanned = self.scanned(way) / SCANNED_PER_LOOK;
        if scanned > max {
            return scanned;
        }
        let tests = self.columns.tests(asked);
        let met = self.met(way, asked, hashes, &tests).take(max + 1).count();
        if met <= self.few {
            return scanned + met;
        }
        scanned + self.ranks.count_below(asked.rank, met).min(met)
    }

    /// The visits that a rule of this rank outranks, and that pass.
    fn below(&self, rank: Rank, tests: &Tests) -> impl Iterator<Item = Visited> {
        let below = self.ranks.below(rank);
        below.filter(|own| self.columns.pass(tests, own.position)).map(|own| own.visited)
    }

    /// Whether a rule of this rank outranks so few visits that to look at each is less than to look
    /// through what the way lacks. A rule that has gone and comes again is the youngest of its
    /// priority: it outranks little else than what was made while it was away.
    pub(super) fn outranks_few(&self, way: Way, rank: Rank) -> bool {
        let few = self.few + self.scanned(way) / SCANNED_PER_LOOK;
        self.ranks.count_below(rank, few) <= few
    }

    /// How many rows are looked through on a way.
    fn scanned(&self, way: Way) -> usize {
        (self.count() - self.filled(way)) as usize
    }

    /// The positions of visits that a rule meets on a way: all that it overlaps, whatever their rank.
    fn met<'g>(
        &'g self,
        way: Way,
        asked: &Asked<'_>,
        hashes: &FixedState,
        tests: &'g Tests,
    ) -> impl Iterator<Item = u32> + use<'g> {
        let found = match way {
            Way::By(index) => {
                let Projection { mask, chains, .. } = &self.projections[usize::from(index)];
                let words = mask.iter().map(|(word, bits)| asked.key.words()[word] & bits);
                Some(chains.of(shortened(hashes, words)))
            }
            Way::Through => None,
        };
        let found = found.into_iter().flatten().filter(|at| self.columns.pass(tests, *at));
        found.chain(self.columns.passing(tests, self.filled(way)..self.count()))
    }

    /// Rows before this one need not be looked through.
    fn filled(&self, way: Way) -> u32 {
        match way {
            Way::By(index) => self.projections[usize::from(index)].filled,
            Way::Through => 0,
        }
    }

    /// Number of rows, free ones included.
    fn count(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
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
        let common = common(&self.held, mask);
        let wanted = common.bits_count().min(BITS_ENOUGH);
        let usable = self.projections.iter().filter(|own| mask.has_all_of(&own.mask));
        let best = usable.map(|own| own.mask.bits_count()).max().unwrap_or_default();
        let mask = match self.projections.len() {
            0..PROJECTIONS_USUAL => common,
            PROJECTIONS_USUAL..PROJECTIONS_MAX => best_half(&common),
            _ => return,
        };
        if best < wanted && best < mask.bits_count() {
            let chains = Chains::with_room(self.rows.len());
            self.projections.push(Projection { mask, chains, filled: 0 });
            self.stamp += 1;
        }
    }

    /// Whether every projection has all visits.
    pub(super) fn is_whole(&self) -> bool {
        self.projections.iter().all(|projection| projection.filled as usize == self.rows.len())
    }

    /// Takes so many visits into projections that lack them. Answers with what is left of `budget`.
    pub(super) fn fill(&mut self, mut budget: usize, hashes: &FixedState) -> usize {
        for Projection { mask, chains, filled } in &mut self.projections {
            let lacking = self.rows[*filled as usize..].iter().zip(*filled..).take(budget);
            for (row, position) in lacking {
                if row.is_some() {
                    let value = |(word, bits)| self.columns.word(position, word) & bits;
                    chains.insert(position, shortened(hashes, mask.iter().map(value)));
                }
                *filled = position + 1;
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
        let rows = self.rows.capacity() * size_of::<Option<Row>>();
        let free = self.free.capacity() * size_of::<u32>();
        let projections = self.projections.iter().map(|own| own.chains.bytes()).sum::<usize>();
        rows + free + self.columns.bytes() + self.ranks.bytes() + projections
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
fn shortened(hashes: &FixedState, words: impl Iterator<Item = u64>) -> u32 {
    use std::hash::Hasher;
    let mut hasher = hashes.build_hasher();
    words.for_each(|word| hasher.write_u64(word));
    hasher.finish() as u32
}
