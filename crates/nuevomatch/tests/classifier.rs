//! Compares the classifier with a linear scan.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic when a test fails")]

use proptest::{collection::vec, prelude::*};
use shunt_nuevomatch::{
    BestMatch, BoxRule, BucketCapacity, Error, FieldMatch, KeySchema, LaneFit, LinearSegments,
    NuevoMatch, NuevoMatchSettings, PartitionSettings, PriorityRule, SegmentSettings, StartIndex,
    rqrmi::{CertifiedModel, TrainingSettings},
};

/// The widths of an address, of a field of two lanes, and of a small field.
const WIDTHS: [u32; 3] = [32, 40, 3];

type Rule = PriorityRule<4>;
type Key = [u32; 4];

fn schema() -> KeySchema {
    KeySchema::new(&WIDTHS).unwrap()
}

fn max(field: usize) -> u128 {
    (1 << WIDTHS[field]) - 1
}

/// Generates matches of every kind that often touch, nest and cross.
fn field(field: usize) -> impl Strategy<Value = FieldMatch> {
    let (max, bits) = (max(field), WIDTHS[field]);
    let value = prop_oneof![
        0_u128..40,
        (0_u128..8).prop_map(move |below| max - below % max),
        any::<u128>()
    ]
    .prop_map(move |value| value & max);
    prop_oneof![
        2 => Just(FieldMatch::Any),
        2 => value.clone().prop_map(FieldMatch::Exact),
        2 => (value.clone(), 0..=bits)
            .prop_map(|(value, length)| FieldMatch::Prefix { value, length }),
        1 => (value.clone(), value.clone(), 0_u32..7).prop_map(move |(a, b, free)| {
            if bits > 32 {
                let free = (1 << free) - 1;
                return FieldMatch::Range { low: a & !free, high: a | free };
            }
            FieldMatch::Range { low: a.min(b), high: a.max(b) }
        }),
        1 => (value, any::<u128>(), any::<u128>()).prop_map(move |(value, a, b)| {
            FieldMatch::Mask { value, mask: a & b & max }
        }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let fields = (field(0), field(1), field(2));
    (fields, 0_u32..50, 0_u32..1000).prop_map(|((a, b, c), priority, value)| {
        Rule::new(&schema(), &[a, b, c], priority, value).unwrap()
    })
}

fn settings() -> impl Strategy<Value = NuevoMatchSettings> {
    (0_usize..6, 1_usize..65, 0_usize..101, any::<bool>(), any::<u64>()).prop_map(
        |(sets_max, bucket_rules, spare_percent, by_cost, seed)| NuevoMatchSettings {
            partition: PartitionSettings {
                sets_max,
                bucket_rules,
                spare_percent,
                coverage_permille_min: 10,
            },
            capacity: if by_cost { BucketCapacity::ByCost } else { BucketCapacity::Fixed },
            seed,
        },
    )
}

fn keys() -> impl Strategy<Value = Vec<(usize, Key)>> {
    vec((any::<usize>(), any::<Key>()), 1..80)
}

/// Returns keys in rules, keys next to rules, and any keys.
fn keys_near(rules: &[Rule], seeds: &[(usize, Key)]) -> Vec<Key> {
    let key = |(at, any): &(usize, Key)| {
        let Some(rule) = rules.get(at % rules.len().max(1)) else { return *any };
        let rule = rule.as_box();
        std::array::from_fn(|lane| match any[lane] % 6 {
            0 | 1 => rule.low[lane],
            2 => rule.high[lane],
            3 => rule.low[lane].wrapping_sub(1),
            4 => rule.high[lane].wrapping_add(1),
            _ => any[lane],
        })
    };
    seeds.iter().map(key).collect()
}

/// Returns a key without the bits above the widths of lanes.
fn inside(key: &Key) -> Key {
    let lane_max = [u32::MAX, u32::MAX, 0xff, 7];
    std::array::from_fn(|lane| key[lane] & lane_max[lane])
}

/// Returns the matching rule with the least priority, then least value: the oracle.
fn scan(rules: &[Rule], key: &Key) -> Option<BestMatch> {
    let inside = inside(key);
    let matching = rules.iter().filter(|rule| rule.matches(&inside));
    let (priority, value) = matching.map(|rule| (rule.priority(), rule.value())).min()?;
    Some(BestMatch { priority, value })
}

fn check<I: StartIndex>(classifier: &NuevoMatch<4, I>, rules: &[Rule], keys: &[Key]) {
    let mut best = vec![None; keys.len()];
    classifier.lookup_batch(keys, &mut best);
    for (key, best) in keys.iter().zip(best) {
        assert_eq!(best, scan(rules, key), "{key:?}");
        assert_eq!(classifier.lookup(key), best, "one key and a batch agree on {key:?}");
    }
    check_accepted(classifier, rules, keys);
    assert_eq!(classifier.len(), rules.len());
    let order = |rule: &Rule| (rule.priority(), rule.value(), format!("{rule:?}"));
    let (mut held, mut expected) = (classifier.rules(), rules.to_vec());
    held.sort_by_key(order);
    expected.sort_by_key(order);
    assert_eq!(held, expected);
}

/// Checks that the best rule wins of those rules that the caller accepts.
fn check_accepted<I: StartIndex>(classifier: &NuevoMatch<4, I>, rules: &[Rule], keys: &[Key]) {
    let mut best = vec![None; keys.len()];
    let accepts = |key: usize, value: u32| !(value as usize + key).is_multiple_of(3);
    classifier.lookup_accepted(keys, &mut best, accepts);
    for (at, (key, best)) in keys.iter().zip(best).enumerate() {
        let accepted: Vec<Rule> =
            rules.iter().filter(|rule| accepts(at, rule.value())).copied().collect();
        assert_eq!(best, scan(&accepted, key), "{key:?}");
    }
}

/// Checks that keys which agree under the mask of a lookup have its result.
///
/// All other keys have bits of keys near rules wherever the mask allows them.
fn check_masks(classifier: &NuevoMatch<4>, rules: &[Rule], keys: &[Key]) {
    for key in keys {
        let mut mask = [0; 4];
        let best = classifier.lookup_masked(key, &mut mask);
        assert_eq!(best, scan(rules, key), "{key:?}");
        for other in keys {
            let same =
                std::array::from_fn(|lane| key[lane] & mask[lane] | other[lane] & !mask[lane]);
            assert_eq!(scan(rules, &same), best, "{key:?} under {mask:x?} covers {same:?}");
        }
    }
}

/// Checks masks of lookups that do not accept some rules.
///
/// Rules with an even value are not seen. Of the others, those with a multiple of 5 are excluded
/// by the caller, as by bits outside of the lanes. Any change of the bits outside of a mask must
/// keep the result. The mask has only the bits of the winner before `prove` adds bits to it.
fn check_proofs(classifier: &NuevoMatch<4>, rules: &[Rule], keys: &[Key]) {
    let is_seen = |value: u32| !value.is_multiple_of(2);
    let accepts = |value: u32| is_seen(value) && !value.is_multiple_of(5);
    let accepted: Vec<Rule> = rules.iter().filter(|rule| accepts(rule.value())).copied().collect();
    for key in keys {
        let mut best = [None];
        classifier.lookup_accepted(&[*key], &mut best, |_, value| accepts(value));
        let winner = best[0].map_or(u64::MAX, |best| order(best.priority, best.value));
        let mut mask = best[0].map_or([0; 4], |best| winner_bits(&accepted, best, key));
        let mut excluded = Vec::new();
        classifier.prove(key, best[0], &mut mask, |value, fit| {
            if fit == LaneFit::Same && is_seen(value) {
                excluded.push(value);
            }
            accepts(value)
        });
        let matching = rules.iter().filter(|rule| rule.matches(&inside(key)));
        let rejected = matching.filter(|rule| is_seen(rule.value()) && !accepts(rule.value()));
        for rule in rejected.filter(|rule| order(rule.priority(), rule.value()) < winner) {
            assert!(excluded.contains(&rule.value()), "the caller has to exclude {rule:?}");
        }
        let single = keys.first() == Some(key);
        for other in other_keys(key, keys, single) {
            let same =
                std::array::from_fn(|lane| key[lane] & mask[lane] | other[lane] & !mask[lane]);
            assert_eq!(scan(&accepted, &same), best[0], "{key:?} under {mask:x?} covers {same:?}");
        }
    }
}

/// Returns bits that keep a key in the winning rule, whatever its other bits are.
///
/// The first rule with the rank of `best` that matches is the winner. All other bits of the winner
/// are added from the lowest one of each lane on, as long as the keys stay in its bounds.
fn winner_bits(rules: &[Rule], best: BestMatch, key: &Key) -> Key {
    let (key, rank) = (inside(key), (best.priority, best.value));
    let is_winner = |rule: &&Rule| (rule.priority(), rule.value()) == rank && rule.matches(&key);
    let winner = rules.iter().find(is_winner).unwrap();
    let (bounds, all) = (winner.as_box(), inside(&[u32::MAX; 4]));
    std::array::from_fn(|lane| {
        let mut free = 0;
        for bit in (0..32).map(|bit| 1_u32 << bit).filter(|bit| all[lane] & bit != 0) {
            let (more, mut flipped) = (free | bit, key);
            flipped[lane] ^= bit;
            let is_inside =
                bounds.low[lane] <= key[lane] & !more && key[lane] | more <= bounds.high[lane];
            if is_inside && winner.matches(&flipped) {
                free = more;
            }
        }
        all[lane] & !free
    })
}

/// Returns other keys, and the key with random bits flipped.
///
/// With `single`, each bit is also flipped alone.
fn other_keys(key: &Key, keys: &[Key], single: bool) -> Vec<Key> {
    let mut seed = key.iter().fold(1_u64, |seed, word| seed.rotate_left(32) ^ u64::from(*word));
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(seed >> 32).unwrap()
    };
    let mut others = keys.to_vec();
    for density in (0..16).map(|number| number % 4) {
        // A bit flips with a probability of a half, a quarter, an eighth or a sixteenth.
        let mut flips = || (0..density).fold(random(), |bits, _| bits & random());
        others.push(key.map(|word| word ^ flips()));
    }
    if single {
        for bit in 0..128 {
            let mut other = *key;
            other[bit / 32] ^= 1 << (bit % 32);
            others.push(other);
        }
    }
    others
}

fn order(priority: u32, value: u32) -> u64 {
    u64::from(priority) << 32 | u64::from(value)
}

fn build(rules: &[Rule], settings: &NuevoMatchSettings) -> NuevoMatch<4> {
    NuevoMatch::build(&schema(), rules, settings).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..Default::default() })]

    #[test]
    fn a_lookup_equals_a_scan(
        rules in vec(rule(), 0..400),
        settings in settings(),
        seeds in keys(),
    ) {
        check(&build(&rules, &settings), &rules, &keys_near(&rules, &seeds));
    }

    #[test]
    fn after_updates_lookups_equal_a_linear_scan(
        rules in vec(rule(), 0..100),
        settings in settings(),
        ops in vec((any::<bool>(), rule(), any::<usize>()), 0..300),
        seeds in keys(),
    ) {
        let mut classifier = build(&rules, &settings);
        let (mut all, mut current) = (rules.clone(), rules);
        for (inserts, rule, at) in ops {
            if inserts || current.is_empty() {
                prop_assert!(classifier.insert(&rule));
                current.push(rule);
                all.push(rule);
            } else {
                let rule = current.swap_remove(at % current.len());
                prop_assert!(classifier.remove(&rule));
                if !current.contains(&rule) {
                    prop_assert!(!classifier.remove(&rule));
                }
            }
        }
        check(&classifier, &current, &keys_near(&all, &seeds));
    }

    #[test]
    fn keys_under_a_mask_have_one_result(
        rules in vec(rule(), 0..400),
        settings in settings(),
        added in vec(rule(), 0..50),
        seeds in keys(),
    ) {
        let mut classifier = build(&rules, &settings);
        let removed = rules.len() / 3;
        prop_assert!(rules[..removed].iter().all(|rule| classifier.remove(rule)));
        prop_assert!(added.iter().all(|rule| classifier.insert(rule)));
        let current = [&rules[removed..], &added].concat();
        let keys = keys_near(&current, &seeds);
        check_masks(&classifier, &current, &keys);
        check_proofs(&classifier, &current, &keys);
    }
}

