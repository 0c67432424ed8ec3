//! Compares tuple space search with the oracle, over random sequences of operations.

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};

use super::{ScanPosition, TupleSpace, search::Search, words::Hashing};
use crate::{
    Classifier, Lifetime, Linear, Matches, Priority, Rank, Version,
    testing::{
        self, TableOp,
        workload::{self, Priorities},
    },
};

/// A table, its oracle, and a list of every rule that is not reclaimed.
struct TableWithOracle {
    table: TupleSpace<u64>,
    oracle: Linear<u64>,
    rules: Vec<(Match, Rank, Lifetime)>,
    version: Version,
    oldest: Version,
    rules_made: u64,
}

impl TableWithOracle {
    /// Applies operations to an empty table.
    fn of(ops: &[TableOp]) -> Self {
        Self::with(TupleSpace::new(7), ops)
    }

    /// Applies operations to a table.
    fn with(table: TupleSpace<u64>, ops: &[TableOp]) -> Self {
        let mut tested = Self {
            table,
            oracle: Linear::new(),
            rules: Vec::new(),
            version: Version::ZERO,
            oldest: Version::ZERO,
            rules_made: 0,
        };
        ops.iter().for_each(|op| tested.apply(op));
        tested
    }

    /// Applies an operation to the table and to the list of rules.
    fn apply(&mut self, op: &TableOp) {
        match op {
            TableOp::Insert(matching, priority) => {
                let rank = Rank { priority: *priority, age: self.rules_made };
                self.insert(matching.clone(), rank);
            }
            TableOp::Remove(index) => {
                self.remove(index);
            }
            TableOp::Modify(index) => {
                if let Some((matching, rank)) = self.remove(index) {
                    self.insert(matching, rank);
                }
            }
            TableOp::Publish => self.version = self.version.next(),
            TableOp::Reclaim(behind) => {
                let oldest = Version::new(self.version.number().saturating_sub(*behind));
                self.oldest = self.oldest.max(oldest);
                match behind {
                    // In steps that split the rules of one match.
                    1 => while self.table.reclaim_some(oldest, 1) > 0 {},
                    _ => self.table.reclaim(oldest),
                }
                self.oracle.reclaim(oldest);
                self.rules.retain(|(_, _, lifetime)| !lifetime.is_over(oldest));
            }
        }
        assert_eq!(self.table.len(), self.oracle.len());
    }

    fn insert(&mut self, matching: Match, rank: Rank) {
        let rule = self.rules_made;
        self.rules_made += 1;
        self.table.insert(matching.clone(), rank, self.version, rule);
        self.oracle.insert(matching.clone(), rank, self.version, rule);
        self.rules.push((matching, rank, Lifetime::since(self.version)));
    }

    fn remove(&mut self, index: &prop::sample::Index) -> Option<(Match, Rank)> {
        let living = self.living();
        (!living.is_empty()).then(|| self.end(*index.get(&living)))
    }

    /// Returns the positions of the rules that were not removed.
    fn living(&self) -> Vec<usize> {
        let is_living = |position: &usize| self.rules[*position].2.removed().is_none();
        (0..self.rules.len()).filter(is_living).collect()
    }

    /// Ends the rule at a position with the newest version.
    fn end(&mut self, position: usize) -> (Match, Rank) {
        let (matching, rank, lifetime) = &mut self.rules[position];
        lifetime.end(Some(self.version));
        let removed = self.table.remove(matching, *rank, self.version);
        assert_eq!(removed, self.oracle.remove(matching, *rank, self.version));
        assert!(removed.is_some());
        (matching.clone(), *rank)
    }

    /// Returns the versions that a thread may still use.
    fn versions(&self) -> impl Iterator<Item = Version> + use<> {
        (self.oldest.number()..=self.version.number()).map(Version::new)
    }

