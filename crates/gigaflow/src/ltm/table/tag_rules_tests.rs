//! Compares [`TagRules`] with many masks against a linear search in a list of rules.

use std::sync::Arc;

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowMask, Match};

use super::*;
use crate::ltm::{Tag, Walk};

/// Two small fields of a key or of a mask.
type FieldPair = (u8, u8);

/// An operation on the rules of a tag.
#[derive(Clone, Debug)]
enum RuleOp {
    Insert { key: FieldPair, mask: FieldPair, length: u16 },
    Remove(usize),
    Find(Vec<FieldPair>),
}

/// Generates operations on a table.
fn ops() -> impl Strategy<Value = Vec<RuleOp>> {
    let pair = || (0..8_u8, 0..8_u8);
    // Most masks have a common bit, so that short lists are used. Some masks have no common bit.
    let mask = prop_oneof![4 => (0..8_u8, 0..4_u8).prop_map(|(a, b)| (a | 1, b | 4)), 1 => pair()];
    let insert = (pair(), mask, 1..4_u16);
    prop::collection::vec(
        prop_oneof![
            4 => insert.prop_map(|(key, mask, length)| RuleOp::Insert { key, mask, length }),
            1 => (0..64_usize).prop_map(RuleOp::Remove),
            2 => prop::collection::vec(pair(), 1..CHUNK_MAX).prop_map(RuleOp::Find),
        ],
        1..80,
    )
}

/// Returns a key with two values.
fn key((source, target): FieldPair) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::Ipv4Src, u128::from(source));
    key.set_field(FieldId::TcpDst, u128::from(target));
    key
}

/// Returns a rule with a mask and a length of its sub-traversal.
fn rule(of: FieldPair, mask: FieldPair, length: u16) -> LtmRule {
    let mut bits = FlowMask::EMPTY;
    bits.add_bits(FieldId::Ipv4Src, u128::from(mask.0));
    bits.add_bits(FieldId::TcpDst, u128::from(mask.1));
    LtmRule {
        tag: Tag::new(0),
        matching: Match::new(&key(of), &bits),
        length,
        actions: Arc::new([]),
        rewrite: Match::any(),
        next: Next::End,
    }
}

/// Returns a weak hash of mask and length, which has many collisions.
fn mask_hash(rule: &LtmRule) -> u64 {
    rule.matching.mask().words().iter().sum()
}

/// Compares a table with a list of rules after each operation.
fn check(ops: Vec<RuleOp>) -> Result<(), TestCaseError> {
    let (hasher, mut groups) = (KeyHasher::new(1), TagRules::default());
    let mut list: Vec<(LtmRule, LtmEntryRef)> = Vec::new();
    for (slot, op) in (0..).zip(ops) {
        match op {
            RuleOp::Insert { key, mask, length } => {
                let rule = rule(key, mask, length);
                let known = list.iter().find(|(own, _)| *own == rule).map(|(_, entry)| entry.slot);
                prop_assert_eq!(groups.find_exact(&hasher, &rule, mask_hash(&rule)), known);
                if known.is_none() {
                    let entry = LtmEntryRef { slot, generation: slot };
                    groups.insert(&hasher, &rule, mask_hash(&rule), entry);
                    list.push((rule, entry));
                }
            }
            RuleOp::Remove(which) if !list.is_empty() => {
                let (rule, _) = list.swap_remove(which % list.len());
                groups.remove(&hasher, &rule, mask_hash(&rule));
            }
            RuleOp::Remove(_) => {}
            RuleOp::Find(pairs) => {
                let keys: Vec<FlowKey> = pairs.into_iter().map(key).collect();
                find(&mut groups, &hasher, &list, &keys)?;
            }
        }
        let masks = list.iter().map(|(rule, _)| (rule.matching.mask().clone(), rule.length));
        let masks: std::collections::HashSet<_> = masks.collect();
        prop_assert_eq!((groups.masks_count(), groups.is_empty()), (masks.len(), list.is_empty()));
    }
    Ok(())
}

/// Checks that a lookup finds one of the longest matching rules.
fn find(
    groups: &mut TagRules,
    hasher: &KeyHasher,
    list: &[(LtmRule, LtmEntryRef)],
    keys: &[FlowKey],
) -> Result<(), TestCaseError> {
    let walks = vec![Walk::default(); keys.len()];
    let (mut pending, mut few) = (PacketSet::EMPTY, ChunkMatches::EMPTY);
    (0..keys.len()).for_each(|index| pending.push(index));
    groups.find_chunk(hasher, Chunk { keys, walks: &walks }, pending, &mut few);
    for (key, found) in keys.iter().zip(few.longest()) {
        let matching = || list.iter().filter(|(rule, _)| rule.matching.matches(key));
        let longest = matching().map(|(rule, _)| rule.length).max();
        let length_of = |found: Option<LtmEntryRef>| {
            matching().find(|(_, own)| Some(*own) == found).map(|(rule, _)| rule.length)
        };
        let alone = groups.find(hasher, key, |_| true).map(|matched| matched.entry);
        let together = found.map(|found| found.matched.entry);
        prop_assert_eq!((length_of(alone), length_of(together)), (longest, longest));
        // If the entry is dead, the lookup finds another one.
        let other = groups.find(hasher, key, |entry| Some(entry) != alone);
        let others = matching().filter(|(_, own)| Some(*own) != alone);
        let longest = others.map(|(rule, _)| rule.length).max();
        prop_assert_eq!(length_of(other.map(|matched| matched.entry)), longest);
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_longest_rule_that_matches_is_found(ops in ops()) {
        check(ops)?;
    }
}
