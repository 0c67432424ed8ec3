//! The remainder: a list of few rules, or hash tables of many rules.
//!
//! The remainder has its own blocks. If the layout of these blocks cannot hold a new rule, all
//! rules move to blocks with a wider layout. A layout becomes wider at most twice per lane.

use super::{list::RuleList, tuples::TupleTables};
use crate::{
    blocks::{BlockLayout, BlockRun, LayoutDemand, RuleArena},
    rule::PriorityRule,
    simd::{InstructionSet, MatchJob},
};

/// Maximum number of rules for which the remainder is one list.
pub(crate) const LIST_RULES_MAX: usize = 256;

/// The rules that no iSet holds.
#[derive(Clone, Debug)]
pub(crate) struct Remainder<const N: usize> {
    /// Number of bits of each lane.
    widths: [u8; N],
    /// The properties of rules that the layout of `arena` supports.
    demand: LayoutDemand<N>,
    /// The blocks of the list and of the hash tables.
    arena: RuleArena<N>,
    /// The rules of a small remainder.
    list: RuleList,
    /// The rules of a large remainder.
    tuples: TupleTables<N>,
    /// Number of rules in the list and in the hash tables.
    rules: usize,
}

/// Decides which of the rules that match a key may win.
pub(crate) trait RankFilter {
    /// True if every rule may win; only the best rule of a bucket is then read.
    const ACCEPTS_ALL: bool;

    /// Returns whether the rule with this value may win for the key at a position.
    fn accepts(&mut self, key: u16, value: u32) -> bool;
}

/// A filter that accepts every rule.
pub(crate) struct AcceptAll;

/// The best ranks that were found so far for the keys of a batch.
pub(crate) struct BestRanks<'a, const N: usize, const B: usize, F> {
    /// The vector instructions that lookups use.
    pub(crate) instructions: InstructionSet,
    pub(crate) keys: &'a [[u32; N]],
    /// The best rank of each key; the largest number if no rule matches so far.
    pub(crate) ranks: &'a mut [u64; B],
    /// Decides which matching rules count.
    pub(crate) filter: F,
}

impl RankFilter for AcceptAll {
    const ACCEPTS_ALL: bool = true;

    fn accepts(&mut self, _key: u16, _value: u32) -> bool {
        true
    }
}

impl<F: FnMut(usize, u32) -> bool> RankFilter for F {
    const ACCEPTS_ALL: bool = false;

    fn accepts(&mut self, key: u16, value: u32) -> bool {
        self(key.into(), value)
    }
}

impl<const N: usize, const B: usize, F: RankFilter> BestRanks<'_, N, B, F> {
    /// Compares keys with sorted runs, and keeps the better rank of each key.
    #[inline]
    pub(crate) fn match_jobs(&mut self, arena: &RuleArena<N>, jobs: &[MatchJob]) {
        let (layout, lines) = (arena.layout(), arena.lines());
        if F::ACCEPTS_ALL {
            self.instructions.best_ranks(layout, lines, self.keys, jobs, self.ranks);
            return;
        }
        let mut masks = [0; B];
        let masks = &mut masks[..jobs.len()];
        self.instructions.match_blocks(layout, lines, self.keys, jobs, masks);
        self.keep_accepted(arena, jobs, masks);
    }

    /// Keeps the better rank of each key, among the rules that the filter accepts.
    #[expect(clippy::cast_possible_truncation, reason = "a rank ends with the value")]
    fn keep_accepted(&mut self, arena: &RuleArena<N>, jobs: &[MatchJob], masks: &[u64]) {
        for (job, mask) in jobs.iter().zip(masks) {
            let mut rest = *mask;
            while rest != 0 {
                let rank = arena.rank(job.first, rest.trailing_zeros() as usize);
                let best = &mut self.ranks[usize::from(job.key)];
                if rank >= *best {
                    break;
                }
                if self.filter.accepts(job.key, rank as u32) {
                    *best = rank;
                    break;
                }
                rest &= rest - 1;
            }
        }
    }
}

