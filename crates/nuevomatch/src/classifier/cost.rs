//! Estimates the cost of a lookup, to choose the iSets and the capacity of their buckets.
//!
//! A larger bucket costs more comparisons, but holds more rules, so that the remainder has fewer
//! rules. One more iSet costs a search for every key, but also takes rules out of the remainder.
//! The best choice depends on the rules: buckets of one block are best for address lists, and
//! buckets of three blocks for firewalls.
//!
//! The estimate assumes that every rule wins for equally many keys, and that a few keys match no
//! rule. A later iSet or a table of the remainder is searched only if its best rule is better than
//! the winner so far. Rules are in the order of ranks, so the number of keys that search an iSet
//! follows from the position of its best rule.

use std::collections::BTreeMap;

use crate::{
    PartitionSettings,
    partition::{IsetPlan, PlannedSet},
    remainder::{LIST_RULES_MAX, table_tuple},
    rule::PriorityRule,
    simd::BLOCK_RULES,
};

/// The capacities of buckets that are compared, and their spare room in percent.
///
/// Neighbouring buckets are merged up to whole blocks. The spare room is for rules that overlap.
const CAPACITIES: &[(usize, usize)] = &[(16, 0), (40, 20), (24, 34), (56, 15)];

/// Number of rules above which only the first two capacities are compared.
/// With fewer capacities, the build takes less time.
const MANY_RULES: usize = 200_000;

/// Maximum number of rules of the remainder that are examined.
const EXAMINED_MAX: usize = 20_000;

/// Measured cost of an iSet for one lookup, in tenths of a nanosecond.
const SET: usize = 35;
/// Cost of one level of the index of an iSet, in the unit of `SET`.
const LEVEL: usize = 12;
/// Cost of one block of a bucket, in the unit of `SET`.
const BLOCK: usize = 40;
/// Cost of one block of the list of the remainder, in the unit of `SET`.
const LIST_BLOCK: usize = 60;
/// Cost of one hash table of the remainder, in the unit of `SET`.
const TABLE: usize = 110;

/// The estimate assumes that one key in this number matches no rule.
const UNMATCHED_ONE_IN: usize = 16;

/// Number of units of a whole share: shares are in permille.
const PERMILLE: usize = 1000;

/// Returns the sizes and spare rooms of buckets to compare, for a number of rules.
pub(super) fn capacities(rules: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = if rules > MANY_RULES { 2 } else { CAPACITIES.len() };
    CAPACITIES.iter().copied().take(count)
}

/// Copies partition settings, with another size and spare room of the buckets.
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
            // An iSet with many rules is always kept, without an estimate.
            usize::MAX / 2
        } else {
            remainder_cost(&plan.left_out_after(count), widths, rules)
        };
        (sets + remainder, count)
    });
    let (cost, count) = costs.min().unwrap_or_default();
    (count, cost)
}

/// Returns the share of keys with a winner worse than the rule at `position`.
fn visited_share(position: u32, rules: usize) -> usize {
    let matched = (rules - position as usize) * PERMILLE / rules.max(1);
    (matched * (UNMATCHED_ONE_IN - 1) + PERMILLE) / UNMATCHED_ONE_IN
}

/// Returns the estimated cost of a lookup in one iSet.
fn set_cost(set: &PlannedSet, rules: usize, is_first: bool) -> usize {
    let cover = &set.cover;
    let members = cover.members.len().max(1);
    let levels = cover.buckets.len().max(2).ilog2() as usize / 4 + 1;
    let (mut first, mut compared) = (0, 0);
    for (_, count) in &cover.buckets {
        let blocks = count.div_ceil(BLOCK_RULES);
        // On average, the search for a key with a match ends in the middle of the bucket.
        let by_matches = members * (blocks + 1) / 2 + (rules - members) * blocks;
        let keys = if is_first { PERMILLE } else { visited_share(cover.members[first], rules) };
        compared += count * by_matches / rules.max(1) * keys;
        first += count;
    }
    SET + levels * LEVEL + compared * BLOCK / members / PERMILLE
}

/// Returns the estimated cost of the rules that no iSet holds.
fn remainder_cost<const N: usize>(
    left_out: &[u32],
    widths: &[u8; N],
    rules: &[PriorityRule<N>],
) -> usize {
    let visits = |positions: &mut dyn Iterator<Item = u32>| -> usize {
        positions.map(|position| visited_share(position, rules.len())).sum()
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
