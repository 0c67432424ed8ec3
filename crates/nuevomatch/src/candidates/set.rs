//! One iSet: an index over the starts of its buckets, and a run of blocks for each bucket.

use crate::{
    BoxRule, StartIndex,
    blocks::{BlockRun, RuleArena},
    partition::LaneCover,
    schema::lane_max,
};

/// One iSet.
#[derive(Clone, Debug)]
pub(crate) struct IndexedSet<I> {
    lane: usize,
    /// Last value of the lane.
    max: u32,
    index: I,
    /// First value of each bucket; the first is 0.
    starts: Vec<u32>,
    /// The blocks of each bucket.
    runs: Vec<BlockRun>,
    rules: usize,
}

impl<I: StartIndex> IndexedSet<I> {
    /// Builds an iSet from its buckets, and puts their rules into an arena.
    ///
    /// Returns nothing if the arena cannot hold the rules.
    pub(crate) fn build<const N: usize>(
        lane: usize,
        width: u8,
        cover: &LaneCover,
        rules: &[BoxRule<N>],
        arena: &mut RuleArena<N>,
        settings: &I::Settings,
    ) -> Option<Self> {
        let mut starts: Vec<u32> = cover.buckets.iter().map(|(start, _)| *start).collect();
        *starts.first_mut()? = 0;
        let blocks = |rules: usize| rules.div_ceil(crate::simd::BLOCK_RULES);
        arena.reserve(cover.buckets.iter().map(|(_, rules)| blocks(*rules)).sum());
        let mut members = cover.members.iter();
        let mut runs = Vec::with_capacity(starts.len());
        for &(_, count) in &cover.buckets {
            let mut run = arena.add_run(blocks(count))?;
            for &rule in members.by_ref().take(count) {
                arena.push(&mut run, &rules[rule as usize]);
            }
            runs.push(run);
        }
        let index = I::build(&starts, settings);
        Some(Self { lane, max: lane_max(width), index, starts, runs, rules: cover.members.len() })
    }

    /// Writes the blocks of the bucket of each key.
    ///
    /// `values` and `positions` are room for as many numbers as there are keys.
    #[inline]
    pub(crate) fn find_runs<const N: usize>(
        &self,
        keys: impl Iterator<Item = [u32; N]>,
        values: &mut [u32],
        positions: &mut [u32],
    ) {
        for (value, key) in values.iter_mut().zip(keys) {
            *value = key[self.lane] & self.max;
        }
        self.index.find_batch(values, positions);
    }

    /// Returns the blocks of the bucket at a position of the index.
    #[inline]
    pub(crate) fn run(&self, position: u32) -> BlockRun {
        self.runs[position as usize]
    }

    /// Returns the bucket that contains the range of a box in this lane, if one does.
    pub(crate) fn find_bucket<const N: usize>(&self, rule: &BoxRule<N>) -> Option<usize> {
        let (low, high) = (rule.low[self.lane], rule.high[self.lane]);
        let bucket = self.index.find(low);
        self.starts.get(bucket + 1).is_none_or(|next| high < *next).then_some(bucket)
    }

    /// Adds a rule to a bucket that has room, or may grow and can.
    pub(crate) fn insert<const N: usize>(
        &mut self,
        bucket: usize,
        may_grow: bool,
        rule: &BoxRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let run = &mut self.runs[bucket];
        if !(run.has_room() || may_grow && arena.grow(run)) {
            return false;
        }
        arena.push(run, rule);
        self.rules += 1;
        true
    }

    /// Removes a rule from a bucket, and returns whether it was there.
    pub(crate) fn remove<const N: usize>(
        &mut self,
        bucket: usize,
        rule: &BoxRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let is_removed = arena.remove(&mut self.runs[bucket], rule);
        self.rules -= usize::from(is_removed);
        is_removed
    }

    /// Returns the lane of the iSet.
    pub(crate) fn lane(&self) -> usize {
        self.lane
    }

    /// Returns the number of rules.
    pub(crate) fn len(&self) -> usize {
        self.rules
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets_count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of bytes apart from blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes() + size_of_val(&self.starts[..]) + size_of_val(&self.runs[..])
    }
}
