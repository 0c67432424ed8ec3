//! Which partition an entry was made for, as the published count of ways tells partitions apart.
//!
//! Two ways are cut alike there if they are cut at the same places, if their pieces are in the same
//! stages, and if these have the same masks ("GIGAFLOW: Rethinking the Fast Path", table 3.2, by the
//! program that came with it). An entry is of the partition that made it; others that find it there
//! change nothing. [`Coverage`](super::Coverage) says what is counted by it.

use std::hash::BuildHasher as _;

use shunt_flow::SparseMask;
use shunt_pipeline::{BridgeId, TableId, Traversal};

use super::LtmRule;
use crate::{
    outline::{FieldSet, fold},
    partition::StageId,
};

/// The partition that made an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// A hash: partitions of one name are counted as one.
    pub name: u64,
    /// Whether two neighbouring pieces of it look at the same bit, so that values of one say something
    /// of those of the other.
    pub overlaps: bool,
}

/// The table that a piece begins with, whatever packets carry there in registers.
pub(crate) type Place = Option<(BridgeId, TableId)>;

/// A piece of a partition: where it begins, its stage, and its rule.
pub(crate) type Made<'a> = (Place, StageId, &'a LtmRule);

/// Where a piece begins.
pub(crate) fn place_of(traversal: &Traversal) -> Place {
    traversal.visits.first().map(|visit| (visit.bridge, visit.table))
}

impl Origin {
    /// The partition of these pieces, first to last.
    pub(crate) fn of<'a>(seed: u64, pieces: impl Iterator<Item = Made<'a>>) -> Self {
        let hasher = foldhash::fast::FixedState::with_seed(seed);
        let (mut origin, mut before) = (Self::default(), None);
        for (place, stage, rule) in pieces {
            let mask = rule.matching.mask();
            let piece = hasher.hash_one((place, stage, rule.length, mask));
            origin.name = fold(origin.name, piece);
            origin.overlaps = origin.overlaps || before.is_some_and(|before| overlap(before, mask));
            before = Some(mask);
        }
        origin
    }
}

/// Whether two masks have a bit in common, of those fields that say something of a flow.
fn overlap(one: &SparseMask, other: &SparseMask) -> bool {
    one.headers().any(|(word, bits)| !FieldSet::of_bits(word, bits & other.word(word)).is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

    use super::*;
    use crate::ltm::{Next, Tag};

    /// A rule that looks at these bits.
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

    fn origin(rules: &[LtmRule]) -> Origin {
        let stage = |number| StageId::new(number).expect("a stage");
        let pieces = (0..).zip(rules);
        let place = |number: u8| Some((BridgeId::new(1), TableId::new(number)?));
        Origin::of(7, pieces.map(|(number, rule)| (place(number), stage(number), rule)))
    }

    #[test]
    fn partitions_are_told_apart_by_the_exact_masks_of_their_pieces() {
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
    fn neighbours_overlap_in_bits_of_fields_that_say_something_of_a_flow() {
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
        assert!(!overlaps(&[&high, &ethernet, &high]), "these are no neighbours");
    }
}
