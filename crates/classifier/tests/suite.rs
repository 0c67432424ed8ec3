//! One suite of tests for every classifier.

use shunt_classifier::{Classifier, Linear, Matches, Priority, Rank, TupleSpace, Version};
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

/// Defines every test for every implementation.
macro_rules! suite {
    ($($case:ident),+ $(,)?) => {
        mod linear { $(#[test] fn $case() { super::$case(&mut super::Linear::new()); })+ }
        mod tuple_space { $(#[test] fn $case() { super::$case(&mut super::TupleSpace::new(1)); })+ }
    };
}

suite!(
    an_empty_table_needs_no_mask,
    a_rule_without_a_mask_matches_every_key,
    the_higher_priority_wins_whichever_came_first,
    of_equal_priorities_the_older_rule_wins,
    every_priority_is_a_priority,
    the_result_depends_on_the_consulted_bits,
    a_strict_find_compares_mask_value_and_priority,
    a_version_sees_earlier_additions_and_later_removals,
    rule_added_and_removed_together_is_never_seen,
    a_rule_that_replaces_another_keeps_its_place,
    only_the_rule_that_lives_is_removed,
    reclaiming_frees_only_invisible_objects,
    versions_may_end_out_of_order,
    a_table_can_be_emptied_and_filled_again,
    matches_are_returned_in_order_down_to_floor,
    matches_report_the_remaining_maximum_priority,
    an_unused_match_adds_no_bits,
    rules_overlap_where_a_packet_can_match_both,
    rules_within_a_match_match_no_other_packet,
);

fn key(fields: &[(FieldId, u128)]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    fields.iter().for_each(|(field, value)| key.set_field(*field, *value));
    key
}

/// Returns a match of all bits of these fields.
fn exact(fields: &[(FieldId, u128)]) -> Match {
    let mut mask = FlowMask::EMPTY;
    fields.iter().for_each(|(field, _)| mask.add_field(*field));
    Match::new(&key(fields), &mask)
}

/// Returns a match of the first `length` bits of an IPv4 destination.
fn prefix(address: u32, length: u32) -> Match {
    let key = key(&[(FieldId::EthType, 0x0800), (FieldId::Ipv4Dst, address.into())]);
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::EthType);
    mask.add_bits(FieldId::Ipv4Dst, u128::from(!u32::MAX.checked_shr(length).unwrap_or(0)));
    Match::new(&key, &mask)
}

fn packet_to(address: u32) -> FlowKey {
    key(&[(FieldId::EthType, 0x0800), (FieldId::Ipv4Dst, address.into())])
}

const fn rank(priority: u16, age: u64) -> Rank {
    Rank { priority: Priority::new(priority), age }
}

/// The versions of the cases, by number.
const V: [Version; 5] =
    [Version::ZERO, Version::new(1), Version::new(2), Version::new(3), Version::new(4)];

/// Returns the result of a lookup, which must be the same with and without a mask.
fn answer(table: &impl Classifier<u32>, key: &FlowKey, version: Version) -> Option<u32> {
    let answer = table.lookup(key, version);
    let mut mask = FlowMask::EMPTY;
    assert_eq!(table.lookup_masked(key, version, &mut mask), answer);
    answer.copied()
}

fn answers(table: &impl Classifier<u32>, key: &FlowKey) -> [Option<u32>; V.len()] {
    V.map(|version| answer(table, key, version))
}

fn an_empty_table_needs_no_mask(table: &mut impl Classifier<u32>) {
    let mut mask = FlowMask::EMPTY;
    assert_eq!(table.lookup_masked(&packet_to(1), V[0], &mut mask), None);
    assert!(mask.is_empty());
    assert!(table.is_empty());
}

fn a_rule_without_a_mask_matches_every_key(table: &mut impl Classifier<u32>) {
    table.insert(Match::any(), rank(0, 0), V[0], 1);
    assert_eq!(answer(table, &FlowKey::ZERO, V[0]), Some(1));
    let mut mask = FlowMask::EMPTY;
    assert_eq!(table.lookup_masked(&packet_to(1), V[0], &mut mask), Some(&1));
    assert!(mask.is_empty());
}

fn the_higher_priority_wins_whichever_came_first(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a00_0000, 8), rank(5, 0), V[0], 1);
    table.insert(prefix(0x0a01_0000, 16), rank(4, 1), V[0], 2);
    table.insert(prefix(0x0a01_0200, 24), rank(6, 2), V[0], 3);
    assert_eq!(answer(table, &packet_to(0x0a01_0203), V[0]), Some(3));
    assert_eq!(answer(table, &packet_to(0x0a01_0303), V[0]), Some(1));
    assert_eq!(answer(table, &packet_to(0x0b01_0303), V[0]), None);
}

fn of_equal_priorities_the_older_rule_wins(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a01_0000, 16), rank(5, 3), V[0], 3);
    table.insert(prefix(0x0a01_0200, 24), rank(5, 2), V[0], 2);
    table.insert(prefix(0x0a01_0000, 16), rank(5, 1), V[0], 1);
    assert_eq!(answer(table, &packet_to(0x0a01_0203), V[0]), Some(1));
    assert_eq!(table.remove(&prefix(0x0a01_0000, 16), rank(5, 1), V[1]), Some(1));
    assert_eq!(answer(table, &packet_to(0x0a01_0203), V[1]), Some(2));
}

