//! The classifier [`NuevoMatch`]: builds, lookups and changes.
//!
//! A lookup of up to 32 keys works in phases, so that the processor cache misses of a phase
//! overlap:
//!
//! 1. Search the starts of every iSet, and prefetch the first block of each bucket.
//! 2. Compare the keys with the buckets of one iSet after the other. A bucket is skipped if its
//!    best rank is worse than the best one found.
//! 3. Search the remainder for better ranks. Lists and tables of the remainder are in the order of
//!    their best ranks, and the search ends at the first one with a worse rank.
//!
//! The rules of a bucket are in the order of ranks. So the lowest bit in the result of a comparison
//! is the best matching rule.

use super::{
    cost::{capacities, cheapest_sets, with_capacity},
    settings::{BucketCapacity, NuevoMatchSettings},
    statistics::{NuevoMatchStatistics, SetStatistics},
};
use crate::{
    Error, KeySchema, StartIndex, StaticTree,
    blocks::{BlockLayout, LayoutDemand, RuleArena},
    box_rule::widths,
    candidates::IndexedSet,
    memory::{check_memory, rule_list},
    partition::{IsetPlan, IsetPlanner, SETS_MAX},
    remainder::{AcceptAll, BestRanks, LIST_RULES_MAX, RankFilter, Remainder},
    rule::PriorityRule,
    schema::lane_max,
    simd::{BATCH_MAX, InstructionSet, MatchJob},
};

/// Size of the L1 cache in bytes. Blocks that fit into it are not prefetched.
const CACHED_BYTES: usize = 32 * 1024;

/// Most rules of the remainder that a bounded insertion moves.
const MOVED_RULES_MAX: usize = LIST_RULES_MAX;

/// The rank for a key that no rule matches. No rule has this rank.
const NO_RANK: u64 = u64::MAX;

/// The rule that wins for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestMatch {
    /// Priority of the rule.
    pub priority: u32,
    /// Value of the rule.
    pub value: u32,
}

impl BestMatch {
    /// Returns the match of a rank, unless the rank means that no rule matches.
    #[expect(clippy::cast_possible_truncation, reason = "a rank has two words")]
    fn of_rank(rank: u64) -> Option<Self> {
        let best = Self { priority: (rank >> 32) as u32, value: rank as u32 };
        (best.priority != u32::MAX).then_some(best)
    }
}

/// A classifier over rules with priorities: relaxed iSets and a remainder.
///
/// ```
/// use shunt_nuevomatch::{FieldMatch, KeySchema, NuevoMatch, NuevoMatchSettings, PriorityRule};
///
/// let schema = KeySchema::five_tuple();
/// let mut rules = Vec::new();
/// for i in 0..100 {
///     let network = FieldMatch::Prefix { value: 0x0a00_0000 | i << 8, length: 24 };
///     let web = FieldMatch::Exact(80);
///     let fields = [FieldMatch::Any, network, FieldMatch::Any, web, FieldMatch::Exact(6)];
///     rules.push(PriorityRule::<5>::new(&schema, &fields, 1, i as u32)?);
/// }
/// let settings = NuevoMatchSettings::default();
/// let mut classifier = NuevoMatch::<5>::build(&schema, &rules, &settings)?;
/// let packet = [0xc0a8_0001, 0x0a00_2a01, 40000, 80, 6];
/// assert_eq!(classifier.lookup(&packet).map(|best| best.value), Some(42));
///
/// // The smallest priority wins.
/// let all = PriorityRule::new(&schema, &[FieldMatch::Any; 5], 0, 1000)?;
/// assert!(classifier.insert(&all));
/// assert_eq!(classifier.lookup(&packet).map(|best| best.value), Some(1000));
/// assert!(classifier.remove(&all));
/// assert_eq!(classifier.lookup(&packet).map(|best| best.value), Some(42));
/// # Ok::<(), shunt_nuevomatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct NuevoMatch<const N: usize, I = StaticTree> {
    /// The vector instructions that lookups use.
    instructions: InstructionSet,
    /// The last value of each lane.
    pub(super) max: [u32; N],
    pub(super) sets: Vec<IndexedSet<I>>,
    /// The blocks of all buckets of all iSets.
    pub(super) arena: RuleArena<N>,
    pub(super) remainder: Remainder<N>,
    /// Maximum number of rules in a bucket.
    bucket_rules: usize,
}