/// The rules of a property, with the keys of its lookups.
struct RuleChanges<'a> {
    settings: NuevoMatchSettings,
    rules: &'a [Rule],
    added: &'a [Rule],
    seeds: &'a [(usize, Key)],
}

impl RuleChanges<'_> {
    /// Compares a classifier with an index with a scan, also after changes.
    fn check_index<I: StartIndex>(&self, index: &I::Settings) {
        let Self { settings, rules, added, seeds } = self;
        let built = NuevoMatch::<4, I>::build_with(&schema(), rules, settings, index);
        let mut classifier = built.unwrap();
        check(&classifier, rules, &keys_near(rules, seeds));
        let removed = rules.len() / 3;
        assert!(rules[..removed].iter().all(|rule| classifier.remove(rule)));
        assert!(added.iter().all(|rule| classifier.insert(rule)));
        let current = [&rules[removed..], added].concat();
        check(&classifier, &current, &keys_near(&current, seeds));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..Default::default() })]

    /// A certificate makes every lookup right, so few samples are enough here.
    #[test]
    fn learned_indexes_equal_a_scan(
        rules in vec(rule(), 0..300),
        settings in settings(),
        added in vec(rule(), 0..50),
        seeds in keys(),
    ) {
        let changes = RuleChanges { settings, rules: &rules, added: &added, seeds: &seeds };
        let training = TrainingSettings { samples: 64, attempts_max: 1, ..Default::default() };
        changes.check_index::<CertifiedModel>(&training);
        changes.check_index::<LinearSegments>(&SegmentSettings::default());
    }
}