    /// Returns the union of the masks of all rules with at least `rank`.
    /// The returned mask also has the Ethernet type.
    fn mask_widest(&self, rank: Option<Rank>) -> FlowMask {
        let mut mask = FlowMask::EMPTY;
        mask.add_field(FieldId::EthType);
        let ranking = self.rules.iter().filter(|(_, r, _)| rank.is_none_or(|rank| *r >= rank));
        ranking.for_each(|(matching, _, _)| mask.add_sparse(matching.mask()));
        mask
    }

    fn rank(&self, rule: u64, version: Version) -> Rank {
        self.oracle.rules(version).find(|(_, _, r)| **r == rule).unwrap().1
    }
}

/// Returns a key with the bits of `key` under `mask`, and of `other` elsewhere.
fn outside(key: &FlowKey, mask: &FlowMask, other: &FlowKey) -> FlowKey {
    let mut mixed = other.clone();
    let words = mixed.words_mut().iter_mut().zip(key.words()).zip(mask.words());
    words.for_each(|((to, key), mask)| *to = key & mask | *to & !mask);
    mixed
}

/// Returns the results of successive calls of `next_masked` with these floors.
fn answers(
    table: &impl Classifier<u64>,
    key: &FlowKey,
    version: Version,
    floors: &[Priority],
) -> (Vec<Option<(Rank, u64)>>, FlowMask) {
    let mut mask = FlowMask::EMPTY;
    let mut matches = table.matches(key, version);
    let next = |floor: &Priority| matches.next_masked(*floor, &mut mask);
    let answers = floors.iter().map(next).map(|found| found.map(|(rank, rule)| (rank, *rule)));
    (answers.collect(), mask)
}