fn every_priority_is_a_priority(table: &mut impl Classifier<u32>) {
    for priority in (0..=u16::MAX).step_by(257) {
        let matching = prefix(0x0a00_0000, u32::from(priority) % 33);
        table.insert(matching, rank(priority, priority.into()), V[0], priority.into());
    }
    let packet = packet_to(0x0a00_0000);
    for priority in (0..=u16::MAX).step_by(257).rev() {
        assert_eq!(answer(table, &packet, V[0]), Some(priority.into()));
        let matching = prefix(0x0a00_0000, u32::from(priority) % 33);
        table.remove(&matching, rank(priority, priority.into()), V[0]);
    }
    assert_eq!(answer(table, &packet, V[0]), None);
}

fn the_result_depends_on_the_consulted_bits(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a01_0000, 16), rank(5, 0), V[0], 1);
    table.insert(exact(&[(FieldId::InPort, 1)]), rank(4, 1), V[0], 2);
    let mut mask = FlowMask::EMPTY;
    assert_eq!(table.lookup_masked(&packet_to(0x0a01_0203), V[0], &mut mask), Some(&1));
    assert_eq!(mask, FlowMask::from(prefix(0, 16).mask()));
}

fn a_strict_find_compares_mask_value_and_priority(table: &mut impl Classifier<u32>) {
    let matching = prefix(0x0a01_0000, 16);
    table.insert(matching.clone(), rank(5, 2), V[1], 2);
    table.insert(matching.clone(), rank(5, 1), V[1], 1);
    table.insert(matching.clone(), rank(6, 3), V[1], 3);
    let find = |matching: &Match, priority, version| {
        table.find_exact(matching, Priority::new(priority), version).copied()
    };
    assert_eq!(find(&matching, 5, V[1]), Some(2), "the newest");
    assert_eq!(find(&matching, 6, V[1]), Some(3));
    assert_eq!(find(&matching, 7, V[1]), None);
    assert_eq!(find(&matching, 5, V[0]), None);
    assert_eq!(find(&prefix(0x0a01_0000, 17), 5, V[1]), None);
    assert_eq!(find(&prefix(0x0a02_0000, 16), 5, V[1]), None);
}

fn a_version_sees_earlier_additions_and_later_removals(table: &mut impl Classifier<u32>) {
    let matching = prefix(0x0a00_0000, 8);
    table.insert(matching.clone(), rank(5, 0), V[1], 1);
    assert_eq!(table.remove(&matching, rank(5, 0), V[3]), Some(1));
    let packet = packet_to(0x0a00_0001);
    assert_eq!(answers(table, &packet), [None, Some(1), Some(1), None, None]);
    assert_eq!(V.map(|version| table.rules(version).count()), [0, 1, 1, 0, 0]);
    assert_eq!(table.len(), 1);
}

fn rule_added_and_removed_together_is_never_seen(table: &mut impl Classifier<u32>) {
    table.insert(Match::any(), rank(5, 0), V[2], 1);
    assert_eq!(table.remove(&Match::any(), rank(5, 0), V[2]), Some(1));
    assert_eq!(answers(table, &FlowKey::ZERO), [None; 5]);
    table.reclaim(V[2]);
    assert!(table.is_empty());
}