impl<const N: usize, I: StartIndex> NuevoMatch<N, I> {
    /// Builds a classifier of rules over the keys of a schema.
    ///
    /// # Errors
    ///
    /// - [`Error::LaneCount`] if the schema does not have `N` lanes.
    /// - [`Error::EmptyRange`] or [`Error::OutsideLane`] for a rule of another schema.
    /// - [`Error::BucketRules`] if the number of rules per bucket is out of its limits.
    /// - [`Error::TooManyStarts`] if the index over starts cannot number the buckets of an iSet.
    /// - [`Error::TooManyRules`] if the classifier cannot number the rules.
    /// - [`Error::Memory`] if the system refuses the memory that the build needs.
    pub fn build(
        schema: &KeySchema,
        rules: &[PriorityRule<N>],
        settings: &NuevoMatchSettings,
    ) -> Result<Self, Error> {
        Self::build_with(schema, rules, settings, &I::Settings::default())
    }

    /// Builds a classifier, with settings for the indexes over starts.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::build`].
    pub fn build_with(
        schema: &KeySchema,
        rules: &[PriorityRule<N>],
        settings: &NuevoMatchSettings,
        index_settings: &I::Settings,
    ) -> Result<Self, Error> {
        settings.partition.check()?;
        let widths = widths::<N>(schema)?;
        let too_many = Error::TooManyRules { rules: rules.len(), max: u32::MAX as usize };
        if rules.len() >= u32::MAX as usize {
            return Err(too_many);
        }
        check_memory::<N>(rules.len())?;
        rules.iter().enumerate().try_for_each(|(at, rule)| rule.check(&widths, at))?;
        // If rules do not fit into a bucket, the earliest rules stay, so rules are sorted by rank.
        let in_order = rules.is_sorted_by_key(PriorityRule::rank);
        let mut sorted = Vec::new();
        let rules = if in_order {
            rules
        } else {
            sorted.extend_from_slice(rules);
            sorted.sort_by_key(PriorityRule::rank);
            &sorted
        };
        let mut demand = LayoutDemand::new(true);
        rules.iter().for_each(|rule| demand.add(rule));
        let mut arena = RuleArena::new(BlockLayout::new(&widths, &demand));
        let (plan, bucket_rules) = plan(&widths, rules, settings);
        let rule = |at: u32| rules[at as usize];
        let build =
            |set| IndexedSet::build(set, widths[set.lane], rule, &mut arena, index_settings);
        let sets: Result<Option<Vec<_>>, _> = plan.sets.iter().map(build).collect();
        let mut remainder = Remainder::new(settings.seed, widths);
        if !plan.left_out.iter().all(|at| remainder.insert(&rule(*at))) {
            return Err(too_many);
        }
        Ok(Self {
            instructions: InstructionSet::best(),
            max: widths.map(lane_max),
            sets: sets?.ok_or(too_many)?,
            arena,
            remainder,
            bucket_rules,
        })
    }

    /// Returns the rule that wins for a key.
    ///
    /// Key bits above the width of a lane are ignored.
    #[must_use]
    pub fn lookup(&self, key: &[u32; N]) -> Option<BestMatch> {
        let mut rank = [NO_RANK];
        self.find_ranks(std::slice::from_ref(key), &mut rank, AcceptAll);
        BestMatch::of_rank(rank[0])
    }

    /// Writes the rule that wins for each key.
    ///
    /// Keys are searched in batches of 32. Key bits above the width of a lane are ignored.
    ///
    /// # Panics
    ///
    /// If `best` is shorter than `keys`.
    pub fn lookup_batch(&self, keys: &[[u32; N]], best: &mut [Option<BestMatch>]) {
        let best = &mut best[..keys.len()];
        for (keys, best) in keys.chunks(BATCH_MAX).zip(best.chunks_mut(BATCH_MAX)) {
            let mut ranks = [NO_RANK; BATCH_MAX];
            self.find_ranks(keys, &mut ranks, AcceptAll);
            for (best, rank) in best.iter_mut().zip(ranks) {
                *best = BestMatch::of_rank(rank);
            }
        }
    }

