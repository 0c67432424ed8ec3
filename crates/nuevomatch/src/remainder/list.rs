//! The list of the remainder: rules in the order of ranks, in blocks.

use crate::{
    blocks::{BlockRun, RuleArena},
    rule::PriorityRule,
    simd::BLOCK_RULES,
};

/// A list of rules: runs of one block each, best ranks first.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleList {
    /// The runs of the list. No run is empty.
    runs: Vec<BlockRun>,
    /// Number of rules on the list.
    rules: usize,
}

impl RuleList {
    /// Returns the runs of the list, best ranks first.
    #[inline]
    pub(super) fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    /// Returns the number of rules of the list.
    pub(super) fn len(&self) -> usize {
        self.rules
    }

    /// Adds a rule, and returns whether the arena had room.
    pub(super) fn insert<const N: usize>(
        &mut self,
        rule: &PriorityRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let rank = rule.rank();
        let after = self.runs.partition_point(|run| arena.rank(run.first, 0) <= rank);
        let mut at = after.saturating_sub(1);
        if self.runs.get(at).is_none_or(|run| !run.has_room()) {
            let Some(mut other) = arena.add_run(1) else { return false };
            // Rules are often inserted in the order of ranks. In this case full blocks stay full.
            let goes_last = self.runs.last().is_none_or(|last| {
                after == self.runs.len() && arena.rank(last.first, BLOCK_RULES - 1) <= rank
            });
            if goes_last {
                at = self.runs.len();
                self.runs.push(other);
            } else {
                arena.split(&mut self.runs[at], BLOCK_RULES / 2, &mut other);
                let goes_after = arena.rank(other.first, 0) <= rank;
                self.runs.insert(at + 1, other);
                at += usize::from(goes_after);
            }
        }
        arena.insert_sorted(&mut self.runs[at], rule);
        self.rules += 1;
        true
    }

    /// Removes a rule, and returns whether the list had it.
    pub(super) fn remove<const N: usize>(
        &mut self,
        rule: &PriorityRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let rank = rule.rank();
        let end = self.runs.partition_point(|run| arena.rank(run.first, 0) <= rank);
        for at in (0..end).rev() {
            let run = &mut self.runs[at];
            if arena.remove_sorted(run, rule) {
                if run.rules == 0 {
                    arena.remove_run(self.runs.remove(at));
                }
                self.rules -= 1;
                return true;
            }
            // Rules with equal ranks may be in several runs.
            if arena.rank(run.first, 0) < rank {
                break;
            }
        }
        false
    }

    /// Calls `each` with every rule of the list.
    pub(super) fn for_each<const N: usize>(
        &self,
        arena: &RuleArena<N>,
        mut each: impl FnMut(PriorityRule<N>),
    ) {
        for run in &self.runs {
            (0..usize::from(run.rules)).for_each(|at| each(arena.rule(*run, at)));
        }
    }

    /// Removes all rules, and returns all blocks to the arena.
    pub(super) fn clear<const N: usize>(&mut self, arena: &mut RuleArena<N>) {
        self.runs.drain(..).for_each(|run| arena.remove_run(run));
        self.rules = 0;
    }
}
