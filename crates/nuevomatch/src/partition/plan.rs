//! The choice of iSets: the lane of each iSet, and the rules of its buckets.
//!
//! The first iSet is the largest one over all lanes. Each later iSet is the largest one of the
//! remaining rules. A lane is sorted only once, and only if a bound shows that its iSet may be the
//! largest. Plans with other capacities of buckets use the same sorted ranges. For later iSets,
//! only the few remaining rules are sorted.

use super::{
    radix::sort_ranges,
    relaxed::{LaneCover, RangeForest},
    settings::PartitionSettings,
};
use crate::schema::lane_max;

/// Maximum number of iSets.
pub(crate) const SETS_MAX: usize = 4;

/// Greatest width in bits of a lane for which rules are counted by their start.
const COUNTED_BITS_MAX: u8 = 16;

/// One iSet of a plan, with its lane.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSet {
    /// Index of the lane by which the iSet is searched.
    pub(crate) lane: usize,
    pub(crate) cover: LaneCover,
}

/// The plan: the chosen iSets, and the rules that no iSet holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct IsetPlan {
    pub(crate) sets: Vec<PlannedSet>,
    /// The positions of the rules that no iSet holds, in ascending order.
    pub(crate) left_out: Vec<u32>,
}

impl IsetPlan {
    /// Returns the rules that the first `sets` iSets do not hold, in ascending order.
    pub(crate) fn left_out_after(&self, sets: usize) -> Vec<u32> {
        let mut left_out = self.left_out.clone();
        for set in &self.sets[sets..] {
            left_out.extend_from_slice(&set.cover.members);
        }
        left_out.sort_unstable();
        left_out
    }

    /// Removes all iSets after the first `sets` ones.
    pub(crate) fn truncate(&mut self, sets: usize) {
        if sets < self.sets.len() {
            self.left_out = self.left_out_after(sets);
            self.sets.truncate(sets);
        }
    }
}

/// A planner of iSets, which keeps the sorted ranges of each lane.
pub(crate) struct IsetPlanner<'a, R> {
    /// Number of bits of each lane.
    widths: &'a [u8],
    /// Number of rules to plan.
    rules: usize,
    /// The function that returns the range of a rule in a lane.
    range: R,
    /// The sorted ranges of all rules, for each lane that was needed so far.
    forests: Vec<Option<RangeForest>>,
    /// The counts of all rules in each lane, after their first use.
    counts: Option<Vec<LaneCounts>>,
}

/// The counts of rules by their ranges in one lane.
#[derive(Clone, Debug)]
struct LaneCounts {
    /// Number of rules that do not have the full range of the lane.
    others: usize,
    /// Number of rules for each first value, limited to 255; empty for a wide lane.
    starts: Vec<u8>,
}

impl LaneCounts {
    /// Returns an upper bound for the number of rules of a relaxed iSet in the lane.
    ///
    /// All rules with the full range are in one bucket, and so are all rules with the same start.
    fn rules_max(&self, rules: usize, capacity: usize) -> usize {
        // If a rule with the full range is kept, all rules are in one bucket.
        let by_range = self.others.max(capacity.min(rules));
        if self.starts.is_empty() {
            return by_range;
        }
        let by_start = self.starts.iter().map(|count| usize::from(*count).min(capacity));
        by_range.min(by_start.sum())
    }
}

impl<'a, R: Fn(u32, usize) -> (u32, u32)> IsetPlanner<'a, R> {
    /// Returns a planner of `rules` rules. `widths` are the bits of the lanes.
    pub(crate) fn new(widths: &'a [u8], rules: usize, range: R) -> Self {
        let forests = widths.iter().map(|_| None).collect();
        Self { widths, rules, range, forests, counts: None }
    }

    /// Divides the rules into iSets.
    pub(crate) fn plan(&mut self, settings: &PartitionSettings) -> IsetPlan {
        let mut left_out: Vec<u32> = (0..).take(self.rules).collect();
        let mut is_covered = vec![false; self.rules];
        let mut sets = Vec::new();
        while sets.len() < settings.sets_max.min(SETS_MAX) {
            let (lane, cover) = self.largest_cover(&left_out, settings);
            if cover.members.len() < settings.rules_min(self.rules) {
                break;
            }
            cover.members.iter().for_each(|rule| is_covered[*rule as usize] = true);
            left_out.retain(|rule| !is_covered[*rule as usize]);
            sets.push(PlannedSet { lane, cover });
        }
        IsetPlan { sets, left_out }
    }

