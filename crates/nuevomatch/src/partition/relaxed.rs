//! The largest relaxed iSet that the rules can form in one lane.
//!
//! The distinct ranges of a lane form a forest: the parent of a range is the smallest range that
//! contains it. Let `size` be the number of rules of a subtree. The algorithm has two choices for
//! each node. The whole subtree can become one bucket, which keeps `min(capacity, size)` rules. Or
//! the rules of the node are dropped, and the same choice is made for each child:
//!
//! ```text
//! best(node) = max(min(capacity, size(node)), sum of best(child))
//! ```
//!
//! `best` is the greatest number of kept rules if ranges are nested or disjoint, as prefixes are. A
//! range that partly overlaps an earlier range is dropped. Neighbouring buckets are merged while
//! they have room. All computations use integers, and equal input gives equal output. The time is
//! `n log n` for `n` rules.
//!
//! For example, let the capacity be 2, and let 10.0.0.0/8 have the children 10.1.0.0/16,
//! 10.2.0.0/16 and 10.3.0.0/16. One bucket for the /8 keeps 2 rules. Buckets for the children keep
//! 3 rules, so the /8 is dropped.

/// A relaxed iSet in one lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneCover {
    /// The positions of the rules, bucket by bucket, ascending in each bucket.
    pub(crate) members: Vec<u32>,
    /// The first value of the lane and the number of rules of each bucket.
    pub(crate) buckets: Vec<(u32, usize)>,
}

/// A distinct range, and the rules in its subtree.
struct RangeNode {
    /// First value of the range.
    low: u32,
    /// Last value of the range.
    high: u32,
    /// The position of the first rule of the subtree, in the order of ranges.
    first: u32,
    /// The position after the last rule of the subtree.
    end: u32,
    /// The position of the parent node; for a root, its own position.
    parent: u32,
    /// The sum of `best` over the children.
    below: u32,
    /// True if the subtree is one bucket.
    is_bucket: bool,
}

impl RangeNode {
    /// Returns the number of rules of the subtree.
    const fn rules(&self) -> usize {
        (self.end - self.first) as usize
    }
}

/// The distinct ranges of a lane in pre-order, and their rules in this order.
pub(super) struct RangeForest {
    nodes: Vec<RangeNode>,
    /// The positions of the rules, in the order of `nodes`.
    order: Vec<u32>,
}

impl RangeForest {
    /// Builds the forest of sorted ranges of at most `rules` rules.
    ///
    /// `sorted` has the ranges and positions of rules, by ascending starts, then by descending
    /// ends. The upper half of a range number is the start, and the lower half is the complement of
    /// the end.
    #[expect(clippy::cast_possible_truncation, reason = "a range is two words, rules are numbered")]
    pub(super) fn new(sorted: impl Iterator<Item = (u64, u32)>, rules: usize) -> Self {
        let mut nodes: Vec<RangeNode> = Vec::with_capacity(rules);
        let mut order = Vec::with_capacity(rules);
        let mut open: Vec<u32> = Vec::new();
        for (range, rule) in sorted {
            let (low, high) = ((range >> 32) as u32, !(range as u32));
            while let Some(closed) = open.pop_if(|node| nodes[*node as usize].high < low) {
                nodes[closed as usize].end = order.len() as u32;
            }
            let top = open.last().copied();
            if let Some(top) = top {
                let top = &nodes[top as usize];
                if (top.low, top.high) == (low, high) {
                    order.push(rule);
                    continue;
                }
                if high > top.high {
                    continue;
                }
            }
            let (node, first) = (nodes.len() as u32, order.len() as u32);
            let parent = top.unwrap_or(node);
            let (end, below, is_bucket) = (first, 0, false);
            nodes.push(RangeNode { low, high, first, end, parent, below, is_bucket });
            open.push(node);
            order.push(rule);
        }
        for node in open {
            nodes[node as usize].end = order.len() as u32;
        }
        Self { nodes, order }
    }

    /// Returns the largest set of rules in buckets of at most `capacity` rules.
    ///
    /// Neighbouring buckets are merged up to `fill` rules. If a bucket cannot hold all rules, it
    /// keeps the rules at the earliest positions.
    pub(super) fn cover(&mut self, capacity: usize, fill: usize) -> LaneCover {
        choose(&mut self.nodes, capacity);
        buckets(&self.nodes, &self.order, capacity, fill)
    }
}

