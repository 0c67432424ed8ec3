//! The invariants of translation, each for one packet or one change.
//!
//! The tests `properties` check the invariants on generated tables and packets. `call_sites` checks
//! that an invariant fails when a call that records a dependency is left out.

use std::ops::Range;

use proptest::{
    prelude::prop_assert,
    prop_assert_eq,
    test_runner::{TestCaseError, TestRunner},
};
use shunt_flow::{FieldId, FlowKey, FlowMask};

use crate::{
    id::RuleId,
    testing::{
        CheckedPipeline, LookupStep, draw,
        generate::{self, Op},
        visible,
    },
    traversals::{
        sub_traversal::{NotedTraversal, SubTraversal},
        traversal::{Traversal, Visit},
    },
    versions::delta::{Delta, Object, RuleChange, RuleDelta},
};

/// The result of a check of an invariant.
type Holds = Result<(), TestCaseError>;

/// Number of packets that are generated to agree with a given packet.
pub(in crate::translate) const SIBLINGS: usize = 4;

/// Maximum number of lookups of a packet; costlier packets are not checked.
///
/// A packet that recirculates again and again may need a million lookups.
const LOOKUPS_MAX: usize = 20_000;

/// Checks that packets of a traversal's region have its result, as by the oracle.
/// Returns the number of lookups that the oracle made.
pub(in crate::translate) fn agreeing_packets_get_one_result(
    checked: &CheckedPipeline,
    key: &FlowKey,
    runner: &mut TestRunner,
) -> Result<usize, TestCaseError> {
    let traversal = checked.translate(key);
    let mut lookups = 0;
    for _ in 0..SIBLINGS {
        let sibling = draw(runner, &generate::sibling(key, &FlowMask::from(&traversal.mask)));
        prop_assert!(traversal.mask.agree(&sibling, key));
        let Some(expected) = checked.model.translate_within(&sibling, LOOKUPS_MAX) else {
            lookups += LOOKUPS_MAX;
            continue;
        };
        lookups += expected.visited.len();
        let other = checked.translate(&sibling);
        prop_assert_eq!(&other.actions, &traversal.actions, "sibling {:?}", sibling);
        prop_assert_eq!(other.drop_cause, traversal.drop_cause);
        prop_assert_eq!(&other.reads, &traversal.reads);
        prop_assert_eq!(checked.effects(&traversal, &sibling), expected);
    }
    Ok(lookups)
}

/// Checks that recirculated packets of a traversal's region have its result.
pub(in crate::translate) fn agreeing_packets_continue_alike(
    checked: &CheckedPipeline,
    key: &FlowKey,
    runner: &mut TestRunner,
) -> Holds {
    for traversal in checked.traversals(key) {
        let Some(continuation) = &traversal.continuation else { continue };
        for _ in 0..SIBLINGS {
            let (key, mask) = (FlowKey::from(&traversal.key), FlowMask::from(&traversal.mask));
            let sibling = draw(runner, &generate::sibling(&key, &mask));
            let other =
                checked.pipeline.resume(&visible(&sibling), continuation, traversal.version);
            prop_assert_eq!(&other.actions, &traversal.actions, "sibling {:?}", sibling);
            prop_assert_eq!(other.drop_cause, traversal.drop_cause);
            prop_assert_eq!(&other.reads, &traversal.reads);
            prop_assert_eq!(&other.learnings, &traversal.learnings);
            prop_assert_eq!(&other.refreshes, &traversal.refreshes);
            prop_assert_eq!(&other.group_hits, &traversal.group_hits);
            prop_assert_eq!(&other.output_hits, &traversal.output_hits);
            prop_assert_eq!(other.error, traversal.error);
            prop_assert_eq!(rules(&other), rules(&traversal));
        }
    }
    Ok(())
}

