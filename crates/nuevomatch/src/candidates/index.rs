//! The candidate index, over boxes without priorities.
//!
//! A lookup works in phases for all keys of a batch: search the starts of an iSet, prefetch the
//! blocks, compare the keys with the blocks. In each phase, the processor cache misses of several
//! keys overlap. If the caller ends the search for a key, the key is not searched in the next iSet.

use std::ops::ControlFlow;

use super::set::IndexedSet;
use crate::{
    BoxRule, Error, KeySchema, PartitionSettings, StartIndex, StaticTree,
    blocks::{BlockLayout, LayoutDemand, RuleArena},
    box_rule::widths,
    memory::check_memory,
    partition::IsetPlanner,
    rule::PriorityRule,
    simd::{InstructionSet, MatchJob},
};

/// Maximum number of keys in a batch.
pub const CANDIDATE_BATCH_MAX: usize = 32;

/// An index over boxes of `N` lanes, without priorities.
///
/// A lookup returns every box that contains a key. A rule that is not a box is indexed by a box
/// that contains the rule, and the caller verifies each candidate. Rules that no iSet can hold are
/// returned to the caller, who must search them in another way.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use shunt_nuevomatch::{BoxRule, CandidateIndex, KeySchema};
///
/// // tcp to 10.1.0.0/16 port 80, from anywhere.
/// let web = BoxRule {
///     low: [0, 0x0a01_0000, 0, 80, 6],
///     high: [u32::MAX, 0x0a01_ffff, 65535, 80, 6],
///     value: 7,
/// };
/// let schema = KeySchema::five_tuple();
/// let (mut index, left_out) = CandidateIndex::<5>::build(&schema, &[web], &Default::default())?;
/// assert!(left_out.is_empty());
///
/// let to_web = [0xc0a8_0001, 0x0a01_0203, 40000, 80, 6];
/// let to_ssh = [0xc0a8_0001, 0x0a01_0203, 40000, 22, 6];
/// let mut found = Vec::new();
/// index.find_batch(&[to_web, to_ssh], |position, value| {
///     found.push((position, value));
///     ControlFlow::Break(())
/// });
/// assert_eq!(found, [(0, 7)]);
///
/// let ssh = BoxRule {
///     low: [0, 0x0a01_0000, 0, 22, 6],
///     high: [u32::MAX, 0x0a01_ffff, 65535, 22, 6],
///     value: 8,
/// };
/// assert!(index.insert(&ssh) && index.remove(&web));
/// assert_eq!((index.find(&to_ssh, |_| true), index.find(&to_web, |_| true)), (Some(8), None));
/// # Ok::<(), shunt_nuevomatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CandidateIndex<const N: usize, I = StaticTree> {
    /// The vector instructions that lookups use.
    instructions: InstructionSet,
    sets: Vec<IndexedSet<I>>,
    arena: RuleArena<N>,
}

/// The sizes of a [`CandidateIndex`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CandidateStatistics {
    /// Number of rules in all iSets.
    pub rules: usize,
    /// The lane, the number of rules, and the number of buckets of each iSet.
    pub sets: Vec<(usize, usize, usize)>,
    /// Number of bytes of the blocks.
    pub block_bytes: usize,
    /// Number of bytes of the indexes over starts.
    pub index_bytes: usize,
}

impl<const N: usize, I: StartIndex> CandidateIndex<N, I> {
    /// Builds an index over rules.
    ///
    /// Returns the index, and the positions of the rules that are in no iSet, in ascending order.
    /// Rules at earlier positions are put into buckets first.
    ///
    /// # Errors
    ///
    /// - [`Error::LaneCount`] if the schema does not have `N` lanes.
    /// - [`Error::EmptyRange`] or [`Error::OutsideLane`] for a rule that is not a box.
    /// - [`Error::BucketRules`] if the number of rules per bucket is out of its limits.
    /// - [`Error::TooManyStarts`] if the index over starts cannot number the buckets of an iSet.
    /// - [`Error::TooManyRules`] if the index cannot number the rules.
    /// - [`Error::Memory`] if the system refuses the memory that the build needs.
    pub fn build(
        schema: &KeySchema,
        rules: &[BoxRule<N>],
        settings: &PartitionSettings,
    ) -> Result<(Self, Vec<u32>), Error> {
        Self::build_with(schema, rules, settings, &I::Settings::default())
    }