fn a_rule_that_replaces_another_keeps_its_place(table: &mut impl Classifier<u32>) {
    let matching = prefix(0x0a00_0000, 8);
    table.insert(matching.clone(), rank(5, 0), V[0], 1);
    table.insert(prefix(0x0a00_0000, 9), rank(5, 1), V[0], 2);
    assert_eq!(table.remove(&matching, rank(5, 0), V[2]), Some(1));
    table.insert(matching.clone(), rank(5, 0), V[2], 3);
    let packet = packet_to(0x0a00_0001);
    assert_eq!(answers(table, &packet), [Some(1), Some(1), Some(3), Some(3), Some(3)]);
    table.reclaim(V[2]);
    assert_eq!(table.len(), 2);
    assert_eq!(answer(table, &packet, V[4]), Some(3));
    assert_eq!(table.remove(&matching, rank(5, 0), V[4]), Some(3));
    assert_eq!(answer(table, &packet, V[4]), Some(2));
}

fn only_the_rule_that_lives_is_removed(table: &mut impl Classifier<u32>) {
    let matching = prefix(0x0a00_0000, 8);
    assert_eq!(table.remove(&matching, rank(5, 0), V[1]), None);
    table.insert(matching.clone(), rank(5, 0), V[0], 1);
    assert_eq!(table.remove(&matching, rank(5, 1), V[1]), None);
    assert_eq!(table.remove(&prefix(0x0a00_0000, 9), rank(5, 0), V[1]), None);
    assert_eq!(table.remove(&matching, rank(5, 0), V[1]), Some(1));
    assert_eq!(table.remove(&matching, rank(5, 0), V[2]), None);
}

fn reclaiming_frees_only_invisible_objects(table: &mut impl Classifier<u32>) {
    for (age, length) in [(0u32, 8), (1, 9), (2, 10), (3, 11)] {
        let matching = prefix(0x0a00_0000, length);
        table.insert(matching.clone(), rank(5, age.into()), V[0], age);
        if age < 3 {
            table.remove(&matching, rank(5, age.into()), V[age as usize + 1]);
        }
    }
    let packet = packet_to(0x0a00_0001);
    assert_eq!(answers(table, &packet), [Some(0), Some(1), Some(2), Some(3), Some(3)]);
    for (oldest, left) in [(0, 4), (1, 3), (2, 2), (3, 1), (4, 1)] {
        table.reclaim(V[oldest]);
        assert_eq!(table.len(), left);
        let seen = [Some(0), Some(1), Some(2), Some(3), Some(3)];
        assert_eq!(answers(table, &packet)[oldest..], seen[oldest..]);
    }
}

fn versions_may_end_out_of_order(table: &mut impl Classifier<u32>) {
    let matching = prefix(0x0a00_0000, 8);
    table.insert(matching.clone(), rank(5, 0), V[0], 0);
    table.insert(matching.clone(), rank(5, 1), V[0], 1);
    table.remove(&matching, rank(5, 0), V[3]);
    table.remove(&matching, rank(5, 1), V[1]);
    table.reclaim(V[1]);
    assert_eq!(table.len(), 1);
    let packet = packet_to(0x0a00_0001);
    assert_eq!(answers(table, &packet), [Some(0), Some(0), Some(0), None, None]);
}

fn a_table_can_be_emptied_and_filled_again(table: &mut impl Classifier<u32>) {
    for round in 0..3u32 {
        for length in 0..=32 {
            table.insert(prefix(0x0a00_0000, length), rank(5, length.into()), V[1], round);
        }
        assert_eq!(answer(table, &packet_to(0x0a00_0000), V[1]), Some(round));
        for length in 0..=32 {
            table.remove(&prefix(0x0a00_0000, length), rank(5, length.into()), V[2]);
        }
        table.reclaim(V[2]);
        assert!(table.is_empty());
        assert_eq!(answer(table, &packet_to(0x0a00_0000), V[2]), None);
    }
}