/// Checks that packets of a visit's region find the same rule or conjunction.
pub(in crate::translate) fn visits_are_uniform(
    checked: &CheckedPipeline,
    key: &FlowKey,
    runner: &mut TestRunner,
) -> Holds {
    checked
        .traversals(key)
        .iter()
        .try_for_each(|traversal| visits_in_one_path(checked, &traversal.visits, runner))
}

fn visits_in_one_path(
    checked: &CheckedPipeline,
    visits: &[Visit],
    runner: &mut TestRunner,
) -> Holds {
    let mut passed = Vec::new();
    for (index, visit) in visits.iter().enumerate() {
        let (key, mask) = (FlowKey::from(&visit.key), FlowMask::from(&visit.mask));
        let sibling = draw(runner, &generate::sibling(&key, &mask));
        if !sibling.agrees_with(&key, &mask) {
            return Ok(());
        }
        let (bridge, table) = (visit.bridge, visit.table);
        let id = u32::try_from(visit.key.field(FieldId::ConjId)).unwrap_or_default();
        let is_second = index > 0 && !visits[index - 1].clauses.is_empty();
        let found = if is_second {
            LookupStep::Rule(checked.model.second(bridge, table, &sibling, id))
        } else {
            checked.model.decide(bridge, table, &sibling, &passed)
        };
        match found {
            LookupStep::Rule(rule) => {
                prop_assert!(visit.clauses.is_empty());
                let own = visit.rule.as_ref().map(|rule| rule.id);
                prop_assert_eq!(rule.map(|rule| rule.id), own);
                if !is_second || rule.is_some() {
                    passed.clear();
                }
            }
            LookupStep::Conjunction(conjunction) => {
                let next = visits[index + 1].key.field(FieldId::ConjId);
                prop_assert!(!visit.clauses.is_empty() && next == u128::from(conjunction.1));
                passed.push(conjunction);
            }
        }
    }
    Ok(())
}

/// Checks that a delta names every traversal that a change affects.
/// A delta names a traversal by a visit or a read.
pub(in crate::translate) fn changes_are_named(
    checked: &mut CheckedPipeline,
    packets: &[FlowKey],
    op: &Op,
) -> Holds {
    let before: Vec<_> = packets.iter().flat_map(|key| checked.traversals(key)).collect();
    let Some(change) = checked.apply(op) else { return Ok(()) };
    for old in before {
        let new = again(checked, &old);
        let is_same = new.actions == old.actions
            && new.error == old.error
            && new.learnings == old.learnings
            && new.refreshes == old.refreshes
            && new.reads == old.reads;
        let is_named = change.deltas.iter().any(|delta| names(delta, &old));
        prop_assert!(is_same || is_named, "{:?} becomes {:?}", old, new);
    }
    Ok(())
}

/// Checks that a change of objects affects only traversals that read them.
pub(in crate::translate) fn objects_not_read_change_nothing(
    checked: &mut CheckedPipeline,
    packets: &[FlowKey],
    op: &Op,
) -> Holds {
    let before: Vec<_> = packets.iter().flat_map(|key| checked.traversals(key)).collect();
    let Some(change) = checked.apply(op) else { return Ok(()) };
    let objects: Vec<_> = change.deltas.iter().filter_map(changed_object).collect();
    if objects.len() < change.deltas.len() {
        return Ok(());
    }
    for old in before {
        let new = again(checked, &old);
        if !old.reads.iter().any(|read| objects.contains(read)) {
            prop_assert_eq!(&new.actions, &old.actions);
            prop_assert_eq!(&new.group_hits, &old.group_hits);
            prop_assert_eq!(&new.output_hits, &old.output_hits);
            prop_assert_eq!(&new.reads, &old.reads);
        }
    }
    Ok(())
}