fn rule_for_all(priority: u32, value: u32) -> Rule {
    Rule::new(&schema(), &[FieldMatch::Any; 3], priority, value).unwrap()
}

#[test]
fn an_empty_classifier_matches_nothing() {
    let mut classifier = build(&[], &NuevoMatchSettings::default());
    check(&classifier, &[], &[[0; 4], [u32::MAX; 4]]);
    assert!(!classifier.remove(&rule_for_all(1, 1)) && classifier.insert(&rule_for_all(1, 1)));
    check(&classifier, &[rule_for_all(1, 1)], &[[0; 4], [u32::MAX; 4]]);
}

#[test]
fn a_thousand_overlapping_rules_are_in_order() {
    let rules: Vec<Rule> = (0..1000).map(|i| rule_for_all(i / 3, 1000 - i)).collect();
    let mut classifier = build(&rules, &NuevoMatchSettings::default());
    let mut left = rules;
    for at in [0, 500, 0, 0, 0, 990, 7] {
        check(&classifier, &left, &[[5; 4]]);
        let rule = left.remove(at);
        assert!(classifier.remove(&rule));
    }
    check(&classifier, &left, &[[5; 4]]);
}

#[test]
fn equal_priorities_have_one_winner() {
    let rules: Vec<Rule> = [9, 3, 7].map(|value| rule_for_all(4, value)).to_vec();
    let classifier = build(&rules, &NuevoMatchSettings::default());
    assert_eq!(classifier.lookup(&[1; 4]), Some(BestMatch { priority: 4, value: 3 }));
}