/// Decides for each node whether its subtree becomes one bucket.
///
/// In `nodes`, children are after their parents.
#[expect(clippy::cast_possible_truncation, reason = "a bucket has few rules")]
fn choose(nodes: &mut [RangeNode], capacity: usize) {
    nodes.iter_mut().for_each(|node| node.below = 0);
    for at in (0..nodes.len()).rev() {
        let node = &mut nodes[at];
        let whole = node.rules().min(capacity) as u32;
        node.is_bucket = whole >= node.below;
        let (best, parent) = (whole.max(node.below), node.parent as usize);
        if parent != at {
            nodes[parent].below += best;
        }
    }
}

/// Collects the topmost nodes that are buckets, and merges neighbouring buckets.
fn buckets(nodes: &[RangeNode], order: &[u32], capacity: usize, fill: usize) -> LaneCover {
    let mut cover = LaneCover { members: Vec::with_capacity(order.len()), buckets: Vec::new() };
    let mut end = 0;
    for node in nodes {
        if !node.is_bucket || node.first < end {
            continue;
        }
        end = node.end;
        let rules = node.rules().min(capacity);
        let first = cover.members.len();
        cover.members.extend_from_slice(&order[node.first as usize..node.end as usize]);
        if node.rules() > capacity {
            cover.members[first..].sort_unstable();
            cover.members.truncate(first + rules);
        }
        match cover.buckets.last_mut() {
            Some((_, merged)) if *merged + rules <= fill => *merged += rules,
            _ => cover.buckets.push((node.low, rules)),
        }
    }
    let mut first = 0;
    for (_, rules) in &cover.buckets {
        cover.members[first..first + rules].sort_unstable();
        first += rules;
    }
    cover
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Returns the buckets of some ranges.
    fn cover(ranges: &[(u32, u32)], capacity: usize, fill: usize) -> LaneCover {
        let key = |(low, high): &(u32, u32)| u64::from(*low) << 32 | u64::from(!*high);
        let mut sorted: Vec<(u64, u32)> = ranges.iter().map(key).zip(0..).collect();
        sorted.sort_unstable();
        RangeForest::new(sorted.into_iter(), ranges.len()).cover(capacity, fill)
    }

    /// Returns the size of the largest cover, over all sets of borders between values.
    fn by_brute_force(ranges: &[(u32, u32)], capacity: usize, last: u32) -> usize {
        // best[v] is the greatest number of rules in buckets that end below v.
        let mut best = vec![0; last as usize + 2];
        for end in 1..=last as usize + 1 {
            for first in 0..end {
                let inside =
                    |(low, high): &&(u32, u32)| first <= *low as usize && (*high as usize) < end;
                let rules = ranges.iter().filter(inside).count().min(capacity);
                best[end] = best[end].max(best[first] + rules);
            }
        }
        best[last as usize + 1]
    }

    /// Checks the sizes and the order of the buckets.
    fn check(ranges: &[(u32, u32)], cover: &LaneCover, capacity: usize) {
        let mut first = 0;
        let starts: Vec<u32> = cover.buckets.iter().map(|(start, _)| *start).collect();
        assert!(starts.is_sorted_by(|a, b| a < b), "{starts:?}");
        for (at, (start, rules)) in cover.buckets.iter().enumerate() {
            assert!((1..=capacity).contains(rules), "{rules} rules");
            let next = starts.get(at + 1).copied();
            let members = &cover.members[first..first + rules];
            assert!(members.is_sorted_by(|a, b| a < b), "{members:?}");
            for &rule in members {
                let (low, high) = ranges[rule as usize];
                assert!(*start <= low && next.is_none_or(|next| high < next));
            }
            first += rules;
        }
        assert_eq!(first, cover.members.len());
    }

    /// Generates ranges that are prefixes of 4-bit values.
    fn prefixes() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let prefix = (0_u32..16, 0_u32..5).prop_map(|(value, free)| {
            let low = value >> free << free;
            (low, low + (1 << free) - 1)
        });
        vec(prefix, 0..40)
    }

    proptest! {
        #[test]
        fn a_cover_of_prefixes_is_the_largest(
            ranges in prefixes(),
            capacity in 1_usize..9,
            fill in 1_usize..9,
        ) {
            let cover = cover(&ranges, capacity, fill.min(capacity));
            check(&ranges, &cover, capacity);
            prop_assert_eq!(cover.members.len(), by_brute_force(&ranges, capacity, 15));
        }

        #[test]
        fn any_ranges_are_divided_without_crossing(
            ranges in vec((0_u32..30, 0_u32..30), 0..60),
            capacity in 1_usize..9,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let cover = cover(&ranges, capacity, capacity);
            check(&ranges, &cover, capacity);
        }
    }
}