/// Returns the sub-traversals of a packet, partitioned at some points.
/// Each bit of `choice` selects a partition point.
pub(in crate::translate) fn sub_traversals(
    checked: &CheckedPipeline,
    key: &FlowKey,
    choice: u64,
) -> Vec<SubTraversal> {
    let version = checked.pipeline.version();
    let noted = checked.pipeline.translate_noted(key, None, version);
    let chosen = noted.points.iter().enumerate().filter(|(at, _)| choice >> (at % 64) & 1 != 0);
    let ends: Vec<usize> = chosen.map(|(_, point)| point.visit).collect();
    let sub_traversals = checked.pipeline.translate_sub_traversals(key, None, version, &ends);
    assert_eq!(sub_traversals.len(), ends.len() + 1, "each partition point can be used");
    sub_traversals
}

/// Checks that packets of a sub-traversal's region have this sub-traversal.
/// The continuations at the end are equal, too.
pub(in crate::translate) fn sub_traversals_are_uniform(
    checked: &CheckedPipeline,
    sub_traversals: &[SubTraversal],
    runner: &mut TestRunner,
) -> Holds {
    for sub_traversal in sub_traversals {
        let own = &sub_traversal.traversal;
        let (key, mask) = ((&own.key).into(), (&own.mask).into());
        let sibling = visible(&draw(runner, &generate::sibling(&key, &mask)));
        let ends: Vec<usize> = own.next.iter().map(|_| own.visits.len()).collect();
        let (start, version) = (own.continuation.as_ref(), own.version);
        let again = checked.pipeline.translate_sub_traversals(&sibling, start, version, &ends);
        let again = &again[0];
        prop_assert_eq!(&again.traversal.actions, &own.actions, "{:?}", sibling);
        prop_assert_eq!(&again.traversal.reads, &own.reads);
        prop_assert_eq!(&again.traversal.group_hits, &own.group_hits);
        prop_assert_eq!(&again.traversal.output_hits, &own.output_hits);
        prop_assert_eq!(&again.traversal.refreshes, &own.refreshes);
        prop_assert_eq!(&again.rewrite, &sub_traversal.rewrite);
        prop_assert_eq!(&again.traversal.next, &own.next);
    }
    Ok(())
}

/// Checks that a sub-traversal from a noted traversal equals a translation.
pub(in crate::translate) fn noted_sub_traversals_match_the_tables(
    checked: &CheckedPipeline,
    sub_traversals: &[SubTraversal],
) -> Holds {
    for first in 0..sub_traversals.len() {
        let Traversal { key, continuation, version, .. } = &sub_traversals[first].traversal;
        let (key, start) = (FlowKey::from(key), continuation.as_ref());
        let noted = checked.pipeline.translate_noted(&key, start, *version);
        let mut visits = 0..0;
        for sub_traversal in &sub_traversals[first..] {
            visits = visits.end..visits.end + sub_traversal.traversal.visits.len();
            noted_sub_traversal_matches_the_tables(checked, &noted, visits.clone(), sub_traversal)?;
        }
    }
    Ok(())
}

fn noted_sub_traversal_matches_the_tables(
    checked: &CheckedPipeline,
    noted: &NotedTraversal,
    visits: Range<usize>,
    sub_traversal: &SubTraversal,
) -> Holds {
    let own = &sub_traversal.traversal;
    let (key, start) = (FlowKey::from(&own.key), own.continuation.as_ref());
    let known = checked.pipeline.translate_sub_traversal(&key, start, noted, visits);
    prop_assert_eq!(known.limit_use, sub_traversal.limit_use);
    prop_assert_eq!(&known.rewrite, &sub_traversal.rewrite);
    let known = known.traversal;
    prop_assert!(known.decides_like(own), "{:?}", own);
    prop_assert_eq!((&known.key, known.version), (&own.key, own.version));
    prop_assert_eq!(&known.continuation, &own.continuation);
    prop_assert_eq!(&known.mask, &own.mask);
    for (known, own) in known.visits.iter().zip(&own.visits) {
        prop_assert_eq!((&known.key, &known.mask), (&own.key, &own.mask));
    }
    prop_assert_eq!(&known.learnings, &own.learnings);
    prop_assert_eq!(in_order(&known.reads), in_order(&own.reads));
    Ok(())
}

