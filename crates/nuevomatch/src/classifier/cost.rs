//! The estimated cost of a lookup, by which the capacity of buckets is chosen.
//!
//! A larger bucket costs more comparisons. It also covers more rules, so the remainder has fewer,
//! and each of its hash tables costs as much as several blocks. Which wins depends on the rules:
//! address lists like one block, firewalls like three.

use std::collections::BTreeSet;

use crate::{PartitionSettings, partition::IsetPlan, rule::PriorityRule, simd::BLOCK_RULES};

/// Capacities of buckets that are compared, and their spare room in percent.
///
/// Neighbours are merged into whole blocks. The rest of a capacity is for rules that overlap.
pub(super) const CAPACITIES: [(usize, usize); 4] = [(16, 0), (24, 34), (40, 20), (56, 15)];

/// Rules of the remainder up to which it is a list.
const LIST_RULES_MAX: usize = 150;

/// Rules of the remainder that are examined at most.
const EXAMINED_MAX: usize = 20_000;

/// Cost of an iSet in tenths of a nanosecond, as measured.
const SET: usize = 80;
/// Cost of a level of its index.
const LEVEL: usize = 15;
/// Cost of a block of its buckets.
const BLOCK: usize = 60;
/// Cost of a block of the list.
const LIST_BLOCK: usize = 40;
/// Cost of a hash table.
const TABLE: usize = 80;

/// Returns the settings with a capacity and spare room.
pub(super) fn with_capacity(
    settings: &PartitionSettings,
    (bucket_rules, spare_percent): (usize, usize),
) -> PartitionSettings {
    PartitionSettings { bucket_rules, spare_percent, ..*settings }
}

/// Returns the estimated cost of a lookup in a plan.
pub(super) fn estimate<const N: usize>(plan: &IsetPlan, rules: &[PriorityRule<N>]) -> usize {
    let sets = plan.sets.iter().map(|set| {
        let buckets = &set.cover.buckets;
        let blocks = |rules: usize| rules.div_ceil(BLOCK_RULES);
        let by_rules: usize = buckets.iter().map(|(_, rules)| rules * blocks(*rules)).sum();
        let levels = buckets.len().max(2).ilog2() as usize / 4 + 1;
        SET + levels * LEVEL + by_rules * BLOCK / set.cover.members.len().max(1)
    });
    let rest = plan.left_out.len();
    let remainder = if rest <= LIST_RULES_MAX {
        rest.div_ceil(BLOCK_RULES) * LIST_BLOCK
    } else {
        let examined = plan.left_out.iter().step_by(rest.div_ceil(EXAMINED_MAX));
        let tuple = |rule: &u32| -> [u32; N] {
            std::array::from_fn(|lane| rules[*rule as usize].fixed_bits(lane).count_ones() / 4)
        };
        examined.map(tuple).collect::<BTreeSet<_>>().len() * TABLE
    };
    sets.sum::<usize>() + remainder
}
