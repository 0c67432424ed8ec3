//! The laws of translation, against the oracle.

use proptest::prelude::*;
use shunt_flow::{FieldId, PortNo};

use crate::{
    DatapathAction, Delta, Object, RuleChange, RuleDelta, Traversal, Visit,
    testing::{Found, Twin, draw, generate, runner},
};

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    #[test]
    fn a_traversal_does_what_the_tables_say(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
    ) {
        let twin = Twin::new(&world);
        for key in &packets {
            let traversal = twin.translate(key);
            prop_assert_eq!(twin.fate(&traversal, key), twin.world.translate(key));
        }
    }

    #[test]
    fn packets_that_agree_under_the_mask_fare_alike(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 4),
    ) {
        let twin = Twin::new(&world);
        let mut runner = runner();
        for key in &packets {
            let traversal = twin.translate(key);
            for _ in 0..4 {
                let sibling = draw(&mut runner, &generate::sibling(key, &traversal.mask));
                prop_assert!(sibling.agrees_with(key, &traversal.mask));
                let other = twin.translate(&sibling);
                prop_assert_eq!(&other.actions, &traversal.actions, "sibling {:?}", sibling);
                prop_assert_eq!(&other.reads, &traversal.reads);
                prop_assert_eq!(twin.fate(&traversal, &sibling), twin.world.translate(&sibling));
            }
        }
    }

    #[test]
    fn each_visit_is_uniform_under_its_own_mask(
        world in generate::world(),
        packet in generate::packet(),
    ) {
        let twin = Twin::new(&world);
        let mut runner = runner();
        let visits = twin.translate(&packet).visits;
        let mut passed = Vec::new();
        for (index, visit) in visits.iter().enumerate() {
            let sibling = draw(&mut runner, &generate::sibling(&visit.key, &visit.mask));
            prop_assume!(sibling.agrees_with(&visit.key, &visit.mask));
            let place = (visit.bridge, visit.table);
            let id = visit.key.field(FieldId::ConjId);
            let is_second = index > 0 && !visits[index - 1].clauses.is_empty();
            let found = if is_second {
                Found::Rule(twin.world.second(place, &sibling, u32::try_from(id).unwrap()))
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
    }

    #[test]
    fn what_changes_a_traversal_is_in_its_visits_or_its_reads(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 4),
        ops in prop::collection::vec(generate::op(), 1..8),
    ) {
        let mut twin = Twin::new(&world);
        for op in &ops {
            let before: Vec<_> = packets.iter().map(|key| twin.translate(key)).collect();
            let Some(change) = twin.apply(op) else { continue };
            for old in before {
                let new = twin.translate(&old.key);
                let is_same = new.actions == old.actions
                    && new.error == old.error
                    && new.learnings == old.learnings
                    && new.refreshes == old.refreshes
                    && new.reads == old.reads;
                let is_named = change.deltas.iter().any(|delta| names(delta, &old));
                prop_assert!(is_same || is_named, "{:?} becomes {:?}", old, new);
            }
        }
    }

    #[test]
    fn a_packet_out_does_what_its_actions_say(
        world in generate::world(),
        mut packet in generate::packet(),
        actions in prop::collection::vec(generate::action(), 0..5),
        port in prop::sample::select(vec![1, 2, 4, 0xffff_fffd, 0xffff_fffe, 0xffff_ffff]),
    ) {
        let twin = Twin::new(&world);
        packet.set_in_port(PortNo::new(port));
        let traversal =
            twin.pipeline.translate_actions(&packet, &actions, twin.pipeline.version());
        prop_assert_eq!(twin.fate(&traversal, &packet), twin.world.packet_out(&packet, &actions));
    }

    #[test]
    fn what_reads_no_object_that_changed_stays_as_it_was(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
        ops in prop::collection::vec(generate::op(), 1..6),
    ) {
        let mut twin = Twin::new(&world);
        for op in &ops {
            let before: Vec<_> = packets.iter().map(|key| twin.translate(key)).collect();
            let Some(change) = twin.apply(op) else { continue };
            let objects: Vec<_> = change.deltas.iter().filter_map(changed_object).collect();
            if objects.len() < change.deltas.len() {
                continue;
            }
            for old in before {
                let new = twin.translate(&old.key);
                if !old.reads.iter().any(|read| objects.contains(read)) {
                    prop_assert_eq!(&new.actions, &old.actions);
                    prop_assert_eq!(&new.group_hits, &old.group_hits);
                    prop_assert_eq!(&new.reads, &old.reads);
                }
            }
        }
    }
}

fn changed_object(delta: &Delta) -> Option<Object> {
    match delta {
        Delta::Changed(object) => Some(*object),
        Delta::Rule(_) => None,
    }
}

/// What the laws above are worth: they have met groups of every kind, and packets that meters
/// ended, changed, and left alone.
#[test]
fn the_generated_worlds_reach_groups_and_meters() {
    let mut runner = runner();
    let mut kinds = [0; 4];
    let (mut metered, mut copies, mut chained, mut remarks) = (0, 0, 0, 0);
    for _ in 0..200 {
        let twin = Twin::new(&draw(&mut runner, &generate::world()));
        for _ in 0..8 {
            let key = draw(&mut runner, &generate::packet());
            let traversal = twin.translate(&key);
            let fate = twin.fate(&traversal, &key);
            traversal.group_hits.iter().for_each(|hit| kinds[hit.group.kind as usize] += 1);
            metered += usize::from(fate.was_metered);
            chained += usize::from(traversal.group_hits.len() > 1);
            let is_copy = |action: &&DatapathAction| matches!(action, DatapathAction::Copy(_));
            copies += traversal.actions.iter().filter(is_copy).count();
            let may_remark = |action: &&DatapathAction| matches!(action, DatapathAction::Meter(meter) if meter.remarks());
            remarks += traversal.actions.iter().filter(may_remark).count();
        }
    }
    let counts = [kinds.as_slice(), &[metered, chained, copies, remarks]].concat();
    assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
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