    /// Writes the rule that wins for each key, among the rules that `accepts` accepts.
    ///
    /// The arguments of `accepts` are the position of the key in `keys` and the value of the rule.
    /// `accepts` is called for matching rules, in any order. Keys are searched as by
    /// [`Self::lookup_batch`].
    ///
    /// # Panics
    ///
    /// If `best` is shorter than `keys`.
    pub fn lookup_accepted(
        &self,
        keys: &[[u32; N]],
        best: &mut [Option<BestMatch>],
        mut accepts: impl FnMut(usize, u32) -> bool,
    ) {
        if let ([_], [best, ..]) = (keys, &mut *best) {
            let mut rank = [NO_RANK];
            self.find_ranks(keys, &mut rank, accepts);
            *best = BestMatch::of_rank(rank[0]);
            return;
        }
        let best = &mut best[..keys.len()];
        let chunks = keys.chunks(BATCH_MAX).zip(best.chunks_mut(BATCH_MAX));
        for (batch, (keys, best)) in chunks.enumerate() {
            let mut ranks = [NO_RANK; BATCH_MAX];
            let first = batch * BATCH_MAX;
            self.find_ranks(keys, &mut ranks, |key, value| accepts(first + key, value));
            for (best, rank) in best.iter_mut().zip(ranks) {
                *best = BestMatch::of_rank(rank);
            }
        }
    }

    /// Finds the best rank for each key of a batch of at most `B` keys.
    fn find_ranks<const B: usize>(
        &self,
        keys: &[[u32; N]],
        ranks: &mut [u64; B],
        filter: impl RankFilter,
    ) {
        let mut best = BestRanks { instructions: self.instructions, keys, ranks, filter };
        let prefetches = B > 1 && self.arena.bytes() > CACHED_BYTES;
        let mut positions = [[0; B]; SETS_MAX];
        for (set, positions) in self.sets.iter().zip(&mut positions) {
            let positions = &mut positions[..keys.len()];
            set.find_buckets(keys, &mut [0; B][..keys.len()], positions);
            if prefetches {
                for position in positions {
                    self.arena.prefetch(self.instructions, set.run(*position).first);
                }
            }
        }
        let mut jobs = [MatchJob::default(); B];
        for (at, (set, positions)) in self.sets.iter().zip(&positions).enumerate() {
            let positions = &positions[..keys.len()];
            let mut count = 0;
            for (key, (position, rank)) in (0..).zip(positions.iter().zip(best.ranks.iter())) {
                let run = set.run(*position);
                jobs[count % B] = MatchJob { key, first: run.first, rules: run.rules };
                // Before the first iSet is searched, no key has a rank.
                let can_win = at == 0 || self.arena.rank(run.first, 0) < *rank;
                count += usize::from(can_win && run.rules > 0);
            }
            best.match_jobs(&self.arena, &jobs[..count]);
        }
        self.remainder.find_batch(&mut best);
    }

    /// Adds a rule, and returns whether the classifier had room.
    ///
    /// The rule is put into a bucket of an iSet that contains its range and has room, else into the
    /// remainder. Returns false for a rule of another schema, or if all 2^32 blocks are in use.
    pub fn insert(&mut self, rule: &PriorityRule<N>) -> bool {
        self.insert_moving(rule, usize::MAX)
    }

    /// Adds a rule, unless there is no room or more than 256 rules would move.
    ///
    /// The blocks of the remainder have a layout that is as narrow as its rules allow. All rules of
    /// the remainder move if a rule needs a wider layout: the first one with a mask that is not a
    /// prefix in its lane. Returns false instead if the remainder has more than 256 rules, so the
    /// time does not depend on the number of rules. A new classifier can hold the rule.
    pub fn insert_bounded(&mut self, rule: &PriorityRule<N>) -> bool {
        self.insert_moving(rule, MOVED_RULES_MAX)
    }