/// Tests rules with ten thousand tuples, where nearly every rule has its own tuple.
#[test]
fn the_number_of_hash_tables_is_bounded() {
    let mut rules = Vec::new();
    for i in 0..6000_u32 {
        let value = u128::from(i.wrapping_mul(0x9e37_79b9));
        let address = FieldMatch::Mask { value, mask: value | 0x8000_0001 };
        let wide = FieldMatch::Prefix { value: value & max(1), length: i % 41 };
        rules.push(Rule::new(&schema(), &[address, wide, FieldMatch::Any], i, i).unwrap());
    }
    let partition = PartitionSettings { sets_max: 0, ..Default::default() };
    let settings = NuevoMatchSettings { partition, ..Default::default() };
    let classifier = build(&rules, &settings);
    let statistics = classifier.statistics();
    assert_eq!(statistics.remainder_rules, 6000);
    assert!((1..=64).contains(&statistics.remainder_tables), "{statistics:?}");
    let seeds: Vec<(usize, Key)> =
        (0_u32..500).map(|i| (i as usize * 7, [i, i / 6, i / 36, 0])).collect();
    check(&classifier, &rules, &keys_near(&rules, &seeds));
}

#[test]
fn a_rule_of_another_schema_is_refused() {
    let outside = BoxRule { low: [0; 4], high: [1, 1, 1, 8], value: 1 };
    let outside = Rule::from_box(&outside, 1).unwrap();
    let settings = NuevoMatchSettings::default();
    let error =
        NuevoMatch::<4>::build(&schema(), &[rule_for_all(0, 0), outside], &settings).unwrap_err();
    assert_eq!(error, Error::OutsideLane { rule: 1, lane: 3, high: 8, max: 7 });
    let mut classifier = build(&[rule_for_all(0, 0)], &settings);
    assert!(!classifier.insert(&outside) && !classifier.remove(&outside));
}