    /// Builds an index over rules, with settings for the index over starts.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::build`].
    pub fn build_with(
        schema: &KeySchema,
        rules: &[BoxRule<N>],
        settings: &PartitionSettings,
        index_settings: &I::Settings,
    ) -> Result<(Self, Vec<u32>), Error> {
        settings.check()?;
        let widths = widths::<N>(schema)?;
        let too_many = Error::TooManyRules { rules: rules.len(), max: RULES_MAX };
        if rules.len() > RULES_MAX {
            return Err(too_many);
        }
        check_memory::<N>(rules.len())?;
        rules.iter().enumerate().try_for_each(|(at, rule)| rule.check(&widths, at))?;
        let mut demand = LayoutDemand::new(false);
        rules.iter().for_each(|rule| demand.add(&rule.into()));
        let mut arena = RuleArena::new(BlockLayout::new(&widths, &demand));
        let range = |rule: u32, lane: usize| {
            let rule = &rules[rule as usize];
            (rule.low[lane], rule.high[lane])
        };
        let plan = IsetPlanner::new(&widths, rules.len(), range).plan(settings);
        let rule = |at: u32| PriorityRule::from(&rules[at as usize]);
        let build =
            |set| IndexedSet::build(set, widths[set.lane], rule, &mut arena, index_settings);
        let sets: Result<Option<Vec<_>>, _> = plan.sets.iter().map(build).collect();
        let sets = sets?.ok_or(too_many)?;
        Ok((Self { instructions: InstructionSet::best(), sets, arena }, plan.left_out))
    }

    /// Calls `found` with the value of every box that contains a key.
    ///
    /// The arguments of `found` are the position of the key in `keys` and the value. If `found`
    /// breaks, the search for this key ends, and the search for other keys continues. `found` is
    /// called iSet by iSet, and not key by key. Key bits above the width of a lane are ignored.
    /// Keys are searched in batches of 32.
    #[inline]
    pub fn find_batch(
        &self,
        keys: &[[u32; N]],
        mut found: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) {
        for (batch, keys) in keys.chunks(CANDIDATE_BATCH_MAX).enumerate() {
            let pending = u32::MAX >> (CANDIDATE_BATCH_MAX - keys.len());
            let first = batch * CANDIDATE_BATCH_MAX;
            self.find_pending(keys, pending, |position, value| found(first + position, value));
        }
    }

    /// Calls `found` with the value of every box that contains a key of `pending`.
    ///
    /// Bit `i` of `pending` selects the key `i`. [`Self::find_batch`] explains the arguments of
    /// `found`.
    ///
    /// Returns `pending` without the keys for which `found` broke.
    ///
    /// # Panics
    ///
    /// If a bit of `pending` selects a key that does not exist.
    #[inline]
    pub fn find_pending(
        &self,
        keys: &[[u32; N]],
        pending: u32,
        mut found: impl FnMut(usize, u32) -> ControlFlow<()>,
    ) -> u32 {
        let mut pending = pending;
        for set in &self.sets {
            if pending == 0 {
                break;
            }
            let mut jobs = [MatchJob::default(); CANDIDATE_BATCH_MAX];
            let mut masks = [0; CANDIDATE_BATCH_MAX];
            let count = self.match_set(set, keys, pending, &mut jobs, &mut masks);
            for (job, mask) in jobs[..count].iter().zip(masks) {
                let mut rest = mask;
                while rest != 0 {
                    let value = self.arena.value(job.first, rest.trailing_zeros() as usize);
                    if found(usize::from(job.key), value).is_break() {
                        pending &= !(1 << job.key);
                        break;
                    }
                    rest &= rest - 1;
                }
            }
        }
        pending
    }

