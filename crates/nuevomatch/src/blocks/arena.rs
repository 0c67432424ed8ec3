//! Memory of blocks: the blocks of a bucket are one consecutive run.

use super::layout::BlockLayout;
use crate::{
    rule::PriorityRule,
    simd::{BLOCK_RULES, InstructionSet, Line},
};

/// Maximum number of rules in a bucket: the number of bits of a match mask.
pub(crate) const BUCKET_RULES_MAX: usize = 64;

/// Maximum number of lines of a block to prefetch.
const PREFETCH_LINES_MAX: usize = 8;

/// Maximum number of blocks in a bucket.
const RUN_BLOCKS_MAX: usize = BUCKET_RULES_MAX / BLOCK_RULES;

/// The consecutive blocks of a bucket, which its rules fill from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first cache line of the run.
    pub(crate) first: u32,
    /// Number of rules in the run.
    pub(crate) rules: u16,
    /// Number of blocks of the run.
    pub(crate) blocks: u16,
}

impl BlockRun {
    /// Returns whether a block has room for a rule.
    pub(crate) fn has_room(self) -> bool {
        usize::from(self.rules) < usize::from(self.blocks) * BLOCK_RULES
    }
}

/// The blocks of all buckets of an index.
#[derive(Clone, Debug)]
pub(crate) struct RuleArena<const N: usize> {
    layout: BlockLayout<N>,
    /// The cache lines of all blocks.
    lines: Vec<Line>,
    /// The first lines of unused runs, by the number of blocks of the run.
    unused: [Vec<u32>; RUN_BLOCKS_MAX + 1],
}

impl<const N: usize> RuleArena<N> {
    /// Returns an arena without blocks.
    pub(crate) fn new(layout: BlockLayout<N>) -> Self {
        Self { layout, lines: Vec::new(), unused: std::array::from_fn(|_| Vec::new()) }
    }

    /// Returns the layout of the blocks.
    pub(crate) fn layout(&self) -> &BlockLayout<N> {
        &self.layout
    }

    /// Returns the memory of all blocks.
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Asks the processor to load the first block of a run.
    #[inline]
    pub(crate) fn prefetch(&self, instructions: InstructionSet, first: u32) {
        let first = first as usize;
        let lines = self.layout.lines().min(PREFETCH_LINES_MAX);
        instructions.prefetch(&self.lines[first..first + lines]);
    }

    /// Returns the number of bytes of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }

    /// Reserves memory for runs with `blocks` blocks in total.
    pub(crate) fn reserve(&mut self, blocks: usize) {
        self.lines.reserve_exact(blocks * self.layout.lines());
    }

    /// Adds a run without rules.
    ///
    /// The result is `None` if the number of lines would exceed 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "lines are checked, blocks are at most 4")]
    pub(crate) fn add_run(&mut self, blocks: usize) -> Option<BlockRun> {
        debug_assert!((1..=RUN_BLOCKS_MAX).contains(&blocks));
        let first = self.unused[blocks].pop().map_or_else(
            || {
                let lines = self.lines.len() + blocks * self.layout.lines();
                u32::try_from(lines).ok()?;
                let first = self.lines.len() as u32;
                self.lines.resize(lines, Line::ZERO);
                Some(first)
            },
            Some,
        )?;
        let run = BlockRun { first, rules: 0, blocks: blocks as u16 };
        self.clear(run, 0..blocks * BLOCK_RULES);
        Some(run)
    }

    /// Moves the rules of a run to a new run with one more block.
    ///
    /// Returns false if the run has the maximum number of blocks, or if the arena is full.
    pub(crate) fn grow(&mut self, run: &mut BlockRun) -> bool {
        let blocks = usize::from(run.blocks);
        if blocks == RUN_BLOCKS_MAX {
            return false;
        }
        let Some(larger) = self.add_run(blocks + 1) else { return false };
        let first = run.first as usize;
        let source = first..first + blocks * self.layout.lines();
        self.lines.copy_within(source, larger.first as usize);
        self.unused[blocks].push(run.first);
        *run = BlockRun { rules: run.rules, ..larger };
        true
    }

    /// Adds a rule to a run that has room and a layout that can hold the rule.
    pub(crate) fn push(&mut self, run: &mut BlockRun, rule: &PriorityRule<N>) {
        assert!(run.has_room(), "a rule is added only to a run that has room");
        let at = usize::from(run.rules);
        run.rules += 1;
        let block = self.block_range(*run, at);
        self.layout.write(&mut self.lines[block], at % BLOCK_RULES, rule);
    }