fn matches_are_returned_in_order_down_to_floor(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a01_0000, 16), rank(5, 0), V[0], 1);
    table.insert(prefix(0x0a01_0200, 24), rank(5, 1), V[0], 2);
    table.insert(prefix(0x0a00_0000, 8), rank(7, 2), V[0], 3);
    table.insert(prefix(0x0b00_0000, 8), rank(6, 3), V[0], 4);
    table.insert(Match::any(), rank(1, 4), V[0], 5);
    table.insert(Match::any(), rank(6, 5), V[1], 6);
    let packet = packet_to(0x0a01_0203);
    let mut matches = table.matches(&packet, V[0]);
    let mut mask = FlowMask::EMPTY;
    let mut next = |floor| {
        let found = matches.next_masked(Priority::new(floor), &mut mask);
        found.map(|(rank, rule)| (rank.priority.number(), *rule))
    };
    assert_eq!([next(0), next(5), next(5)], [Some((7, 3)), Some((5, 1)), Some((5, 2))]);
    assert_eq!([next(5), next(2), next(0), next(0)], [None, None, Some((1, 5)), None]);
}

fn matches_report_the_remaining_maximum_priority(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a01_0000, 16), rank(5, 0), V[0], 1);
    table.insert(prefix(0x0a00_0000, 8), rank(7, 1), V[0], 2);
    table.insert(prefix(0x0b00_0000, 8), rank(9, 2), V[0], 3);
    table.insert(Match::any(), rank(1, 3), V[0], 4);
    let packet = packet_to(0x0a01_0203);
    let mut matches = table.matches(&packet, V[0]);
    let mut mask = FlowMask::EMPTY;
    let mut found = Vec::new();
    while let Some(priority) = matches.priority_max() {
        while let Some((rank, rule)) = matches.next_masked(priority, &mut mask) {
            assert_eq!(rank.priority, priority);
            found.push(*rule);
        }
        let then = matches.priority_max();
        assert!(then.is_none_or(|then| then < priority), "the highest priority falls");
    }
    assert_eq!(found, [2, 1, 4]);
}

fn an_unused_match_adds_no_bits(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a00_0000, 8), rank(7, 0), V[0], 1);
    table.insert(prefix(0x0a01_0000, 16), rank(5, 1), V[0], 2);
    let packet = packet_to(0x0a01_0203);
    let mut matches = table.matches(&packet, V[0]);
    let mut mask = FlowMask::EMPTY;
    assert_eq!(matches.next_masked(Priority::new(0), &mut mask), Some((rank(7, 0), &1)));
    assert_eq!(matches.next_masked(Priority::new(6), &mut mask), None);
    assert_eq!(mask, FlowMask::from(prefix(0, 8).mask()));
}

fn rules_overlap_where_a_packet_can_match_both(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a01_0000, 16), rank(5, 0), V[1], 1);
    let overlaps = |matching: &Match, priority, version| {
        table.overlaps(matching, Priority::new(priority), version)
    };
    assert!(overlaps(&prefix(0x0a01_0200, 24), 5, V[1]));
    assert!(overlaps(&prefix(0x0a00_0000, 8), 5, V[1]));
    assert!(overlaps(&exact(&[(FieldId::InPort, 1)]), 5, V[1]));
    assert!(!overlaps(&prefix(0x0a02_0200, 24), 5, V[1]));
    assert!(!overlaps(&prefix(0x0b00_0000, 8), 5, V[1]));
    assert!(!overlaps(&prefix(0x0a01_0200, 24), 6, V[1]));
    assert!(!overlaps(&prefix(0x0a01_0200, 24), 5, V[0]));
}

fn rules_within_a_match_match_no_other_packet(table: &mut impl Classifier<u32>) {
    table.insert(prefix(0x0a01_0000, 16), rank(5, 0), V[0], 1);
    table.insert(prefix(0x0a01_0200, 24), rank(6, 1), V[0], 2);
    table.insert(prefix(0x0b01_0200, 24), rank(6, 2), V[0], 3);
    table.insert(exact(&[(FieldId::InPort, 1)]), rank(7, 3), V[1], 4);
    let within = |matching: &Match, version| {
        let mut rules: Vec<_> = table.rules_within(matching, version).map(|(.., r)| *r).collect();
        rules.sort_unstable();
        rules
    };
    assert_eq!(within(&prefix(0x0a01_0000, 16), V[0]), [1, 2]);
    assert_eq!(within(&prefix(0x0a01_0200, 24), V[0]), [2]);
    assert_eq!(within(&prefix(0x0a01_0200, 25), V[0]), [0; 0]);
    assert_eq!(within(&Match::any(), V[0]), [1, 2, 3]);
    assert_eq!(within(&Match::any(), V[1]), [1, 2, 3, 4]);
}
