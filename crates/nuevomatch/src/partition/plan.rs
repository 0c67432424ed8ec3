//! The choice of iSets: which lane, and which rules in which bucket.
//!
//! The largest iSet is taken first, over all lanes, then the largest of the rest. A lane is sorted
//! once, and only if a bound shows that it can win. Later iSets and other capacities filter the
//! sorted rules, which takes linear time.

use super::{
    relaxed::{LaneCover, cover_sorted},
    settings::PartitionSettings,
};
use crate::schema::lane_max;

/// Maximum number of iSets.
pub(crate) const SETS_MAX: usize = 4;

/// Widest lane in bits for which starts are counted, for a bound.
const COUNTED_BITS_MAX: u8 = 16;

/// One iSet of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSet {
    pub(crate) lane: usize,
    pub(crate) cover: LaneCover,
}

/// The iSets of rules, and the rules that no iSet holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct IsetPlan {
    pub(crate) sets: Vec<PlannedSet>,
    /// Positions of the rules that no iSet holds, rising.
    pub(crate) left_out: Vec<u32>,
}

/// Rules by lane, of which the order in each lane is kept.
pub(crate) struct IsetPlanner<'a, R> {
    widths: &'a [u8],
    rules: usize,
    /// Returns the range of a rule in a lane.
    range: R,
    /// The rules in the order of their ranges, for each lane that was needed.
    sorted: Vec<Option<Vec<(u64, u32)>>>,
}

impl<'a, R: Fn(u32, usize) -> (u32, u32)> IsetPlanner<'a, R> {
    pub(crate) fn new(widths: &'a [u8], rules: usize, range: R) -> Self {
        Self { widths, rules, range, sorted: vec![None; widths.len()] }
    }

    /// Divides the rules into iSets.
    pub(crate) fn plan(&mut self, settings: &PartitionSettings) -> IsetPlan {
        let mut left_out: Vec<u32> = (0..).take(self.rules).collect();
        let mut is_covered = vec![false; self.rules];
        let mut sets = Vec::new();
        while sets.len() < settings.sets_max.min(SETS_MAX) {
            let (lane, cover) = self.largest_cover(&left_out, &is_covered, settings);
            if cover.members.len() < settings.rules_min(self.rules) {
                break;
            }
            cover.members.iter().for_each(|rule| is_covered[*rule as usize] = true);
            left_out.retain(|rule| !is_covered[*rule as usize]);
            sets.push(PlannedSet { lane, cover });
        }
        IsetPlan { sets, left_out }
    }

    /// Returns the lane in which most rules fit into buckets, and the buckets.
    fn largest_cover(
        &mut self,
        available: &[u32],
        is_covered: &[bool],
        settings: &PartitionSettings,
    ) -> (usize, LaneCover) {
        let (capacity, fill) = (settings.bucket_rules, settings.bucket_fill());
        let bound = |lane| (self.rules_max(available, lane, capacity), lane);
        let mut bounds: Vec<(usize, usize)> = (0..self.widths.len()).map(bound).collect();
        bounds.sort_by_key(|(bound, lane)| (std::cmp::Reverse(*bound), *lane));
        let mut largest = (0, LaneCover::default());
        for (bound, lane) in bounds {
            if bound <= largest.1.members.len() {
                break;
            }
            let sorted = self.sorted(lane).iter().copied();
            let rest = sorted.filter(|(_, rule)| !is_covered[*rule as usize]);
            let cover = cover_sorted(rest, available.len(), capacity, fill);
            if cover.members.len() > largest.1.members.len() {
                largest = (lane, cover);
            }
        }
        largest
    }

    /// Returns a bound of the number of rules that a relaxed iSet in a lane can hold.
    ///
    /// All rules with the full range are in one bucket, and so are all rules with the same start.
    fn rules_max(&self, available: &[u32], lane: usize, capacity: usize) -> usize {
        let width = self.widths[lane];
        let max = lane_max(width);
        let counts_starts = width <= COUNTED_BITS_MAX;
        let mut starts = vec![0_u8; if counts_starts { 1 << width } else { 0 }];
        let mut others = 0;
        for &rule in available {
            let (low, high) = (self.range)(rule, lane);
            others += usize::from((low, high) != (0, max));
            if counts_starts {
                let count = &mut starts[low as usize];
                *count = count.saturating_add(1);
            }
        }
        // One rule with the full range makes one bucket of all.
        let by_range = others.max(capacity.min(available.len()));
        if counts_starts {
            let by_start = starts.iter().map(|count| usize::from(*count).min(capacity)).sum();
            by_range.min(by_start)
        } else {
            by_range
        }
    }

    /// Returns all rules by their ranges in a lane: rising starts, falling ends.
    fn sorted(&mut self, lane: usize) -> &[(u64, u32)] {
        let (rules, range) = (self.rules, &self.range);
        self.sorted[lane].get_or_insert_with(|| {
            let key = |rule| {
                let (low, high) = range(rule, lane);
                (u64::from(low) << 32 | u64::from(!high), rule)
            };
            let mut sorted: Vec<(u64, u32)> = (0..).take(rules).map(key).collect();
            sorted.sort_unstable();
            sorted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(ranges: &[(u32, u32)], width: u8, capacity: usize) -> usize {
        let widths = [width];
        let planner = IsetPlanner::new(&widths, ranges.len(), |rule, _| ranges[rule as usize]);
        let all: Vec<u32> = (0..).take(ranges.len()).collect();
        planner.rules_max(&all, 0, capacity)
    }

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
