//! The laws of translation, each for one packet or one change: properties try them on generated
//! worlds, and `call_sites` tries whether they break when they should.

use proptest::{
    prelude::prop_assert,
    prop_assert_eq,
    test_runner::{TestCaseError, TestRunner},
};
use shunt_flow::{FieldId, FlowKey};

use crate::{
    Delta, Object, RuleChange, RuleDelta, RuleId, Traversal, Visit,
    testing::{
        Found, Twin, draw,
        generate::{self, Op},
        visible,
    },
};

type Holds = Result<(), TestCaseError>;

/// Packets that are drawn to agree with one.
const SIBLINGS: usize = 4;

/// Packets that agree under the mask of a traversal fare as its packet does, by the tables too.
pub(super) fn agreeing_packets_fare_alike(
    twin: &Twin,
    key: &FlowKey,
    runner: &mut TestRunner,
) -> Holds {
    let traversal = twin.translate(key);
    for _ in 0..SIBLINGS {
        let sibling = draw(runner, &generate::sibling(key, &traversal.mask));
        prop_assert!(sibling.agrees_with(key, &traversal.mask));
        let other = twin.translate(&sibling);
        prop_assert_eq!(&other.actions, &traversal.actions, "sibling {:?}", sibling);
        prop_assert_eq!(&other.reads, &traversal.reads);
        prop_assert_eq!(twin.fate(&traversal, &sibling), twin.world.translate(&sibling));
    }
    Ok(())
}

/// The same of packets that were parsed again.
pub(super) fn agreeing_packets_go_on_alike(
    twin: &Twin,
    key: &FlowKey,
    runner: &mut TestRunner,
) -> Holds {
    for traversal in twin.traversals(key) {
        let Some(continuation) = &traversal.continuation else { continue };
        for _ in 0..SIBLINGS {
            let sibling = draw(runner, &generate::sibling(&traversal.key, &traversal.mask));
            let other = twin.pipeline.resume(&visible(&sibling), continuation, traversal.version);
            prop_assert_eq!(&other.actions, &traversal.actions, "sibling {:?}", sibling);
            prop_assert_eq!(&other.reads, &traversal.reads);
            prop_assert_eq!(&other.learnings, &traversal.learnings);
            prop_assert_eq!(&other.refreshes, &traversal.refreshes);
            prop_assert_eq!(&other.group_hits, &traversal.group_hits);
            prop_assert_eq!(other.error, traversal.error);
            prop_assert_eq!(rules(&other), rules(&traversal));
        }
    }
    Ok(())
}

/// Packets that agree under the mask of a visit find the same there.
pub(super) fn visits_are_uniform(twin: &Twin, key: &FlowKey, runner: &mut TestRunner) -> Holds {
    twin.traversals(key).iter().try_for_each(|way| visits_of_one_way(twin, &way.visits, runner))
}

fn visits_of_one_way(twin: &Twin, visits: &[Visit], runner: &mut TestRunner) -> Holds {
    let mut passed = Vec::new();
    for (index, visit) in visits.iter().enumerate() {
        let sibling = draw(runner, &generate::sibling(&visit.key, &visit.mask));
        if !sibling.agrees_with(&visit.key, &visit.mask) {
            return Ok(());
        }
        let place = (visit.bridge, visit.table);
        let id = u32::try_from(visit.key.field(FieldId::ConjId)).unwrap_or_default();
        let is_second = index > 0 && !visits[index - 1].clauses.is_empty();
        let found = if is_second {
            Found::Rule(twin.world.second(place, &sibling, id))
        } else {
            twin.world.decide(place, &sibling, &passed)
        };
        match found {
            Found::Rule(rule) => {
                prop_assert!(visit.clauses.is_empty());
                let own = visit.rule.as_ref().map(|rule| rule.id);
                prop_assert_eq!(rule.map(|rule| rule.id), own);
                if !is_second || rule.is_some() {
                    passed.clear();
                }
            }
            Found::Conjunction(met) => {
                let next = visits[index + 1].key.field(FieldId::ConjId);
                prop_assert!(!visit.clauses.is_empty() && next == u128::from(met.1));
                passed.push(met);
            }
        }
    }
    Ok(())
}

/// A change that makes another traversal of a packet names a visit or a read of the old one.
pub(super) fn changes_are_named(twin: &mut Twin, packets: &[FlowKey], op: &Op) -> Holds {
    let before: Vec<_> = packets.iter().flat_map(|key| twin.traversals(key)).collect();
    let Some(change) = twin.apply(op) else { return Ok(()) };
    for old in before {
        let new = again(twin, &old);
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

/// A change of objects alone changes no traversal that does not read them.
pub(super) fn objects_not_read_change_nothing(
    twin: &mut Twin,
    packets: &[FlowKey],
    op: &Op,
) -> Holds {
    let before: Vec<_> = packets.iter().flat_map(|key| twin.traversals(key)).collect();
    let Some(change) = twin.apply(op) else { return Ok(()) };
    let objects: Vec<_> = change.deltas.iter().filter_map(changed_object).collect();
    if objects.len() < change.deltas.len() {
        return Ok(());
    }
    for old in before {
        let new = again(twin, &old);
        if !old.reads.iter().any(|read| objects.contains(read)) {
            prop_assert_eq!(&new.actions, &old.actions);
            prop_assert_eq!(&new.group_hits, &old.group_hits);
            prop_assert_eq!(&new.reads, &old.reads);
        }
    }
    Ok(())
}

/// What a traversal is at the newest version.
fn again(twin: &Twin, old: &Traversal) -> Traversal {
    let version = twin.pipeline.version();
    match &old.continuation {
        None => twin.pipeline.translate(&old.key, version),
        Some(continuation) => twin.pipeline.resume(&old.key, continuation, version),
    }
}

fn rules(traversal: &Traversal) -> Vec<Option<RuleId>> {
    traversal.visits.iter().map(|visit| visit.rule.as_ref().map(|rule| rule.id)).collect()
}

fn changed_object(delta: &Delta) -> Option<Object> {
    match delta {
        Delta::Changed(object) => Some(*object),
        Delta::Rule(_) => None,
    }
}

/// Whether a delta says of a traversal that it may be another one now, as engines understand it.
fn names(delta: &Delta, traversal: &Traversal) -> bool {
    let RuleDelta { rule, change } = match delta {
        Delta::Changed(object) => return traversal.reads.contains(object),
        Delta::Rule(delta) => delta,
    };
    let is_there = |visit: &&Visit| (visit.bridge, visit.table) == (rule.bridge, rule.table);
    let has_decided =
        |visit: &Visit| visit.rule.iter().chain(&visit.clauses).any(|own| own.id == rule.id);
    let decides_now = |visit: &Visit| {
        rule.matching.matches(&visit.key) && visit.rank().is_none_or(|rank| rule.rank() > rank)
    };
    traversal.visits.iter().filter(is_there).any(|visit| match change {
        RuleChange::Added => decides_now(visit),
        RuleChange::Removed(_) => has_decided(visit),
        RuleChange::Modified(_) => has_decided(visit) || decides_now(visit),
    })
}
