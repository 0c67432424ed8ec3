//! The laws of translation, each for one packet or one change: properties try them on generated
//! worlds, and `call_sites` tries whether they break when they should.

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
        Found, Twin, draw,
        generate::{self, Op},
        visible,
    },
    traversals::{
        sub_traversal::{NotedTraversal, SubTraversal},
        traversal::{Traversal, Visit},
    },
    versions::delta::{Delta, Object, RuleChange, RuleDelta},
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
        let sibling = draw(runner, &generate::sibling(key, &FlowMask::from(&traversal.mask)));
        prop_assert!(traversal.mask.agree(&sibling, key));
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
            let (key, mask) = (FlowKey::from(&traversal.key), FlowMask::from(&traversal.mask));
            let sibling = draw(runner, &generate::sibling(&key, &mask));
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
        let (key, mask) = (FlowKey::from(&visit.key), FlowMask::from(&visit.mask));
        let sibling = draw(runner, &generate::sibling(&key, &mask));
        if !sibling.agrees_with(&key, &mask) {
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

/// The pieces of a packet that is cut at those of all points that `choice` has a bit for.
pub(super) fn pieces(twin: &Twin, key: &FlowKey, choice: u64) -> Vec<SubTraversal> {
    let version = twin.pipeline.version();
    let noted = twin.pipeline.translate_noting(key, None, version);
    let chosen = noted.points.iter().enumerate().filter(|(at, _)| choice >> (at % 64) & 1 != 0);
    let cuts: Vec<usize> = chosen.map(|(_, point)| point.visit).collect();
    let pieces = twin.pipeline.translate_sub_traversals(key, None, version, &cuts);
    assert_eq!(pieces.len(), cuts.len() + 1, "each point that was told can be cut");
    pieces
}

/// A piece is that of every packet of its region, and leads all of them to one next piece.
pub(super) fn pieces_are_uniform(
    twin: &Twin,
    pieces: &[SubTraversal],
    runner: &mut TestRunner,
) -> Holds {
    for piece in pieces {
        let own = &piece.traversal;
        let (key, mask) = ((&own.key).into(), (&own.mask).into());
        let sibling = visible(&draw(runner, &generate::sibling(&key, &mask)));
        let cuts: Vec<usize> = own.next.iter().map(|_| own.visits.len()).collect();
        let (start, version) = (own.continuation.as_ref(), own.version);
        let again = twin.pipeline.translate_sub_traversals(&sibling, start, version, &cuts);
        let again = &again[0];
        prop_assert_eq!(&again.traversal.actions, &own.actions, "{:?}", sibling);
        prop_assert_eq!(&again.traversal.reads, &own.reads);
        prop_assert_eq!(&again.traversal.group_hits, &own.group_hits);
        prop_assert_eq!(&again.traversal.refreshes, &own.refreshes);
        prop_assert_eq!(&again.rewrite, &piece.rewrite);
        prop_assert_eq!(&again.traversal.next, &own.next);
    }
    Ok(())
}

/// What is known of pieces from their whole, or from what is left of it at one of them, is what the tables
/// say.
pub(super) fn known_pieces_are_those_of_the_tables(twin: &Twin, pieces: &[SubTraversal]) -> Holds {
    for first in 0..pieces.len() {
        let Traversal { key, continuation, version, .. } = &pieces[first].traversal;
        let (key, start) = (FlowKey::from(key), continuation.as_ref());
        let noted = twin.pipeline.translate_noting(&key, start, *version);
        let mut visits = 0..0;
        for piece in &pieces[first..] {
            visits = visits.end..visits.end + piece.traversal.visits.len();
            known_piece_is_that_of_the_tables(twin, &noted, visits.clone(), piece)?;
        }
    }
    Ok(())
}

fn known_piece_is_that_of_the_tables(
    twin: &Twin,
    noted: &NotedTraversal,
    visits: Range<usize>,
    piece: &SubTraversal,
) -> Holds {
    let own = &piece.traversal;
    let (key, start) = (FlowKey::from(&own.key), own.continuation.as_ref());
    let known = twin.pipeline.translate_sub_traversal(&key, start, noted, visits);
    prop_assert_eq!(known.spending, piece.spending);
    prop_assert_eq!(&known.rewrite, &piece.rewrite);
    let known = known.traversal;
    prop_assert!(known.says_as(own), "{:?}", own);
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

/// A change that makes another piece of one names a visit or a read of the old one.
pub(super) fn changes_of_pieces_are_named(twin: &mut Twin, old: &[SubTraversal], op: &Op) -> Holds {
    let Some(change) = twin.apply(op) else { return Ok(()) };
    for old in old.iter().map(|piece| &piece.traversal) {
        let new = twin.pipeline.translate_again(old, change.version);
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

/// A piece is the same at its version whenever it is asked for, whatever came after that.
pub(super) fn pieces_keep_to_their_version(twin: &Twin, pieces: &[SubTraversal]) -> Holds {
    let kept = |own: &&Traversal| twin.pipeline.is_kept(own.version);
    for own in pieces.iter().map(|piece| &piece.traversal).filter(kept) {
        let again = twin.pipeline.translate_again(own, own.version);
        // What teaches says nothing that another could say as well.
        prop_assert!(again.says_as(own) || !own.learnings.is_empty(), "{own:?} is {again:?}");
        prop_assert_eq!(&again.next, &own.next);
        prop_assert_eq!(&again.actions, &own.actions);
        prop_assert_eq!(in_order(&again.reads), in_order(&own.reads));
    }
    Ok(())
}

/// What a traversal is at the newest version.
fn again(twin: &Twin, old: &Traversal) -> Traversal {
    let (version, key) = (twin.pipeline.version(), FlowKey::from(&old.key));
    match &old.continuation {
        None => twin.pipeline.translate(&key, version),
        Some(continuation) => twin.pipeline.resume(&key, continuation, version),
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
        rule.matching.matches(&FlowKey::from(&visit.key))
            && visit.rank().is_none_or(|rank| rule.rank() > rank)
    };
    traversal.visits.iter().filter(is_there).any(|visit| match change {
        RuleChange::Added => decides_now(visit),
        RuleChange::Removed(_) => has_decided(visit),
        RuleChange::Modified(_) => has_decided(visit) || decides_now(visit),
    })
}