impl<const N: usize> Remainder<N> {
    /// Returns a remainder without rules. `widths` are the bits of the lanes.
    pub(crate) fn new(seed: u64, widths: [u8; N]) -> Self {
        let demand = LayoutDemand::new(true);
        Self {
            widths,
            demand,
            arena: RuleArena::new(BlockLayout::new(&widths, &demand)),
            list: RuleList::default(),
            tuples: TupleTables::new(seed, widths),
            rules: 0,
        }
    }

    /// Returns the number of rules of the remainder.
    pub(crate) fn len(&self) -> usize {
        self.rules
    }

    /// Returns the blocks of the remainder.
    pub(crate) fn arena(&self) -> &RuleArena<N> {
        &self.arena
    }

    /// Returns all sorted runs of the remainder.
    pub(crate) fn runs(&self) -> impl Iterator<Item = BlockRun> {
        self.list.runs().iter().copied().chain(self.tuples.runs())
    }

    /// Returns the number of hash tables of the remainder.
    pub(crate) fn tables_count(&self) -> usize {
        self.tuples.tables().len()
    }

    /// Returns the number of bytes of the remainder.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.list.runs()) + self.tuples.bytes() + self.arena.bytes()
    }

    /// Adds a rule to the remainder, and returns whether the blocks had room.
    pub(crate) fn insert(&mut self, rule: &PriorityRule<N>) -> bool {
        self.insert_moving(rule, usize::MAX)
    }

    /// Adds a rule, unless more than `moved_max` rules would move to a wider layout.
    ///
    /// Returns whether the rule was added.
    pub(crate) fn insert_moving(&mut self, rule: &PriorityRule<N>, moved_max: usize) -> bool {
        let is_held = self.arena.layout().can_hold(rule);
        if !is_held && (self.rules > moved_max || !self.widen(rule)) {
            return false;
        }
        if self.tables_count() == 0 && self.list.len() >= LIST_RULES_MAX && !self.divide_list() {
            return false;
        }
        let is_inserted = if self.tables_count() == 0 {
            self.list.insert(rule, &mut self.arena)
        } else {
            self.tuples.insert(rule, &mut self.arena)
        };
        self.rules += usize::from(is_inserted);
        is_inserted
    }

    /// Removes a rule, and returns whether the remainder had the rule.
    pub(crate) fn remove(&mut self, rule: &PriorityRule<N>) -> bool {
        let arena = &mut self.arena;
        let is_removed = self.list.remove(rule, arena) || self.tuples.remove(rule, arena);
        self.rules -= usize::from(is_removed);
        is_removed
    }

    /// Calls `each` with every rule of the remainder.
    pub(crate) fn for_each(&self, mut each: impl FnMut(PriorityRule<N>)) {
        self.list.for_each(&self.arena, &mut each);
        self.tuples.for_each(&self.arena, each);
    }

    /// Moves all rules to blocks with a layout that can also hold `rule`.
    fn widen(&mut self, rule: &PriorityRule<N>) -> bool {
        let mut demand = self.demand;
        demand.add(rule);
        if demand == self.demand {
            // The rule has a range without values, so no layout can hold it.
            return false;
        }
        let mut wider = Self {
            demand,
            arena: RuleArena::new(BlockLayout::new(&self.widths, &demand)),
            list: RuleList::default(),
            tuples: self.tuples.without_rules(),
            ..*self
        };
        wider.rules = 0;
        let mut is_complete = true;
        self.for_each(|rule| is_complete &= wider.insert(&rule));
        if is_complete {
            *self = wider;
        }
        is_complete
    }

    /// Moves the rules of the list to hash tables.
    fn divide_list(&mut self) -> bool {
        let mut rules = Vec::with_capacity(self.list.len());
        self.list.for_each(&self.arena, |rule| rules.push(rule));
        let mut tuples = self.tuples.without_rules();
        if !rules.iter().all(|rule| tuples.insert(rule, &mut self.arena)) {
            return false;
        }
        self.tuples = tuples;
        self.list.clear(&mut self.arena);
        true
    }

    /// Finds better ranks for the keys of a batch of at most `B` keys.
    pub(crate) fn find_batch<const B: usize>(
        &self,
        best: &mut BestRanks<'_, N, B, impl RankFilter>,
    ) {
        if self.rules == 0 {
            return;
        }
        let mut jobs = [MatchJob::default(); B];
        for (job, key) in jobs.iter_mut().zip(0..) {
            job.key = key;
        }
        let mut count = best.keys.len();
        for run in self.list.runs() {
            let first_rank = self.arena.rank(run.first, 0);
            let mut left = 0;
            // Later runs have no better ranks. If a run cannot improve the rank of a key, the
            // search for this key ends.
            for at in 0..count {
                let job = jobs[at];
                jobs[left] = MatchJob { first: run.first, rules: run.rules, ..job };
                left += usize::from(first_rank < best.ranks[usize::from(job.key)]);
            }
            count = left;
            if count == 0 {
                break;
            }
            best.match_jobs(&self.arena, &jobs[..count]);
        }
        self.find_in_tables(best, &mut jobs);
    }

    /// Looks up each key in the hash tables.
    fn find_in_tables<const B: usize>(
        &self,
        best: &mut BestRanks<'_, N, B, impl RankFilter>,
        jobs: &mut [MatchJob; B],
    ) {
        let hasher = self.tuples.hasher();
        for table in self.tuples.tables() {
            let mut count = 0;
            let mut can_win = false;
            let mut lists = [None; B];
            for (key, (bits, rank)) in (0..).zip(best.keys.iter().zip(best.ranks.iter())) {
                if table.best() >= *rank {
                    continue;
                }
                can_win = true;
                let Some(list) = table.find(hasher, bits) else { continue };
                let Some(run) = list.runs().first() else { continue };
                self.arena.prefetch(best.instructions, run.first);
                jobs[count] = MatchJob { key, first: run.first, rules: run.rules };
                lists[count] = Some(list);
                count += 1;
            }
            if !can_win {
                // Later tables have no better ranks, so the search ends.
                break;
            }
            best.match_jobs(&self.arena, &jobs[..count]);
            for (job, list) in jobs[..count].iter().zip(lists) {
                for run in list.map_or(&[][..], RuleList::runs).iter().skip(1) {
                    if self.arena.rank(run.first, 0) >= best.ranks[usize::from(job.key)] {
                        break;
                    }
                    let next = MatchJob { first: run.first, rules: run.rules, ..*job };
                    best.match_jobs(&self.arena, &[next]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a rule of one lane, with the bits of a mask.
    fn rule_of_mask(number: u32, mask: u32) -> PriorityRule<1> {
        let (low, high) = if mask == 0 { ([number], [number]) } else { ([0], [u32::MAX]) };
        PriorityRule { low, high, mask: [mask], priority: 7, value: number }
    }

    #[test]
    fn a_bounded_insert_never_moves_a_long_remainder() {
        for (rules, is_moved) in [(10, true), (11, false)] {
            let mut remainder = Remainder::new(1, [32]);
            assert!((0..rules).all(|number| remainder.insert(&rule_of_mask(number, 0))));
            let odd = rule_of_mask(100, 0xff);
            assert_eq!(remainder.insert_moving(&odd, 10), is_moved, "{rules} rules");
            assert_eq!(remainder.remove(&odd), is_moved);
            assert_eq!(remainder.len(), rules as usize);
            // Rules of the layout are added at any length, and so is every rule without a bound.
            assert!(remainder.insert_moving(&rule_of_mask(99, 0), 10));
            assert!(remainder.insert(&odd));
        }
    }
}
