//! An iSet: an index over the starts of its buckets, and a run of blocks for each bucket.

use std::borrow::Borrow;

use crate::{
    Error, StartIndex,
    blocks::{BlockRun, RuleArena},
    partition::PlannedSet,
    rule::PriorityRule,
    schema::lane_max,
    simd::BLOCK_RULES,
};

/// An iSet with its index.
#[derive(Clone, Debug)]
pub(crate) struct IndexedSet<I> {
    /// Index of the lane by which the iSet is searched.
    lane: usize,
    /// The last value of the lane of the iSet.
    max: u32,
    /// The index over the starts of the buckets.
    index: I,
    /// The first value of each bucket; that of the first bucket is 0.
    starts: Vec<u32>,
    /// The blocks of each bucket.
    runs: Vec<BlockRun>,
    /// Number of rules in the iSet.
    rules: usize,
}

impl<I: StartIndex> IndexedSet<I> {
    /// Builds an iSet from its buckets, and puts their rules into an arena.
    ///
    /// Returns `None` if the arena cannot hold the rules.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyStarts`] if the index cannot number the buckets.
    pub(crate) fn build<const N: usize>(
        set: &PlannedSet,
        width: u8,
        rule: impl Fn(u32) -> PriorityRule<N>,
        arena: &mut RuleArena<N>,
        settings: &I::Settings,
    ) -> Result<Option<Self>, Error> {
        let PlannedSet { lane, cover } = set;
        let mut starts: Vec<u32> = cover.buckets.iter().map(|(start, _)| *start).collect();
        let Some(first) = starts.first_mut() else { return Ok(None) };
        *first = 0;
        let index = I::build(&starts, settings)?;
        let blocks = |rules: usize| rules.div_ceil(BLOCK_RULES);
        arena.reserve(cover.buckets.iter().map(|(_, rules)| blocks(*rules)).sum());
        let mut members = cover.members.iter();
        let mut bucket = Vec::new();
        let mut runs = Vec::with_capacity(starts.len());
        for &(_, count) in &cover.buckets {
            let Some(mut run) = arena.add_run(blocks(count)) else { return Ok(None) };
            bucket.clear();
            bucket.extend(members.by_ref().take(count).map(|member| rule(*member)));
            if arena.layout().has_priorities() {
                bucket.sort_by_key(PriorityRule::rank);
            }
            bucket.iter().for_each(|rule| arena.push(&mut run, rule));
            runs.push(run);
        }
        let (max, rules) = (lane_max(width), cover.members.len());
        Ok(Some(Self { lane: *lane, max, index, starts, runs, rules }))
    }

    /// Writes the position of the bucket of each key.
    ///
    /// `values` and `positions` must have room for one number per key.
    #[inline]
    pub(crate) fn find_buckets<const N: usize>(
        &self,
        keys: impl IntoIterator<Item = impl Borrow<[u32; N]>>,
        values: &mut [u32],
        positions: &mut [u32],
    ) {
        for (value, key) in values.iter_mut().zip(keys) {
            *value = key.borrow()[self.lane] & self.max;
        }
        self.index.find_batch(values, positions);
    }

    /// Returns the blocks of the bucket at a position of the index.
    #[inline]
    pub(crate) fn run(&self, position: u32) -> BlockRun {
        self.runs[position as usize]
    }

    /// Returns the blocks of the bucket of a value of the lane.
    pub(crate) fn run_of(&self, value: u32) -> BlockRun {
        self.runs[self.index.find(value)]
    }

    /// Returns the first and last value of the bucket of a value and of its neighbours.
    ///
    /// A neighbour belongs to them if `joins` is true for it, and for all buckets up to it. At most
    /// `neighbours_max` neighbours of each side belong to the interval.
    pub(crate) fn interval(
        &self,
        value: u32,
        neighbours_max: usize,
        joins: impl Fn(BlockRun) -> bool,
    ) -> (u32, u32) {
        let bucket = self.index.find(value);
        let (before, after) = (&self.runs[..bucket], &self.runs[bucket + 1..]);
        let joined = |run: &&BlockRun| joins(**run);
        let first = before.iter().rev().take(neighbours_max).take_while(joined).count();
        let last = after.iter().take(neighbours_max).take_while(joined).count();
        let next = self.starts.get(bucket + last + 1);
        (self.starts[bucket - first], next.map_or(self.max, |next| next - 1))
    }

    /// Returns the bucket that contains the range of a box in this lane, if one does.
    pub(crate) fn find_bucket<const N: usize>(&self, rule: &PriorityRule<N>) -> Option<usize> {
        let (low, high) = (rule.low[self.lane], rule.high[self.lane]);
        let bucket = self.index.find(low);
        self.starts.get(bucket + 1).is_none_or(|next| high < *next).then_some(bucket)
    }

    /// Adds a rule to a bucket, if the bucket has room or can grow.
    pub(crate) fn insert<const N: usize>(
        &mut self,
        bucket: usize,
        may_grow: bool,
        rule: &PriorityRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let run = &mut self.runs[bucket];
        if !(run.has_room() || may_grow && arena.grow(run)) {
            return false;
        }
        if arena.layout().has_priorities() {
            arena.insert_sorted(run, rule);
        } else {
            arena.push(run, rule);
        }
        self.rules += 1;
        true
    }

    /// Removes a rule from a bucket, and returns whether the bucket had the rule.
    pub(crate) fn remove<const N: usize>(
        &mut self,
        bucket: usize,
        rule: &PriorityRule<N>,
        arena: &mut RuleArena<N>,
    ) -> bool {
        let run = &mut self.runs[bucket];
        let is_removed = if arena.layout().has_priorities() {
            arena.remove_sorted(run, rule)
        } else {
            arena.remove(run, rule)
        };
        self.rules -= usize::from(is_removed);
        is_removed
    }

    /// Calls `each` with every rule of the iSet.
    pub(crate) fn for_each<const N: usize>(
        &self,
        arena: &RuleArena<N>,
        mut each: impl FnMut(PriorityRule<N>),
    ) {
        for run in &self.runs {
            (0..usize::from(run.rules)).for_each(|at| each(arena.rule(*run, at)));
        }
    }

    /// Returns the lane of the iSet.
    pub(crate) fn lane(&self) -> usize {
        self.lane
    }

    /// Returns the number of rules of the iSet.
    pub(crate) fn len(&self) -> usize {
        self.rules
    }

    /// Returns the number of buckets of the iSet.
    pub(crate) fn buckets_count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of bytes of the index over starts.
    pub(crate) fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Returns the largest error of a prediction of the index, if it predicts.
    pub(crate) fn certified_error(&self) -> Option<u32> {
        self.index.certified_error()
    }

    /// Returns the number of bytes of the iSet, without blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.index.bytes() + size_of_val(&self.starts[..]) + size_of_val(&self.runs[..])
    }
}