    /// Inserts a rule, if at most `moved_max` rules of the remainder move.
    fn insert_moving(&mut self, rule: &PriorityRule<N>, moved_max: usize) -> bool {
        let fits = |lane| rule.low[lane] <= rule.high[lane] && rule.high[lane] <= self.max[lane];
        if !(0..N).all(fits) {
            return false;
        }
        let arena = &mut self.arena;
        let in_place = arena.layout().can_hold(rule)
            && [false, true].into_iter().any(|may_grow| {
                self.sets.iter_mut().any(|set| {
                    set.find_bucket(rule)
                        .is_some_and(|bucket| set.insert(bucket, may_grow, rule, arena))
                })
            });
        in_place || self.remainder.insert_moving(rule, moved_max)
    }

    /// Removes a rule that equals `rule`, and returns whether the classifier had one.
    pub fn remove(&mut self, rule: &PriorityRule<N>) -> bool {
        let arena = &mut self.arena;
        let in_place = arena.layout().can_hold(rule)
            && self.sets.iter_mut().any(|set| {
                set.find_bucket(rule).is_some_and(|bucket| set.remove(bucket, rule, arena))
            });
        in_place || self.remainder.remove(rule)
    }

    /// Returns all rules, in no particular order.
    #[must_use]
    pub fn rules(&self) -> Vec<PriorityRule<N>> {
        let mut rules = Vec::with_capacity(self.len());
        self.for_each_rule(|rule| rules.push(rule));
        rules
    }

    /// Returns all rules for a build, in a list with room for `more` rules.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the system refuses the memory of the list.
    pub(crate) fn rules_and_room(&self, more: usize) -> Result<Vec<PriorityRule<N>>, Error> {
        let mut rules = rule_list(self.len().saturating_add(more))?;
        self.for_each_rule(|rule| rules.push(rule));
        Ok(rules)
    }

    /// Calls `visit` for each rule, in no particular order.
    fn for_each_rule(&self, mut visit: impl FnMut(PriorityRule<N>)) {
        for set in &self.sets {
            set.for_each(&self.arena, &mut visit);
        }
        self.remainder.for_each(visit);
    }

    /// Returns the number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sets.iter().map(IndexedSet::len).sum::<usize>() + self.remainder.len()
    }

    /// Returns whether the classifier has no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of rules in the remainder.
    #[must_use]
    pub fn remainder_len(&self) -> usize {
        self.remainder.len()
    }

    /// Returns the sizes of the iSets and of the remainder.
    #[must_use]
    pub fn statistics(&self) -> NuevoMatchStatistics {
        let sets = self.sets.iter().map(|set| SetStatistics {
            lane: set.lane(),
            rules: set.len(),
            buckets: set.buckets_count(),
            index_bytes: set.index_bytes(),
            certified_error: set.certified_error(),
        });
        let indexes: usize = self.sets.iter().map(IndexedSet::bytes).sum();
        NuevoMatchStatistics {
            rules: self.len(),
            bucket_rules: self.bucket_rules,
            sets: sets.collect(),
            remainder_rules: self.remainder.len(),
            remainder_tables: self.remainder.tables_count(),
            bytes: indexes + self.arena.bytes() + self.remainder.bytes(),
        }
    }
}

/// Divides rules into iSets, and returns the capacity of their buckets.
fn plan<const N: usize>(
    widths: &[u8; N],
    rules: &[PriorityRule<N>],
    settings: &NuevoMatchSettings,
) -> (IsetPlan, usize) {
    let range = |rule: u32, lane: usize| {
        let rule = &rules[rule as usize];
        (rule.low[lane], rule.high[lane])
    };
    let partition = settings.partition;
    let mut planner = IsetPlanner::new(widths, rules.len(), range);
    match settings.capacity {
        BucketCapacity::Fixed => (planner.plan(&partition), partition.bucket_rules),
        BucketCapacity::ByCost => {
            let plans = capacities(rules.len()).map(|(bucket_rules, spare_percent)| {
                let settings = with_capacity(&partition, bucket_rules, spare_percent);
                let plan = planner.plan(&settings);
                let (sets, cost) = cheapest_sets(&plan, widths, rules);
                (cost, plan, sets, bucket_rules)
            });
            let best = plans.min_by_key(|(cost, _, _, capacity)| (*cost, *capacity));
            best.map(|(_, mut plan, sets, capacity)| {
                plan.truncate(sets);
                (plan, capacity)
            })
            .unwrap_or_default()
        }
    }
}