    /// Returns the lane in which the most rules fit into buckets, with its buckets.
    fn largest_cover(
        &mut self,
        available: &[u32],
        settings: &PartitionSettings,
    ) -> (usize, LaneCover) {
        let (capacity, fill) = (settings.bucket_rules, settings.bucket_fill());
        let mut largest = (0, LaneCover::default());
        for (bound, lane) in self.bounds(available, capacity) {
            if bound <= largest.1.members.len() || bound < settings.rules_min(self.rules) {
                break;
            }
            let cover = if available.len() == self.rules {
                let forest = self.forests[lane].take();
                let mut forest = forest.unwrap_or_else(|| self.forest(available, lane));
                let cover = forest.cover(capacity, fill);
                self.forests[lane] = Some(forest);
                cover
            } else {
                self.forest(available, lane).cover(capacity, fill)
            };
            if cover.members.len() > largest.1.members.len() {
                largest = (lane, cover);
            }
        }
        largest
    }

    /// Returns the most rules of an iSet in each lane, and the lane, largest first.
    fn bounds(&mut self, available: &[u32], capacity: usize) -> Vec<(usize, usize)> {
        let is_all = available.len() == self.rules;
        let known = if is_all { self.counts.take() } else { None };
        let counts = known.unwrap_or_else(|| self.counts(available));
        let bound = |counts: &LaneCounts| counts.rules_max(available.len(), capacity);
        let mut bounds: Vec<(usize, usize)> = counts.iter().map(bound).zip(0..).collect();
        bounds.sort_by_key(|(bound, lane)| (std::cmp::Reverse(*bound), *lane));
        if is_all {
            self.counts = Some(counts);
        }
        bounds
    }

    /// Counts the available rules by their ranges in each lane.
    fn counts(&self, available: &[u32]) -> Vec<LaneCounts> {
        let empty = |width: &u8| {
            let counts_starts = *width <= COUNTED_BITS_MAX;
            LaneCounts { others: 0, starts: vec![0; if counts_starts { 1 << width } else { 0 }] }
        };
        let mut counts: Vec<LaneCounts> = self.widths.iter().map(empty).collect();
        for &rule in available {
            for (lane, (counts, width)) in counts.iter_mut().zip(self.widths).enumerate() {
                let (low, high) = (self.range)(rule, lane);
                counts.others += usize::from((low, high) != (0, lane_max(*width)));
                if let Some(count) = counts.starts.get_mut(low as usize) {
                    *count = count.saturating_add(1);
                }
            }
        }
        counts
    }

    /// Returns the sorted ranges of the available rules in a lane.
    fn forest(&self, available: &[u32], lane: usize) -> RangeForest {
        let key = |rule: &u32| {
            let (low, high) = (self.range)(*rule, lane);
            (u64::from(low) << 32 | u64::from(!high), *rule)
        };
        let mut sorted: Vec<(u64, u32)> = available.iter().map(key).collect();
        sort_ranges(&mut sorted);
        RangeForest::new(sorted.into_iter(), available.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of rules that an iSet could hold at most.
    fn bound(ranges: &[(u32, u32)], width: u8, capacity: usize) -> usize {
        let widths = [width];
        let planner = IsetPlanner::new(&widths, ranges.len(), |rule, _| ranges[rule as usize]);
        let all: Vec<u32> = (0..).take(ranges.len()).collect();
        planner.counts(&all)[0].rules_max(all.len(), capacity)
    }

    /// A range of all values is in no more than one bucket of an iSet.
    #[test]
    fn wildcards_are_one_bucket() {
        let mut ranges = vec![(0, 255); 100];
        ranges.extend((0..10).map(|i| (i, i)));
        assert_eq!((bound(&ranges, 8, 40), bound(&ranges, 8, 4)), (40, 10));
        assert_eq!(bound(&ranges, 32, 40), 110);
    }

    #[test]
    fn equal_starts_are_one_bucket() {
        let ranges = vec![(7, 7); 100];
        assert_eq!((bound(&ranges, 16, 40), bound(&ranges, 32, 40)), (40, 100));
    }

    #[test]
    fn the_largest_set_is_first() {
        let ranges: Vec<[(u32, u32); 2]> =
            (0..100).map(|i| [(0, u32::MAX), if i < 70 { (i, i) } else { (7, 7) }]).collect();
        let widths = [32, 32];
        let mut planner = IsetPlanner::new(&widths, 100, |rule, lane| ranges[rule as usize][lane]);
        let settings = PartitionSettings {
            sets_max: 2,
            bucket_rules: 10,
            spare_percent: 0,
            coverage_permille_min: 0,
        };
        let plan = planner.plan(&settings);
        let sets: Vec<(usize, usize)> =
            plan.sets.iter().map(|set| (set.lane, set.cover.members.len())).collect();
        assert_eq!((sets, plan.left_out.len()), (vec![(1, 79), (1, 10)], 11));
    }
}