    /// Compares the pending keys with the blocks of their buckets in one iSet.
    ///
    /// Returns the number of jobs: one per pending key.
    #[expect(clippy::cast_possible_truncation, reason = "a batch has 32 keys")]
    fn match_set(
        &self,
        set: &IndexedSet<I>,
        keys: &[[u32; N]],
        pending: u32,
        jobs: &mut [MatchJob; CANDIDATE_BATCH_MAX],
        masks: &mut [u64; CANDIDATE_BATCH_MAX],
    ) -> usize {
        let mut count = 0;
        let mut rest = pending;
        while rest != 0 {
            jobs[count].key = rest.trailing_zeros() as u16;
            rest &= rest - 1;
            count += 1;
        }
        let jobs = &mut jobs[..count];
        let mut values = [0; CANDIDATE_BATCH_MAX];
        let mut positions = [0; CANDIDATE_BATCH_MAX];
        let (values, positions) = (&mut values[..count], &mut positions[..count]);
        set.find_buckets(jobs.iter().map(|job| keys[usize::from(job.key)]), values, positions);
        let lines = self.arena.lines();
        for (job, position) in jobs.iter_mut().zip(positions) {
            let run = set.run(*position);
            (job.first, job.rules) = (run.first, run.rules);
            self.arena.prefetch(self.instructions, run.first);
        }
        let layout = self.arena.layout();
        self.instructions.match_blocks(layout, lines, keys, jobs, &mut masks[..count]);
        count
    }

    /// Returns the first value that `is_match` accepts, of the boxes around a key.
    pub fn find(&self, key: &[u32; N], mut is_match: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut result = None;
        self.find_pending(std::slice::from_ref(key), 1, |_, value| {
            if is_match(value) {
                result = Some(value);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        result
    }

    /// Adds a rule in place, and returns whether an iSet could hold it.
    ///
    /// An iSet can hold a rule if one of its buckets contains the range of the rule in the lane of
    /// the iSet, and has fewer than 64 rules. The blocks of the bucket must also be able to hold
    /// the rule. Blocks cannot hold a rule without values in a lane, or with a range that is not a
    /// prefix in a lane that had only prefixes at the build. The time is proportional to the size
    /// of a bucket, and memory is allocated only if a bucket grows.
    pub fn insert(&mut self, rule: &BoxRule<N>) -> bool {
        let rule = &PriorityRule::from(rule);
        let can_hold = self.arena.layout().can_hold(rule);
        let arena = &mut self.arena;
        can_hold
            && [false, true].into_iter().any(|may_grow| {
                self.sets.iter_mut().any(|set| {
                    set.find_bucket(rule)
                        .is_some_and(|bucket| set.insert(bucket, may_grow, rule, arena))
                })
            })
    }

    /// Removes a rule with this box and value, and returns whether an iSet had it.
    ///
    /// The time is proportional to the size of a bucket, and no memory is allocated.
    pub fn remove(&mut self, rule: &BoxRule<N>) -> bool {
        let rule = &PriorityRule::from(rule);
        let can_hold = self.arena.layout().can_hold(rule);
        let arena = &mut self.arena;
        can_hold
            && self.sets.iter_mut().any(|set| {
                set.find_bucket(rule).is_some_and(|bucket| set.remove(bucket, rule, arena))
            })
    }

    /// Returns the number of rules in all iSets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.iter().map(IndexedSet::len).sum()
    }

    /// Returns whether no iSet has a rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sizes of the iSets.
    #[must_use]
    pub fn statistics(&self) -> CandidateStatistics {
        let sets = self.sets.iter().map(|set| (set.lane(), set.len(), set.buckets_count()));
        CandidateStatistics {
            rules: self.len(),
            sets: sets.collect(),
            block_bytes: self.arena.bytes(),
            index_bytes: self.sets.iter().map(IndexedSet::bytes).sum(),
        }
    }
}

/// Maximum number of rules in an index, so that a position has 32 bits.
const RULES_MAX: usize = u32::MAX as usize;