fn in_order(reads: &[Object]) -> Vec<Object> {
    let mut reads = reads.to_vec();
    reads.sort_unstable();
    reads
}

/// Checks that a delta names every sub-traversal that a change affects.
pub(in crate::translate) fn changes_of_sub_traversals_are_named(
    checked: &mut CheckedPipeline,
    old: &[SubTraversal],
    op: &Op,
) -> Holds {
    let Some(change) = checked.apply(op) else { return Ok(()) };
    for old in old.iter().map(|sub_traversal| &sub_traversal.traversal) {
        let new = checked.pipeline.translate_again(old, change.version);
        let is_same = new.actions == old.actions
            && new.error == old.error
            && new.next == old.next
            && new.learnings == old.learnings
            && new.refreshes == old.refreshes
            && new.reads == old.reads;
        let is_named = change.deltas.iter().any(|delta| names(delta, old));
        prop_assert!(is_same || is_named, "{:?} becomes {:?}", old, new);
    }
    Ok(())
}

/// Checks that later changes do not affect a sub-traversal of an older version.
pub(in crate::translate) fn sub_traversals_keep_their_version(
    checked: &CheckedPipeline,
    sub_traversals: &[SubTraversal],
) -> Holds {
    let kept = |own: &&Traversal| checked.pipeline.is_retained(own.version);
    for own in sub_traversals.iter().map(|sub_traversal| &sub_traversal.traversal).filter(kept) {
        let again = checked.pipeline.translate_again(own, own.version);
        // A traversal with learn requests has no cache entry, and is not compared.
        prop_assert!(again.decides_like(own) || !own.learnings.is_empty(), "{own:?} is {again:?}");
        prop_assert_eq!(&again.next, &own.next);
        prop_assert_eq!(&again.actions, &own.actions);
        prop_assert_eq!(in_order(&again.reads), in_order(&own.reads));
    }
    Ok(())
}

/// Returns the translation of the packet of `old` at the newest version.
fn again(checked: &CheckedPipeline, old: &Traversal) -> Traversal {
    let (version, key) = (checked.pipeline.version(), FlowKey::from(&old.key));
    match &old.continuation {
        None => checked.pipeline.translate(&key, version),
        Some(continuation) => checked.pipeline.resume(&key, continuation, version),
    }
}

/// Returns the rule of each visit.
fn rules(traversal: &Traversal) -> Vec<Option<RuleId>> {
    traversal.visits.iter().map(|visit| visit.rule.as_ref().map(|rule| rule.id)).collect()
}

fn changed_object(delta: &Delta) -> Option<Object> {
    match delta {
        Delta::Changed(object) => Some(*object),
        Delta::Rule(_) => None,
    }
}

/// Returns whether a delta names a traversal, by the rules of eviction engines.
fn names(delta: &Delta, traversal: &Traversal) -> bool {
    let RuleDelta { rule, change } = match delta {
        Delta::Changed(object) => return traversal.reads.contains(object),
        Delta::Rule(delta) => delta,
    };
    let is_there = |visit: &&Visit| (visit.bridge, visit.table) == (rule.bridge, rule.table);
    let has_decided =
        |visit: &Visit| visit.rule.iter().chain(&visit.clauses).any(|own| own.id == rule.id);
    let decides_now = |visit: &Visit| {
        rule.matching.matches(&FlowKey::from(&visit.key))
            && visit.rank().is_none_or(|rank| rule.rank() > rank)
    };
    traversal.visits.iter().filter(is_there).any(|visit| match change {
        RuleChange::Added => decides_now(visit),
        RuleChange::Removed(_) => has_decided(visit),
        RuleChange::Modified(_) => has_decided(visit) || decides_now(visit),
    })
}