/// Generates flow keys.
fn keys() -> impl Strategy<Value = Vec<FlowKey>> {
    prop::collection::vec(testing::key(), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_result_equals_the_oracle(ops in testing::ops(60), keys in keys()) {
        let tested = TableWithOracle::of(&ops);
        for version in tested.versions() {
            for key in &keys {
                let answer = tested.oracle.lookup(key, version);
                prop_assert_eq!(tested.table.lookup(key, version), answer);
                let mut mask = FlowMask::EMPTY;
                prop_assert_eq!(tested.table.lookup_masked(key, version, &mut mask), answer);
            }
        }
    }

    #[test]
    fn keys_equal_under_mask_get_one_result(
        ops in testing::ops(60),
        keys in keys(),
        noise in testing::noise(),
    ) {
        let tested = TableWithOracle::of(&ops);
        for version in tested.versions() {
            for key in &keys {
                let mut mask = FlowMask::EMPTY;
                let answer = tested.table.lookup_masked(key, version, &mut mask);
                for other in keys.iter().chain([&noise]) {
                    let other = outside(key, &mask, other);
                    prop_assert_eq!(tested.oracle.lookup(&other, version), answer);
                }
            }
        }
    }

    #[test]
    fn equal_hashes_change_no_result(ops in testing::ops(60), keys in keys()) {
        let mut table = TupleSpace::new(7);
        table.hashing = Hashing::colliding();
        let tested = TableWithOracle::with(table, &ops);
        for version in tested.versions() {
            for key in &keys {
                let answer = tested.oracle.lookup(key, version);
                let mut mask = FlowMask::EMPTY;
                prop_assert_eq!(tested.table.lookup_masked(key, version, &mut mask), answer);
                for other in &keys {
                    let other = outside(key, &mask, other);
                    prop_assert_eq!(tested.oracle.lookup(&other, version), answer);
                }
            }
            for (matching, rank, _) in &tested.rules {
                let found = tested.table.find_exact(matching, rank.priority, version);
                prop_assert_eq!(found, tested.oracle.find_exact(matching, rank.priority, version));
            }
        }
    }

    #[test]
    fn packets_under_the_oracle_mask_match_alike(ops in testing::ops(40), keys in keys()) {
        let tested = TableWithOracle::of(&ops);
        for version in tested.versions() {
            for key in &keys {
                let mut mask = FlowMask::EMPTY;
                let answer = tested.oracle.lookup_masked(key, version, &mut mask);
                for other in &keys {
                    let other = outside(key, &mask, other);
                    prop_assert_eq!(tested.oracle.lookup(&other, version), answer);
                }
            }
        }
    }

    #[test]
    fn masks_have_no_bits_of_lower_rules(
        ops in testing::ops(60),
        keys in keys(),
    ) {
        let tested = TableWithOracle::of(&ops);
        for version in tested.versions() {
            for key in &keys {
                let mut mask = FlowMask::EMPTY;
                let answer = tested.table.lookup_masked(key, version, &mut mask);
                let rank = answer.map(|rule| tested.rank(*rule, version));
                prop_assert!(mask.is_subset_of(&tested.mask_widest(rank)));
            }
        }
    }

    #[test]
    fn strict_find_and_listing_equal_the_oracle(ops in testing::ops(60)) {
        let tested = TableWithOracle::of(&ops);
        for version in tested.versions() {
            for (matching, rank, _) in &tested.rules {
                let found = tested.table.find_exact(matching, rank.priority, version);
                prop_assert_eq!(found, tested.oracle.find_exact(matching, rank.priority, version));
            }
            let mut listed: Vec<_> = tested.table.rules(version).map(|(m, r, id)| (id, r, m)).collect();
            let mut expected: Vec<_> = tested.oracle.rules(version).map(|(m, r, id)| (id, r, m)).collect();
            listed.sort_by_key(|(id, ..)| **id);
            expected.sort_by_key(|(id, ..)| **id);
            prop_assert_eq!(listed, expected);
        }
    }

    #[test]
    fn a_scan_in_steps_visits_each_rule_once(
        (before, during) in (testing::ops(60), testing::ops(60)),
        within in prop::option::of(testing::matching()),
        steps in 1usize..4,
        collides in any::<bool>(),
    ) {
        let mut table = TupleSpace::new(7);
        if collides {
            table.hashing = Hashing::colliding();
        }
        let mut tested = TableWithOracle::with(table, &before);
        let (seen_by, within) = (tested.version, within.unwrap_or_else(Match::any));
        let rules = tested.oracle.rules_within(&within, seen_by);
        let mut expected: Vec<u64> = rules.map(|(_, _, rule)| *rule).collect();
        tested.apply(&TableOp::Publish);
        // The rules that `seen_by` sees are not reclaimed during the scan.
        let is_kept = |tested: &TableWithOracle, behind: u64| {
            tested.version.number().saturating_sub(behind) <= seen_by.number()
        };
        let (mut position, mut visited, mut changes) = (ScanPosition::default(), Vec::new(), during.iter());
        loop {
            let mut left = steps;
            let is_complete = tested.table.scan_some(&mut position, &within, &mut left, |lifetime, rule| {
                visited.extend(lifetime.is_visible(seen_by).then_some(*rule));
            });
            if is_complete {
                break;
            }
            prop_assert_eq!(left, 0, "a step was left");
            match changes.next() {
                Some(TableOp::Reclaim(behind)) if !is_kept(&tested, *behind) => {}
                Some(op) => tested.apply(op),
                None => {}
            }
        }
        expected.sort_unstable();
        visited.sort_unstable();
        prop_assert_eq!(visited, expected);
    }

    #[test]
    fn reclaimed_rules_leave_no_trace(ops in testing::ops(60), keys in keys()) {
        let mut tested = TableWithOracle::of(&ops);
        tested.apply(&TableOp::Reclaim(0));
        let mut fresh = TupleSpace::new(7);
        for (matching, rank, rule) in tested.oracle.rules(tested.version) {
            fresh.insert(matching.clone(), rank, tested.version, *rule);
        }
        for key in &keys {
            let (mut mask, mut expected) = (FlowMask::EMPTY, FlowMask::EMPTY);
            let answer = tested.table.lookup_masked(key, tested.version, &mut mask);
            prop_assert_eq!(answer, fresh.lookup_masked(key, tested.version, &mut expected));
            prop_assert_eq!(mask, expected);
        }
    }

    #[test]
    fn all_matches_are_listed_in_priority_order(ops in testing::ops(60), keys in keys()) {
        let tested = TableWithOracle::of(&ops);
        let floors = vec![Priority::new(0); tested.rules.len() + 1];
        for version in tested.versions() {
            for key in &keys {
                let rules = tested.oracle.rules(version);
                let mut expected: Vec<_> = rules
                    .filter(|(matching, ..)| matching.matches(key))
                    .map(|(_, rank, rule)| Some((rank, *rule)))
                    .collect();
                expected.sort_by(|a, b| b.cmp(a));
                expected.resize(floors.len(), None);
                prop_assert_eq!(answers(&tested.table, key, version, &floors).0, expected);
            }
        }
    }

    #[test]
    fn keys_that_agree_under_the_mask_match_alike(
        ops in testing::ops(60),
        keys in keys(),
        floors in prop::collection::vec(testing::priority(), 1..8),
    ) {
        let tested = TableWithOracle::of(&ops);
        for version in tested.versions() {
            for key in &keys {
                let (found, mask) = answers(&tested.table, key, version, &floors);
                let (expected, of_oracle) = answers(&tested.oracle, key, version, &floors);
                prop_assert_eq!(&found, &expected);
                for other in &keys {
                    let answers_of = |mask| answers(&tested.oracle, &outside(key, mask, other), version, &floors).0;
                    prop_assert_eq!(&answers_of(&mask), &found);
                    prop_assert_eq!(&answers_of(&of_oracle), &found);
                }
            }
        }
    }

    #[test]
    fn overlaps_and_rules_within_equal_the_oracle(
        ops in testing::ops(60),
        filters in prop::collection::vec((testing::matching(), testing::priority()), 1..12),
    ) {
        let tested = TableWithOracle::of(&ops);
        let stored = tested.rules.iter().map(|(matching, rank, _)| (matching, rank.priority));
        let filters = filters.iter().map(|(matching, priority)| (matching, *priority)).chain(stored);
        for (matching, priority) in filters {
            for version in tested.versions() {
                let overlaps = tested.table.overlaps(matching, priority, version);
                prop_assert_eq!(overlaps, tested.oracle.overlaps(matching, priority, version));
                let mut within: Vec<_> = tested.table.rules_within(matching, version).collect();
                let mut expected: Vec<_> = tested.oracle.rules_within(matching, version).collect();
                within.sort_by_key(|(.., rule)| **rule);
                expected.sort_by_key(|(.., rule)| **rule);
                prop_assert_eq!(within, expected);
            }
        }
    }
}

#[test]
fn a_shrinking_table_equals_the_oracle() {
    let rules = workload::rules(900, 300, Priorities::Random);
    let packets = workload::packets(200, &rules);
    let (mut table, mut oracle) = (TupleSpace::new(3), Linear::new());
    for (matching, rank) in &rules {
        table.insert(matching.clone(), *rank, Version::ZERO, rank.age);
        oracle.insert(matching.clone(), *rank, Version::ZERO, rank.age);
    }
    for removed in rules.chunks(150) {
        for (key, other) in packets.iter().zip(packets.iter().skip(1)) {
            let answer = oracle.lookup(key, Version::ZERO);
            let mut mask = FlowMask::EMPTY;
            assert_eq!(table.lookup(key, Version::ZERO), answer);
            assert_eq!(table.lookup_masked(key, Version::ZERO, &mut mask), answer);
            assert_eq!(oracle.lookup(&outside(key, &mask, other), Version::ZERO), answer);
            let floors = [Priority::new(900), Priority::new(0), Priority::new(0)];
            let (found, mask) = answers(&table, key, Version::ZERO, &floors);
            let sibling = outside(key, &mask, other);
            assert_eq!(found, answers(&oracle, key, Version::ZERO, &floors).0);
            assert_eq!(found, answers(&oracle, &sibling, Version::ZERO, &floors).0);
        }
        for (matching, rank) in removed {
            table.remove(matching, *rank, Version::ZERO);
            oracle.remove(matching, *rank, Version::ZERO);
        }
        table.reclaim(Version::ZERO);
        oracle.reclaim(Version::ZERO);
    }
    assert!(table.is_empty());
}

/// Returns a key with an ingress port, and a match that uses a gate for that port.
/// The match fixes the port and one more bit.
fn behind_port(port: u128, field: FieldId) -> (FlowKey, Match) {
    let mut key = FlowKey::ZERO;
    key.set_field(FieldId::InPort, port);
    let mut mask = FlowMask::EMPTY;
    mask.add_field(FieldId::InPort);
    mask.add_bits(field, 1);
    let matching = Match::new(&key, &mask);
    (key, matching)
}

#[test]
fn a_gate_is_freed_with_its_last_subtable() {
    let mut table = TupleSpace::new(5);
    let rank = |age| Rank { priority: Priority::DEFAULT, age };
    let (key, matching) = behind_port(1, FieldId::IpProto);
    let (_, other) = behind_port(2, FieldId::IpProto);
    table.insert(matching.clone(), rank(0), Version::ZERO, 0);
    table.insert(other.clone(), rank(1), Version::ZERO, 1);
    let gate = table.order[0].gate;
    assert_eq!(Search::new(&table, &key).open(&table.blocks[0], 1), 1);
    table.remove(&matching, rank(0), Version::ZERO);
    table.reclaim(Version::ZERO);
    assert_eq!(Search::new(&table, &key).open(&table.blocks[0], 1), 0);

    table.remove(&other, rank(1), Version::ZERO);
    table.reclaim(Version::ZERO);
    let mut mask = FlowMask::from(matching.mask());
    mask.add_field(FieldId::EthType);
    table.insert(Match::new(&key, &mask), rank(2), Version::ZERO, 2);
    assert_eq!(table.order[0].gate, gate);
}

#[test]
fn masks_that_begin_alike_share_a_gate() {
    let mut table = TupleSpace::new(5);
    for (age, field) in (0..).zip([FieldId::IpProto, FieldId::IpDscp]) {
        let (_, matching) = behind_port(1, field);
        table.insert(matching, Rank { priority: Priority::DEFAULT, age }, Version::ZERO, age);
    }
    assert!(table.order[0].gate.is_some());
    assert_eq!(table.order[0].gate, table.order[1].gate);
}

#[test]
fn removed_rules_leave_no_values_or_subtables() {
    let mut table = TupleSpace::new(5);
    let stays = behind_port(1, FieldId::IpProto).1;
    let rank = |age| Rank { priority: Priority::DEFAULT, age };
    table.insert(stays, rank(0), Version::ZERO, 0);
    for (age, port) in (1..).zip(2..20) {
        for field in [FieldId::IpProto, FieldId::IpDscp, FieldId::NwTtl] {
            let (_, matching) = behind_port(port, field);
            table.insert(matching.clone(), rank(age), Version::ZERO, age);
            table.remove(&matching, rank(age), Version::ZERO);
            table.reclaim(Version::ZERO);
        }
    }
    assert_eq!(table.subtables.len(), 2, "one is used, and one again and again");
    assert_eq!(table.subtables[0].chains().count(), 1);
}

#[test]
fn scan_of_one_match_pauses_often() {
    let mut table = TupleSpace::new(5);
    let matching = behind_port(1, FieldId::IpProto).1;
    for age in 0..1000 {
        let rank = Rank { priority: Priority::DEFAULT, age };
        table.insert(matching.clone(), rank, Version::ZERO, age);
    }
    let (mut position, mut visited) = (ScanPosition::default(), Vec::new());
    loop {
        let (mut left, before) = (10, visited.len());
        let is_complete = table.scan_some(&mut position, &matching, &mut left, |_, rule| {
            visited.push(*rule);
        });
        assert!(visited.len() - before <= 10);
        if is_complete {
            break;
        }
    }
    visited.sort_unstable();
    assert_eq!(visited, (0..1000).collect::<Vec<_>>());
}