#[test]
fn disjoint_exact_rules_fill_one_iset() {
    let point = |i: u32| {
        let fields = [FieldMatch::Exact(u128::from(i) * 5), FieldMatch::Any, FieldMatch::Any];
        Rule::new(&schema(), &fields, i, i).unwrap()
    };
    let rules: Vec<Rule> = (0..3000).map(point).collect();
    let classifier = build(&rules, &NuevoMatchSettings::default());
    let statistics = classifier.statistics();
    assert_eq!((statistics.rules, statistics.remainder_rules), (3000, 0));
    assert_eq!(statistics.sets.len(), 1);
    assert_eq!((statistics.sets[0].lane, statistics.sets[0].rules), (0, 3000));
    assert!((statistics.coverage() - 1.0).abs() < 1e-9);
    assert!((20 * 3000..80 * 3000).contains(&statistics.bytes), "{statistics:?}");
}

/// The statistics of a learned index have its certified error, in buckets.
#[test]
fn statistics_have_the_error_of_learned_indexes() {
    let point = |i: u32| {
        let address = FieldMatch::Exact(u128::from(i.wrapping_mul(0x9e37_79b9)));
        Rule::new(&schema(), &[address, FieldMatch::Any, FieldMatch::Any], i, i).unwrap()
    };
    let rules: Vec<Rule> = (0..3000).map(point).collect();
    let partition = PartitionSettings { bucket_rules: 1, ..Default::default() };
    let settings =
        NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, ..Default::default() };
    let tree = build(&rules, &settings).statistics();
    assert_eq!(tree.sets[0].certified_error, None);
    let model = NuevoMatch::<4, CertifiedModel>::build(&schema(), &rules, &settings).unwrap();
    let error = model.statistics().sets[0].certified_error.unwrap();
    assert!(error <= 128, "{error}");
    let segments = NuevoMatch::<4, LinearSegments>::build(&schema(), &rules, &settings).unwrap();
    let error = segments.statistics().sets[0].certified_error.unwrap();
    assert!(error <= 7, "{error}");
}
