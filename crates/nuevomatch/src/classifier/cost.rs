//! The estimated cost of a lookup, by which iSets and the capacity of their buckets are chosen.
//!
//! A larger bucket costs more comparisons. It also covers more rules, so the remainder has fewer. A
//! further iSet costs a search of every key, and takes rules out of the remainder. Which wins depends
//! on the rules: address lists like one block, firewalls like three.
//!
//! The estimate is for keys of which the winners are uniform over the rules, and for a few without a
//! match. A later iSet or a part of the remainder costs only keys of which the winner so far is
//! worse than its best rule. Positions of rules are in the order of ranks, so the number of such keys
//! follows from the position of this rule.

use std::collections::BTreeMap;

use crate::{
    PartitionSettings,
    partition::{IsetPlan, PlannedSet},
    remainder::{LIST_RULES_MAX, table_tuple},
    rule::PriorityRule,
    simd::BLOCK_RULES,
};

/// Capacities of buckets that are compared, and their spare room in percent.
///
/// Neighbours are merged into whole blocks. The rest of a capacity is for rules that overlap.
const CAPACITIES: &[(usize, usize)] = &[(16, 0), (40, 20), (24, 34), (56, 15)];

/// Rules above which only the first two capacities are compared, for a short build.
const MANY_RULES: usize = 200_000;

/// Rules of the remainder that are examined at most.
const EXAMINED_MAX: usize = 20_000;

/// Cost of an iSet in tenths of a nanosecond, as measured.
const SET: usize = 35;
/// Cost of a level of the index of an iSet.
const LEVEL: usize = 12;
/// Cost of a block of a bucket.
const BLOCK: usize = 40;
/// Cost of a block of the list.
const LIST_BLOCK: usize = 60;
/// Cost of a hash table.
const TABLE: usize = 110;

/// One key in N has no match.
const UNMATCHED_ONE_IN: usize = 16;

/// Parts of a share.
const PERMILLE: usize = 1000;

/// Returns the capacities to compare for a number of rules.
pub(super) fn capacities(rules: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = if rules > MANY_RULES { 2 } else { CAPACITIES.len() };
    CAPACITIES.iter().copied().take(count)
}

/// Returns the settings with a capacity and spare room.
pub(super) fn with_capacity(
    settings: &PartitionSettings,
    bucket_rules: usize,
    spare_percent: usize,
) -> PartitionSettings {
    PartitionSettings { bucket_rules, spare_percent, ..*settings }
}

/// Returns the number of iSets with the least estimated cost, and the cost.
pub(super) fn cheapest_sets<const N: usize>(
    plan: &IsetPlan,
    widths: &[u8; N],
    rules: &[PriorityRule<N>],
) -> (usize, usize) {
    let costs = (0..=plan.sets.len()).map(|count| {
        let sets = plan.sets[..count].iter().enumerate();
        let sets: usize = sets.map(|(at, set)| set_cost(set, rules.len(), at == 0)).sum();
        let dropped = plan.sets[count..].iter().map(|set| set.cover.members.len()).sum::<usize>();
        let rest = plan.left_out.len() + dropped;
        let remainder = if rest > LIST_RULES_MAX && dropped > EXAMINED_MAX {
            // An iSet with many rules is worth its cost.
            usize::MAX / 2
        } else {
            remainder_cost(&plan.left_out_after(count), widths, rules)
        };
        (sets + remainder, count)
    });
    let (cost, count) = costs.min().unwrap_or_default();
    (count, cost)
}

/// Returns the share of keys of which the winner is worse than a rule.
fn visited(position: u32, rules: usize) -> usize {
    let matched = (rules - position as usize) * PERMILLE / rules.max(1);
    (matched * (UNMATCHED_ONE_IN - 1) + PERMILLE) / UNMATCHED_ONE_IN
}

fn set_cost(set: &PlannedSet, rules: usize, is_first: bool) -> usize {
    let cover = &set.cover;
    let members = cover.members.len().max(1);
    let levels = cover.buckets.len().max(2).ilog2() as usize / 4 + 1;
    let (mut first, mut compared) = (0, 0);
    for (_, count) in &cover.buckets {
        let blocks = count.div_ceil(BLOCK_RULES);
        // A key with a match in the bucket ends in the middle of it.
        let by_matches = members * (blocks + 1) / 2 + (rules - members) * blocks;
        let keys = if is_first { PERMILLE } else { visited(cover.members[first], rules) };
        compared += count * by_matches / rules.max(1) * keys;
        first += count;
    }
    SET + levels * LEVEL + compared * BLOCK / members / PERMILLE
}

fn remainder_cost<const N: usize>(
    left_out: &[u32],
    widths: &[u8; N],
    rules: &[PriorityRule<N>],
) -> usize {
    let visits = |positions: &mut dyn Iterator<Item = u32>| -> usize {
        positions.map(|position| visited(position, rules.len())).sum()
    };
    if left_out.len() <= LIST_RULES_MAX {
        let mut blocks = left_out.iter().copied().step_by(BLOCK_RULES);
        return visits(&mut blocks) * LIST_BLOCK / PERMILLE;
    }
    let step = left_out.len().div_ceil(EXAMINED_MAX);
    let mut best = BTreeMap::new();
    for &position in left_out.iter().step_by(step) {
        let tuple = table_tuple(widths, &rules[position as usize]);
        best.entry(tuple).or_insert(position);
    }
    visits(&mut best.into_values()) * TABLE / PERMILLE
}
