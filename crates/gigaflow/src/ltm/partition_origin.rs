//! The partition that an entry was made for, as the published estimate of coverage defines it.
//!
//! The estimate treats two partitions as equal if they have the same partition points, the same
//! stages, and the same masks ("GIGAFLOW: Rethinking the Fast Path", table 3.2, by the program that
//! came with it). An entry belongs to the partition that made it, even if other partitions share
//! the entry later. [`Coverage`](super::Coverage) computes the published estimate from these
//! partitions.

use std::hash::BuildHasher as _;

use shunt_flow::SparseMask;
use shunt_pipeline::{BridgeId, TableId, Traversal};

use super::LtmRule;
use crate::{
    outline::{FieldSet, fold},
    partition::StageId,
};

/// The partition that an LTM entry was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionOrigin {
    /// A hash of the partition: partitions with equal hashes count as one.
    pub hash: u64,
    /// True if two adjacent sub-traversals match the same bit.
    pub overlaps: bool,
}

/// The first table of a sub-traversal, without the hidden state at its start.
pub(crate) type FirstTable = Option<(BridgeId, TableId)>;

/// One sub-traversal of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionMember<'a> {
    /// The table that the sub-traversal begins with.
    pub(crate) first_table: FirstTable,
    /// The stage of the entry of the sub-traversal.
    pub(crate) stage: StageId,
    pub(crate) rule: &'a LtmRule,
}

/// Returns the first table of a sub-traversal.
pub(crate) fn first_table_of(traversal: &Traversal) -> FirstTable {
    traversal.visits.first().map(|visit| (visit.bridge, visit.table))
}

impl PartitionOrigin {
    /// Returns the partition of these sub-traversals, first to last.
    pub(crate) fn of<'a>(seed: u64, members: impl Iterator<Item = PartitionMember<'a>>) -> Self {
        let hasher = foldhash::fast::FixedState::with_seed(seed);
        let (mut origin, mut before) = (Self::default(), None);
        for PartitionMember { first_table, stage, rule } in members {
            let mask = rule.matching.mask();
            let member = hasher.hash_one((first_table, stage, rule.length, mask));
            origin.hash = fold(origin.hash, member);
            origin.overlaps = origin.overlaps || before.is_some_and(|before| overlap(before, mask));
            before = Some(mask);
        }
        origin
    }
}

/// Returns whether two masks have a common bit in a coupling field.
fn overlap(one: &SparseMask, other: &SparseMask) -> bool {
    one.headers().any(|(word, bits)| !FieldSet::of_bits(word, bits & other.word(word)).is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

    use super::*;
    use crate::ltm::{Next, Tag};

    /// Returns a rule that matches these bits.
    fn rule(bits: &[(FieldId, u128)]) -> LtmRule {
        let mut mask = FlowMask::EMPTY;
        bits.iter().for_each(|(field, bits)| mask.add_bits(*field, *bits));
        LtmRule {
            tag: Tag::new(0),
            matching: Match::new(&FlowKey::ZERO, &mask),
            length: 1,
            actions: Arc::new([]),
            rewrite: Match::any(),
            next: Next::End,
        }
    }

    /// Returns the origin of the partition into some rules.
    fn origin(rules: &[LtmRule]) -> PartitionOrigin {
        let stage = |number| StageId::new(number).expect("a stage");
        let first_table = |number: u8| Some((BridgeId::new(1), TableId::new(number)?));
        let member = |(number, rule)| PartitionMember {
            first_table: first_table(number),
            stage: stage(number),
            rule,
        };
        PartitionOrigin::of(7, (0..).zip(rules).map(member))
    }

    #[test]
    fn different_masks_give_different_partitions() {
        let [ethernet, long, short] = [
            rule(&[(FieldId::EthSrc, 0xff)]),
            rule(&[(FieldId::Ipv4Dst, 0xffff_ffff)]),
            rule(&[(FieldId::Ipv4Dst, 0xff00_0000)]),
        ];
        let pair = |one: &LtmRule, other: &LtmRule| origin(&[one.clone(), other.clone()]);
        assert_eq!(pair(&ethernet, &long), pair(&ethernet, &long));
        assert_ne!(pair(&ethernet, &long), pair(&ethernet, &short));
        assert_ne!(pair(&ethernet, &long), pair(&long, &ethernet));
        assert_ne!(pair(&ethernet, &long), origin(std::slice::from_ref(&ethernet)));
    }

    #[test]
    fn only_common_bits_of_related_fields_overlap() {
        let kind = (FieldId::EthType, 0xffff);
        let [ethernet, high, low] = [
            rule(&[kind, (FieldId::EthSrc, 0xff)]),
            rule(&[kind, (FieldId::Ipv4Dst, 0xff00_0000)]),
            rule(&[kind, (FieldId::Ipv4Dst, 0x00ff_0000)]),
        ];
        let overlaps = |rules: &[&LtmRule]| {
            origin(&rules.iter().map(|rule| (*rule).clone()).collect::<Vec<_>>()).overlaps
        };
        assert!(!overlaps(&[&ethernet, &high]));
        assert!(!overlaps(&[&high, &low]));
        assert!(overlaps(&[&ethernet, &high, &high]));
        assert!(!overlaps(&[&high, &ethernet, &high]), "the overlapping rules are not adjacent");
    }
}