    /// Removes a rule from a run, and returns whether the run had it.
    ///
    /// The last rule of the run takes its position.
    pub(crate) fn remove(&mut self, run: &mut BlockRun, rule: &PriorityRule<N>) -> bool {
        let rules = usize::from(run.rules);
        let same =
            |at: &usize| self.value(run.first, *at) == rule.value && self.rule(*run, *at) == *rule;
        let Some(at) = (0..rules).find(same) else { return false };
        let last = self.rule(*run, rules - 1);
        let block = self.block_range(*run, at);
        self.layout.write(&mut self.lines[block], at % BLOCK_RULES, &last);
        run.rules -= 1;
        true
    }

    /// Adds a rule to a run in the order of ranks. The run must have room.
    pub(crate) fn insert_sorted(&mut self, run: &mut BlockRun, rule: &PriorityRule<N>) {
        assert!(run.has_room(), "a rule is added only to a run that has room");
        let rank = rule.rank();
        let mut at = usize::from(run.rules);
        while at > 0 && self.rank(run.first, at - 1) > rank {
            self.move_rule(*run, at - 1, at);
            at -= 1;
        }
        run.rules += 1;
        let block = self.block_range(*run, at);
        self.layout.write(&mut self.lines[block], at % BLOCK_RULES, rule);
    }

    /// Removes a rule from a sorted run, and returns whether the run had it.
    pub(crate) fn remove_sorted(&mut self, run: &mut BlockRun, rule: &PriorityRule<N>) -> bool {
        let Some(at) = self.position(*run, rule) else { return false };
        for next in at + 1..usize::from(run.rules) {
            self.move_rule(*run, next, next - 1);
        }
        run.rules -= 1;
        let last = usize::from(run.rules);
        self.clear(*run, last..last + 1);
        true
    }

    /// Moves the rules of a sorted run from position `at` on to the empty run `other`.
    pub(crate) fn split(&mut self, run: &mut BlockRun, at: usize, other: &mut BlockRun) {
        for from in at..usize::from(run.rules) {
            let rule = self.rule(*run, from);
            self.push(other, &rule);
        }
        self.clear(*run, at..usize::from(run.rules));
        run.rules -= other.rules;
    }

    /// Writes the largest rank to positions of a run, so that they never win.
    fn clear(&mut self, run: BlockRun, positions: std::ops::Range<usize>) {
        for at in positions {
            let block = self.block_range(run, at);
            self.layout.clear(&mut self.lines[block], at % BLOCK_RULES);
        }
    }

    /// Frees a run, so that a later run can use its blocks.
    pub(crate) fn remove_run(&mut self, run: BlockRun) {
        self.unused[usize::from(run.blocks)].push(run.first);
    }

    /// Returns the position of a rule in a run.
    fn position(&self, run: BlockRun, rule: &PriorityRule<N>) -> Option<usize> {
        let rank = rule.rank();
        let same = |at: &usize| self.rank(run.first, *at) == rank && self.rule(run, *at) == *rule;
        (0..usize::from(run.rules)).find(same)
    }

    /// Copies a rule to another position of its run.
    fn move_rule(&mut self, run: BlockRun, from: usize, to: usize) {
        let rule = self.rule(run, from);
        let block = self.block_range(run, to);
        self.layout.write(&mut self.lines[block], to % BLOCK_RULES, &rule);
    }

    /// Returns the rank of a rule of the run that starts with line `first`.
    #[inline]
    pub(crate) fn rank(&self, first: u32, at: usize) -> u64 {
        self.layout.rank(self.block(first, at), at % BLOCK_RULES)
    }

    /// Returns the rule at a position of a run.
    pub(crate) fn rule(&self, run: BlockRun, at: usize) -> PriorityRule<N> {
        self.layout.read(&self.lines[self.block_range(run, at)], at % BLOCK_RULES)
    }

    /// Returns the value of a rule of the run that starts with line `first`.
    #[inline]
    pub(crate) fn value(&self, first: u32, at: usize) -> u32 {
        self.layout.value(self.block(first, at), at % BLOCK_RULES)
    }

    /// Returns the lines of block `at` of a run.
    #[inline]
    fn block(&self, first: u32, at: usize) -> &[Line] {
        let line = first as usize + at / BLOCK_RULES * self.layout.lines();
        &self.lines[line..line + self.layout.lines()]
    }

    /// Returns the lines of the block that has a position of a run.
    fn block_range(&self, run: BlockRun, at: usize) -> std::ops::Range<usize> {
        let lines = self.layout.lines();
        let first = run.first as usize + at / BLOCK_RULES * lines;
        first..first + lines
    }
}
